# SPDX-License-Identifier: Apache-2.0
"""What the API server says of a node is judged."""

import json
from typing import Any

import msgspec
import pytest

from dra_driver.doctor import cluster as rules
from dra_driver.doctor.findings import Finding
from dra_driver.model.api.pod_access import PodAccess
from dra_driver.model.cluster import ClusterState
from dra_driver.model.names import (
    HELD_BY_TAINT,
    HELD_TAINT,
    LOST_TAINT,
    NOT_CLEAN_TAINT,
    UNHEALTHY_TAINT,
    VANISHED_TAINT,
)
from dra_driver.model.plugin import Path
from dra_driver.model.rights import Right

DRIVER = "gpu.dra-driver.dev"


def state(**fields: Any) -> ClusterState:
    return msgspec.convert(
        {"kubernetesVersion": "v1.37.0", "served": ["v1"], **fields}, ClusterState
    )


def gap(resource: str, reason: str = "forbidden") -> dict[str, str]:
    return {"resource": resource, "reason": reason, "message": "no right"}


def node(version: str = "v1.37.1", **amounts: str) -> dict[str, Any]:
    status = {"capacity": amounts, "allocatable": amounts, "nodeInfo": {"kubeletVersion": version}}
    return {"metadata": {"name": "n"}, "status": status}


def a_slice(driver: str = DRIVER, *devices: dict[str, Any], **pool: int) -> dict[str, Any]:
    where = {"name": "n", "generation": 1, "resourceSliceCount": 1, **pool}
    return {"spec": {"driver": driver, "nodeName": "n", "pool": where, "devices": list(devices)}}


def device(
    name: str = "gpu-0", *, taints: tuple[str, ...] = (), **attributes: str
) -> dict[str, Any]:
    named = {key.replace("__", "/"): {"string": value} for key, value in attributes.items()}
    return {"name": name, "attributes": named, "taints": [{"key": key} for key in taints]}


def short(found: Any) -> list[tuple[str, str, str]]:
    judged: list[Finding] = list(found)
    return [(one.id, one.severity, one.object) for one in judged]


def test_the_api_server_serves_claims_or_not() -> None:
    assert short(rules.judge_api(state())) == [("api", "ok", "v1.37.0")]
    without = state(served=[])
    assert short(rules.judge_api(without)) == [("claims-not-served", "warning", "v1.37.0")]
    said = state(served=[], notRead=[gap("resource.k8s.io", "not_served")], kubernetesVersion="")
    assert short(rules.judge_api(said)) == [("claims-not-served", "warning", "of unknown version")]
    hidden = state(served=[], notRead=[gap("resource.k8s.io")])
    assert short(rules.judge_api(hidden)) == [("api", "unknown", "resource.k8s.io")]


def test_an_object_that_cannot_be_read_is_named_and_a_kind_by_the_check_that_needs_it() -> None:
    gaps = [gap("pods"), {**gap("resourceslices", "malformed"), "name": "bad"}]
    found = list(rules.judge_api(state(notRead=gaps)))
    assert short(found) == [("api", "unknown", "resourceslices bad"), ("api", "ok", "v1.37.0")]
    assert found[1].found == "it serves resource.k8s.io v1; its feature gates could not be read"
    (one,) = rules.judge_api(state(featureGates={"A": True, "B": False, "C": True}))
    assert one.found.endswith("; 2 feature gates are on")


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("v1.37.1", ("versions", "ok", "n")),
        ("v1.34.0", ("versions", "ok", "n")),
        ("v1.33.9", ("kubelet-does-not-list-claims", "note", "n")),
        ("v1.31.9", ("kubelet-without-claims", "note", "n")),
        ("odd", ("versions", "unknown", "n")),
    ],
)
def test_the_version_of_the_kubelet(version: str, found: tuple[str, str, str]) -> None:
    assert short(rules.judge_versions(state(nodes=[node(version)]), "n", None)) == [found]


def test_an_old_kubelet_is_a_problem_only_where_the_admin_wants_claims() -> None:
    old = state(nodes=[node("v1.31.9")])
    assert short(rules.judge_versions(old, "n", Path.DRA)) == [("kubelet-too-old", "problem", "n")]
    assert short(rules.judge_versions(old, "n", Path.DEVICE_PLUGIN)) == [
        ("kubelet-without-claims", "note", "n")
    ]


def test_a_node_that_is_not_there_or_not_read() -> None:
    assert short(rules.judge_versions(state(), "n", None)) == [("node-not-found", "problem", "n")]
    unread = state(notRead=[gap("nodes")])
    assert short(rules.judge_versions(unread, "n", None)) == [("versions", "unknown", "n")]
    bare = state(nodes=[{"metadata": {"name": "n"}}])
    (one,) = rules.judge_versions(bare, "n", None)
    assert one.found == "its kubelet's version is 'not there'"


def test_fields_that_the_api_server_drops() -> None:
    off = {"DRADeviceTaints": "dropped", "A": "forbidden", "B": "forbidden", "C": "too slow"}
    assert short(rules.judge_kept_fields(off, "dropped")) == [
        ("field-dropped", "warning", "DRADeviceTaints"),
        ("kept-fields", "unknown", "A, B"),
        ("kept-fields", "unknown", "C"),
    ]
    assert short(rules.judge_kept_fields({}, "dropped")) == [("kept-fields", "ok", "ResourceSlice")]


def test_rights_that_are_missing() -> None:
    slices, events = Right("list", "resourceslices", "resource.k8s.io"), rules.RIGHTS[-1]
    first, second = rules.judge_rights((slices, events), "system:serviceaccount:a:b", {})
    assert first.found == "list resourceslices.resource.k8s.io is not allowed"
    assert first.command == (
        "kubectl auth can-i list resourceslices.resource.k8s.io --as system:serviceaccount:a:b"
    )
    assert second.found == "create events in namespace default is not allowed"
    (one,) = rules.judge_rights((), "me", {})
    assert (one.id, one.severity, one.object) == ("rights", "ok", "me")
    assert one.found == (
        "it has the rights that every install needs; no setting that was given here needs more"
    )


def of_settings(**given: str) -> dict[Right, str]:
    nothing = {
        "node_labels": "nfd",
        "node_condition": "none",
        "startup_taint": "",
        "device_status": "none",
        "kubernetes": "v1.37.0",
    }
    return dict(rules.rights_of_settings(**{**nothing, **given}, driver=DRIVER))


def test_settings_need_rights_of_their_own() -> None:
    assert of_settings() == {}
    nodes = Right("patch", "nodes")
    assert of_settings(node_labels="patch") == {nodes: "--node-labels patch"}
    assert of_settings(startup_taint="x/y") == {nodes: "--startup-taint"}
    both = of_settings(node_labels="patch", startup_taint="x/y")
    assert both == {nodes: "--node-labels patch"}
    condition = of_settings(node_condition="write")
    assert condition == {Right("patch", "nodes/status"): "--node-condition write"}
    status = Right("patch", "resourceclaims/status", "resource.k8s.io")
    own = Right("associated-node:patch", "resourceclaims/driver", "resource.k8s.io", name=DRIVER)
    assert set(of_settings(device_status="write")) == {status, own}
    assert set(of_settings(device_status="write", kubernetes="")) == {status, own}
    assert set(of_settings(device_status="write", kubernetes="v1.35.9")) == {status}


def test_a_right_that_only_a_setting_needs_is_told_with_the_setting() -> None:
    needed = of_settings(node_labels="patch", node_condition="write", device_status="write")
    labels, condition, _status, own = rules.judge_rights(needed, "a:b", needed)
    assert {one.id for one in (labels, condition, own)} == {"setting-right-missing"}
    assert labels.found == "patch nodes is not allowed, and --node-labels patch needs it"
    assert condition.found == (
        "patch nodes/status is not allowed, and --node-condition write needs it"
    )
    assert condition.command == "kubectl auth can-i patch nodes --subresource=status --as a:b"
    assert own.command == (
        f"kubectl auth can-i associated-node:patch resourceclaims.resource.k8s.io/{DRIVER} "
        "--subresource=driver --as a:b"
    )
    (fine,) = rules.judge_rights((), "a:b", needed)
    assert fine.found == (
        "it has the rights that every install needs, and those of --node-labels patch, --node-condition write, --device-status write"
    )


def test_slices_of_the_driver() -> None:
    def found(*slices: dict[str, Any]) -> list[tuple[str, str, str]]:
        return short(rules.judge_slices(state(resourceSlices=slices), DRIVER, "n", None))

    assert found(a_slice(DRIVER, device())) == [("slices", "ok", "n")]
    elsewhere = a_slice(DRIVER, device())
    elsewhere["spec"]["nodeName"] = "m"
    assert found(a_slice("other", device()), elsewhere) == [("slices-missing", "problem", "n")]
    assert found(a_slice()) == [("no-devices-published", "warning", "n")]
    half = a_slice(DRIVER, device(), resourceSliceCount=2, generation=3)
    assert found(half, a_slice()) == [("slices-incomplete", "warning", "n")]
    ill = a_slice(DRIVER, device("gpu-1", taints=("x",)), device())
    assert found(ill) == [("devices-tainted", "note", "n"), ("slices", "ok", "n")]
    unread = state(notRead=[gap("resourceslices")])
    assert short(rules.judge_slices(unread, DRIVER, "n", None)) == [("slices", "unknown", "n")]
    assert short(rules.judge_other_drivers(unread, DRIVER, "n")) == [
        ("other-drivers", "unknown", "n")
    ]


@pytest.mark.parametrize(
    ("key", "found"),
    [
        (UNHEALTHY_TAINT, ("devices-ill", "warning", "n")),
        (VANISHED_TAINT, ("devices-ill", "warning", "n")),
        (LOST_TAINT, ("devices-ill", "warning", "n")),
        (NOT_CLEAN_TAINT, ("devices-ill", "warning", "n")),
        (HELD_TAINT, ("devices-tainted", "note", "n")),
        (HELD_BY_TAINT, ("devices-tainted", "note", "n")),
        ("example.com/mine", ("devices-tainted", "note", "n")),
    ],
)
def test_a_device_that_is_ill_is_a_warning_and_another_taint_a_note(
    key: str, found: tuple[str, str, str]
) -> None:
    known = state(resourceSlices=[a_slice(DRIVER, device("gpu-1", taints=(key,)), device())])
    assert short(rules.judge_slices(known, DRIVER, "n", None)) == [found, ("slices", "ok", "n")]


def test_taints_are_told_with_their_value_and_since_when() -> None:
    dead = device("gpu-7")
    dead["taints"] = [
        {"key": UNHEALTHY_TAINT, "value": "smoke", "timeAdded": "2027-01-15T08:00:00Z"},
        {"key": "x", "value": "79"},
    ]
    known = state(resourceSlices=[a_slice(DRIVER, dead, device("gpu-6", taints=(LOST_TAINT,)))])
    (ill, _fine) = rules.judge_slices(known, DRIVER, "n", None)
    assert ill.found == (
        f"gpu-6: {LOST_TAINT}=; gpu-7: {UNHEALTHY_TAINT}=smoke since 2027-01-15T08:00:00Z, x=79"
    )


@pytest.mark.parametrize(
    ("version", "wish", "found"),
    [
        ("v1.31.1", None, ("slices", "ok", "n")),
        ("v1.31.1", Path.DRA, ("no-devices-published", "warning", "n")),
        ("v1.37.1", Path.DEVICE_PLUGIN, ("slices", "ok", "n")),
        ("v1.37.1", None, ("no-devices-published", "warning", "n")),
    ],
)
def test_a_slice_without_devices_is_right_where_the_device_plugin_api_has_them(
    version: str, wish: Path | None, found: tuple[str, str, str]
) -> None:
    known = state(nodes=[node(version)], resourceSlices=[a_slice()])
    assert short(rules.judge_slices(known, DRIVER, "n", wish)) == [found]


def test_without_the_version_of_the_kubelet_a_slice_without_devices_is_told() -> None:
    bare = state(nodes=[{"metadata": {"name": "n"}}], resourceSlices=[a_slice()])
    assert short(rules.judge_slices(bare, DRIVER, "n", None)) == [
        ("no-devices-published", "warning", "n")
    ]


def test_other_drivers_and_hardware_that_two_publish() -> None:
    bus = {"resource.kubernetes.io__pciBusID": "0000:01:00.0"}
    ours = a_slice(DRIVER, device("gpu-0", **bus, uuid="GPU-1", brand="a"), device("gpu-1"))
    theirs = a_slice("gpu.nvidia.com", device("gpu-7", **{"gpu.nvidia.com__uuid": "GPU-1"}))
    (twice, other) = rules.judge_other_drivers(state(resourceSlices=[ours, theirs]), DRIVER, "n")
    assert (twice.id, twice.object) == ("published-twice", "uuid GPU-1")
    assert twice.found == f"gpu-0 of {DRIVER}, gpu-7 of gpu.nvidia.com"
    assert (other.id, other.object, other.found) == (
        "other-driver",
        "gpu.nvidia.com",
        "devices published: 1",
    )
    # Partitions of one GPU have its address; they are of one driver.
    alone = a_slice(DRIVER, device("a", **bus), device("b", **bus))
    assert short(rules.judge_other_drivers(state(resourceSlices=[alone]), DRIVER, "n")) == [
        ("other-drivers", "ok", "n")
    ]
    bare = {"spec": {"driver": "net", "nodeName": "n", "pool": {"name": "n"}}}
    assert short(rules.judge_other_drivers(state(resourceSlices=[bare]), DRIVER, "n")) == [
        ("other-driver", "note", "net")
    ]


def test_capacity_that_nobody_serves_as_the_kubelet_tells_it() -> None:
    amounts = {"nvidia.com/gpu": "2", "acme.com/x": "1", "cpu": "4"}
    known = state(nodes=[node(**amounts)])
    stale, plugin = rules.judge_capacity(known, DRIVER, "n", ["nvidia.com/gpu"])
    assert (stale.id, stale.object, stale.found) == ("stale-capacity", "acme.com/x", "capacity 1")
    patch = json.dumps(
        [
            {"op": "remove", "path": f"/status/{field}/acme.com~1x"}
            for field in ("capacity", "allocatable")
        ]
    )
    assert stale.command.endswith(f"-p '{patch}'")
    assert (plugin.id, plugin.object) == ("capacity-of-plugin", "nvidia.com/gpu")
    none = state(nodes=[node(cpu="4")])
    assert short(rules.judge_capacity(none, DRIVER, "n", [])) == [("stale-capacity", "ok", "n")]


def test_capacity_without_the_kubelet_goes_by_what_the_driver_has_found() -> None:
    known = node(**{"nvidia.com/gpu": "2"})
    found = rules.judge_capacity(state(nodes=[known]), DRIVER, "n", None)
    assert short(found) == [("capacity-of-plugin", "note", "nvidia.com/gpu")]
    # The driver on the node would taint what a plugin could give out; there is none, and no pod has a unit.
    published = state(nodes=[known], resourceSlices=[a_slice(DRIVER, device())])
    assert short(rules.judge_capacity(published, DRIVER, "n", None)) == [
        ("stale-capacity", "warning", "nvidia.com/gpu")
    ]
    assert short(rules.judge_capacity(state(), DRIVER, "n", None)) == [
        ("stale-capacity", "unknown", "n")
    ]
    unread = state(notRead=[gap("nodes")])
    (one,) = rules.judge_capacity(unread, DRIVER, "n", None)
    assert one.found == "no right"


def pod(
    name: str, spec: dict[str, Any], *, owner: str = "ReplicaSet", phase: str = "Running"
) -> PodAccess:
    metadata = {"name": name, "namespace": "a", "ownerReferences": [{"kind": owner}]}
    whole = {"metadata": metadata, "spec": spec, "status": {"phase": phase}}
    return msgspec.convert(whole, PodAccess)


PRIVILEGED = {"containers": [{"name": "c", "securityContext": {"privileged": True}}]}


def mounting(path: str) -> dict[str, Any]:
    return {"volumes": [{"name": "x", "emptyDir": {}}, {"name": "d", "hostPath": {"path": path}}]}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (PRIVILEGED, "it is privileged"),
        ({"initContainers": PRIVILEGED["containers"]}, "it is privileged"),
        ({"ephemeralContainers": PRIVILEGED["containers"]}, "it is privileged"),  # kubectl debug
        (mounting("/dev/dri"), "it mounts /dev/dri"),
        (mounting("/dev/kfd"), "it mounts /dev/kfd"),
        (mounting("/dev/accel"), "it mounts /dev/accel"),
        (mounting("/dev"), "it mounts /dev"),
        (mounting("/dev/"), "it mounts /dev/"),
        (mounting("/"), "it mounts /"),
        (mounting("/dev/nvidia0"), "it mounts /dev/nvidia0"),
        (mounting("/var/log"), ""),
        (mounting("/dev/shm"), ""),
        ({"containers": [{"name": "c", "securityContext": {}}, {"name": "d"}]}, ""),
        ({}, ""),
    ],
)
def test_a_pod_that_sees_every_gpu(spec: dict[str, Any], why: str) -> None:
    (one,) = rules.judge_pods([pod("p", spec)], 0, "n")
    if why:
        assert (one.id, one.object, one.found) == ("pod-sees-every-gpu", "pod a/p", why)
    else:
        assert (one.severity, one.check) == ("ok", "privileged-pods")


def test_pods_of_the_node_itself_are_a_note_and_ended_ones_nothing() -> None:
    pods = [
        pod("b", PRIVILEGED, owner="DaemonSet"),
        pod("a", PRIVILEGED, owner="Node"),
        pod("c", PRIVILEGED, phase="Succeeded"),
    ]
    assert short(rules.judge_pods(pods, 0, "n")) == [
        ("node-pods-see-every-gpu", "note", "a/a, a/b")
    ]
    assert short(rules.judge_pods([], 3, "n")) == [("privileged-pods", "unknown", "n")]
