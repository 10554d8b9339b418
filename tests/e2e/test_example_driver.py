# SPDX-License-Identifier: Apache-2.0
"""Does each demo of the Kubernetes project's example driver do here what it does there?"""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.onenode import build, preflight
from hack.testbed.onenode.cluster import Cluster, Options
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.selection import kubernetes_version
from tests.e2e.example_machine import GATES, SERVED, Demo, Machines, results

pytestmark = [pytest.mark.real, pytest.mark.matrix, pytest.mark.needs("ExampleDriverDemos")]
SETTLED_SECONDS = 5.0  # a pod that is to be evicted would be gone by then
OWN_NAMESPACE = {"admin_access": "example-admin-access"}
TAINTS = "device-taints-tolerations"


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    """A cluster with what all demos need, and the drivers on it."""
    preflight.require()
    version = kubernetes_version()
    options = Options(version=version, feature_gates=GATES, runtime_config=SERVED)
    cluster = Cluster(build.build(version), options)
    keep: Path | None = build.cache_folder() / "logs" / time.strftime("example-%Y%m%d-%H%M%S")
    try:
        cluster.start()
        machines = Machines(cluster)
        machines.start()
        yield machines
    finally:
        cluster.stop(keep=keep)


@pytest.fixture
def demo(machines: Machines, request: pytest.FixtureRequest) -> Iterator[Demo]:
    """A namespace for one demo."""
    name = request.node.name.removeprefix("test_")
    words = re.sub("[^a-z0-9]+", "-", name)[:40].strip("-")
    made = Demo(machines, OWN_NAMESPACE.get(name, f"example-{words}"))
    if name not in OWN_NAMESPACE:
        machines.cluster.kubectl("create", "namespace", made.namespace)
    yield made
    made.end()


def gpu_demo(demo: Demo, name: str, **options: object) -> None:
    """Run a demo to the point where all its pods run."""
    demo.machines.play("gpu", **options)
    demo.apply(name)
    demo.wait_running()


def test_basic_resourceclaimtemplate(demo: Demo) -> None:
    gpu_demo(demo, "basic-resourceclaimtemplate")
    (one,), (other,) = demo.gpus("pod0"), demo.gpus("pod1")
    assert one != other

    number = one.removeprefix("gpu-")
    seen = demo.variables("pod0")
    claim_uid = seen.pop(f"GPU_DEVICE_GPU_{number}_RESOURCE_CLAIM")
    assert claim_uid in {claim["metadata"]["uid"] for claim in demo.claims()}
    assert seen == {
        "KUBERNETES_NODE_NAME": "node1",
        "DRA_RESOURCE_DRIVER_NAME": "gpu.example.com",
        "DRA_ADMIN_ACCESS": "false",
        f"GPU_DEVICE_{number}": one,
        f"GPU_DEVICE_{number}_SHARING_STRATEGY": "TimeSlicing",
        f"GPU_DEVICE_{number}_TIMESLICE_INTERVAL": "Default",
    }


def test_basic_multiple_requests(demo: Demo) -> None:
    gpu_demo(demo, "basic-multiple-requests")
    assert len(set(demo.gpus("pod0"))) == 2
    assert [one["request"] for one in results(*demo.claims())] == ["gpu-1", "gpu-2"]


def test_basic_shared_claim_across_containers(demo: Demo) -> None:
    gpu_demo(demo, "basic-shared-claim-across-containers")
    (gpu,) = demo.gpus("pod0", "ctr0")
    assert demo.gpus("pod0", "ctr1") == [gpu]
    number = gpu.removeprefix("gpu-")
    assert demo.variables("pod0", "ctr1")[f"GPU_DEVICE_{number}_SHARING_STRATEGY"] == "TimeSlicing"
    assert demo.variables("pod0", "ctr1")[f"GPU_DEVICE_{number}_TIMESLICE_INTERVAL"] == "Default"


def test_basic_shared_claim_across_pods(demo: Demo) -> None:
    gpu_demo(demo, "basic-shared-claim-across-pods")
    (gpu,) = demo.gpus("pod0")
    assert demo.gpus("pod1") == [gpu]


def test_basic_resourceclaim_opaque_config(demo: Demo) -> None:
    gpu_demo(demo, "basic-resourceclaim-opaque-config")
    (by_time,), (by_space,) = demo.gpus("pod0", "time-ctr0"), demo.gpus("pod0", "space-ctr0")
    assert by_time != by_space
    for container in ("time-ctr0", "time-ctr1"):
        seen, number = demo.variables("pod0", container), by_time.removeprefix("gpu-")
        assert seen[f"GPU_DEVICE_{number}"] == by_time
        assert seen[f"GPU_DEVICE_{number}_SHARING_STRATEGY"] == "TimeSlicing"
        assert seen[f"GPU_DEVICE_{number}_TIMESLICE_INTERVAL"] == "Long"
    for container in ("space-ctr0", "space-ctr1"):
        seen, number = demo.variables("pod0", container), by_space.removeprefix("gpu-")
        assert seen[f"GPU_DEVICE_{number}"] == by_space
        assert seen[f"GPU_DEVICE_{number}_SHARING_STRATEGY"] == "SpacePartitioning"
        assert seen[f"GPU_DEVICE_{number}_PARTITION_COUNT"] == "10"


def test_initcontainer_shared_gpu(demo: Demo) -> None:
    gpu_demo(demo, "initcontainer-shared-gpu")
    (gpu,) = demo.gpus("pod0")
    assert demo.gpus("pod0", "init") == [gpu]


def test_cel_selector(demo: Demo) -> None:
    gpu_demo(demo, "cel-selector")
    assert len(demo.gpus("pod0")) == 1


def test_prioritized_alternatives(demo: Demo) -> None:
    gpu_demo(demo, "prioritized-alternatives")
    assert [len(demo.gpus(pod)) for pod in ("pod0", "pod1")] == [1, 1]
    chosen = {
        claim["metadata"]["ownerReferences"][0]["name"]: results(claim)[0]["request"]
        for claim in demo.claims()
    }
    assert chosen == {"pod0": "gpu/older-gpu", "pod1": "gpu/latest-gpu"}


def test_admin_access(demo: Demo) -> None:
    gpu_demo(demo, "admin-access")
    assert sorted(demo.gpus("pod0")) == [f"gpu-{number}" for number in range(8)]
    assert demo.variables("pod0")["DRA_ADMIN_ACCESS"] == "true"


def test_extended_resource_request(demo: Demo) -> None:
    gpu_demo(demo, "extended-resource-request")
    (one,), (other,) = demo.gpus("pod0"), demo.gpus("pod1")
    assert one != other
    for pod in demo.pods().values():
        assert pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]


def test_gpu_allow_multiple_allocations(demo: Demo) -> None:
    gpu_demo(demo, "gpu-allow-multiple-allocations", multipleAllocations=True)
    _assert_shares(demo, {"memory": "16Gi", "compute": "20"}, "gpu-[0-9]")


def test_gpu_allow_multiple_allocations_partitionable(demo: Demo) -> None:
    name = "gpu-allow-multiple-allocations-partitionable"
    gpu_demo(demo, name, multipleAllocations=True, partitions=4)
    _assert_shares(demo, {"memory": "8Gi", "compute": "10"}, "gpu-[0-9]-partition-[0-9]")


def _assert_shares(demo: Demo, consumed: dict[str, str], name: str) -> None:
    given = [results(claim)[0] for claim in demo.claims()]
    assert [one["consumedCapacity"] for one in given] == [consumed, consumed]
    assert len({one["shareID"] for one in given}) == 2
    for pod in ("pod0", "pod1"):
        (gpu,) = demo.gpus(pod)
        assert re.fullmatch(name, gpu)
        variable = f"GPU_DEVICE_{gpu.removeprefix('gpu-').upper().replace('-', '_')}"
        seen = demo.variables(pod)
        assert (seen[f"{variable}_MEMORY"], seen[f"{variable}_COMPUTE"]) == (
            consumed["memory"],
            consumed["compute"],
        )


def test_partitionable_devices(demo: Demo) -> None:
    gpu_demo(demo, "partitionable-devices", partitions=4)
    given = demo.gpus("pod0")
    assert len(set(given)) == 2
    assert all(re.fullmatch("gpu-[0-9]-partition-[0-3]", one) for one in given)
    published = demo.machines.devices("gpu")
    for one in given:
        (taken,) = published[one]["consumesCounters"]
        assert taken["counterSet"] == f"{one.partition('-partition')[0]}-counters"
        assert taken["counters"] == {"memory": {"value": "20Gi"}, "compute": {"value": "25"}}


def test_net_consumable_capacity(demo: Demo) -> None:
    demo.machines.play("net")
    demo.apply("net-consumable-capacity")
    demo.wait_running()
    rates = []
    for pod in ("pod0", "pod1"):
        seen = demo.variables(pod)
        assert seen["DRA_RESOURCE_DRIVER_NAME"] == "net.example.com"
        (nic,) = {value for value in seen.values() if value.startswith("nic-")}
        number = nic.removeprefix("nic-")
        rates.append([seen[f"NET_DEVICE_{number}_{way}_RATE"] for way in ("INGRESS", "EGRESS")])
    assert rates == [["10000000000", "5000000000"], ["5000000000", "5000000000"]]


def test_native_resource_request(demo: Demo) -> None:
    demo.machines.play("cpu")
    demo.apply("native-resource-request")
    demo.wait_running()
    first, second = results(*demo.claims())
    assert first["device"] == second["device"]
    assert first["shareID"] != second["shareID"]
    seen, number = demo.variables("pod0"), first["device"].removeprefix("numa-")
    assert seen[f"CPU_DEVICE_{number}"] == first["device"]
    assert seen[f"CPU_DEVICE_{number}_CONSUMED_CPU"] == "1"
    assert demo.pods()["pod0"]["status"]["nodeAllocatableResourceClaimStatuses"]


def test_binding_conditions(demo: Demo) -> None:
    gpu_demo(demo, "binding-conditions", bindingConditions=True)
    (claim,) = demo.claims()
    (given,), (status,) = results(claim), claim["status"]["devices"]
    assert claim["status"]["allocation"]["allocationTimestamp"]
    assert given["bindingConditions"] == ["BindingConditions"]
    assert given["device"] == status["device"]
    conditions = {one["type"]: one for one in status["conditions"]}
    condition = conditions["BindingConditions"]
    assert (condition["status"], condition["reason"]) == ("True", "Ready")


def test_the_status_of_a_claim_says_what_its_device_is(demo: Demo) -> None:
    gpu_demo(demo, "basic-resourceclaimtemplate", bindingConditions=True)
    wait_until(lambda: all(_data(claim) for claim in demo.claims()), "the data of the devices")
    published = demo.machines.devices("gpu")
    for claim in demo.claims():
        (status,) = claim["status"]["devices"]
        assert _data(claim) == {
            "uuid": published[status["device"]]["attributes"]["uuid"],
            "model": {"string": "LATEST-GPU-MODEL"},
            "driverVersion": {"version": "1.0.0"},
        }
        # Two parts of the driver write into one entry.
        assert {one["type"] for one in status["conditions"]} == {"BindingConditions", "Ready"}


def _data(claim: dict[str, Any]) -> Any:
    (status,) = claim["status"]["devices"]
    return status.get("data")


def test_a_taint_without_eviction_keeps_new_pods_away(demo: Demo) -> None:
    gpu_demo(demo, f"{TAINTS}/no-schedule-1")
    demo.apply(f"{TAINTS}/no-schedule-2")
    time.sleep(SETTLED_SECONDS)  # the scheduler knows of the taint by then
    demo.apply(f"{TAINTS}/no-schedule-3")
    assert "cannot allocate all claims" in demo.why_pending("pod1")
    time.sleep(SETTLED_SECONDS)
    demo.wait_running("pod0")


def test_a_taint_with_eviction_ends_pods(demo: Demo) -> None:
    gpu_demo(demo, f"{TAINTS}/no-execute-1")
    demo.apply(f"{TAINTS}/no-execute-2")
    wait_until(lambda: "pod0" not in demo.pods(), "the eviction of pod0")
    demo.apply(f"{TAINTS}/no-execute-3")
    assert "cannot allocate all claims" in demo.why_pending("pod1")


def test_a_claim_can_tolerate_a_taint(demo: Demo) -> None:
    gpu_demo(demo, f"{TAINTS}/toleration")
    time.sleep(SETTLED_SECONDS)
    assert len(demo.gpus("pod0")) == 1


def test_a_claim_says_how_long_it_tolerates_a_taint(demo: Demo) -> None:
    gpu_demo(demo, f"{TAINTS}/eviction-time-1")
    demo.apply(f"{TAINTS}/eviction-time-2")
    begun = time.monotonic()
    wait_until(lambda: "pod0" not in demo.pods(), "the eviction of pod0")
    assert time.monotonic() - begun > 15


def test_podgroup_resourceclaimtemplate(demo: Demo) -> None:
    demo.machines.play("gpu")
    demo.apply("podgroup-resourceclaimtemplate")
    wait_until(lambda: len(demo.pods()) == 4, "the pods of the groups")
    demo.wait_running()
    of_group: dict[str, set[str]] = {}
    for name, pod in demo.pods().items():
        group = pod["spec"]["schedulingGroup"]["podGroupName"]
        of_group.setdefault(group, set()).update(demo.gpus(name))
    assert [len(gpus) for gpus in of_group.values()] == [1, 1]
    assert of_group["group-0"] != of_group["group-1"]
    # A PodGroup is no pod, so nothing proves that all pods of the claim have ended: docs/example-driver.md.
    demo.held = {claim["metadata"]["uid"] for claim in demo.claims()}
    users = [claim["status"]["reservedFor"] for claim in demo.claims()]
    assert sorted((one["resource"], one["name"]) for (one,) in users) == [
        ("podgroups", "group-0"),
        ("podgroups", "group-1"),
    ]
