# SPDX-License-Identifier: Apache-2.0
"""A device plugin beside the driver is told once, when it changes, and never twice for nothing."""

from threading import Event

from structlog.testing import capture_logs

from dra_driver.errors import DriverError, Temporary
from dra_driver.kube.base import NodeEvent
from dra_driver.model.inventory import Inventory
from dra_driver.model.state import Unknown
from dra_driver.services.neighbours import LOOK_SECONDS, SOON_SECONDS, NeighbourWatch
from dra_driver.testing.builders import A_DRIVER, a_device

MESSAGE = (
    "a device plugin offers nvidia.com/gpu (8) beside the devices of gpu.dra-driver.dev: this driver offers "
    "none of the devices that the plugin could give out, but the plugin does not know what pods have through this driver, and "
    "can give it to a second pod; remove the plugin from this node to move it, or divide the node (devicePlugin.foreign; "
    "docs/moving-to-dra.md)"
)
SHARED = (
    "another device plugin offers nvidia.com/gpu, and so does gpu.dra-driver.dev: kubelets before 1.37 know one plugin for each resource, the one "
    "that registered last, and later ones call that one; units that the other plugin gave out stay with their pods. Keep the other plugin off "
    "this node, or let the two have different names (docs/older-clusters.md)"
)
NVIDIA = Inventory((a_device(attributes={"vendor": "nvidia"}),))


class Node:
    """A kubelet, a Node object and a clock that only moves when somebody waits."""

    def __init__(self) -> None:
        self.resources: dict[str, int] | Unknown = {"nvidia.com/gpu": 8}
        self.inventory: Inventory | DriverError = NVIDIA
        self.events: list[NodeEvent] = []
        self.refuses: list[DriverError] = []
        self.own: frozenset[str] | None = frozenset()
        self.seconds = LOOK_SECONDS
        self.watch = NeighbourWatch(
            A_DRIVER,
            lambda: self.resources,
            self._inventory,
            self._tell,
            own=lambda: self.own,
            wait=self._wait,
        )
        self.script: list[dict[str, int] | Unknown] = []

    def _inventory(self) -> Inventory:
        if isinstance(self.inventory, DriverError):
            raise self.inventory
        return self.inventory

    def _tell(self, event: NodeEvent) -> None:
        if self.refuses:
            raise self.refuses.pop()
        self.events.append(event)

    def _wait(self, stop: Event, seconds: float) -> bool:
        assert seconds == self.seconds
        if self.script:
            self.resources = self.script.pop(0)
        else:
            stop.set()
        return stop.is_set()

    def sees(self, *resources: dict[str, int] | Unknown) -> list[str]:
        """What the log says while the kubelet answers these, one after the other."""
        first, *self.script = resources
        self.resources = first
        with capture_logs() as logs:
            self.watch.run(Event())
        return [line["event"] for line in logs]


GPU = {"nvidia.com/gpu": 8}


def test_it_is_told_once_on_the_node_and_in_the_log() -> None:
    node = Node()
    assert node.sees(GPU, GPU, Unknown("kubelet restarts"), GPU) == ["device_plugin_beside"]
    assert node.events == [NodeEvent("Warning", "DevicePluginBeside", MESSAGE)]


def test_a_plugin_that_comes_later_goes_and_comes_back_is_told_each_time() -> None:
    node = Node()
    assert node.sees({}, GPU, {}, {**GPU, "nvidia.com/mig-1g.5gb": 2}) == [
        "device_plugin_beside",
        "device_plugin_gone",
        "device_plugin_beside",
    ]
    assert len(node.events) == 2
    assert "nvidia.com/gpu (8), nvidia.com/mig-1g.5gb (2)" in node.events[-1].message


def test_a_count_that_changes_is_no_news() -> None:
    node = Node()
    assert node.sees(GPU, {"nvidia.com/gpu": 7}) == ["device_plugin_beside"]


def test_other_vendors_and_other_things_are_nobodys_business() -> None:
    node = Node()
    assert node.sees({"amd.com/gpu": 1, "rdma/hca": 4}) == []
    assert node.events == []


def test_an_event_that_cannot_be_written_is_tried_again() -> None:
    node = Node()
    node.refuses = [Temporary("API server is down")]
    assert node.sees(GPU, GPU, GPU) == [
        "device_plugin_beside",
        "neighbours_not_told",
        "device_plugin_beside",
    ]
    assert len(node.events) == 1


def test_devices_that_are_not_known_yet_are_waited_for() -> None:
    node = Node()
    node.inventory = Temporary("not scanned yet")
    assert node.sees(GPU) == ["neighbours_not_told"]
    node.inventory = NVIDIA
    assert node.sees(GPU) == ["device_plugin_beside"]


def test_a_resource_of_the_same_name_as_an_own_one_is_told_for_what_it_is() -> None:
    node = Node()
    node.own, node.seconds = None, SOON_SECONDS
    # Nothing is said while it is not known what this driver offers, and later the kubelet has this driver's list.
    assert node.sees(GPU, {}) == []
    node.own, node.seconds = frozenset(GPU), LOOK_SECONDS
    assert node.sees(GPU, GPU) == ["device_plugin_has_own_resource"]
    assert node.events == [NodeEvent("Warning", "DevicePluginBeside", SHARED)]


def test_what_this_driver_offers_itself_is_no_neighbour() -> None:
    node = Node()
    node.own = frozenset(GPU)
    assert node.sees(GPU, {**GPU, "nvidia.com/mig-1g.5gb": 2}) == ["device_plugin_beside"]
    assert node.events[0].message.startswith("a device plugin offers nvidia.com/mig-1g.5gb (2)")


def test_a_resource_whose_plugin_has_ended_before_is_this_drivers_alone() -> None:
    node = Node()
    node.own, node.seconds = None, SOON_SECONDS
    assert node.sees({"nvidia.com/gpu": 0}) == []
    node.own, node.seconds = frozenset(GPU), LOOK_SECONDS
    assert node.sees(GPU) == []
