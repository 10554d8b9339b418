# SPDX-License-Identifier: Apache-2.0
"""A row that cannot be set up again after a reboot ends when its pod is deleted, although the kubelet keeps its entry."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.model.ids import UnitId
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import ContainerAnswer, Strategy
from dra_driver.services.plugin.witnesses import ADMISSION_SECONDS, LIST_SECONDS
from dra_driver.testing.builders import a_claim, a_result
from tests.support.local_node import ManualClock
from tests.support.plugin_node import PluginNode
from tests.unit.services.plugin.test_take_up_fixed import answers, find, opens_its_file

UNITS = ("uuid-gpu-1", "uuid-gpu-2")


@pytest.fixture(params=[Strategy.CDI, Strategy.EDITS], ids=lambda strategy: strategy.value)
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PluginNode]:
    """A node whose GPU 2 is dead since a reboot; pod-a has it, and GPU 1."""
    found = PluginNode(tmp_path, clock=ManualClock())
    found.configure = opens_its_file
    found.answers = answers(request.param)
    find(found, 0, 1, 2)
    assert isinstance(found.admit("pod-a", *UNITS), ContainerAnswer)
    found.run("pod-a")
    found.look()
    find(found, 0, 1)
    found.reboot()
    assert not found.taking_up.once()
    yield found
    assert found.violations() == []
    found.close()


def look(node: PluginNode, seconds: float) -> bool:
    """What the leader does after this time. Returns whether everything is taken up."""
    assert isinstance(node.clock, ManualClock)
    node.clock.now += seconds
    node.look()
    return node.taking_up.once()


def test_after_its_pod_is_deleted_its_other_gpu_is_free(node: PluginNode) -> None:
    node.end("pod-a")
    assert not look(node, 0)
    assert not look(node, ADMISSION_SECONDS - 1)  # a new kubelet may not have heard of the pod yet
    assert node.owned() == {"gpu-1", "gpu-2"}
    assert look(node, 1)
    assert node.owned() == set()


def test_a_claim_gets_the_gpu_by_the_same_proof(node: PluginNode) -> None:
    node.end("pod-a")
    (ref,) = node.add(a_claim(results=[a_result("gpu-1")]))
    look(node, 0)
    found = node.prepare(ref)[ref.uid]
    assert isinstance(found, Refusal)
    assert "its pod may start again after the reboot" in found.reason
    assert isinstance(node.clock, ManualClock)
    node.clock.now += ADMISSION_SECONDS
    assert not isinstance(node.prepare(ref)[ref.uid], Refusal)


def test_a_row_that_was_released_meanwhile_is_not_reset_under_its_next_owner(
    node: PluginNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_before_the_lock = node.rows()
    node.end("pod-a")
    (ref,) = node.add(a_claim(results=[a_result("gpu-1")]))
    look(node, 0)
    assert isinstance(node.clock, ManualClock)
    node.clock.now += ADMISSION_SECONDS
    assert not isinstance(node.prepare(ref)[ref.uid], Refusal)
    called = list(node.backend_calls)
    monkeypatch.setattr(node.holders, "rows", lambda: read_before_the_lock)
    node.taking_up.once()
    assert node.backend_calls == called


def test_a_pod_that_the_kubelet_lists_may_start_again(node: PluginNode) -> None:
    for _ in range(3):
        assert not look(node, ADMISSION_SECONDS)
    assert node.owned() == {"gpu-1", "gpu-2"}
    node.active["pod-a"] = frozenset({UnitId(UNITS[0])})
    assert not look(node, ADMISSION_SECONDS)
    node.end("pod-a")
    assert not look(node, LIST_SECONDS)
    assert not look(node, ADMISSION_SECONDS - 1)
    assert look(node, 1)


def test_a_pod_that_is_listed_since_the_last_look_may_start_again(node: PluginNode) -> None:
    node.active.clear()
    look(node, 0)
    assert isinstance(node.clock, ManualClock)
    node.clock.now += ADMISSION_SECONDS
    node.active["pod-a"] = frozenset({UnitId(UNITS[0])})
    assert not node.taking_up.once()
    assert node.owned() == {"gpu-1", "gpu-2"}


def test_a_pod_with_a_cgroup_may_start_again(node: PluginNode) -> None:
    node.force_delete("pod-a")
    node.run("pod-a")
    look(node, 0)
    assert not look(node, ADMISSION_SECONDS)
    assert node.owned() == {"gpu-1", "gpu-2"}
    node.end("pod-a")
    assert look(node, 0)


def test_a_new_kubelet_has_its_own_time(node: PluginNode) -> None:
    node.end("pod-a")
    look(node, 0)
    node.kubelet = 2
    assert not look(node, ADMISSION_SECONDS)
    node.kubelet = 3
    assert isinstance(node.clock, ManualClock)
    node.clock.now += ADMISSION_SECONDS
    assert not node.taking_up.once()  # before the next look
    assert not look(node, 0)
    assert look(node, ADMISSION_SECONDS)


def test_while_the_kernel_shows_no_cgroups_nothing_is_free(node: PluginNode) -> None:
    node.end("pod-a")
    node.hidden = True
    look(node, 0)
    assert not look(node, ADMISSION_SECONDS)
    assert node.owned() == {"gpu-1", "gpu-2"}


def test_without_a_name_for_a_device_file_the_row_ends_too(tmp_path: Path) -> None:
    node = PluginNode(tmp_path, clock=ManualClock())
    node.configure = opens_its_file
    node.answers = answers(Strategy.EDITS)
    find(node, 0, 1, 2)
    assert isinstance(node.admit("pod-a", "uuid-gpu-2"), ContainerAnswer)
    node.run("pod-a")
    node.look()
    find(node, 2, 1)  # the unit is called gpu-0 now, and no device gpu-2
    node.reboot()
    assert not node.taking_up.once()
    node.end("pod-a")
    look(node, 0)
    assert look(node, ADMISSION_SECONDS)
    assert node.owned() == set()
    node.close()
