# SPDX-License-Identifier: Apache-2.0
"""Allocate calls on a real state file: who gets a device, who does not, and when it is free again."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from dra_driver.errors import Permanent, Temporary
from dra_driver.model.ids import DeviceName, PodUid, ResourceName, ShareId, UnitId
from dra_driver.model.lease import Lease
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import ContainerAnswer, PluginResource, Sharing, Unit
from dra_driver.model.presence import Gone
from dra_driver.model.state import Phase, Unknown
from dra_driver.services.plugin.allocate import AllocateUnits, Answers
from dra_driver.services.plugin.holders import SETTLED_SECONDS
from dra_driver.services.plugin.witnesses import ADMISSION_SECONDS, GRACE_SECONDS, LIST_SECONDS
from dra_driver.testing.builders import a_claim, a_result
from dra_driver.testing.failpoints import Failpoints
from dra_driver.testing.stage import wait_for
from tests.support.local_node import ManualClock
from tests.support.plugin_node import PluginNode, a_resource, all_edits

ONE, TWO = "uuid-gpu-0", "uuid-gpu-1"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PluginNode]:
    found = PluginNode(tmp_path, clock=ManualClock())
    yield found
    assert found.violations() == []
    found.close()


def given(found: ContainerAnswer | Refusal) -> ContainerAnswer:
    assert isinstance(found, ContainerAnswer), found
    return found


def refused(found: ContainerAnswer | Refusal) -> str:
    assert isinstance(found, Refusal), found
    return found.reason


def pass_time(node: PluginNode, seconds: float) -> None:
    assert isinstance(node.clock, ManualClock)
    node.clock.now += seconds


in_either_process = pytest.mark.parametrize("another_process", [False, True])
"""Whether the process that answered is killed, and another one goes on."""


def replaced(node: PluginNode, another_process: bool) -> None:
    if another_process:
        node.restart()
        node.recover()
        assert node.taking_up.once()


def test_a_container_gets_its_units_and_the_row_learns_the_pod(node: PluginNode) -> None:
    answer = given(node.admit("pod-a", ONE, TWO))
    assert [one.path for one in answer.device_nodes] == [
        "/dev/dra-simulated/gpu-0",
        "/dev/dra-simulated/gpu-1",
    ]
    assert len(answer.cdi_ids) == 2
    assert node.owned() == {"gpu-0", "gpu-1"}
    (row,) = node.rows()
    assert row.users.pods is None
    node.look()
    (row,) = node.rows()
    assert row.users.pods == ("pod-a",)


def test_a_pod_that_ends_leaves_its_device_free(node: PluginNode) -> None:
    node.admit("pod-a", ONE)
    node.run("pod-a")
    node.look()
    assert node.owned() == {"gpu-0"}
    node.end("pod-a")
    node.look()
    assert (node.owned(), node.rows()) == (set(), ())


def test_a_pod_that_starts_slowly_keeps_its_device(node: PluginNode) -> None:
    node.admit("pod-a", ONE)
    node.look()
    pass_time(node, GRACE_SECONDS + 1)
    node.look()
    assert node.owned() == {"gpu-0"}
    node.end("pod-a")  # it was deleted before anything ran
    node.look()
    assert node.owned() == set()


def test_the_next_pod_gets_a_device_at_once_after_the_last_process(node: PluginNode) -> None:
    node.admit("pod-a", ONE)
    node.run("pod-a")
    node.look()
    node.end("pod-a")
    given(node.admit("pod-b", ONE))
    node.look()
    (row,) = node.rows()
    assert row.users.pods == ("pod-b",)


def test_a_pod_deleted_by_force_keeps_its_device_from_the_next_one(node: PluginNode) -> None:
    node.admit("pod-a", ONE)
    node.run("pod-a")
    node.look()
    node.force_delete("pod-a")
    reason = refused(node.admit("pod-b", ONE))
    assert "may still be used by the container that had it before" in reason
    assert "pod pod-a still runs" in reason
    (row,) = node.rows()
    assert row.held is not None
    node.end("pod-a")
    node.look()
    given(node.admit("pod-b", ONE))


def test_a_pod_that_the_kubelet_forgets_while_it_runs_is_held_before_anybody_asks(
    node: PluginNode,
) -> None:
    node.admit("pod-a", ONE)
    node.run("pod-a")
    node.look()
    node.force_delete("pod-a")
    pass_time(node, LIST_SECONDS)
    node.look()
    (row,) = node.rows()
    assert row.held is not None
    assert row.held.reason == "the kubelet does not list its pod any more"


def test_an_init_container_and_the_container_after_it_share_their_units(node: PluginNode) -> None:
    first = given(node.allocate(ONE))
    node.write("pod-a", ONE, container="init")
    again = given(node.allocate(ONE, TWO))
    node.write("pod-a", ONE, TWO)
    assert first.cdi_ids[0] in again.cdi_ids
    assert {one.path for one in again.device_nodes} == {
        "/dev/dra-simulated/gpu-0",
        "/dev/dra-simulated/gpu-1",
    }
    node.run("pod-a")
    node.look()
    assert {row.users.pods for row in node.rows()} == {("pod-a",)}
    node.end("pod-a")
    node.look()
    assert node.owned() == set()


def test_a_unit_given_again_to_another_pod_belongs_to_both(node: PluginNode) -> None:
    node.admit("pod-a", ONE)
    node.look()
    node.force_delete("pod-a")  # before its cgroup was made
    given(node.admit("pod-b", ONE))
    node.run("pod-b")
    node.look()
    (row,) = node.rows()
    assert row.users.pods == ("pod-a", "pod-b")
    pass_time(node, ADMISSION_SECONDS)
    node.look()
    assert node.owned() == {"gpu-0"}
    node.end("pod-b")
    node.look()
    assert node.owned() == set()


def test_a_pod_that_has_the_units_now_keeps_them_when_the_one_before_ends(node: PluginNode) -> None:
    node.admit("pod-a", ONE)
    node.run("pod-a")
    node.look()
    node.force_delete("pod-a")
    node.write("pod-b", ONE)  # another plugin with the same resource and units gave them out
    node.active["pod-b"] = frozenset({UnitId(ONE)})
    node.look()
    node.end("pod-a")
    node.look()
    assert node.owned() == {"gpu-0"}  # pod-b starts at any moment
    node.run("pod-b")
    node.look()
    node.end("pod-b")
    node.look()
    assert node.owned() == set()


@in_either_process
def test_a_pod_that_was_refused_in_the_end_leaves_its_unit_to_the_next(
    node: PluginNode, another_process: bool
) -> None:
    given(node.allocate(ONE))  # and another plugin refuses: the kubelet writes nothing
    replaced(node, another_process)
    node.look()
    given(node.admit("pod-b", ONE))
    node.run("pod-b")
    node.look()
    (row,) = node.rows()
    assert row.users.pods == ("pod-b",)


@in_either_process
def test_a_pod_that_was_refused_and_that_nobody_follows_is_free_after_a_while(
    node: PluginNode, another_process: bool
) -> None:
    given(node.allocate(ONE))
    replaced(node, another_process)
    node.look()
    pass_time(node, ADMISSION_SECONDS - 1)
    node.look()
    assert node.owned() == {"gpu-0"}
    pass_time(node, 2)
    node.look()
    assert node.owned() == set()


@in_either_process
def test_a_pod_that_no_checkpoint_names_is_searched_among_those_that_came_since(
    node: PluginNode, another_process: bool
) -> None:
    node.run("older")
    given(node.allocate(ONE))
    replaced(node, another_process)
    node.run("pod-a")
    node.containers, node.writes = (
        (),
        node.writes + 2,
    )  # its entry was replaced before anybody read it
    node.look()
    pass_time(node, SETTLED_SECONDS)
    node.look()
    pass_time(node, ADMISSION_SECONDS)
    node.look()
    (row,) = node.rows()
    assert (row.users.pods, row.held) == (None, None)
    node.write("pod-b", TWO)
    node.look()
    (row,) = node.rows()
    assert (row.users.pods, row.held is not None) == (("pod-a",), True)
    node.end("pod-a")
    node.look()
    assert node.owned() == set()


def test_a_slow_plugin_of_another_resource_costs_a_container_nothing(node: PluginNode) -> None:
    given(node.allocate(ONE))
    pass_time(node, SETTLED_SECONDS)
    node.look()
    node.writes += 1  # a plugin has sent its list
    pass_time(node, ADMISSION_SECONDS - SETTLED_SECONDS - 1)
    node.look()
    assert (node.owned(), len(node.disk().files)) == ({"gpu-0"}, 1)
    node.write("pod-a", ONE)
    node.run("pod-a")
    node.look()
    (row,) = node.rows()
    assert row.users.pods == ("pod-a",)


def none_left(node: PluginNode) -> bool:
    node.look()
    return not node.rows()


def test_a_look_while_a_call_sets_up_its_units_names_nobody_and_takes_nothing_back(
    node: PluginNode,
) -> None:
    configure = node.configure

    def slowly(lease: Lease) -> object:
        for seconds in (SETTLED_SECONDS, ADMISSION_SECONDS):
            pass_time(node, seconds)
            node.holders.once()
            node.write("pod-b", TWO)  # another plugin's answer
        node.holders.once()
        return configure(lease)

    node.configure = slowly
    answer = node.allocate(ONE)
    if isinstance(answer, Refusal):
        # The call has ended first: more time passes than it has. The kubelet got an error, so no container starts with the units.
        wait_for(lambda: none_left(node), "the units to be taken back")
        return
    wait_for(lambda: node.rows()[0].phase is Phase.PREPARED, "the end of the work")
    (row,) = node.rows()
    assert (row.users.pods, row.held) == (None, None)
    node.write("pod-a", ONE)
    node.run("pod-a")
    node.look()
    (row,) = node.rows()
    assert row.users.pods == ("pod-a",)
    node.end("pod-a")


def test_an_entry_that_is_older_than_the_call_names_nobody(node: PluginNode) -> None:
    node.admit("pod-a", ONE)
    node.run("pod-a")
    node.look()
    node.end("pod-a")
    node.look()
    given(node.allocate(ONE))  # the file still names pod-a
    node.look()
    (row,) = node.rows()
    assert row.users.pods is None


def test_a_claim_and_a_container_never_have_one_device(node: PluginNode) -> None:
    (ref,) = node.add(a_claim(results=[a_result("gpu-0")]))
    assert not isinstance(node.prepare(ref)[ref.uid], Refusal)
    node.presences[PodUid("pod-claim")] = Gone()
    reason = refused(node.admit("pod-a", ONE))
    assert "it still exists" in reason
    given(node.admit("pod-a", TWO))
    node.run("pod-a")
    node.look()
    (other,) = node.add(a_claim("other", results=[a_result("gpu-1")]))
    answer = node.prepare(other)[other.uid]
    assert isinstance(answer, Refusal)
    assert "container with resource nvidia.com/gpu" in answer.reason
    assert "its pod runs" in answer.reason


def test_a_failing_device_costs_its_call_and_leaves_nothing(node: PluginNode) -> None:
    def fails(_lease: object) -> object:
        raise Permanent("the device is broken")

    node.configure = fails
    assert "the device is broken" in refused(node.admit("pod-a", ONE))
    assert (node.owned(), node.rows(), node.disk().files) == (set(), (), {})


@pytest.mark.parametrize("commits", [["prepared"], ["prepared", "released"]])
@pytest.mark.parametrize("looks", [False, True])
def test_a_call_whose_result_cannot_be_written_is_taken_back(
    tmp_path: Path, commits: list[str], looks: bool
) -> None:
    is_full = True

    def fail() -> None:
        if is_full:
            raise Temporary("the disk is full")

    node = PluginNode(tmp_path, clock=ManualClock())
    node.restart(point=Failpoints({f"commit.{one}.before": fail for one in commits}))
    assert "nvidia.com/gpu: the disk is full" in refused(node.allocate(ONE))
    assert node.owned() == ({"gpu-0"} if "released" in commits else set())
    is_full = False
    node.run("other")  # it has come since, and is no suspect
    node.writes += 1
    if looks:
        node.look()
        assert (node.owned(), node.rows(), node.disk().files) == (set(), (), {})
    given(node.admit("pod-a", ONE))
    assert len(node.rows()) == 1
    node.close()


def test_a_call_that_a_defect_ends_is_taken_back(node: PluginNode) -> None:
    def broken(*_unused: object, **_more: object) -> NoReturn:
        raise KeyError("a defect")

    work = node.parts.executor.work
    node.parts.executor.work = broken  # type: ignore[method-assign]
    with pytest.raises(KeyError):
        node.allocate(ONE)
    node.parts.executor.work = work  # type: ignore[method-assign]
    node.look()
    assert node.owned() == set()


@pytest.mark.parametrize(
    ("units", "reason"),
    [
        (["uuid-gpu-9"], "the driver has no unit uuid-gpu-9 (any more)"),
        ([], "the kubelet sent no unit"),
        ([ONE, ONE], "the kubelet sent uuid-gpu-0, uuid-gpu-0"),
    ],
)
def test_units_that_nobody_has_are_refused(node: PluginNode, units: list[str], reason: str) -> None:
    assert reason in refused(node.allocate(*units))
    assert node.rows() == ()


def test_nothing_is_remembered_of_a_call_that_gets_no_row(node: PluginNode) -> None:
    given(node.allocate(ONE))
    node.write("pod-a", ONE, container="init")
    given(node.allocate(ONE))
    node.look()
    (row,) = node.rows()
    assert node.holders._memory._rows.keys() == {row.ref.uid}


def test_several_units_are_refused_where_they_mean_nothing(node: PluginNode) -> None:
    node.resource = a_resource(4, refuses_several=True)
    assert "write 1 in its limits" in refused(node.allocate(ONE, TWO))
    given(node.allocate(ONE))


def test_a_resource_that_is_not_offered_is_refused(node: PluginNode) -> None:
    node.resource = None
    assert "resource nvidia.com/gpu is not offered" in refused(node.allocate(ONE))


def test_a_restarted_driver_knows_who_has_what(node: PluginNode) -> None:
    node.admit("pod-a", ONE)
    node.run("pod-a")
    node.look()
    node.restart()
    node.recover()
    node.look()
    assert "still runs" in refused(node.admit("pod-b", ONE))
    node.end("pod-a")
    node.look()
    given(node.admit("pod-b", ONE))


def test_a_pod_whose_init_container_waits_keeps_its_device(node: PluginNode) -> None:
    given(node.allocate(ONE))
    node.write("pod-a", ONE, container="init")  # pod-resources do not list init containers
    node.cgroups.add(PodUid("pod-a"))  # it is made first; then the pod waits for a volume
    node.look()
    pass_time(node, GRACE_SECONDS + 1)
    node.look()
    assert node.owned() == {"gpu-0"}


def test_a_pod_that_gets_a_new_sandbox_keeps_its_device(node: PluginNode) -> None:
    node.admit("pod-a", ONE)
    node.run("pod-a")
    node.look()
    del node.presences[PodUid("pod-a")]  # all of its processes are gone, and its cgroup stays
    node.look()
    assert node.owned() == {"gpu-0"}
    assert len(node.disk().files) == 1  # the next container starts without a call
    node.run("pod-a")
    node.look()
    node.end("pod-a")
    node.look()
    assert node.owned() == set()


def test_the_next_pod_gets_a_device_while_the_empty_cgroup_of_an_ended_pod_is_removed(
    node: PluginNode,
) -> None:
    node.admit("pod-a", ONE)
    node.run("pod-a")
    node.look()
    node.force_delete("pod-a")
    del node.presences[PodUid("pod-a")]
    given(node.admit("pod-b", ONE))
    node.look()
    (row,) = node.rows()
    assert row.users.pods == ("pod-b",)


def test_an_older_entry_names_nobody_after_a_restart_either(node: PluginNode) -> None:
    node.write("older", ONE)  # it has ended, and the kubelet keeps its entry
    given(node.allocate(ONE))
    node.restart()  # another process leads, before the kubelet has written anything
    node.recover()
    node.look()
    (row,) = node.rows()
    assert row.users.pods is None
    node.write("pod-a", ONE)
    node.run("pod-a")
    node.look()
    (row,) = node.rows()
    assert row.users.pods == ("pod-a",)
    pass_time(node, GRACE_SECONDS + 1)
    node.look()
    assert node.owned() == {"gpu-0"}
    assert "pod pod-a still runs" in refused(node.admit("pod-b", ONE))
    node.end("pod-a")
    node.look()
    assert node.owned() == set()


def test_the_pod_is_learned_although_the_kubelet_first_writes_what_it_knew_before(
    node: PluginNode,
) -> None:
    given(node.allocate(ONE))
    node.write("older", ONE)
    node.look()
    node.write("pod-a", ONE)
    node.run("pod-a")
    node.look()
    (row,) = node.rows()
    assert row.users.pods == ("older", "pod-a")
    node.end("pod-a")


def test_a_new_kubelet_that_lists_no_pod_yet_has_forgotten_nothing(node: PluginNode) -> None:
    node.admit("pod-a", ONE)
    node.run("pod-a")
    node.look()
    active, node.active = node.active, {}
    node.kubelet += 1
    for _ in range(3):
        pass_time(node, LIST_SECONDS)
        node.look()
    (row,) = node.rows()
    assert row.held is None
    assert len(node.disk().files) == 1  # its containers start again without a call
    node.active = active
    pass_time(node, LIST_SECONDS)
    node.look()
    node.force_delete("pod-a")
    pass_time(node, LIST_SECONDS)
    node.look()
    (row,) = node.rows()
    assert row.held is not None
    node.end("pod-a")
    node.look()


def test_without_cgroups_a_new_kubelet_that_lists_no_pod_yet_frees_nothing(
    node: PluginNode,
) -> None:
    node.believes_unprepare = True
    node._pods = lambda: Unknown("cgroups cannot be read")  # type: ignore[method-assign]
    node.restart()
    node.admit("pod-a", ONE)
    node.look()
    active, node.active = node.active, {}
    node.kubelet += 1
    pass_time(node, GRACE_SECONDS + 1)
    node.look()
    assert node.owned() == {"gpu-0"}
    node.active = active
    pass_time(node, LIST_SECONDS)
    node.look()
    node.end("pod-a")
    pass_time(node, LIST_SECONDS)
    node.look()
    assert node.owned() == set()


def test_without_cgroups_a_pod_that_ended_unseen_is_free_when_the_checkpoint_drops_it(
    node: PluginNode,
) -> None:
    node.believes_unprepare = True
    node.admit("pod-a", ONE)
    node.end("pod-a")
    node.restart()
    node.look()
    pass_time(node, GRACE_SECONDS + 1)
    node.look()
    assert node.owned() == {"gpu-0"}
    node.containers = ()
    node.writes += 1
    node.look()
    assert node.owned() == set()


def in_replicas(count: int = 2) -> PluginResource:
    """gpu-0 in replicas."""
    units = tuple(
        Unit(UnitId(f"{ONE}::{n}"), DeviceName("gpu-0"), ShareId(f"replica-{n}"))
        for n in range(count)
    )
    return dataclasses.replace(a_resource(4), units=units, sharing=Sharing.REPLICAS)


def test_a_share_of_a_pod_that_has_not_started_keeps_others_from_the_whole_device(
    node: PluginNode,
) -> None:
    node.resource = in_replicas()
    given(node.admit("pod-a", f"{ONE}::0"))
    node.cgroups.add(PodUid("pod-a"))  # it waits for a volume
    node.look()
    node.resource = a_resource(4)
    assert "about to start" in refused(node.admit("pod-b", ONE))
    node.run("pod-a")
    assert "its pod runs" in refused(node.admit("pod-b", ONE))
    (row,) = node.rows()
    assert row.held is None
    assert len(node.disk().files) == 1  # its containers start again without a call
    node.look()
    node.end("pod-a")
    given(node.admit("pod-b", ONE))
    node.run("pod-b")
    node.look()
    node.resource = in_replicas()
    assert "its pod runs" in refused(node.admit("pod-c", f"{ONE}::1"))
    node.end("pod-b")


def test_a_unit_of_the_same_name_in_another_resource_is_another_unit(node: PluginNode) -> None:
    given(node.admit("pod-a", ONE))
    node.cgroups.add(PodUid("pod-a"))
    node.look()
    other = dataclasses.replace(a_resource(4), name=ResourceName("nvidia.com/renamed"))
    allocate = AllocateUnits(
        node.parts, node.holders, resources=lambda _name: other, answers=lambda: Answers(all_edits)
    )
    assert "about to start" in refused(allocate(other.name, [UnitId(ONE)]))
    (row,) = node.rows()
    assert row.users.pods == ("pod-a",)
