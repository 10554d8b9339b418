# SPDX-License-Identifier: Apache-2.0
"""A call asks for a part of a row's units: whoever has the others, or may have them, loses nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.model.ids import DeviceName, PodUid, UnitId
from dra_driver.model.plugin import Strategy, UnitsOfContainer
from dra_driver.planning.plugin.listed import Listing
from dra_driver.services.plugin.witnesses import GRACE_SECONDS
from tests.support.local_node import ManualClock
from tests.support.plugin_node import PluginNode
from tests.unit.services.plugin.test_again import (
    given,
    in_either_process,
    looks,
    pass_time,
    refused,
    replaced,
)
from tests.unit.services.plugin.test_parted import is_free, pods_by_device, waits
from tests.unit.services.plugin.test_take_up_fixed import answers, files_of, find, opens_its_file

ONE, TWO, THREE = "uuid-gpu-0", "uuid-gpu-1", "uuid-gpu-2"
WHOLE = {"/dev/nvidia0", "/dev/nvidia1"}


@pytest.fixture(params=[Strategy.CDI, Strategy.EDITS], ids=lambda strategy: strategy.value)
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PluginNode]:
    found = PluginNode(tmp_path, clock=ManualClock())
    found.configure = opens_its_file
    found.answers = answers(request.param)
    find(found, 0, 1, 2)
    yield found
    assert found.violations() == []
    found.close()


def never_ran(node: PluginNode, *units: str) -> None:
    """A pod that was deleted before it started."""
    given(node.admit("pod-a", *units))
    node.look()
    node.end("pod-a")


def writes(node: PluginNode, *containers: UnitsOfContainer) -> None:
    """The kubelet writes what it knew before."""
    node.containers = containers
    node.writes += 1


def ends_earlier(node: PluginNode, *units: str) -> tuple[UnitsOfContainer, ...]:
    """A pod that ran and ended before; returns the checkpoint of that time."""
    given(node.admit("old", *units))
    node.run("old")
    node.look()
    before = node.containers
    node.end("old")
    node.look()
    assert node.owned() == set()
    return before


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("reboot", [False, True])
def test_nothing_is_given_away_while_the_checkpoint_cannot_be_read(
    node: PluginNode, named: bool, reboot: bool
) -> None:
    never_ran(node, ONE, TWO)
    first = waits(node, "pod-b", ONE)
    if named:
        node.look()
    if reboot:
        node.reboot()
        node.cgroups.add(PodUid("pod-b"))
    node.damaged = True
    assert "who has its other units is not known: the file is damaged" in refused(
        node.allocate(TWO)
    )
    node.damaged = False
    assert node.taking_up.once()
    node.look()
    assert files_of(node, first) >= {"/dev/nvidia0"}
    assert not is_free(node, "gpu-0")
    given(node.allocate(TWO))
    assert files_of(node, first) == {"/dev/nvidia0"}


def test_an_init_container_keeps_its_units_while_the_checkpoint_cannot_be_read(
    node: PluginNode,
) -> None:
    given(node.admit("pod-b", init=[ONE, TWO]))
    node.damaged = True
    assert "who has its other units is not known" in refused(node.allocate(ONE))
    assert node.owned() == {"gpu-0", "gpu-1"}


def test_a_call_for_all_units_of_an_ended_pod_needs_no_checkpoint(node: PluginNode) -> None:
    given(node.admit("pod-a", ONE, TWO))
    node.run("pod-a")
    node.look()
    node.end("pod-a")
    node.damaged = True
    given(node.allocate(ONE, TWO))


def test_units_are_not_given_again_while_the_checkpoint_cannot_tell_to_whom(
    node: PluginNode,
) -> None:
    never_ran(node, ONE, TWO)
    node.damaged = True
    assert "which pod gets it would not be known" in refused(node.allocate(ONE, TWO))


def test_of_a_row_whose_pod_is_not_named_yet_a_call_gets_only_what_it_asks_for(
    node: PluginNode,
) -> None:
    never_ran(node, ONE, TWO, THREE)
    writes(node)
    first = waits(node, "pod-b", ONE)
    writes(node)
    given(node.allocate(TWO))
    assert not is_free(node, "gpu-0")
    assert not is_free(node, "gpu-2")
    node.write("pod-b", ONE)
    node.run("pod-b")
    node.look()
    assert pods_by_device(node)["gpu-0"] == ("pod-a", "pod-b")
    assert files_of(node, first) == {"/dev/nvidia0"}


def test_a_row_is_not_held_because_of_a_pod_that_came_since(node: PluginNode) -> None:
    never_ran(node, ONE, TWO)
    writes(node)
    first = waits(node, "pod-b", ONE)
    node.run("newer")
    writes(node)
    pass_time(node, GRACE_SECONDS)
    assert "pod newer still runs" in refused(node.allocate(TWO))
    assert [row.held for row in node.rows()] == [None]
    node.write("pod-b", ONE)
    given(node.allocate(TWO))
    assert files_of(node, first) == {"/dev/nvidia0"}


def test_a_row_stays_while_the_node_does_not_show_who_came_since(node: PluginNode) -> None:
    never_ran(node, ONE, TWO)
    writes(node)
    waits(node, "pod-b", ONE)
    writes(node)
    node.hidden = True
    assert "has not named its pod yet" in refused(node.allocate(TWO))
    assert [row.held for row in node.rows()] == [None]


def test_a_pod_that_is_being_admitted_keeps_its_units_although_no_checkpoint_names_it(
    node: PluginNode,
) -> None:
    given(node.allocate(ONE, TWO))
    writes(node)
    given(node.allocate(ONE))
    assert not is_free(node, "gpu-1")


def test_a_pod_that_was_never_named_and_runs_is_held_when_its_admission_is_over(
    node: PluginNode,
) -> None:
    given(node.allocate(ONE, TWO))
    writes(node)
    node.run("pod-b")
    pass_time(node, GRACE_SECONDS)
    assert "pod pod-b still runs" in refused(node.allocate(ONE))
    assert [row.held is None for row in node.rows()] == [False]


@pytest.mark.parametrize("main", [ONE, TWO])
def test_an_older_checkpoint_in_the_middle_of_an_admission_frees_nothing(
    node: PluginNode, main: str
) -> None:
    before = ends_earlier(node, ONE)
    given(node.admit("pod-b", init=[ONE, TWO, THREE]))
    node.active.clear()
    node.look()
    after = node.containers
    writes(node, *before)
    given(node.allocate(main))
    assert node.owned() == {"gpu-0", "gpu-1", "gpu-2"}
    assert not is_free(node, "gpu-2")
    writes(node, *after)
    node.write("pod-b", main, container="main")
    node.run("pod-b")
    looks(node)
    assert node.owned() == {"gpu-0", "gpu-1", "gpu-2"}


@pytest.mark.parametrize("main", [(ONE,), (ONE, TWO)], ids=len)
def test_a_pod_is_admitted_although_its_init_container_is_not_noted_yet(
    node: PluginNode, main: tuple[str, ...]
) -> None:
    before = node.containers
    init = given(node.admit("pod-b", init=[ONE, TWO]))
    after = node.containers
    writes(node, *before)
    given(node.allocate(*main))
    writes(node, *after)
    node.write("pod-b", *main)
    node.run("pod-b")
    looks(node)
    assert files_of(node, init) == WHOLE
    assert pods_by_device(node) == dict.fromkeys(["gpu-0", "gpu-1"], ("pod-b",))


def test_the_units_of_an_init_container_are_not_given_again_without_the_checkpoint(
    node: PluginNode,
) -> None:
    init = given(node.admit("pod-b", init=[ONE]))
    node.damaged = True
    assert "which pod gets it would not be known" in refused(node.allocate(ONE))
    node.damaged = False
    given(node.admit("pod-b", main=[ONE]))
    assert files_of(node, init) == {"/dev/nvidia0"}


def test_an_unnamed_row_of_which_something_ran_is_taken_back(node: PluginNode) -> None:
    given(node.allocate(ONE))
    writes(node)
    node.used.add(DeviceName("gpu-0"))
    assert "the hardware still sees a process on device gpu-0" in refused(node.allocate(ONE))
    assert [row.held is None for row in node.rows()] == [False]


def test_an_entry_of_before_the_call_names_nobody(node: PluginNode) -> None:
    before = ends_earlier(node, ONE)
    init = given(node.admit("pod-b", init=[ONE, TWO]))
    after = node.containers
    node.active.clear()
    writes(node, *before)
    node.look()
    node.run("pod-b")
    for _ in range(5):
        pass_time(node, GRACE_SECONDS)
        node.look()
    assert node.owned() == {"gpu-0", "gpu-1"}
    writes(node, *after)
    node.look()
    assert pods_by_device(node)["gpu-0"] == ("pod-b",)
    assert files_of(node, init) == WHOLE


def test_the_entry_of_an_init_container_does_not_name_the_pod_of_a_later_call(
    node: PluginNode,
) -> None:
    never_ran(node, ONE)
    before = node.containers
    given(node.admit("pod-b", init=[ONE]))
    after = node.containers
    writes(node, *before)
    node.active.clear()
    node.look()
    assert [row.users.has_unknown for row in node.rows()] == [True]
    writes(node, *after)
    node.look()
    assert pods_by_device(node)["gpu-0"] == ("pod-a", "pod-b")


def test_a_call_that_was_refused_by_the_kubelet_is_over_although_an_old_entry_stays(
    node: PluginNode,
) -> None:
    before = ends_earlier(node, ONE)
    given(node.allocate(ONE, TWO))
    writes(node, *before)
    looks(node)
    assert node.owned() == set()


def readmitted(node: PluginNode) -> None:
    """The kubelet has lost its checkpoint, and admits a pod anew that waited, with other units."""
    given(node.admit("pod-p", ONE, TWO))
    node.cgroups.add(PodUid("pod-p"))
    node.look()
    node.kubelet = 2
    node.active.clear()
    writes(node)
    node.look()
    given(node.admit("pod-p", TWO, THREE))
    node.run("pod-p")
    node.look()
    pass_time(node, GRACE_SECONDS)
    node.look()


def test_a_unit_that_nobody_has_is_given_on_although_its_pod_lives(node: PluginNode) -> None:
    readmitted(node)
    given(node.admit("pod-c", ONE))
    assert pods_by_device(node) == {"gpu-0": None, "gpu-1": ("pod-p",), "gpu-2": ("pod-p",)}
    assert [row.held for row in node.rows()] == [None] * 3
    assert len(node.disk().files) == 3


def test_such_a_unit_is_not_given_on_while_the_hardware_sees_a_process(node: PluginNode) -> None:
    readmitted(node)
    node.used.add(DeviceName("gpu-0"))
    assert "the hardware still sees a process on device gpu-0" in refused(node.admit("pod-c", ONE))
    assert {row.held for row in node.rows()} == {None}
    node.look()
    assert node.owned() == {"gpu-0", "gpu-1", "gpu-2"}
    node.used.clear()
    node.look()
    assert node.owned() == {"gpu-1", "gpu-2"}


@pytest.mark.parametrize("silent", [False, True])
def test_such_a_unit_is_not_given_on_while_the_kubelet_does_not_list_the_pod(
    node: PluginNode, silent: bool
) -> None:
    """Then the checkpoint may be an older one, and the pod of it may have been deleted by force."""
    readmitted(node)
    node.force_delete("pod-p")
    if silent:
        node.unlisted = True
    assert "pod pod-p still runs" in refused(node.admit("pod-c", ONE))
    assert {row.held for row in node.rows()} == {None}
    node.look()
    assert "gpu-0" in node.owned()


def test_after_a_reboot_a_pod_keeps_the_part_that_the_checkpoint_names(node: PluginNode) -> None:
    readmitted(node)
    node.reboot()
    node.active.clear()
    node.damaged = True
    refused(node.allocate(ONE))
    node.damaged = False
    pass_time(node, GRACE_SECONDS)
    given(node.admit("pod-c", ONE))
    assert not is_free(node, "gpu-1")


def two_pods_in_a_row(node: PluginNode) -> None:
    """Both run; the row is whole because the first one had neither a cgroup nor a place in a list when the second one was admitted."""
    never_ran(node, ONE, TWO)
    given(node.admit("pod-b", init=[ONE]))
    node.look()
    node.active.clear()
    pass_time(node, GRACE_SECONDS)
    given(node.admit("pod-c", TWO))
    node.active["pod-b"] = frozenset({UnitId(ONE)})
    node.run("pod-b")
    node.run("pod-c")
    node.look()
    pass_time(node, GRACE_SECONDS)
    node.look()
    assert pods_by_device(node)["gpu-1"] == ("pod-a", "pod-b", "pod-c")


@pytest.mark.parametrize("listed", [False, True])
def test_a_pod_keeps_its_part_when_the_other_pod_of_the_row_has_ended(
    node: PluginNode, listed: bool
) -> None:
    two_pods_in_a_row(node)
    node.end("pod-b")
    if not listed:
        node.active.clear()  # no list has an init container
    given(node.admit("pod-d", ONE))
    assert pods_by_device(node) == {"gpu-0": None, "gpu-1": ("pod-a", "pod-b", "pod-c")}
    node.end("pod-c")
    node.look()
    assert node.owned() == {"gpu-0"}


def test_a_pod_keeps_its_part_while_the_other_pod_runs_on_unlisted(node: PluginNode) -> None:
    two_pods_in_a_row(node)
    node.force_delete("pod-b")
    assert "pod pod-b still runs" in refused(node.admit("pod-d", ONE))
    assert [row.held for row in node.rows()] == [None]
    node.end("pod-c")
    node.cgroups.add(PodUid("pod-c"))  # it may start again
    assert "pod pod-b still runs" in refused(node.admit("pod-d", ONE))
    assert [row.held for row in node.rows()] == [None]
    node.end("pod-c")
    assert "pod pod-b still runs" in refused(node.admit("pod-d", ONE))
    assert [row.held is None for row in node.rows()] == [False]


def healthy(node: PluginNode) -> set[str]:
    assert node.resource is not None
    listing = Listing(node.parts.inventory(), node.holders.all_rows(), {}, node.place.pool)
    return {one.id for one in listing.of(node.resource) if one.healthy} & {ONE, TWO, THREE}


def test_a_part_that_was_not_free_for_a_call_draws_no_more_pods_until_it_is(
    node: PluginNode,
) -> None:
    two_pods_in_a_row(node)
    node.force_delete("pod-b")
    before = node.freed
    refused(node.admit("pod-d", ONE))
    assert node.freed == before + 1
    refused(node.admit("pod-d", ONE))
    assert node.freed == before + 1
    looks(node)
    assert healthy(node) == {TWO, THREE}
    # The kubelet has written no checkpoint since, which goes on to name the pod.
    node.end("pod-b")
    node.look()
    assert healthy(node) == {ONE, TWO, THREE}
    assert node.owned() == {"gpu-1"}


def test_after_a_reboot_such_a_part_draws_no_more_pods_either(node: PluginNode) -> None:
    node.answers = answers(Strategy.EDITS)  # CDI names of an earlier boot are in no file
    two_pods_in_a_row(node)
    node.reboot()
    node.run("pod-b")
    node.cgroups.add(PodUid("pod-c"))
    assert "pod pod-b still runs" in refused(node.admit("pod-d", ONE))
    assert ONE not in healthy(node)
    assert [row.held for row in node.rows()] == [None]
    assert node.taking_up.once()
    node.end("pod-b")
    given(node.admit("pod-d", ONE))
    assert not is_free(node, "gpu-1")


def test_a_pod_that_runs_keeps_its_part_also_if_nobody_shows_it(node: PluginNode) -> None:
    two_pods_in_a_row(node)
    node.active.clear()
    node.hidden = True
    assert "pod pod-b still runs" in refused(node.admit("pod-d", ONE))
    assert [row.held for row in node.rows()] == [None]


def test_a_pod_that_was_just_admitted_keeps_its_part(node: PluginNode) -> None:
    never_ran(node, ONE, TWO)
    given(node.admit("pod-b", init=[ONE]))
    node.active.clear()
    given(node.admit("pod-c", TWO))
    assert pods_by_device(node) == {"gpu-0": ("pod-a", "pod-b"), "gpu-1": None}


def test_a_pod_is_admitted_with_units_of_a_row_of_which_another_pod_runs(node: PluginNode) -> None:
    never_ran(node, ONE, TWO, THREE)
    waits(node, "pod-c", THREE)
    node.run("pod-c")
    node.look()
    # Nothing has been taken back of the others yet.
    assert node.owned() == {"gpu-0", "gpu-1", "gpu-2"}
    init = given(node.admit("pod-b", init=[ONE, TWO]))
    given(node.admit("pod-b", main=[ONE]))
    assert not is_free(node, "gpu-1")
    assert files_of(node, init) == WHOLE


def test_an_init_container_keeps_units_of_a_row_of_which_another_pod_lives(
    node: PluginNode,
) -> None:
    never_ran(node, ONE, TWO)
    given(node.admit("pod-c", init=[TWO]))
    node.look()
    node.active.clear()
    pass_time(node, GRACE_SECONDS)
    init = given(node.admit("pod-b", init=[ONE]))
    node.run("pod-c")
    node.look()
    given(node.admit("pod-b", main=[ONE]))
    assert len(node.rows()) == 1
    assert files_of(node, init) == {"/dev/nvidia0"}


def test_what_an_ended_pod_had_is_taken_back_whole(node: PluginNode) -> None:
    given(node.admit("pod-a", ONE, TWO))
    node.run("pod-a")
    node.look()
    node.end("pod-a")
    given(node.admit("pod-b", ONE))
    assert node.owned() == {"gpu-0"}


def test_what_an_ended_pod_had_is_taken_back_whole_by_another_process(node: PluginNode) -> None:
    given(node.admit("pod-a", ONE, TWO))
    node.run("pod-a")
    node.look()
    node.force_delete("pod-a")
    replaced(node, True)
    node.look()
    pass_time(node, GRACE_SECONDS)
    assert "pod pod-a still runs" in refused(node.allocate(ONE))
    assert [row.held is None for row in node.rows()] == [False]
    node.end("pod-a")
    given(node.admit("pod-b", ONE))
    assert node.owned() == {"gpu-0"}


def test_what_nobody_has_after_a_reboot_is_taken_back_whole(node: PluginNode) -> None:
    given(node.admit("pod-a", ONE, TWO))
    node.run("pod-a")
    node.look()
    node.force_delete("pod-a")
    node.reboot()
    given(node.admit("pod-b", ONE))
    assert node.owned() == {"gpu-0"}


@in_either_process
def test_a_listed_pod_keeps_its_part_although_an_older_checkpoint_names_another(
    node: PluginNode, another_process: bool
) -> None:
    never_ran(node, ONE, TWO)
    before = node.containers
    third = given(node.admit("pod-c", ONE))
    node.run("pod-c")
    writes(node, *before)
    node.look()
    replaced(node, another_process)
    node.look()
    pass_time(node, GRACE_SECONDS)
    node.look()
    node.allocate(TWO)
    assert not is_free(node, "gpu-0")
    assert files_of(node, third) >= {"/dev/nvidia0"}


@in_either_process
def test_an_init_container_keeps_what_the_next_call_does_not_ask_for(
    node: PluginNode, another_process: bool
) -> None:
    given(node.admit("pod-b", init=[ONE, TWO]))
    node.look()
    replaced(node, another_process)
    given(node.admit("pod-b", main=[ONE]))
    assert not is_free(node, "gpu-1")


def test_another_process_gives_no_units_again_of_a_pod_that_may_have_run(node: PluginNode) -> None:
    given(node.admit("pod-a", ONE))
    node.run("pod-a")
    node.look()
    replaced(node, True)
    node.end("pod-a")
    node.backend_calls.clear()
    given(node.admit("pod-b", ONE))
    assert [call[0] for call in node.backend_calls] == ["reset", "configure"]
    node.look()
    assert pods_by_device(node) == {"gpu-0": ("pod-b",)}


def test_units_are_not_given_again_while_the_hardware_sees_a_process(node: PluginNode) -> None:
    never_ran(node, ONE)
    node.used.add(DeviceName("gpu-0"))
    assert "the hardware still sees a process on device gpu-0" in refused(node.admit("pod-b", ONE))
    assert [row.held is None for row in node.rows()] == [False]
    node.used.clear()
    node.look()
    given(node.admit("pod-b", ONE))


@pytest.mark.parametrize("later", [False, True])
def test_where_no_process_is_looked_for_a_later_call_is_for_another_pod(
    node: PluginNode, later: bool
) -> None:
    node.believes_unprepare = True
    node.restart(boot_id=node.boot_id)
    given(node.admit("pod-a", init=[ONE]))
    node.active.clear()
    node.look()
    pass_time(node, GRACE_SECONDS if later else GRACE_SECONDS - 1)
    node.backend_calls.clear()
    given(node.admit("pod-b", ONE))
    assert [call[0] for call in node.backend_calls] == (["reset", "configure"] if later else [])
