# SPDX-License-Identifier: Apache-2.0
"""The real API server takes slices with every feature, and the real scheduler allocates from them.

Once with the gates as the release has them, and once with every gate on that has fields in a slice. What a release does not have,
the driver must leave out or withhold, and name.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dra_driver.config.options import DEFAULT_DRIVER_NAME as DRIVER
from hack.testbed.onenode import build, preflight
from hack.testbed.onenode.hollow import HollowCluster
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.selection import kubernetes_version
from tests.contract.test_served_fields import SINCE
from tests.e2e import every_feature, fleet

pytestmark = [pytest.mark.real, pytest.mark.matrix]
NODE = fleet.HOME
MINOR = int(kubernetes_version().split(".")[1])
ON_BY_DEFAULT = {
    "DRADeviceTaints": 36,
    "DRAPartitionableDevices": 36,
    "DRAConsumableCapacity": 36,
    "DRADeviceBindingConditions": 36,
}
NEEDS = {"DRAPartitionableDevicesType": "DRAResourcePoolStatus"}
WITHHELD = {
    "DRADeviceTaints": {"ill"},
    "DRAPartitionableDevices": {"whole", "half-0", "half-1", "mode-a", "mode-b"},
    "DRADeviceCompatibilityGroups": {"mode-a", "mode-b"},
    "DRADeviceBindingConditions": {"bound"},
}
ALL = {"whole", "half-0", "half-1", "mode-a", "mode-b", "shared", "ill", "bound", "list", "node-memory"}  # fmt: skip
PENDING_SECONDS = 5.0  # the scheduler has looked at a pod by then


def _default() -> set[str]:
    return {gate for gate, since in ON_BY_DEFAULT.items() if since <= MINOR}


def _every() -> set[str]:
    return {gate for gate, since in SINCE.items() if since <= MINOR}


@dataclass
class Published:
    """A control plane whose only node has published everything; `on` are the gates with fields in a slice that are on."""

    cluster: HollowCluster
    on: set[str]
    said: Mapping[str, Any] = field(default_factory=dict)

    def publish(self) -> None:
        program = [sys.executable, str(Path(every_feature.__file__))]
        kubeconfig = str(self.cluster.admin_kubeconfig)
        self.said = json.loads(self.cluster.output_of([*program, kubeconfig, NODE]))
        assert self.said["published"], self.said

    def pod(self, name: str, *names: str, count: int = 1) -> None:
        """A pod that wants so many of the devices of these names."""
        one_of = " || ".join(f'device.attributes["{DRIVER}"].name == "{one}"' for one in names)
        self.cluster.create(
            fleet.claim(fleet.request(cel=one_of, count=count), name=name),
            fleet.pod(name),
            namespace="default",
        )

    def results(self, name: str) -> list[dict[str, Any]]:
        """What the claim was allocated; nothing as long as it is not."""
        claim = self.cluster.get("--namespace", "default", "resourceclaim", name)
        allocation = claim.get("status", {}).get("allocation", {})
        found: list[dict[str, Any]] = allocation.get("devices", {}).get("results", [])
        return found

    def gets(self, name: str) -> list[dict[str, Any]]:
        return wait_until(lambda: self.results(name), f"the allocation of {name}")

    def stays_pending(self, name: str) -> bool:
        time.sleep(PENDING_SECONDS)
        return not self.results(name)

    def ends(self, *names: str) -> None:
        """The pods end, and their claims with them."""
        now = ("--force", "--grace-period=0", "--ignore-not-found")
        self.cluster.kubectl("--namespace", "default", "delete", "pods", *names, *now)
        self.cluster.kubectl("--namespace", "default", "delete", "resourceclaims", *names)


@pytest.fixture(scope="module", params=["default", "every"])
def published(request: pytest.FixtureRequest) -> Iterator[Published]:
    preflight.require()
    on = _default() if request.param == "default" else _every()
    gates = {} if request.param == "default" else dict.fromkeys(on, True)
    gates |= {NEEDS[gate]: True for gate in gates.keys() & NEEDS.keys()}
    # With the gate, a scheduler before 1.36 waits for DeviceTaintRules before it schedules any pod with claims.
    rules = {"resource.k8s.io/v1alpha3": True} if MINOR < 36 and "DRADeviceTaints" in gates else {}
    cluster = HollowCluster(kubernetes_version(), feature_gates=gates, runtime_config=rules)
    failed_before, failed = request.session.testsfailed, True
    logs = build.cache_folder() / "logs" / time.strftime("every-%Y%m%d-%H%M%S")
    try:
        cluster.start()
        every = f'device.driver == "{DRIVER}"'
        cluster.create(fleet.node(NODE), fleet.device_class(expression=every), namespace="default")
        # As a kubelet says that knows these features; scheduler and API server ask for it where slices use them.
        declared = sorted(on & {"DRAOptionalNodeOperations", "DRANodeAllocatableResources"})
        cluster.write_status("node", NODE, {"declaredFeatures": declared}, namespace="")
        found = Published(cluster, on)
        found.publish()
        yield found
        failed = request.session.testsfailed > failed_before
    finally:
        cluster.stop(keep=logs if failed else None)


def test_everything_is_published_but_what_would_be_given_to_anybody(published: Published) -> None:
    off = SINCE.keys() - published.on
    withheld = set().union(*(WITHHELD.get(gate, set()) for gate in off))
    assert set(published.said["devices"]) == ALL - withheld, published.said
    assert set(published.said["problems"]) == off, json.dumps(published.said)
    assert not [event for event in published.said["events"] if event.startswith("FieldsDropped")]


def test_a_whole_device_and_its_partitions_exclude_each_other(published: Published) -> None:
    if "DRAPartitionableDevices" not in published.on:
        assert not {"whole", "half-0", "half-1"} & set(published.said["devices"])
        return
    published.pod("halves", "half-0", "half-1", count=2)
    assert {one["device"] for one in published.gets("halves")} == {"half-0", "half-1"}
    published.pod("all-of-it", "whole")
    assert published.stays_pending("all-of-it")
    published.ends("halves")
    assert [one["device"] for one in published.gets("all-of-it")] == ["whole"]
    published.ends("all-of-it")


def test_devices_without_a_common_group_exclude_each_other(published: Published) -> None:
    if "DRADeviceCompatibilityGroups" not in published.on:
        assert not {"mode-a", "mode-b"} & set(published.said["devices"])
        return
    published.pod("a", "mode-a")
    assert published.gets("a")
    published.pod("b", "mode-b")
    assert published.stays_pending("b")
    published.ends("a", "b")


def test_a_shared_device_is_given_to_several_claims(published: Published) -> None:
    published.pod("first", "shared")
    published.pod("second", "shared")
    if "DRAConsumableCapacity" not in published.on:  # a device goes to one claim then
        wait_until(lambda: published.results("first") or published.results("second"), "the device")
        assert published.stays_pending("first") != published.stays_pending("second")
        published.ends("first", "second")
        return
    shares = [*published.gets("first"), *published.gets("second")]
    assert [one["consumedCapacity"] for one in shares] == [{"slots": "1"}] * 2
    assert len({one["shareID"] for one in shares}) == 2
    published.ends("first", "second")


def test_an_ill_device_is_given_to_nobody(published: Published) -> None:
    published.pod("unlucky", "ill")
    assert published.stays_pending("unlucky")
    published.ends("unlucky")


@pytest.mark.parametrize("name", ["list", "node-memory"])
def test_a_device_is_allocated_with_or_without_a_field_that_restricts_nobody(
    published: Published, name: str
) -> None:
    published.pod(f"one-{name}", name)
    assert [one["device"] for one in published.gets(f"one-{name}")] == [name]
    published.ends(f"one-{name}")
