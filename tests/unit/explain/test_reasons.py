# SPDX-License-Identifier: Apache-2.0
"""Why a request does not get a device, for every device."""

from typing import Any

import msgspec

from dra_driver.explain.claim_request import requests_in
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.reasons import RequestExplained, grouped
from dra_driver.explain.selector_answers import MANY, SelectorAnswers
from dra_driver.explain.verdict import (
    CapacityConsumed,
    CapacityTooSmall,
    ClassMissing,
    CompileError,
    CouldNotTell,
    CountersUsedUp,
    FeatureOff,
    SelectorError,
    SelectorFalse,
    Tainted,
    Verdict,
)
from dra_driver.model.cluster import ClusterState, NotRead
from tests.e2e.fleet import GPU, device, devices, request, resource_slice
from tests.unit.explain.clusters import claim, explained, holder, state

A = f'device.attributes["{GPU}"]'


def reasons(
    cluster: ClusterState, wanted: dict[str, Any] | None = None
) -> list[tuple[Verdict, ...]]:
    found, fleet = explained(cluster, claim(wanted or request()))
    return [found.reasons(one) for one in fleet.devices.values()]


def off(*gates: str) -> dict[str, bool]:
    return dict.fromkeys(gates, False)


def test_a_device_that_nothing_speaks_against_has_no_reason() -> None:
    assert reasons(state(resource_slice(devices(2)))) == [(), ()]


def test_alternatives_need_their_feature() -> None:
    alternatives = {"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}
    cluster = state(featureGates=off("DRAPrioritizedList"))
    found, _ = explained(cluster, claim(alternatives))
    assert found.problems == (FeatureOff("DRAPrioritizedList", "firstAvailable"),)


def test_a_class_that_may_not_be_read_is_no_missing_class() -> None:
    gap = NotRead(resource="deviceclasses", reason="forbidden", message="m")
    cluster = msgspec.structs.replace(state(), device_classes=(), not_read=(gap,))
    found, _ = explained(cluster, claim())
    told = CouldNotTell("forbidden", "device class gpu: m")
    assert (found.problems, found.answers.selectors) == ((told,), [])


def test_features_of_devices_can_be_off() -> None:
    bound = device("a", bindingConditions=["x"], bindingFailureConditions=["y"])
    cluster = state(resource_slice([bound]), featureGates=off("DRADeviceBindingConditions"))
    gate = "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus"
    assert reasons(cluster) == [(FeatureOff(gate, "a device with bindingConditions"),)]
    parts = counters(1)
    cluster = state(*parts, featureGates=off("DRAPartitionableDevices"))
    expected = FeatureOff("DRAPartitionableDevices", "a device that shares counters")
    assert reasons(cluster) == [(expected,)]
    cluster = state(
        resource_slice([device("a", taints=TAINTS)]), featureGates=off("DRADeviceTaints")
    )
    assert reasons(cluster) == [()]


TAINTS = [{"key": "k", "effect": "NoSchedule"}]


def test_a_node_must_be_able_to_skip_operations() -> None:
    published = resource_slice(devices(1))
    published["spec"]["skipNodeOperations"] = ["NodePrepareResources"]
    gates = ("DRAOptionalNodeOperations",)
    skipping = FeatureOff(gates[0], "a device with skipNodeOperations")
    assert reasons(state(published, gates=gates)) == [(skipping,)]
    able = msgspec.convert({"status": {"declaredFeatures": list(gates)}}, type(state().nodes[0]))
    cluster = state(published, gates=gates)
    node = msgspec.structs.replace(cluster.nodes[0], status=able.status)
    assert reasons(msgspec.structs.replace(cluster, nodes=(node,))) == [()]
    cluster = state(published, gates=("DRAListTypeAttributes",))
    assert reasons(cluster) == [(skipping,)]


def test_everything_is_compared_where_a_selector_looks_at_everything() -> None:
    looks = request(cel=f'{A}.exists(k, k == "numa") && device.driver != "x"')
    cluster = state(resource_slice(devices(2)))
    assert reasons(cluster, looks) == [(), ()]


def test_of_many_kinds_only_the_condition_is_told() -> None:
    listed = [device(f"gpu-{n}", numa=n) for n in range(MANY + 6)]
    cluster = state(resource_slice(listed))
    wanted = request(cel=f"{A}.numa == 1000")
    found, fleet = explained(cluster, claim(wanted))
    text = f"{A}.numa == 1000"
    brief = SelectorFalse("request", 0, text, f"{text} is false")
    all_devices = list(fleet.devices.values())
    (group,) = grouped(found, all_devices)
    assert (group.reason, len(group.devices)) == (brief, MANY + 6)
    assert {found.answers.look(one) for one in all_devices} == {brief}
    assert found.reasons(all_devices[0]) == (brief,)
    assert found.reasons(all_devices[0]) is found.reasons(all_devices[-1])
    half, fleet = explained(cluster, claim(request(cel=f"{A}.numa == 1")))
    assert len({half.answers.look(one) for one in fleet.devices.values()}) == 2
    assert [len(group.devices) for group in grouped(half, list(fleet.devices.values()))] == [
        1,
        MANY + 5,
    ]


def test_an_error_counts_only_where_the_search_would_come() -> None:
    wanted = request()
    texts = [f"{A}.numa == 5", f"{A}.none == 1"]
    wanted["exactly"]["selectors"] = [{"cel": {"expression": text}} for text in texts]
    ((first,),) = reasons(state(resource_slice(devices(1))), wanted)
    assert isinstance(first, SelectorFalse)
    wanted["exactly"]["selectors"].reverse()
    ((error, false),) = reasons(state(resource_slice(devices(1))), wanted)
    assert isinstance(error, SelectorError)
    assert isinstance(false, SelectorFalse)


def test_capacity_is_checked_by_name_policy_and_amount() -> None:
    def asking(**amounts: str) -> dict[str, Any]:
        return request(capacity={"requests": amounts})

    policy = {"validValues": ["10Gi", "20Gi"], "default": "10Gi"}
    listed = [
        device("a"),
        device("b", capacity={"memory": {"value": "80Gi", "requestPolicy": policy}}),
    ]
    cluster = state(resource_slice(listed))
    amounts = reasons(cluster, asking(memory="30Gi"))
    assert amounts == [(), (CapacityTooSmall("memory", "30Gi", "80Gi", "10Gi, 20Gi"),)]
    assert str(amounts[1][0]) == "memory 30Gi is not allowed, valid: 10Gi, 20Gi"
    small = device("c", capacity={"memory": {"value": "15Gi", "requestPolicy": policy}})
    (rounded,) = reasons(state(resource_slice([small])), asking(memory="12Gi"))
    assert rounded == (CapacityTooSmall("memory", "20Gi", "15Gi"),)
    (missing,) = reasons(state(resource_slice(devices(1))), asking(memoryy="1Gi"))
    assert missing == (CapacityTooSmall("memoryy (did you mean memory?)", "1Gi", near="memory"),)
    qualified = request(capacity={"requests": {f"{GPU}/memory": "1Gi"}})
    (missing,) = reasons(state(resource_slice(devices(1))), qualified)
    named = f"{GPU}/memory (did you mean memory?)"
    assert missing == (CapacityTooSmall(named, "1Gi", near="memory"),)
    (missing,) = reasons(state(resource_slice(devices(1))), asking(zzz="1Gi"))
    assert missing == (CapacityTooSmall("zzz", "1Gi"),)


def test_capacity_that_cannot_be_calculated_is_not_judged() -> None:
    policy = {"validRange": {"min": "1", "step": "0"}}
    broken = device("a", capacity={"memory": {"value": "80Gi", "requestPolicy": policy}})
    wanted = request(capacity={"requests": {"memory": "30Gi"}})
    ((found,),) = reasons(state(resource_slice([broken])), wanted)
    assert isinstance(found, CouldNotTell)
    assert "capacity of gpu.example.com/fleet-1/a" in found.what


def test_what_others_consume_is_not_left() -> None:
    shared = device("gpu-0", allowMultipleAllocations=True)
    taking = holder("gpu-0", shareID="s", consumedCapacity={"memory": "50Gi"})
    wanted = request(capacity={"requests": {"memory": "40Gi"}})
    (found,) = reasons(state(resource_slice([shared]), taking), wanted)
    assert found == (CapacityConsumed("memory", "40Gi", "30Gi", ("ns/holder",)),)


def counters(parts: int, **consumed: Any) -> list[dict[str, Any]]:
    card = {"slices": {"value": "1"}}
    whole = resource_slice(name="counters", slices=2)
    whole["spec"]["sharedCounters"] = [{"name": "card", "counters": card}]
    taken = {"counterSet": "card", "counters": card, **consumed}
    listed = [device(f"gpu-{n}", consumesCounters=[taken]) for n in range(parts)]
    return [whole, resource_slice(listed, slices=2)]


def test_counters_that_others_took_are_used_up() -> None:
    _, second = reasons(state(*counters(2), holder("gpu-0")))
    assert second == (CountersUsedUp("card", "slices", "1", "0", ("ns/holder",)),)


def test_a_share_of_a_partition_has_paid_already() -> None:
    parts = counters(1)
    parts[1]["spec"]["devices"][0]["allowMultipleAllocations"] = True
    taking = holder("gpu-0", shareID="s", consumedCapacity={"memory": "1Gi"})
    wanted = request(capacity={"requests": {"memory": "1Gi"}})
    assert reasons(state(*parts, taking), wanted) == [()]


def test_compatibility_groups_exclude_each_other() -> None:
    parts = counters(2, counters={})
    consumed = parts[1]["spec"]["devices"]
    consumed[0]["consumesCounters"][0] = {"counterSet": "card", "compatibilityGroups": ["a"]}
    consumed[1]["consumesCounters"] = [{"counterSet": "card", "compatibilityGroups": ["b"]}]
    gates = ("DRADeviceCompatibilityGroups",)
    _, second = reasons(state(*parts, holder("gpu-0"), gates=gates))
    assert second == (CountersUsedUp("card", "", "", "", ("ns/holder",)),)
    assert reasons(state(*parts, gates=gates)) == [(), ()]


def test_fields_of_features_that_are_off_are_named() -> None:
    derived = [{"name": "a", "expression": "1"}]
    cases = [
        (
            request(derivedAttributes=derived),
            state(),
            FeatureOff("DRADerivedAttributes", "derivedAttributes of the request"),
        ),
        (
            request(adminAccess=True),
            state(featureGates=off("DRAAdminAccess")),
            FeatureOff("DRAAdminAccess", "adminAccess of the request"),
        ),
        (
            request(capacity={"requests": {"memory": "1Gi"}}),
            state(featureGates=off("DRAConsumableCapacity")),
            FeatureOff("DRAConsumableCapacity", "capacity of the request"),
        ),
    ]
    for wanted, cluster, told in cases:
        assert explained(cluster, claim(wanted))[0].problems == (told,)


def test_a_missing_class_is_told_with_the_one_that_was_meant() -> None:
    wanted = request()
    wanted["exactly"]["deviceClassName"] = "gpus"
    found, _ = explained(state(), claim(wanted))
    assert found.problems == (ClassMissing("gpus", "did you mean gpu?"),)


def test_a_selector_that_does_not_compile_is_told_once_for_the_request() -> None:
    found, _ = explained(state(resource_slice(devices(1))), claim(request(cel="device.nothing")))
    (told,) = found.problems
    assert isinstance(told, CompileError)
    assert (told.source, told.index) == ("request", 0)


def test_a_compilation_ends_when_nobody_waits_any_more() -> None:
    cluster, mine = state(), claim(request(cel="device.driver != ''"))
    (wanted,) = requests_in(mine)
    found = SelectorAnswers(Fleet(cluster), wanted, lambda: True)
    assert found.problems == (CouldNotTell("timeout", "a selector took too long"),)
    assert not found.selectors


def test_where_devices_differ_in_little_the_first_reason_has_its_values() -> None:
    cluster = state(resource_slice(devices(2)))
    found, fleet = explained(cluster, claim(request(cel=f"{A}.numa == 1")))
    listed = list(fleet.devices.values())
    assert [found.first(one) for one in listed] == [found.reasons(one)[0] for one in listed]
    assert found.answers.look(listed[0]) == found.answers.look(listed[1])
    assert found.answers.meant(listed) == listed


def test_taints_that_are_tolerated_or_without_effect_are_no_reason() -> None:
    taints = [
        {"key": "a", "effect": "NoSchedule"},
        {"key": "b", "effect": "None"},
        {"key": "c", "value": "1", "effect": "NoExecute"},
    ]
    cluster = state(resource_slice([device("x", taints=taints)]))
    tolerated = [{"key": "a", "operator": "Exists"}]
    assert reasons(cluster, request(tolerations=tolerated)) == [(Tainted("c=1:NoExecute"),)]


def test_a_toleration_of_another_effect_is_told() -> None:
    tainted = device("a", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    cluster = state(resource_slice([tainted]))
    tolerated = [{"key": "k", "operator": "Exists", "effect": "NoExecute"}]
    hint = "the request tolerates it only with effect NoExecute"
    assert reasons(cluster, request(tolerations=tolerated)) == [
        (Tainted("k=v:NoSchedule", hint=hint),)
    ]
    other = [{"key": "other", "operator": "Exists", "effect": "NoExecute"}]
    assert reasons(cluster, request(tolerations=other)) == [(Tainted("k=v:NoSchedule"),)]


def test_requests_that_ask_for_the_same_share_what_is_found_out() -> None:
    fleet = Fleet(state(resource_slice(devices(2)), holder("gpu-0")))

    def found(name: str, **more: Any) -> RequestExplained:
        (asked,) = requests_in(claim(request(name=name, **more)))
        return RequestExplained(fleet, asked, fleet.nodes)

    one, other = found("one"), found("other", count=2)
    assert one.answers is other.answers
    assert one.kinds(fleet.all_devices) is other.kinds(fleet.all_devices)
    assert one.kinds(list(fleet.all_devices)) is not other.kinds(list(fleet.all_devices))
    half = found("half", cel=f"{A}.numa == 1")
    assert half.answers is not one.answers
    larger = found("larger", capacity={"requests": {"memory": "1Gi"}})
    assert larger.answers is one.answers
    assert larger.kinds(fleet.all_devices) is not one.kinds(fleet.all_devices)
