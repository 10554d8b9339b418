# SPDX-License-Identifier: Apache-2.0
"""Units that are given again before anything of their row's pod ran: the row knows that another pod may have them, also after a crash."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.errors import Permanent
from dra_driver.model.ids import PodUid
from dra_driver.model.lease import Lease
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import ContainerAnswer, Strategy
from dra_driver.services.plugin.witnesses import ADMISSION_SECONDS, LIST_SECONDS
from dra_driver.testing.builders import a_claim, a_result
from dra_driver.testing.failpoints import Failpoints
from tests.support.local_node import ManualClock
from tests.support.plugin_node import PluginNode
from tests.unit.services.plugin.test_take_up_fixed import answers

ONE, TWO = "uuid-gpu-0", "uuid-gpu-1"


class Died(BaseException):
    """The process ends here."""


def dies() -> None:
    raise Died


@pytest.fixture(params=[Strategy.CDI, Strategy.EDITS], ids=lambda strategy: strategy.value)
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PluginNode]:
    """A node after a reboot; pod-a of the row has been deleted meanwhile, and the kubelet has kept its entry."""
    found = PluginNode(tmp_path, clock=ManualClock())
    found.answers = answers(request.param)
    given(found.admit("pod-a", ONE))
    found.run("pod-a")
    found.look()
    found.reboot()
    found.active.clear()
    assert found.taking_up.once()
    found.look()
    yield found
    assert found.violations() == []
    found.close()


in_either_process = pytest.mark.parametrize("another_process", [False, True])


def given(found: ContainerAnswer | Refusal) -> ContainerAnswer:
    assert isinstance(found, ContainerAnswer), found
    return found


def refused(found: ContainerAnswer | Refusal) -> str:
    assert isinstance(found, Refusal), found
    return found.reason


def replaced(node: PluginNode, another_process: bool) -> None:
    if another_process:
        node.restart(boot_id=node.boot_id)
        node.recover()
        assert node.taking_up.once()


def pass_time(node: PluginNode, seconds: float) -> None:
    assert isinstance(node.clock, ManualClock)
    node.clock.now += seconds


def vanish(node: PluginNode, pod: str) -> None:
    """The pod is deleted by force, and another pod's admission drops its entry, before anybody has read it."""
    node.force_delete(pod)
    node.containers = tuple(one for one in node.containers if one.pod != pod)
    node.writes += 1


def looks(node: PluginNode) -> None:
    """Longer than all waits, while the kubelet writes for other pods."""
    for _ in range(4):
        node.look()
        pass_time(node, ADMISSION_SECONDS)
        node.writes += 1
    node.look()


def pods_of(node: PluginNode) -> tuple[PodUid, ...] | None:
    (row,) = node.rows()
    return row.users.pods


def act_at(node: PluginNode, wanted: str, number: int, act: Callable[[], object]) -> None:
    """Act before the nth answer about this."""
    left = [number]

    def asked(what: str) -> None:
        left[0] -= what == wanted
        if not left[0] and what == wanted:
            act()

    node.asked = asked


@in_either_process
def test_a_pod_that_got_units_again_and_was_deleted_unseen_keeps_them(
    node: PluginNode, another_process: bool
) -> None:
    node.run("older")
    given(node.admit("pod-b", ONE))
    node.run("pod-b")
    vanish(node, "pod-b")
    replaced(node, another_process)
    looks(node)
    assert node.owned() == {"gpu-0"}
    assert pods_of(node) == ("pod-a", "pod-b")
    assert "pod-b still runs" in refused(node.admit("pod-c", ONE))
    node.end("pod-b")
    node.look()
    assert node.owned() == set()


@in_either_process
def test_units_are_not_given_a_third_time_while_the_second_pod_runs(
    node: PluginNode, another_process: bool
) -> None:
    given(node.admit("pod-b", ONE))
    node.run("pod-b")
    vanish(node, "pod-b")
    replaced(node, another_process)
    assert "pod-b still runs" in refused(node.admit("pod-c", ONE))
    (row,) = node.rows()
    assert row.held is not None


@in_either_process
def test_a_pod_that_got_units_again_and_ended_unseen_leaves_them_to_the_next(
    node: PluginNode, another_process: bool
) -> None:
    given(node.admit("pod-b", ONE))
    vanish(node, "pod-b")
    replaced(node, another_process)
    given(node.admit("pod-c", ONE))
    node.run("pod-c")
    node.look()
    assert pods_of(node) == (("pod-c",) if another_process else ("pod-a", "pod-c"))


@in_either_process
def test_the_pod_that_the_checkpoint_names_ends_the_doubt(
    node: PluginNode, another_process: bool
) -> None:
    given(node.allocate(ONE))
    replaced(node, another_process)
    node.look()
    (row,) = node.rows()
    assert (row.users.pods, row.users.has_unknown) == (("pod-a",), True)
    node.write("pod-b", ONE)
    node.look()
    (row,) = node.rows()
    assert (row.users.pods, row.users.has_unknown) == (("pod-a", "pod-b"), False)
    node.run("pod-b")
    looks(node)
    assert node.owned() == {"gpu-0"}
    node.end("pod-b")
    node.look()
    assert node.owned() == set()


@in_either_process
def test_units_given_again_to_a_pod_that_was_refused_in_the_end_are_free_after_a_while(
    node: PluginNode, another_process: bool
) -> None:
    given(node.allocate(ONE))  # and another plugin refuses: the kubelet writes nothing
    replaced(node, another_process)
    node.look()
    pass_time(node, ADMISSION_SECONDS - 1)
    node.look()
    (ref,) = node.add(a_claim(results=[a_result("gpu-0")]))
    found = node.prepare(ref)[ref.uid]
    assert isinstance(found, Refusal)
    assert "has not named its pod yet" in found.reason
    pass_time(node, 2)
    node.look()
    node.look()
    assert node.owned() == set()


@in_either_process
def test_units_given_again_to_a_pod_that_was_refused_are_given_to_the_next(
    node: PluginNode, another_process: bool
) -> None:
    given(node.allocate(ONE))
    replaced(node, another_process)
    given(node.admit("pod-c", ONE))
    node.look()
    # Another process does not know whether a pod ran before it began: it takes them back first.
    assert pods_of(node) == (("pod-c",) if another_process else ("pod-a", "pod-c"))


def test_where_cgroups_cannot_be_read_each_pod_of_later_is_a_suspect(node: PluginNode) -> None:
    node.run("older")
    node.hidden = True
    given(node.admit("pod-b", ONE))
    node.run("pod-b")
    vanish(node, "pod-b")
    node.hidden = False
    looks(node)
    assert pods_of(node) == ("pod-a", "older", "pod-b")


def test_as_long_as_cgroups_cannot_be_read_the_units_are_held(node: PluginNode) -> None:
    node.hidden = True
    given(node.admit("pod-b", ONE))
    vanish(node, "pod-b")
    node.run("pod-b")
    looks(node)
    assert node.owned() == {"gpu-0"}
    node.hidden = False
    node.look()
    assert "pod-b" in (pods_of(node) or ())
    node.end("pod-b")
    node.look()
    assert node.owned() == set()


@pytest.mark.parametrize("later", [False, True])
def test_a_pod_that_was_refused_while_cgroups_could_not_be_read_keeps_nothing(
    tmp_path: Path, later: bool
) -> None:
    node = PluginNode(tmp_path, clock=ManualClock())
    node.hidden = True
    given(node.allocate(ONE))  # and another plugin refuses: the kubelet writes nothing
    node.hidden = False
    if later:
        node.look()
        pass_time(node, ADMISSION_SECONDS)
        node.look()
        assert node.owned() == set()
    given(node.admit("pod-b", ONE))
    node.look()
    assert pods_of(node) == ("pod-b",)
    node.close()


def test_a_call_that_is_refused_in_the_end_leaves_its_rows_as_they_were(node: PluginNode) -> None:
    given(node.admit("other", TWO))
    node.run("other")
    assert "device gpu-1 may still be used" in refused(node.allocate(ONE, TWO))
    assert {row.users.pods: row.users.has_unknown for row in node.rows()} == {
        ("pod-a",): False,
        ("other",): False,
    }


def test_a_call_that_fails_leaves_its_rows_as_they_were(node: PluginNode) -> None:
    def fail(_lease: Lease) -> None:
        raise Permanent("the device does not answer")

    node.configure = fail
    assert "the device does not answer" in refused(node.allocate(ONE, TWO))
    (row,) = node.rows()
    assert (row.users.pods, row.users.has_unknown) == (("pod-a",), False)


def test_units_are_not_given_again_while_the_checkpoint_cannot_be_read(node: PluginNode) -> None:
    node.silent = "no checkpoint"
    assert "which pod gets it would not be known" in refused(node.allocate(ONE))
    node.silent = ""
    given(node.allocate(ONE))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_the_note_of_the_second_call_costs_nothing(node: PluginNode, when: str) -> None:
    node.reboot(point=Failpoints({f"commit.joined.{when}": dies}))
    assert node.taking_up.once()
    with pytest.raises(Died):
        node.allocate(ONE)
    node.restart(boot_id=node.boot_id)
    node.recover()
    assert node.taking_up.once()
    (row,) = node.rows()
    assert (row.users.pods, row.users.has_unknown) == (("pod-a",), when == "after")
    given(node.admit("pod-b", ONE))
    node.run("pod-b")
    looks(node)
    assert node.owned() == {"gpu-0"}
    node.end("pod-b")
    node.look()
    assert node.owned() == set()


def test_what_is_given_again_while_it_is_judged_is_not_taken_back(node: PluginNode) -> None:
    pass_time(node, ADMISSION_SECONDS)
    # First the lists are read for all rows, and then for the row that seems to be over.
    act_at(node, "lists", 2, lambda: given(node.allocate(ONE)))
    node.holders.once()
    (row,) = node.rows()
    assert (row.held, row.users.has_unknown) == (None, True)


def test_a_call_that_begins_while_the_one_before_is_judged_as_failed_goes_on(
    node: PluginNode,
) -> None:
    given(node.allocate(ONE))
    node.look()
    pass_time(node, ADMISSION_SECONDS)
    act_at(node, "lists", 2, lambda: given(node.allocate(ONE)))
    node.holders.once()
    (row,) = node.rows()
    assert (row.held, row.users.has_unknown) == (None, True)


def test_a_row_that_changes_while_it_is_given_again_is_judged_anew(node: PluginNode) -> None:
    def name_another() -> None:
        node.write("pod-x", ONE)
        node.holders.once()

    act_at(node, "pods", 1, name_another)
    given(node.allocate(ONE))
    assert pods_of(node) == ("pod-a", "pod-x")


def test_a_row_that_is_worked_on_is_not_given_again(node: PluginNode) -> None:
    (row,) = node.rows()
    with node.parts.lock([f"claim-{row.ref.uid}"], node.parts.clock(), "a test"):
        reason = refused(node.allocate(ONE))
    assert "device gpu-0 may still be used" in reason
    assert "unhealthy" not in reason  # only what is held is listed so
    assert "make it again if no controller does" in reason
    given(node.allocate(ONE))


def test_what_was_listed_for_the_pod_before_says_nothing_of_the_next(tmp_path: Path) -> None:
    node = PluginNode(tmp_path, clock=ManualClock())
    given(node.admit("pod-a", ONE))
    node.look()
    node.end("pod-a")  # while its image was pulled
    given(node.admit("pod-b", init=[ONE]))
    node.active.clear()  # no list has an init container
    node.cgroups.add(PodUid("pod-b"))
    for _ in range(4):
        pass_time(node, LIST_SECONDS)
        node.look()
    (row,) = node.rows()
    assert (row.held, row.users.pods) == (None, ("pod-a", "pod-b"))
    node.end("pod-b")
    pass_time(node, ADMISSION_SECONDS)
    node.look()
    assert node.owned() == set()
    node.close()
