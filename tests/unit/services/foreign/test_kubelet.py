# SPDX-License-Identifier: Apache-2.0
"""What counts while the kubelet writes, restarts, or says nothing."""

from dra_driver.errors import Temporary
from dra_driver.model.ids import ResourceName
from dra_driver.model.state import Unknown
from tests.support.guarded_node import GPU, GuardedNode, entry

ALL = {"gpu-0", "gpu-1", "gpu-2", "gpu-3"}


def test_a_plugin_that_restarts_keeps_its_devices() -> None:
    node = GuardedNode()
    node.serves("uuid-gpu-0")
    assert node.kept() == {"gpu-0"}
    node.counts = {GPU: 0}
    assert node.after(60) == {"gpu-0"}


def test_without_a_checkpoint_a_plugin_that_restarts_is_waited_for() -> None:
    node = GuardedNode()
    node.checkpoint = Unknown("not mounted")
    node.counts = {GPU: 4}
    assert node.kept() == ALL
    node.counts = {}
    assert node.after(200) == ALL
    assert node.after(200) == set()


def test_while_nothing_answers_everything_stays() -> None:
    node = GuardedNode()
    node.serves("uuid-gpu-1")
    assert node.kept() == {"gpu-1"}
    node.checkpoint, node.counts = Unknown("gone"), Unknown("kubelet restarts")
    node.version += 1
    assert node.after(1000) == {"gpu-1"}
    node.inventory = Temporary("not scanned")
    assert node.after(1000) == {"gpu-1"}


def test_pod_resources_are_asked_when_a_list_has_changed_or_it_is_time() -> None:
    node = GuardedNode()
    node.kept()
    node.after(1)
    assert node.asked == 1
    node.writes(registered={GPU: ["uuid-gpu-0"]})
    node.after(1)
    assert node.asked == 2
    node.writes(entry("p", "uuid-gpu-0"))
    node.after(1)
    assert node.asked == 2
    node.after(10)
    assert node.asked == 3


def test_pod_resources_are_asked_once_for_each_checkpoint_that_cannot_be_read() -> None:
    node = GuardedNode()
    node.kept()
    node.checkpoint = Unknown("damaged")
    node.version += 1
    node.after(1)
    node.after(1)
    assert node.asked == 2


def test_what_the_kubelet_knows_from_plugins() -> None:
    node = GuardedNode()
    assert node.guard.served() is None
    node.serves("uuid-gpu-0")
    node.offered = {ResourceName("a.b/own"): frozenset()}
    node.kept()
    assert node.guard.served() == {GPU, "a.b/own"}
    node.counts = Unknown("kubelet restarts")
    node.after(60)
    assert node.guard.served() is None
    node.counts, node.checkpoint = {}, Unknown("not mounted")
    node.after(60)
    assert node.guard.served() is None
