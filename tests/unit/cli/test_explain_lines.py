# SPDX-License-Identifier: Apache-2.0
"""The lines about devices and nodes: the nearest first, and nothing twice."""

from typing import Any

from dra_driver.cli.explain_lines import device_lines, node_lines
from dra_driver.explain.outcome import DeviceGroup, NearestMiss, NodeGroup, RequestReport
from dra_driver.explain.verdict import (
    CapacityConsumed,
    CapacityTooSmall,
    CountersUsedUp,
    Ending,
    Fits,
    HeldByClaim,
    NotEnoughDevices,
    SelectorError,
    SelectorFalse,
    SelectorNeverMatches,
    Tainted,
    Verdict,
)

ENDING = Ending("claim ns/old", "T", ("f",))
ERROR = SelectorError("request", 0, "p == 1", "no such key: p", "d/p/a has no attribute p")


def of(verdict: Verdict, count: int = 1, **more: Any) -> DeviceGroup:
    return DeviceGroup(verdict=verdict, count=count, **more)


def false(part: str, found: str = "", hint: str = "") -> SelectorFalse:
    return SelectorFalse("request", 0, part, found or f"{part} is false", hint)


def told(
    *groups: DeviceGroup, verdicts: tuple[Verdict, ...] = (), nearest: NearestMiss | None = None
) -> list[str]:
    request = RequestReport(
        name="gpu", asks="1 x gpu", verdicts=verdicts, devices=groups, nearest=nearest
    )
    return list(device_lines(request))


def miss(*reasons: Verdict, node: str = "node n") -> NearestMiss:
    return NearestMiss(device="d/p/a", node=node, reasons=reasons)


def test_the_nearest_devices_come_first() -> None:
    assert told(
        of(false("x"), 30),
        of(false("y"), 2, foreign=True),
        of(CapacityTooSmall("memory", "2", "1")),
        of(Tainted("k:NoSchedule"), 2, examples=("d/p/t",), since="T"),
        of(CountersUsedUp("card", "slices", "2", "1", ("ns/b",))),
        of(HeldByClaim("ns/new", ("ns/p",), "T")),
        of(HeldByClaim("ns/old", ending=(ENDING,))),
        of(Fits(), 3),
    ) == [
        "3 devices: can be had",
        "1 device matches: held by ns/old, used by no pod (claim ns/old is being deleted since T, kept by finalizer f)",
        "1 device matches: held by ns/new, used by ns/p, since T",
        "1 device matches: counter card/slices: 1 left < 2, used by ns/b",
        "2 devices match: tainted k:NoSchedule, since T (for example d/p/t)",
        "1 device matches: memory 1 < 2",
        "32 devices of other types or drivers",
    ]


def test_claims_are_told_together_for_all_that_they_use() -> None:
    shared = [CapacityConsumed("memory", "2", "1", (f"ns/{name}",)) for name in "ab"]
    held = [HeldByClaim(f"ns/{name}") for name in "cd"]
    assert told(*map(of, (*held, *shared))) == [
        "2 devices match: held by ns/c (no pod), ns/d (no pod)",
        "2 devices match: memory: 1 left < 2, consumed by ns/a, ns/b",
    ]


def test_of_devices_that_match_many_reasons_are_cut() -> None:
    groups = [of(Tainted(f"k{number}:NoSchedule")) for number in range(14)]
    assert told(*groups)[-1] == "2 devices match: 2 other reasons, … (-o json)"


def test_a_single_reason_of_the_others_is_told() -> None:
    held = of(HeldByClaim("ns/a"))
    assert told(held, of(false("x", "memory 1 < 2"), 2))[1:] == ["2 devices: memory 1 < 2"]
    assert told(held, of(false("x"), 2, foreign=True))[1:] == ["2 devices of other drivers"]
    assert told(held)[1:] == []


def test_what_the_verdict_says_already_is_not_said_again() -> None:
    never = SelectorNeverMatches("request", 0, "x", "x is 1", "did you mean y?")
    groups = (of(false("x", "x is 1", "did you mean y?"), 4), of(false("z"), 2, foreign=True))
    assert told(*groups, verdicts=(never,), nearest=miss(false("x"))) == [
        "2 devices of other drivers"
    ]
    two = told(
        *groups,
        verdicts=(never,),
        nearest=miss(false("x", "x is 1", "did you mean y?"), false("w")),
    )
    assert two[-1] == "nearest miss: d/p/a on node n: x is 1; w is false"
    again = miss(false("v", "v is 2", "did you mean u?"), node="")
    assert told(*groups, verdicts=(never,), nearest=again)[-1] == (
        "nearest miss: d/p/a: v is 2 (did you mean u?)"
    )


def test_an_error_is_told_once() -> None:
    nearest = miss(ERROR, Tainted("k:NoSchedule"))
    assert told(of(ERROR, 3), verdicts=(ERROR,), nearest=nearest) == [
        "3 devices: the CEL runtime error above",
        "nearest miss: d/p/a on node n: the CEL runtime error above; tainted k:NoSchedule",
    ]
    assert told(of(ERROR, 3)) == [f"3 devices: {ERROR}"]
    assert told(of(Fits(), 2), of(ERROR, 3), verdicts=(ERROR,)) == [
        "2 devices: can be had",
        "3 devices: the CEL runtime error above",
    ]


def test_devices_with_the_error_of_the_request_are_one_line() -> None:
    other = SelectorError("request", 0, "p == 1", "no such key: p", "d/p/b has no attribute p")
    groups = (of(false("x")), of(ERROR, 3), of(false("y")), of(other, 2))
    assert told(*groups, verdicts=(ERROR,)) == [
        "1 device: x is false",
        "5 devices: the CEL runtime error above",
        "1 device: y is false",
    ]
    assert told(of(ERROR, 3), of(other, 2)) == [f"3 devices: {ERROR}", f"2 devices: {other}"]


def test_the_nearest_miss_is_told_if_no_line_has_it() -> None:
    held = HeldByClaim("ns/a")
    assert told(of(held), nearest=miss(held)) == [f"1 device matches: {held}"]
    other = HeldByClaim("ns/b", ("ns/p",), "T")
    assert told(of(held), of(other), nearest=miss(other)) == [
        "2 devices match: held by ns/a (no pod), ns/b (pod p, since T)"
    ]
    both = told(of(held), nearest=miss(held, Tainted("k:NoSchedule")))
    assert both[-1] == f"nearest miss: d/p/a on node n: {held}; tainted k:NoSchedule"


def test_nodes_are_told_all_reasons_in_the_same_words() -> None:
    held = HeldByClaim("ns/a", ("ns/p",), "T")
    short, error = NotEnoughDevices(2, 0, empty=True), ERROR
    groups = (
        NodeGroup(count=1, nodes=("a",), devices=(held, false("x", "x is 1", "did you mean y?"))),
        NodeGroup(count=1, nodes=("b",), devices=(short, NotEnoughDevices(3, 0, empty=True))),
        NodeGroup(count=1, nodes=("c",), devices=(error,)),
        NodeGroup(count=1, nodes=("d",), devices=tuple(false(f"f{n}") for n in range(7))),
    )
    assert list(node_lines(groups, 8)) == [
        "a: held by ns/a; x is 1",
        "b: no driver publishes a device for this node",
        "c: the CEL runtime error above",
        f"d: {'; '.join(f'f{n} is false' for n in range(6))}; …",
    ]


def test_nodes_are_told_of_which_request_a_reason_is() -> None:
    held, short = HeldByClaim("ns/a", ("ns/p",), "T"), NotEnoughDevices(2, 1)
    reasons = (held, held, false("x", "x is 1"), short)
    full = "request gpu of claim ns/b"
    groups = (
        NodeGroup(count=1, nodes=("a",), devices=reasons, requests=("one", "two", "two", "")),
        NodeGroup(count=1, nodes=("b",), devices=(false("x", "x is 1"),), requests=(full,)),
    )
    assert list(node_lines(groups, 8)) == [
        f"a: requests one, two: held by ns/a; request two: x is 1; {short}",
        f"b: {full}: x is 1",
    ]


def test_nodes_with_the_nearest_devices_come_first() -> None:
    groups = (
        NodeGroup(count=9, nodes=("far",), devices=(false("x"),)),
        NodeGroup(count=3, nodes=("broken",), devices=(Tainted("k:NoSchedule"), false("x"))),
        NodeGroup(count=2, nodes=("near",), devices=(NotEnoughDevices(2, 1), HeldByClaim("ns/a"))),
        NodeGroup(count=1, nodes=("fits",)),
    )
    names = [line.partition(":")[0] for line in node_lines(groups, 8)]
    assert names == ["fits", "near", "broken", "far"]


def test_other_claims_than_those_that_end_are_one_line() -> None:
    old = HeldByClaim("ns/old", ending=(ENDING,))
    groups = [of(old), of(HeldByClaim("ns/a")), of(HeldByClaim("ns/b"))]
    assert told(*groups)[1:] == ["2 devices match: held by ns/a (no pod), ns/b (no pod)"]


def test_each_of_several_claims_is_told_with_its_pods_and_since_when() -> None:
    holders = [
        HeldByClaim("ns/a", ("ns/p",), "2026-11-01T08:00:00Z", "2026-10-31T08:00:00Z"),
        HeldByClaim("ns/b", ("ns/q", "ns/r"), created="2026-11-02T08:00:00Z"),
        HeldByClaim("ns/c"),
    ]
    (line,) = told(*map(of, holders))
    assert line == (
        "3 devices match: held by ns/a (pod p, since 2026-11-01T08:00:00Z), "
        "ns/b (pods q, r, claim created 2026-11-02T08:00:00Z), ns/c (no pod)"
    )
    more = [HeldByClaim(f"ns/{number}", (f"ns/p{number}",)) for number in range(6)]
    assert told(*map(of, more)) == [
        "6 devices match: held by ns/0 (pod p0), ns/1 (pod p1), ns/2 (pod p2), ns/3 (pod p3), … (6 claims)"
    ]


def test_what_a_device_of_another_driver_lacks_is_not_told() -> None:
    other = of(false("x"), 2, foreign=True)
    assert told(other, nearest=miss(false("x"), HeldByClaim("ns/a"))) == [
        "2 devices of other drivers"
    ]
