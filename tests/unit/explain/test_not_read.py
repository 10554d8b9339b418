# SPDX-License-Identifier: Apache-2.0
"""What is answered where something could not be read: a gap counts where it could change the answer."""

import copy
from typing import Any

import msgspec
import pytest

from dra_driver.cel.reasons.paths import DevicePath
from dra_driver.errors import Permanent
from dra_driver.explain.claim_request import requests_in
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.not_read import NODE_RESOURCES, doubts_about_node_resources
from dra_driver.explain.outcome import Report
from dra_driver.explain.readable import readable
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.remedy import fix
from dra_driver.explain.report import (
    ClaimSubject,
    ManifestSubject,
    PodSubject,
    TemplateSubject,
    explain,
)
from dra_driver.explain.verdict import ChosenDevice, CouldNotTell, NoDevices
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.cluster import ClusterState, NotRead
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, HOME, devices, request, resource_slice
from tests.unit.explain.clusters import claim, holder, state

ONE = resource_slice(devices(1))
FITS = words.claim(request())
FITS_NOT = words.claim(request(count=2))


def gap(resource: str, name: str = "", **fields: Any) -> NotRead:
    return NotRead(
        **{"resource": resource, "name": name, "reason": "malformed", "message": "m", **fields}
    )


def asked(cluster: ClusterState, *gaps: NotRead, about: Any = (FITS,)) -> Report:
    blind = msgspec.structs.replace(cluster, not_read=gaps)
    return explain(blind, ManifestSubject(tuple(about), "ns", "f.yaml"))


def unknown(report: Report) -> list[str]:
    return [one.what for one in report.verdicts if isinstance(one, CouldNotTell)]


OTHER = "somebody"


@pytest.mark.parametrize(
    ("hidden", "fitting", "not_fitting"),
    [
        (gap("resourceslices", OTHER), 2, 2),
        (gap("resourceslices"), 2, 2),
        (gap("deviceclasses", OTHER), 0, 1),
        (gap("deviceclasses", "gpu"), 0, 1),  # it was given besides
        (gap("nodes", OTHER), 0, 2),
        (gap("resourceclaims", f"ns/{OTHER}"), 2, 1),
        (gap("devicetaintrules"), 2, 1),
        (gap("devicetaintrules", OTHER), 2, 1),
        (gap("pods"), 0, 1),
        (gap("resourceclaimtemplates"), 0, 1),
    ],
)
def test_a_gap_leaves_open_what_it_could_change(
    hidden: NotRead, fitting: int, not_fitting: int
) -> None:
    for about, code in ((FITS, fitting), (FITS_NOT, not_fitting)):
        report = asked(state(ONE), hidden, about=(about,))
        assert (report.exit_code, len(unknown(report))) == (code, code == 2)


@pytest.mark.parametrize("gate", ["DRADeviceTaintRules", "DRADeviceTaints"])
def test_taint_rules_that_do_not_count_need_not_be_read(gate: str) -> None:
    cluster = state(ONE, featureGates={gate: False})
    assert asked(cluster, gap("devicetaintrules")).exit_code == 0


def test_gaps_are_counted_by_kind() -> None:
    hidden = [gap("resourceslices", name) for name in ("a", "b", "c")]
    report = asked(state(ONE), *hidden, gap("resourceclaims", "ns/x"))
    assert unknown(report) == [
        "resourceslices a: m (and 2 more of them)",
        "resourceclaims ns/x: m",
    ]
    assert report.summary == f"could not tell (malformed): {unknown(report)[0]}"


def test_a_class_that_could_not_be_read_is_not_called_missing() -> None:
    cluster = msgspec.structs.replace(state(ONE), device_classes=())
    report = asked(cluster, gap("deviceclasses", "gpu"))
    told = CouldNotTell("malformed", "device class gpu: m")
    assert (report.exit_code, report.claims[0].requests[0].verdicts) == (2, (told,))
    assert unknown(report) == ["deviceclasses gpu: m"]


def test_slices_that_could_not_be_read_are_not_called_missing() -> None:
    verdicts = [
        asked(state(), *hidden).claims[0].requests[0].verdicts
        for hidden in ([], [gap("resourceslices", OTHER)])
    ]
    assert verdicts == [(NoDevices(),), ()]


def test_a_pod_needs_to_know_how_much_of_its_node_is_free() -> None:
    pod = words.pod()
    for hidden in (gap("pods"), gap("pods", f"ns/{OTHER}")):
        report = asked(state(ONE), hidden, about=(FITS, pod))
        assert (report.exit_code, report.outcome) == (2, "could not tell")
        assert unknown(report) == [str(hidden)]
    tainted = words.pod(schedulingGates=[{"name": "g"}])
    assert asked(state(ONE), gap("pods"), about=(FITS, tainted)).exit_code == 3


def test_the_claim_that_is_asked_about_says_itself_that_it_could_not_be_read() -> None:
    hidden = gap("resourceclaims", f"ns/{words.MINE}")
    report = asked(state(ONE), hidden, about=(words.pod(),))
    told = CouldNotTell("malformed", f"resourceclaims ns/{words.MINE}: m")
    assert (report.exit_code, report.claims[0].verdicts) == (2, (told,))
    assert (unknown(report), report.nodes) == ([], ())
    template = gap("resourceclaimtemplates", f"ns/{words.MINE}")
    of = {"resourceClaimTemplateName": words.MINE}
    made = asked(state(ONE), template, about=(words.pod(of=of),))
    assert (made.exit_code, made.claims[0].verdicts[0].what) == (2, str(template))


@pytest.mark.parametrize(
    ("resource", "subject", "message"),
    [
        ("pods", PodSubject("ns", "x"), "cannot read pod ns/x: m"),
        ("resourceclaims", ClaimSubject("ns", "x"), "cannot read resourceclaim ns/x: m"),
        (
            "resourceclaimtemplates",
            TemplateSubject("ns", "x"),
            "cannot read resourceclaimtemplate ns/x: m",
        ),
    ],
)
def test_a_subject_that_could_not_be_read_is_not_called_missing(
    resource: str, subject: Any, message: str
) -> None:
    blind = msgspec.structs.replace(state(), not_read=(gap(resource, "ns/x"),))
    with pytest.raises(Permanent, match=message):
        explain(blind, subject)


@pytest.mark.parametrize(("name", "verb"), [("x", "read"), ("", "find")])
def test_a_node_that_could_not_be_read_is_not_called_missing(name: str, verb: str) -> None:
    blind = msgspec.structs.replace(state(ONE), not_read=(gap("nodes", name),))
    with pytest.raises(Permanent, match=f"cannot {verb} node x: m"):
        explain(blind, ManifestSubject((FITS,), "ns", "f"), node="x")


def test_a_namespace_that_could_not_be_read_may_have_the_label() -> None:
    admin = words.claim(request(adminAccess=True))
    assert asked(state(ONE), gap("namespaces", "ns"), about=(admin,)).exit_code == 2
    assert asked(state(ONE), gap("namespaces", "other"), about=(admin,)).exit_code == 1


def pod_of(quantity: str) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": quantity}}}
    spec = {"nodeName": HOME, "containers": [container]}
    return msgspec.convert({"metadata": {"name": "o", "namespace": "ns"}, "spec": spec}, Pod)


def test_a_quantity_that_is_none_costs_its_object_only() -> None:
    cluster = msgspec.structs.replace(state(ONE), pods=(pod_of("zz"),))
    assert asked(cluster).exit_code == 0
    report = asked(cluster, about=(FITS, words.pod()))
    place = "pods ns/o: spec.containers[c].resources.requests[cpu]: 'zz' is no quantity"
    assert report.exit_code == 2
    assert unknown(report)[0].startswith(place)
    assert report.nodes[0].placement[0].driver == GPU


TAINT = {"key": "k", "effect": "NoSchedule"}
HUGE = "9e999999"
"""API servers store it, and nobody computes with it."""


def with_amount(amount: str = HUGE, *, node: str = "evil", **device: Any) -> dict[str, Any]:
    found = devices(1, capacity={"memory": {"value": amount}}, **device)
    return resource_slice(found, pool=node)


def on_two_nodes(*objects: dict[str, Any], **fields: Any) -> ClusterState:
    return state(words.node("evil"), resource_slice(devices(1)), *objects, **fields)


def test_a_pod_of_no_node_takes_nothing_and_one_of_another_node_takes_nothing_here() -> None:
    subject = (FITS, words.pod())
    for node, code in (("", 0), ("evil", 0), (HOME, 2)):
        pod = msgspec.structs.replace(pod_of(HUGE), spec=on(pod_of(HUGE), node))
        cluster = msgspec.structs.replace(on_two_nodes(with_amount("1Gi")), pods=(pod,))
        alone = msgspec.structs.replace(state(ONE), pods=(pod,))
        assert asked(cluster, about=subject).exit_code == 0
        assert asked(alone, about=subject).exit_code == code


def on(pod: Pod, node: str) -> Any:
    return msgspec.structs.replace(pod.spec, node_name=node)


def test_a_node_with_such_an_amount_has_its_devices_all_the_same() -> None:
    other = words.node("evil") | {"status": {"allocatable": {"cpu": HUGE, "pods": "9"}}}
    cluster = state(other, ONE)
    assert asked(cluster, about=(FITS_NOT, words.pod())).exit_code == 1
    assert asked(cluster, about=(FITS, words.pod())).exit_code == 0
    there = state(other, with_amount("1Gi"))
    report = asked(there, about=(FITS, words.pod()))
    assert (report.exit_code, unknown(report)[0].split(":")[0]) == (2, "nodes evil")


@pytest.mark.parametrize("resource", ["cpu", "nvidia.com/gpu"])
def test_a_node_does_not_lack_for_certain_what_nobody_can_read(resource: str) -> None:
    pod = words.pod(cpu="2")
    pod["spec"]["containers"][0]["resources"]["limits"] = {resource: "2"}
    for amount, code in (("8", 0), (HUGE, 2)):
        offered = {"cpu": "8", "pods": "9", resource: amount}
        node = {**words.node("evil"), "status": {"allocatable": offered}}
        report = asked(state(node, with_amount("1Gi")), about=(FITS, pod))
        assert report.exit_code == code
    assert unknown(report)[0].startswith(f"nodes evil: status.allocatable[{resource}]")


def test_a_claim_with_such_an_amount_keeps_its_devices_and_no_others() -> None:
    bad = words.claim(request(capacity={"requests": {"memory": HUGE}}), name="bad")
    bad["metadata"]["namespace"] = "ns"
    assert asked(state(ONE, bad)).exit_code == 0
    held = {**holder("gpu-0"), "spec": bad["spec"]}
    report = asked(state(ONE, held))
    assert (report.exit_code, unknown(report)) == (1, [])
    (missed,) = report.nodes[0].devices
    assert str(missed).startswith("held by ns/holder")
    with pytest.raises(Permanent, match="cannot read resourceclaim ns/holder: "):
        explain(state(ONE, held), ClaimSubject("ns", "holder"))


def test_nobody_knows_how_much_of_a_shared_device_such_a_claim_leaves() -> None:
    taken = {"shareID": "s", "consumedCapacity": {"memory": HUGE}}
    shared = resource_slice(devices(1, allowMultipleAllocations=True))
    for amount, code in (("40Gi", 2), ("90Gi", 1)):
        wanted = words.claim(request(capacity={"requests": {"memory": amount}}))
        report = asked(state(shared, holder("gpu-0", **taken)), about=(wanted,))
        assert report.exit_code == code
        assert not any(str(one).startswith("held") for one in report.nodes[0].devices)
        assert not any("ns/holder" in change.what for change in report.changes)
    # Who has a whole device has it whatever its amounts are.
    del taken["shareID"]
    report = asked(state(shared, holder("gpu-0", **taken)))
    assert (report.exit_code, str(report.nodes[0].devices[0])[:14]) == (1, "held by ns/hol")


def test_a_pod_whose_claim_has_such_an_amount_is_told_that_it_could_not_be_read() -> None:
    own = holder("gpu-0", name=words.MINE)
    own["spec"] = words.claim(request(capacity={"requests": {"memory": HUGE}}))["spec"]
    report = asked(state(ONE, own), about=(words.pod(),))
    assert report.exit_code == 2
    assert "9e999999" in str(report.claims[0].verdicts[0])


def test_a_slice_with_such_an_amount_leaves_open_only_what_may_get_its_devices() -> None:
    other = with_amount()
    other["spec"]["driver"] = "evil.example"
    for about, code in ((FITS, 0), (FITS_NOT, 1)):
        assert asked(on_two_nodes(other), about=(about,)).exit_code == code
    cluster = on_two_nodes(with_amount())
    assert asked(cluster).exit_code == 0
    report = asked(cluster, about=(FITS_NOT,))
    assert (report.exit_code, len(unknown(report)), len(report.not_read)) == (2, 1, 1)
    groups = {one.nodes[0]: one.devices for one in report.nodes}
    assert [str(one)[:26] for one in groups["evil"]] == ["could not tell (malformed)"]
    assert not any(isinstance(one, CouldNotTell) for one in groups[HOME])
    only_home = explain(cluster, ManifestSubject((FITS_NOT,), "ns", "f"), node=HOME)
    only_evil = explain(cluster, ManifestSubject((FITS,), "ns", "f"), node="evil")
    assert (only_home.exit_code, only_evil.exit_code) == (1, 2)


@pytest.mark.parametrize("kind", ["tainted", "held", "off"])
def test_a_device_that_nobody_gets_leaves_nothing_open_whatever_its_amounts_are(kind: str) -> None:
    fields: dict[str, Any] = {
        "tainted": {"taints": [TAINT]},
        "off": {"bindingConditions": ["b"], "bindingFailureConditions": ["f"]},
    }.get(kind, {})
    cluster = on_two_nodes(
        with_amount(**fields),
        *([holder("gpu-0", pool="evil")] if kind == "held" else ()),
        featureGates={"DRADeviceBindingConditions": False},
    )
    report = asked(cluster, about=(FITS_NOT,))
    assert (report.exit_code, unknown(report)) == (1, [])


def test_a_selector_that_fails_on_such_a_device_may_stop_the_pod_everywhere() -> None:
    bad = with_amount(attributes={})
    model = words.claim(
        request(selectors=[{"cel": {"expression": f'device.attributes["{GPU}"].model == "a"'}}])
    )
    good = resource_slice(devices(1, attributes={"model": {"string": "a"}}))
    cluster = state(words.node("evil"), good, bad)
    report = asked(cluster, about=(model,))
    assert (report.exit_code, report.outcome) == (2, "could not tell")
    on_home = explain(cluster, ManifestSubject((model,), "ns", "f"), node=HOME)
    assert on_home.exit_code == 2


def kept_from(node: str, kind: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What makes a device of the node one that nobody gets: its fields, and other objects."""
    if kind == "tainted":
        return {"taints": [TAINT]}, []
    return {}, [holder("gpu-0", pool=node)]


@pytest.mark.parametrize("kind", ["tainted", "held"])
def test_a_request_for_all_devices_does_not_do_without_one_that_nobody_gets(kind: str) -> None:
    beside = resource_slice(devices(1), name="beside", pool="beside", nodeName=HOME)
    every = words.claim(request(allocationMode="All"))
    fields, others = kept_from(HOME, kind)
    for amount, code in (("1Gi", 1), (HUGE, 2)):
        device = with_amount(amount, node=HOME, **fields)
        assert asked(state(beside, device, *others), about=(every,)).exit_code == code


def test_a_request_for_all_devices_may_end_the_search_on_another_node() -> None:
    alike = {"constraints": [{"matchAttribute": f"{GPU}/model"}]}
    every = words.claim(request(allocationMode="All"), **alike)
    model = {"attributes": {"model": {"string": "a"}}}
    good = resource_slice(devices(1, **model))
    for amount, code in (("1Gi", 1), (HUGE, 2)):
        one = with_amount(amount, attributes={"model": {"string": "b"}})
        other = resource_slice(devices(1, **model), name="x", pool="x", nodeName="evil")
        cluster = state(words.node("evil"), good, one, other)
        assert asked(cluster, about=(every,)).exit_code == code


@pytest.mark.parametrize(("kind", "code"), [("tainted", 2), ("held", 0)])
def test_a_selector_fails_on_a_device_with_a_taint_but_not_on_one_that_is_held(
    kind: str, code: int
) -> None:
    model = words.claim(request(cel=f'device.attributes["{GPU}"].model == "a"'))
    good = resource_slice(devices(1, attributes={"model": {"string": "a"}}))
    fields, others = kept_from("evil", kind)
    bad = with_amount(attributes={}, **fields)
    report = asked(state(words.node("evil"), good, bad, *others), about=(model,))
    assert report.exit_code == code


@pytest.mark.parametrize("kind", ["node", "gate"])
def test_no_selector_is_asked_about_a_device_that_the_search_does_not_see(kind: str) -> None:
    """It is for a node that is not there, or in a slice that is ignored without a feature gate."""
    bad = with_amount(node="gone", attributes={})
    fields: dict[str, Any] = {}
    if kind == "gate":
        del bad["spec"]["nodeName"]
        bad["spec"]["perDeviceNodeSelection"] = True
        bad["spec"]["devices"][0]["nodeName"] = "evil"
        fields = {"featureGates": {"DRAPartitionableDevices": False}}
    model = words.claim(request(cel=f'device.attributes["{GPU}"].model == "a"'))
    good = resource_slice(devices(1, attributes={"model": {"string": "a"}}))
    cluster = state(words.node("evil"), good, bad, **fields)
    assert asked(cluster, about=(model,)).exit_code == 0


def test_when_no_time_is_left_such_a_device_may_match() -> None:
    fleet = Fleet(readable(on_two_nodes(with_amount(taints=[TAINT]))))
    one = next(requests_in(claim(request())))
    (part,) = fleet.left_out
    for over, found in ((False, {False}), (True, {False, True})):
        asked_for = RequestExplained(fleet, one, fleet.nodes, lambda over=over: over)
        assert asked_for.of_left_out(part) == found
        fleet = fleet.without_answers()


def test_a_selector_that_is_not_answered_in_time_may_match_such_a_device() -> None:
    fleet = Fleet(readable(on_two_nodes(with_amount())))
    long = 'lists.range(1000).all(x, x < 0 || device.driver != "")'
    one = next(requests_in(claim(request(cel=f"!({long})"))))
    (part,) = fleet.left_out
    assert part.devices
    is_over = False
    asked_for = RequestExplained(fleet, one, fleet.nodes, lambda: is_over)
    found = [asked_for.answers.may_match(part.devices[0])]
    is_over = True
    found.append(asked_for.answers.may_match(part.devices[0]))
    assert found == [False, True]


def test_what_such_devices_publish_is_no_typing_mistake() -> None:
    fleet = Fleet(readable(on_two_nodes(with_amount(attributes={"own": {"bool": True}}))))
    paths = [DevicePath("attributes", GPU, name) for name in ("own", "other")]
    assert [fleet.publishes(one) for one in paths] == [True, False]


def test_slices_that_nobody_read_may_publish_everything() -> None:
    unread = msgspec.structs.replace(state(ONE), not_read=(gap("resourceslices"),))
    path = DevicePath("attributes", GPU, "other")
    assert [Fleet(one).publishes(path) for one in (unread, state(ONE))] == [True, False]


def test_devices_beside_such_a_slice_are_counted() -> None:
    beside = resource_slice(devices(1), name="beside", pool="beside", nodeName="evil")
    report = asked(on_two_nodes(with_amount(), beside), about=(FITS_NOT,))
    groups = {name: one.devices for one in report.nodes for name in one.nodes}
    counted, doubt = groups["evil"]
    assert str(counted).startswith("2 devices are needed on one node, 1 can be had")
    assert isinstance(doubt, CouldNotTell)
    assert groups[HOME] == (counted,)


def test_other_slices_of_the_pool_are_in_doubt_too() -> None:
    bad = with_amount(node=HOME)
    bad["spec"]["pool"]["resourceSliceCount"] = 2
    good = resource_slice(devices(1), name="second", slices=2)
    report = asked(state(good, bad))
    assert report.exit_code == 2
    assert "memory" in unknown(report)[0]


def sharing(counters: str, *, at: str) -> list[dict[str, Any]]:
    """A pool with a slice of counters for all nodes, and one of a device for one node."""
    some = {"counterSet": "card", "counters": {"slices": {"value": "1"}}}
    card = {"name": "card", "counters": {"slices": {"value": counters}}}
    pool = {"pool": "shared", "slices": 2}
    return [
        resource_slice([], name="counters", allNodes=True, sharedCounters=[card], **pool),
        resource_slice(devices(1, consumesCounters=[some]), name="devices", nodeName=at, **pool),
    ]


def test_devices_of_a_node_are_in_doubt_with_the_counters_for_all_nodes() -> None:
    for counters, code in (("4", 0), (HUGE, 2)):
        report = asked(state(*sharing(counters, at=HOME)))
        assert (report.exit_code, len(unknown(report))) == (code, code // 2)
    assert unknown(report)[0].startswith("resourceslices counters: spec.sharedCounters[card]")
    assert asked(on_two_nodes(*sharing(HUGE, at="evil"))).exit_code == 0


def named_twice(amount: str, *, node: str) -> list[dict[str, Any]]:
    """A pool of two slices for the node, with two devices of one name. Only a class of another driver matches them."""
    pool = {"pool": "twice", "slices": 2, "driver": "other.example", "nodeName": node}
    listed = devices(1, capacity={"memory": {"value": amount}})
    return [
        resource_slice(listed, name="first", **pool),
        resource_slice(devices(1), name="second", **pool),
    ]


@pytest.mark.parametrize(("node", "code"), [(HOME, 2), ("evil", 2), ("gone", 0)])
def test_an_invalid_pool_is_still_invalid_without_the_devices_of_such_a_slice(
    node: str, code: int
) -> None:
    every = words.claim(request(allocationMode="All"))
    for amount, found in (("1Gi", code // 2), (HUGE, code)):
        cluster = on_two_nodes(*named_twice(amount, node=node))
        assert asked(cluster, about=(every,)).exit_code == found
        assert asked(cluster).exit_code == 0


def test_the_other_devices_of_an_invalid_pool_are_in_doubt_too() -> None:
    beside = resource_slice(devices(1, **RIGHT), name="for-all", slices=2, allNodes=True)
    for amount, code in (("1Gi", 1), (HUGE, 2)):
        bad = with_amount(amount, node=HOME, attributes={"model": {"string": "b"}})
        bad["spec"]["pool"]["resourceSliceCount"] = 2
        assert asked(state(bad, beside), about=(MODEL,)).exit_code == code


@pytest.mark.parametrize(("minor", "code"), [(34, 0), (37, 2)])
def test_up_to_1_34_a_pool_is_valid_if_its_slices_have_counter_sets_of_one_name(
    minor: int, code: int
) -> None:
    (counters, _) = sharing(HUGE, at=HOME)
    counters["spec"]["driver"] = "other.example"
    second = copy.deepcopy(counters)
    second["metadata"]["name"] = "second"
    every = words.claim(request(allocationMode="All"))
    cluster = state(
        ONE,
        counters,
        second,
        kubernetesVersion=f"v1.{minor}.1",
        gates=["DRAPartitionableDevices"],
    )
    assert asked(cluster, about=(every,)).exit_code == code


MODEL = words.claim(request(cel=f'device.attributes["{GPU}"].model == "a"'))
RIGHT = {"attributes": {"model": {"string": "a"}}}


@pytest.mark.parametrize(("node", "codes"), [(HOME, [0, 2]), ("evil", [1, 1])])
def test_an_error_that_ends_the_search_is_certain_if_no_such_device_may_come_before_it(
    node: str, codes: list[int]
) -> None:
    good = resource_slice(devices(1, **RIGHT), name="good", pool="a", nodeName="evil")
    failing = resource_slice(devices(1, attributes={}), name="z", pool="z", nodeName=HOME)
    found = [
        asked(
            state(words.node("evil"), good, failing, with_amount(amount, node=node, **RIGHT)),
            about=(MODEL,),
        ).exit_code
        for amount in ("1Gi", HUGE)
    ]
    assert found == codes


def test_the_search_may_come_to_an_error_if_it_takes_such_a_device_before() -> None:
    """The first request takes that device, unless one of unknown amounts stands before it."""
    two = words.claim(
        request(), request(name="model", cel=f'device.attributes["{GPU}"].model == "a"')
    )
    first = devices(1, attributes={})
    second = [{**one, "name": "z"} for one in devices(1, **RIGHT)]
    shared = resource_slice([*first, *second], name="z", pool="z", allNodes=True)
    cluster = {
        amount: state(words.node("evil"), shared, before(amount)) for amount in ("1Gi", HUGE)
    }
    assert [asked(one, about=(two,)).exit_code for one in cluster.values()] == [1, 2]
    shared["spec"] |= {"nodeName": HOME}
    del shared["spec"]["allNodes"]
    assert asked(state(words.node("evil"), shared, before(HUGE)), about=(two,)).exit_code == 0


def before(amount: str) -> dict[str, Any]:
    found = with_amount(amount, **RIGHT)
    found["spec"]["pool"]["name"] = "a"
    return found


def test_an_error_that_other_nodes_have_too_is_certain() -> None:
    everywhere = resource_slice(devices(1, attributes={}), name="z", pool="z", allNodes=True)
    for fields in (RIGHT, {"attributes": {}}):
        cluster = state(words.node("evil"), everywhere, with_amount(HUGE, **fields))
        assert asked(cluster, about=(MODEL,)).exit_code == 1


def test_no_reason_says_that_a_node_has_none_where_such_a_device_matches() -> None:
    cluster = on_two_nodes(with_amount(attributes={"model": {"string": "a"}}))
    every = request(allocationMode="All", name="every")
    for asks in (request(), every):
        report = asked(cluster, about=(words.claim(asks),))
        groups = {one.nodes[0]: one.devices for one in report.nodes}
        assert [type(one) for one in groups["evil"]] == [CouldNotTell]
    two = words.claim(request(), request(name="other", deviceClassName="gpu", cel="false"))
    groups = {one.nodes[0]: one.devices for one in asked(cluster, about=(two,)).nodes}
    assert [str(one)[:40] for one in groups["evil"]] == [
        "1 device is needed on one node, none can",
        "could not tell (malformed): resourceslic",
    ]


def test_a_node_is_in_doubt_with_a_slice_for_all_nodes() -> None:
    listed = devices(1, capacity={"memory": {"value": HUGE}})
    report = asked(state(resource_slice(listed, pool="net", allNodes=True)))
    assert any(isinstance(one, CouldNotTell) for one in report.nodes[0].devices)
    assert "no driver publishes" not in str(report.nodes[0].devices[0])


def test_a_manifest_with_such_a_quantity_is_refused() -> None:
    bad = words.claim(request(capacity={"requests": {"memory": "lots"}}))
    with pytest.raises(Permanent, match=r"requests\[gpu\].*'lots' is no quantity"):
        asked(state(ONE), about=(bad,))


TAKES = {"nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "2"}}}}
POD = (FITS, words.pod(cpu="1"))


@pytest.mark.parametrize(("gates", "code"), [({}, 2), ({NODE_RESOURCES: True}, 2), (None, 0)])
def test_what_devices_take_of_their_node_is_not_counted(
    gates: dict[str, bool] | None, code: int
) -> None:
    taking = resource_slice(devices(1, **TAKES))
    known = {NODE_RESOURCES: False} if gates is None else gates
    cluster = msgspec.structs.replace(state(taking), feature_gates=known)
    nodes = tuple(
        msgspec.convert(
            words.node(name) | {"status": {"allocatable": {"cpu": "4", "pods": "9"}}}, Node
        )
        for name in (HOME, "other")
    )
    report = asked(msgspec.structs.replace(cluster, nodes=nodes), about=POD)
    assert report.exit_code == code
    if code:
        assert NODE_RESOURCES in report.summary
        assert "kubectl describe node" in fix(report.verdicts[0])
    plain = msgspec.structs.replace(
        state(taking, resource_slice(devices(1), pool="other")), nodes=nodes, feature_gates=known
    )
    assert asked(plain, about=POD).exit_code == 0


def test_a_device_that_was_taken_from_the_slices_takes_nothing() -> None:
    gone = ChosenDevice("ns/c", "gpu", GPU, HOME, "gone")
    assert doubts_about_node_resources(Fleet(state(ONE)), [(gone,)]) == ()
    assert doubts_about_node_resources(Fleet(state(ONE)), []) == ()
