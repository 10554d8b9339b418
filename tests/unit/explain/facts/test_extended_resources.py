# SPDX-License-Identifier: Apache-2.0
"""The claim that the scheduler would make for extended resources."""

import msgspec

from dra_driver.explain.facts.extended_resources import (
    NAME,
    backed_by_devices,
    claim_for,
    classes_by_resource,
    on_node,
    without_devices,
)
from dra_driver.explain.verdict import ClassMissing, CouldNotTell, FeatureOff
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.resource_claim import DeviceClass
from dra_driver.model.cluster import ClusterState, NotRead

GPU = "example.com/gpu"


def device_class(name: str, created: str = "", resource: str | None = GPU) -> DeviceClass:
    metadata = {"name": name, "creationTimestamp": created or None}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"extendedResourceName": resource}}, DeviceClass
    )


def container(count: int, **more: object) -> dict[str, object]:
    requests = {"cpu": "1", GPU: str(count)} if count else {"cpu": "1"}
    return {"name": "c", "resources": {"requests": requests}, **more}


def pod(*containers: dict[str, object], first: tuple[dict[str, object], ...] = ()) -> Pod:
    spec = {"containers": list(containers), "initContainers": list(first)}
    return msgspec.convert(
        {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}, Pod
    )


def requested(made: Pod) -> list[tuple[str, int]]:
    claim = claim_for(made, [GPU], {GPU: "gpu"})
    return [(one.name, one.exactly.count) for one in claim.spec.devices.requests]


def test_the_newest_class_of_a_name_counts_then_the_first_by_name() -> None:
    classes = [
        device_class("b", "2026-01-01T00:00:00Z"),
        device_class("a", "2026-01-01T00:00:00Z"),
        device_class("z", "2025-01-01T00:00:00Z"),
        device_class("plain", resource=None),
    ]
    implicit = "deviceclass.resource.kubernetes.io/"
    assert classes_by_resource(classes) == {
        GPU: "a",
        **{f"{implicit}{name}": name for name in ("a", "b", "z", "plain")},
    }
    newest = device_class("y", "2026-01-02T00:00:00Z")
    assert classes_by_resource([*classes, newest])[GPU] == "y"


def test_only_resources_of_a_class_are_devices_and_only_where_the_node_has_none() -> None:
    made = pod(container(1))
    assert backed_by_devices(made, {GPU: "gpu"}) == (GPU,)
    assert backed_by_devices(made, {}) == ()
    node = msgspec.convert({"status": {"allocatable": {GPU: "4"}}}, Node)
    assert on_node([GPU, "other"], node) == ("other",)
    assert on_node([GPU], Node()) == (GPU,)


def test_each_container_has_a_request_of_its_own() -> None:
    assert requested(pod(container(2), container(0), container(1))) == [
        ("container-0-request-1", 2),
        ("container-2-request-1", 1),
    ]


def test_init_containers_use_again_what_later_containers_have() -> None:
    first = (container(3), container(1, restartPolicy="Always"), container(5), container(4))
    assert requested(pod(container(2), first=first)) == [
        ("container-1-request-1", 1),
        ("container-2-request-1", 3),
        ("container-4-request-1", 2),
    ]
    assert requested(pod(container(2), first=(container(1),))) == [("container-1-request-1", 2)]


def test_the_claim_belongs_to_the_pod() -> None:
    claim = claim_for(pod(container(1)), [GPU], {GPU: "gpu"})
    owner = claim.metadata.owner_references[0]
    assert (claim.metadata.name, owner.kind, owner.uid) == (NAME, "Pod", "u")
    assert claim.spec.devices.requests[0].exactly.device_class_name == "gpu"


def of(resource: str) -> Pod:
    return pod({"name": "c", "resources": {"requests": {resource: "1"}}})


IMPLICIT = "deviceclass.resource.kubernetes.io/gpx"
CLUSTER = ClusterState(device_classes=(device_class("gpu"),))


def blind(**gap: str) -> ClusterState:
    unread = NotRead(resource="deviceclasses", message="m", **gap)
    return ClusterState(not_read=(unread,))


def test_a_class_that_is_missing_is_what_keeps_its_resource_from_devices() -> None:
    missing = without_devices(of(IMPLICIT), (), CLUSTER, gate_off="")
    assert missing == {IMPLICIT: ClassMissing("gpx", "did you mean gpu?", IMPLICIT)}
    for other in (GPU, "example.com/other", "cpu"):
        assert without_devices(of(other), (), CLUSTER, gate_off="") == {}


def test_a_node_that_offers_the_resource_itself_needs_no_devices() -> None:
    plugin = msgspec.convert({"status": {"allocatable": {IMPLICIT: "1"}}}, Node)
    assert without_devices(of(IMPLICIT), (plugin, Node()), CLUSTER, gate_off="") == {}
    assert list(without_devices(of(IMPLICIT), (Node(),), CLUSTER, gate_off="")) == [IMPLICIT]


def test_a_class_that_was_not_read_is_not_missing() -> None:
    all_of_them = blind(reason="forbidden")
    unknown = CouldNotTell("forbidden", "deviceclasses: m")
    for resource in (IMPLICIT, GPU):
        assert without_devices(of(resource), (), all_of_them, gate_off="") == {resource: unknown}
    one = blind(reason="malformed", name="gpx")
    spoiled = CouldNotTell("malformed", "deviceclasses gpx: m")
    assert without_devices(of(IMPLICIT), (), one, gate_off="") == {IMPLICIT: spoiled}
    assert without_devices(of(GPU), (), one, gate_off="") == {}


def test_without_the_gate_only_what_a_class_stands_for_is_refused() -> None:
    for resource in (GPU, IMPLICIT):
        off = {resource: FeatureOff("G", f"extended resource {resource}")}
        assert without_devices(of(resource), (), CLUSTER, gate_off="G") == off
    assert without_devices(of("example.com/other"), (), CLUSTER, gate_off="G") == {}


def test_a_resource_that_nobody_offers_is_told_with_one_that_may_be_meant() -> None:
    def offering(*names: str) -> ClusterState:
        status = {"allocatable": dict.fromkeys(("cpu", *names), "1")}
        nodes = (msgspec.convert({"status": status}, Node),)
        return msgspec.structs.replace(CLUSTER, nodes=nodes)

    def said(cluster: ClusterState) -> dict[str, object]:
        return {**without_devices(of("example.com/gpus"), (), cluster, gate_off="")}

    typo = ClassMissing("", "did you mean example.com/gpu?", "example.com/gpus")
    assert said(offering()) == {"example.com/gpus": typo}
    assert said(offering("example.com/gpux")) == {"example.com/gpus": typo}
    assert said(offering("example.com/gpus")) == {}
    gap = NotRead(resource="nodes", reason="malformed", name="n", message="m")
    assert said(msgspec.structs.replace(offering(), not_read=(gap,))) == {}
