# SPDX-License-Identifier: Apache-2.0
"""What cannot be prevented is told, once."""

from dra_driver.errors import Temporary
from dra_driver.kube.base import NodeEvent
from dra_driver.model.ids import UnitId
from dra_driver.model.plugin_policy import DeviceChoice
from tests.support.guarded_node import GPU, GuardedNode, entry, own_row


def test_on_a_divided_node_a_plugin_that_lists_more_is_told_once() -> None:
    node = GuardedNode(DeviceChoice(named=("uuid-gpu-3",)))
    assert node.kept() == {"gpu-3"}
    node.serves("uuid-gpu-2", "uuid-gpu-3")
    assert node.kept() == {"gpu-3"}
    node.kept()
    (event,) = node.events
    assert event.message == (
        "the device plugin of nvidia.com/gpu lists gpu-2, which devicePlugin.foreign leaves to this driver: a device can be given to two pods. "
        "Restrict that plugin to its own devices, or change devicePlugin.foreign"
    )


def test_a_device_with_two_users_is_told_until_the_event_is_written() -> None:
    node = GuardedNode()
    node.rows = [own_row("gpu-0")]
    node.writes(entry("p", "uuid-gpu-0"), entry("q", "odd"))
    node.refuses = Temporary("API server is away")
    node.kept()
    node.refuses = None
    node.kept()
    node.kept()
    assert node.events == [
        NodeEvent(
            "Warning",
            "DeviceGivenTwice",
            "device gpu-0 has two users: default/mine, and pod p, to which the device plugin of nvidia.com/gpu gave it. End one of them; keep "
            "that plugin off this node while pods use gpu.dra-driver.dev",
        )
    ]


def test_an_own_resource_that_another_plugin_takes_over_is_told_once() -> None:
    node = GuardedNode()
    node.offered = {GPU: frozenset({UnitId("gpu-0"), UnitId("gpu-1")})}
    node.writes(registered={GPU: ["gpu-0"]})  # the other one is ill
    node.kept()
    node.after(60)
    node.writes(registered={GPU: ["uuid-gpu-0"]})
    node.kept()
    node.after(9)
    assert node.events == []
    node.after(1)
    node.after(10)
    (event,) = node.events
    assert event.message == (
        "the kubelet lists units of nvidia.com/gpu that gpu.dra-driver.dev does not offer: uuid-gpu-0. Another device plugin has taken over this "
        "driver's resource, and the kubelet asks that one for devices. Keep that plugin off this node, and then delete the pod of this driver on "
        "it, so that it registers again; or let the two have different names (docs/older-clusters.md)"
    )


def test_a_list_that_the_kubelet_has_not_written_yet_is_no_other_plugin() -> None:
    node = GuardedNode()
    node.offered = {GPU: frozenset({UnitId("gpu-0")})}
    node.writes(registered={GPU: ["gpu-0"]})
    node.kept()
    for units in ("gpu-0::0", "gpu-0"):
        node.offered = {GPU: frozenset({UnitId(units)})}
        node.after(5)
        node.writes(registered={GPU: [units]})
        node.after(5)
    assert node.events == []
