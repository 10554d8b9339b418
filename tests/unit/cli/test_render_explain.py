# SPDX-License-Identifier: Apache-2.0
"""The report as text and as a document."""

import json
from typing import Any

from msgspec.structs import replace

from dra_driver.cli.render_explain import document, text
from dra_driver.explain.outcome import (
    Change,
    ClaimReport,
    DeviceGroup,
    NearestMiss,
    NodeGroup,
    Report,
    RequestReport,
)
from dra_driver.explain.remedy import fix
from dra_driver.explain.verdict import (
    AdminAccessNotAllowed,
    ChosenDevice,
    ClaimAllocatedElsewhere,
    ClassMissing,
    CompileError,
    ConstraintConflict,
    FeatureOff,
    Fits,
    HeldByClaim,
    NodeResources,
    NodeTainted,
    NodeUnschedulable,
    NoDevices,
    SchedulingGated,
    SelectorError,
    SelectorFalse,
    Tainted,
    TooManyDevices,
    Verdict,
)
from dra_driver.model.cluster import NotRead

SMALL = SelectorFalse("request", 0, "p", "memory 40Gi < 80Gi")
TAINTED = Tainted("k:NoSchedule")
CHOSEN = ChosenDevice("ns/c", "gpu", "d", "p", "gpu-0")


def report(exit_code: int = 1, **parts: Any) -> Report:
    return Report(
        subject="pod ns/p",
        outcome="devices do not fit",
        exit_code=exit_code,
        summary="the devices fit on no node (3 looked at)",
        **parts,
    )


def lines(given: Report, width: int = 80) -> list[str]:
    return text(given, width=width, color=False)


def of_request(**parts: Any) -> Report:
    request = RequestReport(name="gpu", asks="1 x gpu", **parts)
    return report(exit_code=0, claims=(ClaimReport(name="ns/c", requests=(request,)),))


def test_devices_are_counted_by_reason_and_holders_are_told_together() -> None:
    groups = [
        DeviceGroup(verdict=Fits(), count=1),
        DeviceGroup(verdict=SMALL, count=1024, examples=("d/p/a",)),
        DeviceGroup(verdict=TAINTED, count=1, examples=("d/p/b",), since="2026"),
        *(DeviceGroup(verdict=HeldByClaim(f"ns/{n}"), count=2) for n in range(5)),
    ]
    nearest = NearestMiss(device="d/p/b", node="node n", reasons=(TAINTED,))
    assert lines(of_request(devices=tuple(groups), nearest=nearest))[3:] == [
        "Claim ns/c",
        "  request gpu: 1 x gpu",
        "    - 1 device: can be had",
        "    - 10 devices match: held by ns/0 (no pod), ns/1 (no pod), ns/2 (no pod),",
        "      ns/3 (no pod), … (5 claims)",
        "    - 1 device matches (d/p/b): tainted k:NoSchedule, since 2026",
        "    - 1,024 devices: memory 40Gi < 80Gi (for example d/p/a)",
    ]


def test_an_error_that_the_summary_quotes_is_not_quoted_again() -> None:
    error = SelectorError("request", 0, "p == 1", "no such key: p", "d/p/a has no attribute p")
    request = RequestReport(name="gpu", asks="1 x gpu", verdicts=(error,))
    given = Report(
        subject="pod ns/p",
        outcome="devices do not fit",
        exit_code=1,
        summary="the scheduler gives up on all nodes: CEL runtime error: no such key: p",
        claims=(ClaimReport(name="ns/c", requests=(request,)),),
    )
    assert "    - p == 1: d/p/a has no attribute p" in lines(given)
    assert f"    - {error}" in text(of_request(verdicts=(error,)), width=200, color=False)
    plain = replace(error, hint="on d/p/a")
    asking = replace(request, verdicts=(plain,))
    told = replace(given, claims=(ClaimReport(name="ns/c", requests=(asking,)),))
    assert "    - p == 1: no such key: p on d/p/a" in lines(told)


def test_one_holder_is_told_with_its_pods() -> None:
    held = DeviceGroup(verdict=HeldByClaim("ns/a", ("ns/p",)), count=2)
    assert (
        lines(of_request(devices=(held,)))[-1]
        == "    - 2 devices match: held by ns/a, used by ns/p"
    )


def test_many_reasons_are_cut_and_long_requests_shortened() -> None:
    groups = tuple(
        DeviceGroup(verdict=SelectorFalse("request", 0, "p", f"n {n}"), count=1) for n in range(14)
    )
    assert lines(of_request(devices=groups))[-1] == "    - 2 devices: 2 other reasons, … (-o json)"
    request = RequestReport(name="gpu", asks="x " * 400)
    long = report(exit_code=0, claims=(ClaimReport(name="c", requests=(request,)),))
    shown = lines(long)
    assert shown[-1].endswith("…")
    assert len(shown) < 10


def test_the_compilers_caret_stays_where_it_points() -> None:
    error = CompileError("request", 0, "ERROR: <input>:1:2: no\n | a b\n | .^", "Write it well.")
    assert lines(of_request(verdicts=(error, NoDevices())))[5:] == [
        "    - request selector #0 does not compile:",
        "        ERROR: <input>:1:2: no",
        "         | a b",
        "         | .^",
        "        Write it well.",
        "    - no driver publishes any device in this cluster",
    ]
    plain = CompileError("request", 0, "ERROR: x")
    assert lines(of_request(verdicts=(plain,)))[-1] == "        ERROR: x"


def test_nodes_are_told_together_with_what_holds_the_pod_besides() -> None:
    taint = NodeTainted("t")
    nodes = (
        NodeGroup(count=1, nodes=("a",), placement=(CHOSEN,)),
        NodeGroup(count=1, nodes=("b",), pod=(taint,)),
        NodeGroup(count=6, nodes=tuple("cdefgh"), devices=(SMALL,), pod=(taint,)),
        *(
            NodeGroup(count=2, nodes=("x", "y"), devices=(Tainted(f"{n}:NoSchedule"),))
            for n in range(7)
        ),
    )
    shown = lines(report(exit_code=3, nodes=nodes))
    assert shown[3:7] == [
        "Nodes",
        "  - a: the devices fit (gpu = d/p/gpu-0)",
        "  - b: the devices fit, but the node has taint t",
        "  - x, y: tainted 0:NoSchedule",
    ]
    assert "  - 8 more nodes with other reasons, … (-o json)" in shown
    assert shown[-3:] == [
        "What to do",
        "  - node b: add a toleration to the pod (`spec.tolerations`; not the one in the",
        "    claim)",
    ]


def test_what_keeps_the_pod_besides_is_told_after_the_devices() -> None:
    nodes = (NodeGroup(count=6, nodes=tuple("cdefgh"), devices=(SMALL,), pod=(NodeTainted("t"),)),)
    assert lines(report(nodes=nodes))[4] == (
        "  - c, d, e, f, … (6): memory 40Gi < 80Gi; besides, the node has taint t"
    )


def test_what_was_tried_out_stands_instead_of_advice() -> None:
    changes = (Change(what="tolerate k", on="n"), Change(what="wait"))
    nodes = (NodeGroup(count=1, nodes=("n",), devices=(TAINTED,)),)
    shown = lines(report(nodes=nodes, changes=changes))
    assert shown[3:6] == [
        "What would help (tried out)",
        "  - tolerate k -> fits on n",
        "  - wait",
    ]
    assert "What to do" in lines(report(nodes=nodes))


def advice(given: Report) -> list[str]:
    shown = lines(given, 200)
    return shown[shown.index("What to do") + 1 :] if "What to do" in shown else []


def of_requests(*requests: RequestReport, **parts: Any) -> Report:
    return report(claims=(ClaimReport(name="ns/c", requests=requests),), **parts)


def test_one_cause_is_one_line_with_all_objects_that_it_concerns() -> None:
    missing = ClassMissing("nope")
    requests = [
        RequestReport(name=f"r{n}", asks="1 x gpu", verdicts=(FeatureOff("G", "w"), missing))
        for n in range(6)
    ]
    off, absent = fix(FeatureOff("G", "w")), fix(missing)
    named = ", ".join(f"request r{n} of claim ns/c" for n in range(4))
    shown = " ".join(line.strip() for line in advice(of_requests(*requests)))
    assert shown == f"- {named}, … (6): {off} - device class nope: {absent}"


def test_the_nearest_miss_advises_where_the_request_itself_says_nothing() -> None:
    nearest = NearestMiss(device="d/p/b", node="", reasons=(HeldByClaim("ns/h"),))
    silent = RequestReport(name="gpu", asks="1 x gpu", nearest=nearest)
    nodes = (NodeGroup(count=1, nodes=("n",), devices=(SMALL,)),)
    assert advice(of_requests(silent, nodes=nodes)) == [
        f"  - claim ns/h: {fix(HeldByClaim('ns/h'))}"
    ]
    both = of_requests(silent, silent, nodes=nodes)
    assert advice(both) == [f"  - node n: {fix(SMALL)}"]
    told = RequestReport(name="gpu", asks="1 x gpu", verdicts=(NoDevices(),), nearest=nearest)
    assert advice(of_requests(told)) == [f"  - request gpu of claim ns/c: {fix(NoDevices())}"]


def test_a_node_with_more_in_the_way_than_another_one_is_not_advised() -> None:
    """Amounts make no difference."""
    taint = NodeTainted("t")
    repelled = NodeGroup(count=1, nodes=("a",), pod=(taint, NodeResources("cpu", "9", "1")))
    small = NodeGroup(count=1, nodes=("b",), pod=(NodeResources("cpu", "9", "2"),))
    told = NodeGroup(count=1, nodes=("c",), devices=(SMALL,), pod=(taint,))
    one = report(exit_code=3, nodes=(repelled, small, told))
    assert advice(one) == [f"  - node b: {fix(small.pod[0])}"]
    alone = advice(report(exit_code=3, nodes=(repelled, told)))
    assert alone == [f"  - node a: {fix(each)}" for each in repelled.pod]


def test_what_to_do_about_a_claim_of_the_scheduler_is_not_to_edit_it() -> None:
    def advised(**parts: Any) -> str:
        return " ".join(" ".join(lines(report(**parts))).split())

    request = RequestReport(name="gpu", asks="1 x gpu", verdicts=(TooManyDevices(33),))
    node = NodeGroup(count=1, nodes=("n",), devices=(TAINTED,))
    for scheduler, many, tainted in (
        (
            True,
            "gpu of claim ns/c: write several ResourceClaims",
            "node n: repair what the taint says, remove the DeviceTaintRule, or write a ResourceClaim",
        ),
        (
            False,
            "gpu of claim ns/c: spread the devices",
            "node n: repair what the taint says, remove the DeviceTaintRule, or add a toleration",
        ),
    ):
        claim = ClaimReport(name="ns/c", of_scheduler=scheduler)
        asked = ClaimReport(name="ns/c", of_scheduler=scheduler, requests=(request,))
        assert many in advised(claims=(asked,))
        assert tainted in advised(claims=(claim,), nodes=(node,))
        assert (
            "write several" in advised(claims=(claim,), verdicts=(TooManyDevices(33),))
        ) == scheduler


def test_a_device_of_the_pods_own_claim_is_not_to_be_freed() -> None:
    nearest = NearestMiss(device="d/p/b", node="", reasons=(HeldByClaim("ns/own"),))
    request = RequestReport(name="gpu", asks="1 x gpu", nearest=nearest)
    claims = (ClaimReport(name="ns/own"), ClaimReport(name="ns/c", requests=(request,)))
    said = " ".join(" ".join(lines(report(claims=claims))).split())
    assert "- claim ns/own: the pod needs this claim as well, so it stays: " in said


def test_what_a_change_solves_is_not_advised_again() -> None:
    request = RequestReport(name="gpu", asks="1 x gpu", verdicts=(NoDevices(),))
    gated = SchedulingGated(("g",))
    together = ConstraintConflict(("a", "b"))
    both = of_requests(request, verdicts=(together, gated), changes=(Change(what="c", on="n"),))
    assert advice(both) == [f"  - pod ns/p: {fix(gated)}"]
    assert f"  - pod ns/p: {fix(together)}" in advice(report(verdicts=(together,)))


def test_nodes_advise_only_where_nothing_else_does() -> None:
    nodes = (
        NodeGroup(count=2, nodes=("a", "b"), pod=(NodeUnschedulable(),)),
        NodeGroup(count=1, nodes=("c",), devices=(ClaimAllocatedElsewhere("ns/c", "w"),)),
    )
    cordoned = f"  - nodes a, b: {fix(NodeUnschedulable())}"
    elsewhere = f"  - claim ns/c: {fix(ClaimAllocatedElsewhere('ns/c', 'w'))}"
    assert advice(report(nodes=nodes)) == [cordoned, elsewhere]
    assert advice(report(3, nodes=nodes)) == [cordoned]
    assert advice(report(2, nodes=nodes[1:])) == []


def test_nodes_of_several_groups_are_advised_together() -> None:
    cordoned = NodeUnschedulable()
    nodes = (
        NodeGroup(count=2, nodes=("a", "b"), pod=(cordoned, NodeResources("cpu", "2", "1"))),
        NodeGroup(count=1, nodes=("c",), pod=(cordoned, NodeTainted("t"))),
    )
    assert advice(report(3, nodes=nodes, verdicts=(cordoned,))) == [
        f"  - pod ns/p, nodes a, b, c: {fix(cordoned)}",
        f"  - nodes a, b: {fix(NodeResources('cpu', '2', '1'))}",
        f"  - node c: {fix(NodeTainted('t'))}",
    ]
    many = (NodeGroup(count=6, nodes=tuple("abcdef"), pod=(cordoned,)),)
    assert advice(report(3, nodes=many)) == [f"  - nodes a, b, c, d, … (6): {fix(cordoned)}"]


def test_a_class_without_a_name_is_looked_for_in_its_request() -> None:
    nameless = ClassMissing("")
    request = RequestReport(name="gpu", asks="1 x ", verdicts=(nameless,))
    assert str(nameless) == "the request names no device class"
    assert advice(of_requests(request)) == [f"  - request gpu of claim ns/c: {fix(nameless)}"]


def test_a_claim_tells_where_it_comes_from_and_what_it_has() -> None:
    claim = ClaimReport(
        name="ns/c", origin="template ns/t", verdicts=(NoDevices(),), allocated=(CHOSEN,)
    )
    assert lines(report(exit_code=0, claims=(claim,), verdicts=(Fits(), NodeUnschedulable())))[
        2:
    ] == [
        "  the node is cordoned",
        "",
        "Claim ns/c, from template ns/t",
        "  no driver publishes any device in this cluster",
        "  has d/p/gpu-0 for request gpu",
    ]


def test_what_could_not_be_read_stands_last_and_gates_are_a_quiet_line() -> None:
    gaps = (
        NotRead(resource="/metrics", reason="forbidden", message="x"),
        NotRead(resource="pods", reason="malformed", name="ns/p", message="look at it"),
    )
    assert lines(report(exit_code=0, not_read=gaps))[2:] == [
        "",
        "Feature gates: the defaults of the newest release are assumed (/metrics may not",
        "be read).",
        "",
        "Could not be read",
        "  - pods ns/p (malformed): look at it",
    ]
    only = lines(report(exit_code=0, not_read=gaps[1:]))
    assert only[3] == "Could not be read"


def test_of_much_that_could_not_be_read_the_first_is_shown() -> None:
    """Anybody who may create pods can create thousands that cannot be counted."""
    many = tuple(
        NotRead(resource="pods", reason="malformed", name=f"ns/p{number}", message="look at it")
        for number in range(1009)
    )
    shown = lines(report(exit_code=0, not_read=many))
    assert shown[3:5] == ["Could not be read", "  - pods ns/p0 (malformed): look at it"]
    assert shown[-2:] == [
        "  - pods ns/p7 (malformed): look at it",
        "  - … (1,009 in all, -o json)",
    ]


def test_what_objects_hold_never_reaches_the_terminal_as_it_is() -> None:
    evil = "\033[31m\u202e"
    claim = ClaimReport(
        name=f"ns/{evil}",
        requests=(
            RequestReport(
                name="gpu",
                asks=f"1 x {evil}",
                verdicts=(CompileError("request", 0, f"ERROR {evil}", evil),),
                devices=(DeviceGroup(verdict=Fits(), count=1, examples=(evil,)),),
            ),
        ),
    )
    gap = NotRead(resource="pods", reason="malformed", name=evil, message=evil)
    given = Report(
        subject=f"pod {evil}",
        outcome="could not tell",
        exit_code=2,
        summary=evil,
        cluster=evil,
        claims=(claim,),
        nodes=(NodeGroup(count=1, nodes=(evil,), pod=(NodeTainted(evil),)),),
        changes=(Change(what=evil, on=evil),),
        not_read=(gap, NotRead(resource="/metrics", reason="forbidden")),
    )
    shown = "\n".join(lines(given))
    assert "\033" not in shown
    assert "\u202e" not in shown
    assert "pod \\x1b[31m\\u202e: could not tell" in shown
    assert "        ERROR \\x1b[31m\\u202e" in shown
    assert "Claim ns/\\x1b[31m\\u202e" in shown


def test_colour_marks_the_outcome_and_headings() -> None:
    given = report(nodes=(NodeGroup(count=1, nodes=("n",)),))
    shown = text(given, width=80, color=True)
    assert shown[0] == "\033[31m\033[1mpod ns/p: devices do not fit\033[0m"
    assert "\033[1mNodes\033[0m" in shown


def test_the_document_names_every_reason() -> None:
    found: Any = document(of_request(devices=(DeviceGroup(verdict=SMALL, count=2),)))
    group = json.loads(json.dumps(found))["claims"][0]["requests"][0]["devices"][0]
    assert group["verdict"]["reason"] == "SelectorFalse"
    assert (group["count"], found["exitCode"]) == (2, 0)


def test_advice_that_is_cut_says_so() -> None:
    reasons: list[Verdict] = [
        *(NoDevices(), FeatureOff("G", "w"), ClassMissing("c"), SchedulingGated(("g",))),
        *(NodeUnschedulable(), TooManyDevices(33), AdminAccessNotAllowed("ns")),
    ]
    shown = advice(report(verdicts=tuple(reasons)))
    assert shown[-1] == "  - … (7 in all, -o json)"
    assert "…" not in "".join(advice(report(verdicts=tuple(reasons[:5]))))
