# SPDX-License-Identifier: Apache-2.0
"""Units that pods have already when the driver starts: after a reboot, with a lost state, or from another plugin."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.errors import Temporary
from dra_driver.model.ids import PodUid, UnitId
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import ContainerAnswer
from dra_driver.model.state import Phase
from dra_driver.services.adopt import take_up_pod_claims
from dra_driver.services.plugin.witnesses import ADMISSION_SECONDS, GRACE_SECONDS
from dra_driver.testing.builders import a_claim, a_result
from tests.support.local_node import ManualClock
from tests.support.plugin_node import PluginNode

ONE, TWO = "uuid-gpu-0", "uuid-gpu-1"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PluginNode]:
    found = PluginNode(tmp_path, clock=ManualClock())
    yield found
    assert found.violations() == []
    found.close()


def start(node: PluginNode, pod: str, *units: str) -> ContainerAnswer:
    answer = node.admit(pod, *units)
    assert isinstance(answer, ContainerAnswer), answer
    node.run(pod)
    node.look()
    return answer


def reserve_described(node: PluginNode) -> None:
    """What a start does first."""
    take_up_pod_claims(
        node.parts, node.store, node.cdi.documents, lambda: node.pod_devices, at_start=True
    )


def pass_time(node: PluginNode, seconds: float) -> None:
    assert isinstance(node.clock, ManualClock)
    node.clock.now += seconds


def test_after_a_reboot_a_device_is_set_up_again_under_the_same_name(node: PluginNode) -> None:
    answer = start(node, "pod-a", ONE)
    node.reboot()
    assert node.disk().files == {}
    node.backend_calls.clear()
    assert node.taking_up.once()
    assert [call[:2] for call in node.backend_calls] == [("configure", "gpu-0")]
    (row,) = node.rows()
    assert (row.phase, row.boot_id, row.users.pods) == (Phase.PREPARED, "boot-1+", ("pod-a",))
    (text,) = node.disk().files.values()
    assert answer.cdi_ids[0].partition("=")[2] in text
    node.look()
    assert node.owned() == {"gpu-0"}  # its pod starts at any moment
    node.run("pod-a")
    node.look()
    node.end("pod-a")
    node.look()
    assert node.owned() == set()


def test_what_another_plugin_gave_out_stays_reserved_over_a_reboot(node: PluginNode) -> None:
    node.write("pod-a", ONE)
    node.active["pod-a"] = frozenset({UnitId(ONE)})
    node.run("pod-a")
    assert node.taking_up.once()
    node.reboot()
    node.backend_calls.clear()
    assert node.taking_up.once()
    (row,) = node.rows()
    assert (row.phase, row.boot_id, node.backend_calls) == (Phase.PREPARED, "boot-1+", [])
    node.run("pod-a")
    node.look()
    assert node.owned() == {"gpu-0"}
    node.end("pod-a")
    node.look()
    assert node.owned() == set()


def test_a_pod_that_does_not_come_back_after_a_reboot_leaves_its_device(node: PluginNode) -> None:
    start(node, "pod-a", ONE)
    node.containers = ()
    node.reboot()
    assert node.taking_up.once()
    assert (node.rows(), node.owned()) == ((), set())


def test_a_pod_that_was_deleted_during_a_reboot_leaves_its_device_later(node: PluginNode) -> None:
    start(node, "pod-a", ONE)  # its entry is still in the checkpoint
    node.reboot()
    node.active.clear()
    node.taking_up.once()
    node.look()
    pass_time(node, GRACE_SECONDS + 1)
    node.look()
    assert node.owned() == {"gpu-0"}  # a kubelet without its API server lists no pod
    pass_time(node, ADMISSION_SECONDS)
    node.look()
    assert node.owned() == set()


def test_while_the_kubelet_says_nothing_a_row_of_another_boot_stays(node: PluginNode) -> None:
    start(node, "pod-a", ONE)
    node.reboot()
    node.silent = "no checkpoint"
    assert not node.taking_up.once()
    (ref,) = node.add(a_claim(results=[a_result("gpu-0")]))
    assert isinstance(node.prepare(ref)[ref.uid], Refusal)
    node.silent = ""
    assert node.taking_up.once()


def test_a_device_that_cannot_be_set_up_again_is_tried_again(node: PluginNode) -> None:
    start(node, "pod-a", ONE)
    node.reboot()

    def fails(_lease: object) -> object:
        raise Temporary("not yet")

    node.configure = fails
    assert not node.taking_up.once()
    assert node.owned() == {"gpu-0"}
    node.configure = lambda _lease: None
    node.restart(boot_id=node.boot_id)
    node.recover()
    assert node.owned() == {"gpu-0"}
    assert node.taking_up.once()
    (row,) = node.rows()
    assert row.phase is Phase.PREPARED


def test_with_a_lost_state_a_running_pod_keeps_its_device(node: PluginNode) -> None:
    start(node, "pod-a", ONE)
    node.lose_state()
    reserve_described(node)
    assert node.owned() == {"gpu-0"}
    assert node.sweep() == ()
    assert len(node.disk().files) == 1
    node.taking_up.once()
    (row,) = node.rows()
    assert (row.ref.name, row.users.pods, row.held) == ("nvidia.com/gpu", ("pod-a",), None)
    assert row.cdi_spec
    assert isinstance(node.admit("pod-b", ONE), Refusal)
    node.end("pod-a")
    node.look()
    assert node.owned() == set()


def test_with_a_lost_state_and_no_entry_a_device_waits_for_the_pods_of_now(
    node: PluginNode,
) -> None:
    start(node, "pod-a", ONE)
    node.force_delete("pod-a")
    node.containers = ()
    node.lose_state()
    reserve_described(node)
    node.taking_up.once()
    (row,) = node.rows()
    assert row.held is not None
    assert row.users.pods == ("pod-a",)
    assert node.disk().files == {}
    node.end("pod-a")
    node.look()
    assert node.owned() == set()


def test_what_another_plugin_gave_out_under_the_same_name_is_reserved(node: PluginNode) -> None:
    node.write("pod-x", TWO)
    node.run("pod-x")
    node.taking_up.once()
    assert node.owned() == {"gpu-1"}
    assert isinstance(node.admit("pod-a", TWO), Refusal)
    node.end("pod-x")
    node.look()
    assert node.owned() == set()


def test_entries_of_ended_pods_and_of_other_resources_are_passed_over(node: PluginNode) -> None:
    node.write("pod-x", TWO)
    assert node.taking_up.once()
    node.run("pod-x")
    node.resource = None
    assert node.taking_up.once()
    assert node.owned() == set()


def test_a_unit_that_another_plugin_gave_out_is_given_anew_after_its_pod(node: PluginNode) -> None:
    node.write("old", ONE)
    node.run("old")
    assert node.taking_up.once()
    # Nobody has looked at it since it was taken up, and there is no answer of ours for it.
    node.end("old")
    assert isinstance(node.admit("new", ONE), ContainerAnswer)
    (row,) = node.rows()
    assert row.users.pods in (None, ("new",))


@pytest.mark.parametrize("order", [1, -1])
def test_with_a_lost_state_a_pod_keeps_the_devices_of_all_its_containers(
    node: PluginNode, order: int
) -> None:
    assert isinstance(node.admit("pod-a", init=[ONE], main=[ONE, TWO]), ContainerAnswer)
    node.run("pod-a")
    node.look()
    node.containers = node.containers[::order]  # the kubelet writes them in any order
    node.lose_state()
    reserve_described(node)
    assert node.taking_up.once()
    assert [(row.users.pods, row.held) for row in node.rows()] == [(("pod-a",), None)] * 2
    assert len(node.disk().files) == 2
    assert node.owned() == {"gpu-0", "gpu-1"}
    node.look()
    node.end("pod-a")
    node.look()
    assert node.owned() == set()


@pytest.mark.parametrize("order", [1, -1])
def test_all_units_are_reserved_that_another_plugin_gave_to_the_containers_of_a_pod(
    node: PluginNode, order: int
) -> None:
    node.write("pod-x", ONE, container="init")
    node.write("pod-x", ONE, TWO)
    node.containers = node.containers[::order]
    node.run("pod-x")
    assert node.taking_up.once()
    assert node.owned() == {"gpu-0", "gpu-1"}
    node.look()
    node.end("pod-x")
    node.look()
    assert node.owned() == set()


def test_a_unit_whose_device_has_an_owner_does_not_cost_the_pod_its_others(
    node: PluginNode,
) -> None:
    (ref,) = node.add(a_claim(results=[a_result("gpu-0")]))
    assert not isinstance(node.prepare(ref)[ref.uid], Refusal)
    node.write("pod-x", ONE, TWO)
    node.run("pod-x")
    assert not node.taking_up.once()
    assert node.owned() == {"gpu-0", "gpu-1"}
    node.look()
    node.end("pod-x")
    node.look()


def test_a_pod_that_waits_for_a_volume_keeps_its_device_with_a_lost_state(
    node: PluginNode,
) -> None:
    node.admit("pod-a", ONE)
    node.cgroups.add(PodUid("pod-a"))  # without a process
    node.look()
    node.lose_state()
    reserve_described(node)
    assert node.taking_up.once()
    (row,) = node.rows()
    assert (row.users.pods, row.held) == (("pod-a",), None)
    assert len(node.disk().files) == 1
    node.end("pod-a")


def test_a_row_whose_pod_was_not_learned_before_the_reboot_survives_a_crash_after_it(
    node: PluginNode,
) -> None:
    node.admit("pod-a", ONE)  # and nobody looked
    node.reboot()

    def fails(_lease: object) -> object:
        raise Temporary("not yet")

    node.configure = fails
    assert not node.taking_up.once()
    node.configure = lambda _lease: None
    node.restart(boot_id=node.boot_id)
    node.recover()
    assert node.owned() == {"gpu-0"}
    assert node.taking_up.once()
    (row,) = node.rows()
    assert (row.phase, row.users.pods) == (Phase.PREPARED, ("pod-a",))
