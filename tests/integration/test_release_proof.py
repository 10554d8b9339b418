# SPDX-License-Identifier: Apache-2.0
"""The real driver process and pods that run on after the kubelet forgot them: who gets their devices, and when?"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import PodUid
from dra_driver.testing.stage import DEADLINE_SECONDS, DRIVER, NODE, Stage, wait_for


def _claim(node: Stage, name: str, *pods: PodUid, device: str = "gpu-0") -> ClaimRef:
    """A claim that these pods may use."""
    ref = node.claim(name, [device])
    _reserve(node, ref, *pods)
    return ref


def _reserve(node: Stage, ref: ClaimRef, *pods: PodUid) -> None:
    claim = node.api.object("resourceclaims", ref.name)
    users = [{"resource": "pods", "name": "pod", "uid": pod} for pod in pods]
    node.api.put("resourceclaims", {**claim, "status": {**claim["status"], "reservedFor": users}})


def _node_events(node: Stage) -> list[Any]:
    return [event["reason"] for event in node.api.objects("events", namespace="default")]


def _held(node: Stage) -> bool:
    return "devices_held" in node.log()


def test_a_force_deleted_pod_keeps_its_device_until_its_containers_end(node: Stage) -> None:
    node.start_registered()
    kubelet = node.kubelet
    first = _claim(node, "one", kubelet.pod_uid("default/a"))
    second = _claim(node, "two", kubelet.pod_uid("default/b"))
    kubelet.prepare(DRIVER, [first], pod="default/a")
    old = kubelet.force_delete("default/a")
    node.api.remove("resourceclaims", "one")
    kubelet.reconcile(DRIVER)
    assert first.uid not in kubelet.claims
    assert node.cdi_files() == {}
    assert node.owners() == {"gpu-0": first.uid}

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(kubelet.prepare, DRIVER, [second], pod="default/b")
        wait_for(lambda: _held(node), "the device to be held")
        assert not call.done()
        kubelet.end_containers(old)
        call.result(DEADLINE_SECONDS)
    assert node.owners() == {"gpu-0": second.uid}


def test_a_held_device_is_tainted_until_its_containers_end(node: Stage) -> None:
    """So the scheduler gives it to no other pod meanwhile."""
    node.start_registered()
    kubelet = node.kubelet
    ref = _claim(node, "one", kubelet.pod_uid("default/a"))
    kubelet.prepare(DRIVER, [ref], pod="default/a")
    wait_for(node.slices, "the slice")
    assert _taints(node) == []
    old = kubelet.force_delete("default/a")
    node.api.remove("resourceclaims", "one")
    kubelet.reconcile(DRIVER)
    wait_for(lambda: _taints(node) == ["gpu-0 gpu.dra-driver.dev/held"], "the taint")
    kubelet.end_containers(old)
    wait_for(lambda: _taints(node) == [], "a device without a taint")


def test_a_process_that_stays_holds_its_device_and_what_it_leaves_behind_taints_it(
    node: Stage,
) -> None:
    faults = node.root / "faults.yaml"

    def shows(text: str) -> None:
        fresh = faults.with_suffix(".new")
        fresh.write_text(f"devices: {{gpu-0: {{{text}}}}}\n")
        fresh.rename(faults)

    shows("in_use: false")
    node.start_registered("--simulated-faults", str(faults))
    kubelet = node.kubelet
    ref = _claim(node, "one", kubelet.pod_uid("default/a"))
    kubelet.prepare(DRIVER, [ref], pod="default/a")
    wait_for(node.slices, "the slice")
    shows('in_use: true, not_clean: "process 4711 uses it"')
    kubelet.unprepare(DRIVER, [ref], pod="default/a")
    wait_for(lambda: _taints(node) == ["gpu-0 gpu.dra-driver.dev/held"], "the taint")
    shows(
        'not_clean: "process 4711 uses it"'
    )  # now the hardware says that it is free, and is wrong
    wait_for(lambda: not node.owners(), "the device to be free")
    shows('not_clean: "about 3 GiB of its memory are used"')
    wait_for(lambda: _taints(node) == ["gpu-0 gpu.dra-driver.dev/not-clean"], "the taint")
    wait_for(lambda: "DeviceNotClean" in _node_events(node), "an Event")
    shows("in_use: false")
    wait_for(lambda: _taints(node) == [], "a device without a taint")


def _taints(node: Stage) -> list[str]:
    return [
        f"{device['name']} {taint['key']}"
        for found in node.slices()
        for device in found["spec"]["devices"]
        for taint in device.get("taints", ())
    ]


def test_an_ordinary_end_frees_the_device_within_the_call(node: Stage) -> None:
    node.start_registered()
    kubelet = node.kubelet
    first = _claim(node, "one", kubelet.pod_uid("default/a"))
    kubelet.prepare(DRIVER, [first], pod="default/a")
    kubelet.unprepare(DRIVER, [first], pod="default/a")
    assert (node.owners(), node.rows()) == ({}, {})
    assert not _held(node)


def test_a_pod_that_joined_a_claim_without_a_call_holds_its_device(node: Stage) -> None:
    node.start_registered()
    kubelet = node.kubelet
    one, two = kubelet.pod_uid("default/a"), kubelet.pod_uid("default/b")
    shared = _claim(node, "shared", one)
    kubelet.prepare(DRIVER, [shared], pod="default/a")
    # The first pod ends as it should; the kubelet has told nobody of the second.
    _reserve(node, shared, one, two)
    kubelet.prepare(DRIVER, [shared], pod="default/b")
    kubelet.unprepare(DRIVER, [shared], pod="default/a")
    kubelet.force_delete("default/b")
    # Deletion takes the claim's users with it; they were seen before.
    wait_for(lambda: str(two) in _users(node), "the second pod to be remembered")
    node.api.remove("resourceclaims", "shared")
    kubelet.reconcile(DRIVER)
    assert node.owners() == {"gpu-0": shared.uid}
    kubelet.end_containers(two)
    wait_for(lambda: not node.owners(), "the device to be free")


def test_a_pod_that_names_the_claim_of_another_pods_template_holds_its_device(
    node: Stage,
) -> None:
    """Nobody checks for whom such a claim was made when a pod names it as its own."""
    node.start_registered()
    kubelet = node.kubelet
    one, two = kubelet.pod_uid("default/a"), kubelet.pod_uid("default/b")
    made = _claim(node, "a-devices-x7k2p", one)
    claim = node.api.object("resourceclaims", made.name)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": one, "controller": True}
    claim["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "devices"}
    claim["metadata"]["ownerReferences"] = [owner]
    node.api.put("resourceclaims", claim)
    kubelet.prepare(DRIVER, [made], pod="default/a")
    kubelet.prepare(DRIVER, [made], pod="default/b")
    wait_for(lambda: str(two) in _users(node), "the second pod to be remembered")
    kubelet.unprepare(DRIVER, [made], pod="default/a")
    kubelet.force_delete("default/b")
    kubelet.reconcile(DRIVER)
    assert node.owners() == {"gpu-0": made.uid}
    kubelet.end_containers(two)
    wait_for(lambda: not node.owners(), "the device to be free")


def _users(node: Stage) -> str:
    return " ".join(str(users) for (users,) in node._query("SELECT users FROM claims"))


def test_without_the_kubelets_cgroups_devices_stay_held_and_the_admin_hears_why(
    node: Stage,
) -> None:
    (node.root / "none").mkdir()
    node.start_registered("--cgroup-root", str(node.root / "none"))
    kubelet = node.kubelet
    first = _claim(node, "one", kubelet.pod_uid("default/a"))
    kubelet.prepare(DRIVER, [first], pod="default/a")
    kubelet.unprepare(DRIVER, [first], pod="default/a")
    assert node.owners() == {"gpu-0": first.uid}
    assert "cgroups_not_found" in node.log()
    assert "--release-proof unprepare" in node.log()
    wait_for(lambda: "CgroupsNotFound" in _node_events(node), "the Event")


def test_who_believes_the_kubelet_gets_devices_back_at_once(node: Stage) -> None:
    node.start_registered("--release-proof", "unprepare")
    kubelet = node.kubelet
    first = _claim(node, "one", kubelet.pod_uid("default/a"))
    kubelet.prepare(DRIVER, [first], pod="default/a")
    kubelet.force_delete("default/a")
    kubelet.reconcile(DRIVER)
    assert node.owners() == {}
    assert "unprepare_is_believed" in node.log()


def test_a_claim_that_is_allocated_elsewhere_is_prepared_anew_when_its_pod_has_ended(
    node: Stage,
) -> None:
    node.start_registered()
    kubelet = node.kubelet
    named = _claim(node, "named", kubelet.pod_uid("default/a"))
    before = kubelet.prepare(DRIVER, [named], pod="default/a")[named.uid]
    old = kubelet.force_delete("default/a")
    kubelet.reconcile(DRIVER)
    claim = node.api.object("resourceclaims", "named")
    result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "gpu-1"}
    status = {"allocation": {"devices": {"results": [result]}}}
    node.api.put("resourceclaims", {**claim, "status": status})
    _reserve(node, named, kubelet.pod_uid("default/b"))
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(kubelet.prepare, DRIVER, [named], pod="default/b")
        wait_for(lambda: _held(node), "the device to be held")
        kubelet.end_containers(old)
        after = call.result(DEADLINE_SECONDS)[named.uid]
    assert node.owners() == {"gpu-1": named.uid}
    assert set(before[0].cdi_device_ids).isdisjoint(after[0].cdi_device_ids)
