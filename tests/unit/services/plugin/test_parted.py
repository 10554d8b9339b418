# SPDX-License-Identifier: Apache-2.0
"""A row of several units, of which another pod gets a part: nobody loses what it has, and what nobody has is free."""

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest
from msgspec.structs import replace

from dra_driver.errors import Permanent, Temporary
from dra_driver.model.events import DevicesFreed, DevicesHeld
from dra_driver.model.ids import PodUid, ResourceName, ShareId, UnitId
from dra_driver.model.lease import Lease
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import (
    ContainerAnswer,
    PluginResource,
    Strategy,
    Unit,
    UnitsOfContainer,
)
from dra_driver.model.state import Users
from dra_driver.planning.plugin.listed import Listing
from dra_driver.planning.plugin.parted import parted
from dra_driver.services.plugin import taking_back
from dra_driver.services.plugin.parting import part
from dra_driver.services.plugin.taking_back import TakingBack
from dra_driver.services.plugin.witnesses import GRACE_SECONDS, LIST_SECONDS
from dra_driver.testing.builders import a_claim, a_result
from dra_driver.testing.failpoints import Failpoints
from tests.support.local_node import ManualClock
from tests.support.plugin_node import GPU, PluginNode
from tests.unit.services.plugin.test_again import Died, dies, given, looks, refused
from tests.unit.services.plugin.test_take_up_fixed import answers, files_of, find, opens_its_file

ONE, TWO = "uuid-gpu-0", "uuid-gpu-1"


@pytest.fixture(params=[Strategy.CDI, Strategy.EDITS], ids=lambda strategy: strategy.value)
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[PluginNode]:
    """A pod with two devices was deleted before it started."""
    found = PluginNode(tmp_path, clock=ManualClock())
    found.configure = opens_its_file
    found.answers = answers(request.param)
    find(found, 0, 1)
    given(found.admit("pod-a", ONE, TWO))
    found.look()
    found.end("pod-a")
    yield found
    assert found.violations() == []
    found.close()


def fails(_lease: Lease) -> None:
    raise Permanent("the device does not answer")


def waits(node: PluginNode, pod: str, *units: str) -> ContainerAnswer:
    """Admit a pod that waits for a volume: it has a cgroup, and no process."""
    answer = given(node.admit(pod, *units))
    node.cgroups.add(PodUid(pod))
    return answer


def drop(node: PluginNode, pod: str) -> None:
    """The kubelet forgets a pod, because it needs its units."""
    node.end(pod)
    node.containers = tuple(one for one in node.containers if one.pod != pod)
    node.writes += 1


def pods_by_device(node: PluginNode) -> dict[str, tuple[PodUid, ...] | None]:
    return {device.device: row.users.pods for row in node.rows() for device in row.devices}


def is_free(node: PluginNode, device: str) -> bool:
    (ref,) = node.add(a_claim("probe", results=[a_result(device)], pods=("pod-z",)))
    return not isinstance(node.prepare(ref)[ref.uid], Refusal | Exception)


def test_two_pods_that_share_the_units_of_one_before_have_a_row_each(node: PluginNode) -> None:
    first = waits(node, "pod-b", ONE)
    second = given(node.admit("pod-c", TWO))
    node.run("pod-c")
    node.look()
    assert pods_by_device(node) == {"gpu-0": ("pod-a", "pod-b"), "gpu-1": ("pod-c",)}
    assert files_of(node, first) == {"/dev/nvidia0"}
    assert files_of(node, second) == {"/dev/nvidia1"}


def test_a_pod_that_waits_keeps_its_part_when_the_other_is_given_on(node: PluginNode) -> None:
    first = waits(node, "pod-b", ONE)
    given(node.admit("pod-c", TWO))
    node.run("pod-c")
    node.look()
    node.end("pod-c")
    node.look()
    given(node.admit("pod-d", TWO))
    node.run("pod-d")
    looks(node)
    assert files_of(node, first) == {"/dev/nvidia0"}
    assert not is_free(node, "gpu-0")
    node.end("pod-b")
    node.end("pod-d")
    looks(node)
    assert node.owned() == set()


def test_what_nobody_has_is_free_before_anybody_asks(node: PluginNode) -> None:
    waits(node, "pod-b", ONE)
    node.look()
    assert node.owned() == {"gpu-0", "gpu-1"}
    node.clock.now += GRACE_SECONDS
    node.active.pop("pod-a", None)
    node.look()
    assert node.owned() == {"gpu-0"}
    assert is_free(node, "gpu-1")


def test_an_init_container_keeps_what_the_container_after_it_has_not(node: PluginNode) -> None:
    init = given(node.admit("pod-b", init=[ONE, TWO]))
    given(node.admit("pod-b", main=[ONE]))
    node.cgroups.add(PodUid("pod-b"))
    looks(node)
    assert node.owned() == {"gpu-0", "gpu-1"}
    assert files_of(node, init) == {"/dev/nvidia0", "/dev/nvidia1"}
    node.reboot()
    assert node.taking_up.once()
    node.cgroups.add(PodUid("pod-b"))
    looks(node)
    assert files_of(node, init) == {"/dev/nvidia0", "/dev/nvidia1"}


def test_a_main_container_may_get_more_than_its_init_container(node: PluginNode) -> None:
    given(node.admit("pod-b", init=[ONE]))
    node.look()
    answer = given(node.admit("pod-b", main=[ONE, TWO]))
    assert files_of(node, answer) == {"/dev/nvidia0", "/dev/nvidia1"}
    node.run("pod-b")
    looks(node)
    assert node.owned() == {"gpu-0", "gpu-1"}


def test_units_are_not_free_while_a_pod_of_before_runs_and_nothing_is_held(
    node: PluginNode,
) -> None:
    waits(node, "pod-b", ONE)
    node.run("pod-a")
    assert "pod pod-a still runs" in refused(node.admit("pod-c", TWO))
    (row,) = node.rows()
    assert row.held is None
    assert "pod pod-a still runs" in refused(node.admit("pod-c", ONE))
    (row,) = node.rows()
    assert row.held is not None


def test_a_row_that_waits_to_be_set_up_after_a_reboot_is_parted_too(node: PluginNode) -> None:
    first = waits(node, "pod-b", ONE)
    node.reboot()
    node.cgroups.add(PodUid("pod-b"))
    second = given(node.admit("pod-c", TWO))
    assert node.taking_up.once()
    assert files_of(node, first) == {"/dev/nvidia0"}
    assert files_of(node, second) == {"/dev/nvidia1"}
    assert len(node.rows()) == 2


def test_a_device_that_cannot_be_reset_stays_and_is_tried_again(node: PluginNode) -> None:
    first = waits(node, "pod-b", ONE)
    node.reset = fails
    assert "the device does not answer" in refused(node.allocate(TWO))
    node.look()
    assert node.owned() == {"gpu-0", "gpu-1"}
    assert files_of(node, first) == {"/dev/nvidia0"}
    node.reset = lambda _lease: None
    given(node.allocate(TWO))


def test_a_row_that_is_worked_on_is_not_parted(node: PluginNode) -> None:
    waits(node, "pod-b", ONE)
    (row,) = node.rows()
    with node.parts.lock([f"claim-{row.ref.uid}"], node.parts.clock(), "a test"):
        assert "a test" in refused(node.allocate(TWO))
    given(node.allocate(TWO))


def test_a_row_that_changes_meanwhile_is_judged_anew(node: PluginNode) -> None:
    waits(node, "pod-b", ONE)
    until = node.parts.clock() + 5
    (before,) = node.rows()
    found = parted(replace(before, users=Users((PodUid("pod-a"),))), node.containers)
    assert found is not None
    node.holders.for_another(before.ref, GPU, frozenset(), until=until)
    assert part(node.parts, before, found, until, freed=lambda: None) == "it has just changed"
    (row,) = node.rows()
    assert row.held is None


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize(
    "point",
    [
        f"{point}.{when}"
        for point in (
            "commit.releasing",
            "step.WriteCdiSpec",
            "step.ResetDevice",
            "commit.released",
        )
        for when in ("before", "after")
    ],
)
def test_after_a_crash_no_container_gets_a_device_that_is_not_set_up(
    node: PluginNode, point: str, ended: bool
) -> None:
    (row,) = node.rows()
    done = {(lease.claim_uid, lease.device) for lease in row.leases or ()}

    def sets_up(lease: Lease) -> object:
        done.add((lease.claim_uid, lease.device))
        return opens_its_file(lease)

    node.configure = sets_up
    node.reset = lambda lease: done.discard((lease.claim_uid, lease.device))
    first = waits(node, "pod-b", ONE)
    node.restart(boot_id=node.boot_id, point=Failpoints({point: dies}))
    with pytest.raises(Died):
        node.allocate(TWO)
    node.restart(boot_id=node.boot_id)
    node.recover()
    assert node.taking_up.once()
    assert files_of(node, first) == {"/dev/nvidia0"}
    if ended:
        drop(node, "pod-b")
        answer = given(node.admit("pod-d", ONE, TWO))
        assert files_of(node, answer) == {"/dev/nvidia0", "/dev/nvidia1"}
    else:
        answer = given(node.admit("pod-c", TWO))
        assert files_of(node, first) == {"/dev/nvidia0"}
        assert files_of(node, answer) == {"/dev/nvidia1"}
    node.look()
    assert done == {(row.ref.uid, one.device) for row in node.rows() for one in row.devices}


@pytest.mark.parametrize("witness", ["cgroup", "list", "time"])
def test_an_old_checkpoint_that_is_written_last_frees_nothing(
    node: PluginNode, witness: str
) -> None:
    """The kubelet may write what it knew before a call after what it wrote because of the call."""
    drop(node, "pod-a")
    looks(node)
    given(node.admit("old", ONE))
    node.run("old")
    node.look()
    before = node.containers
    node.end("old")
    node.look()
    answer = given(node.admit("pod-b", ONE, TWO))
    node.look()
    after, node.containers = node.containers, before
    node.writes += 1
    if witness == "cgroup":
        node.cgroups.add(PodUid("pod-b"))
    if witness != "list":
        node.active.clear()
    node.look()
    if witness != "time":
        node.clock.now += GRACE_SECONDS
        node.look()
    # Of other units of the device the kubelet's question says nothing.
    (row,) = node.rows()
    node.holders.for_another(row.ref, GPU, frozenset(), until=node.parts.clock() + 5)
    assert node.owned() == {"gpu-0", "gpu-1"}
    node.containers = after
    node.writes += 1
    node.run("pod-b")
    node.look()
    assert files_of(node, answer) == {"/dev/nvidia0", "/dev/nvidia1"}


def test_while_the_checkpoint_cannot_be_read_a_row_of_several_pods_stays(node: PluginNode) -> None:
    first = waits(node, "pod-b", ONE)
    node.reset = fails
    assert "the device does not answer" in refused(node.allocate(TWO))
    node.reset = lambda _lease: None
    node.silent = "the file is being written"
    assert "who has its other units is not known" in refused(node.allocate(TWO))
    node.silent = ""
    assert files_of(node, first) == {"/dev/nvidia0"}
    assert not is_free(node, "gpu-0")


def test_after_a_reboot_a_parted_row_is_set_up_before_its_pod_finds_a_file(
    node: PluginNode,
) -> None:
    first = waits(node, "pod-b", ONE)
    node.reboot()
    node.cgroups.add(PodUid("pod-b"))
    given(node.allocate(TWO))
    assert files_of(node, first) == {one.path for one in first.device_nodes}
    assert node.taking_up.once()
    assert files_of(node, first) == {"/dev/nvidia0"}


def test_what_cannot_be_taken_back_is_not_offered(node: PluginNode) -> None:
    waits(node, "pod-b", ONE)
    node.reset = fails
    refused(node.allocate(TWO))
    listing = Listing(node.parts.inventory(), node.holders.all_rows(), {}, node.place.pool)
    assert {one.id: one.healthy for one in listing.of(node.resource)} == {ONE: True, TWO: False}


def test_a_row_that_was_parted_half_is_set_up_again_after_a_reboot(node: PluginNode) -> None:
    drop(node, "pod-a")
    looks(node)
    assert node.owned() == set()
    (device, _) = node.parts.inventory().devices
    shares = [f"{ONE}::{number}" for number in range(3)]
    node.resource = PluginResource(
        GPU, tuple(Unit(UnitId(one), device.name, ShareId(one[-1])) for one in shares), "test"
    )
    given(node.admit("pod-a", *shares))
    node.look()
    node.end("pod-a")
    answer = waits(node, "pod-b", shares[0])
    undone: list[Lease] = []

    def once(lease: Lease) -> None:
        if undone:
            fails(lease)
        undone.append(lease)

    node.reset = once
    refused(node.allocate(*shares[1:]))
    node.reset = lambda _lease: None
    node.reboot()
    node.cgroups.add(PodUid("pod-b"))
    assert node.taking_up.once()
    assert files_of(node, answer) == {"/dev/nvidia0"}


def test_a_row_that_is_being_taken_back_gets_no_pod_by_an_old_entry(node: PluginNode) -> None:
    drop(node, "pod-a")
    looks(node)
    old = node.containers

    def breaks(_lease: Lease) -> object:
        raise Permanent("it cannot be set up")

    node.configure, node.reset = breaks, fails
    refused(node.allocate(ONE))
    node.containers = (UnitsOfContainer(PodUid("old"), "main", GPU, frozenset({UnitId(ONE)})), *old)
    node.writes += 1
    node.look()
    assert "the device does not answer" in refused(node.allocate(ONE))
    node.configure, node.reset = opens_its_file, lambda _lease: None
    node.look()
    given(node.allocate(ONE))


def test_what_no_container_has_draws_no_pod_while_it_cannot_be_taken_back(
    node: PluginNode,
) -> None:
    drop(node, "pod-a")
    looks(node)
    given(node.allocate(ONE))  # and another plugin refuses: the kubelet writes nothing
    node.reset = fails
    before = node.freed
    reason = refused(node.allocate(ONE))
    assert "the device does not answer; it is listed as unhealthy" in reason
    assert node.freed > before
    looks(node)
    listing = Listing(node.parts.inventory(), node.holders.all_rows(), {}, node.place.pool)
    assert {one.id: one.healthy for one in listing.of(node.resource)} == {ONE: False, TWO: True}
    assert [event.reason for event in node.events if isinstance(event, DevicesHeld)] == [
        "the device does not answer"
    ]
    node.reset = lambda _lease: None
    looks(node)
    assert node.owned() == set()


def test_the_list_is_sent_again_when_what_no_container_has_is_free_late(
    node: PluginNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(node, "pod-a")
    looks(node)
    given(node.allocate(ONE))
    (row,) = node.rows()
    begun, leave = Event(), Event()

    def hangs(_lease: Lease) -> None:
        begun.set()
        leave.wait(10)

    node.reset = hangs
    calls: SimpleQueue[set[str]] = SimpleQueue()
    take_back = TakingBack(node.parts, freed=lambda: calls.put(node.owned()))
    monkeypatch.setattr(taking_back, "FREE_SECONDS", 0.0)
    assert take_back.forgotten(row)
    assert calls.get(timeout=10) == {"gpu-0"}
    assert begun.wait(10)
    leave.set()
    assert calls.get(timeout=10) == set()


def test_what_no_container_has_is_given_when_whoever_works_on_it_is_done(node: PluginNode) -> None:
    drop(node, "pod-a")
    looks(node)
    given(node.allocate(ONE))
    (row,) = node.rows()
    with node.parts.lock([f"claim-{row.ref.uid}"], node.parts.clock(), "a test"):
        assert "a test" in refused(node.allocate(ONE))
    given(node.allocate(ONE))


def test_what_nobody_has_is_taken_back_while_the_pod_of_the_others_runs(node: PluginNode) -> None:
    waits(node, "pod-b", ONE)
    node.run("pod-b")
    node.active.pop("pod-a", None)
    node.look()
    node.clock.now += GRACE_SECONDS
    node.look()
    assert node.owned() == {"gpu-0"}
    assert [event.devices for event in node.events if isinstance(event, DevicesFreed)] == [
        "node-1/gpu-1"
    ]


def test_a_unit_whose_set_up_is_being_undone_is_set_up_for_the_next_pod(node: PluginNode) -> None:
    waits(node, "pod-b", ONE)
    node.reset = fails
    refused(node.allocate(TWO))
    node.reset = lambda _lease: None
    drop(node, "pod-b")
    answer = given(node.admit("pod-d", ONE, TWO))
    assert files_of(node, answer) == {"/dev/nvidia0", "/dev/nvidia1"}


def test_the_list_is_sent_again_when_a_part_was_taken_back_or_cannot_be(node: PluginNode) -> None:
    waits(node, "pod-b", ONE)
    node.reset = fails
    refused(node.allocate(TWO))
    before = node.freed
    assert before
    node.reset = lambda _lease: None
    given(node.allocate(TWO))
    assert node.freed > before


def test_the_list_is_sent_again_when_a_late_parting_has_ended(node: PluginNode) -> None:
    waits(node, "pod-b", ONE)
    node.look()
    (row,) = node.rows()
    found = parted(row, node.containers)
    assert found is not None
    begun, leave = Event(), Event()

    def hangs(_lease: Lease) -> None:
        begun.set()
        leave.wait(10)

    node.reset = hangs
    calls: SimpleQueue[set[str]] = SimpleQueue()
    said = part(node.parts, row, found, node.parts.clock(), freed=lambda: calls.put(node.owned()))
    assert said
    assert calls.get(timeout=10) == {"gpu-0", "gpu-1"}
    assert begun.wait(10)
    leave.set()
    assert calls.get(timeout=10) == {"gpu-0"}


def test_a_forgotten_pod_is_held_also_while_a_part_of_its_row_cannot_be_taken_back(
    node: PluginNode,
) -> None:
    waits(node, "pod-b", ONE)
    node.run("pod-b")
    node.active.pop("pod-a", None)
    node.look()
    node.reset = fails
    node.clock.now += GRACE_SECONDS
    node.look()
    node.force_delete("pod-b")
    node.clock.now += LIST_SECONDS
    node.look()
    (row,) = node.rows()
    assert row.held is not None


def test_while_the_pod_of_the_last_call_is_not_named_nothing_is_taken_back(
    node: PluginNode,
) -> None:
    """An entry of before the call names a part of the row."""
    drop(node, "pod-a")
    looks(node)
    given(node.admit("old", ONE))
    node.run("old")
    node.look()
    before = node.containers
    node.end("old")
    node.look()
    given(node.admit("pod-b", ONE, TWO))
    node.look()
    node.end("pod-b")
    node.containers, node.writes = (*before, *node.containers), node.writes + 1
    given(node.admit("pod-c", init=[ONE, TWO]))
    node.active.clear()
    node.containers, node.writes = before, node.writes + 1
    node.clock.now += GRACE_SECONDS
    (row,) = node.rows()
    assert row.users.has_unknown
    said = node.holders.for_another(row.ref, GPU, frozenset(), until=node.parts.clock() + 5)
    assert said == "the kubelet's checkpoint has not named its pod yet"
    assert node.owned() == {"gpu-0", "gpu-1"}


def test_a_unit_of_the_same_name_in_another_resource_is_not_asked_for(node: PluginNode) -> None:
    waits(node, "pod-b", ONE)
    node.look()
    (row,) = node.rows()
    asked = ResourceName("nvidia.com/other"), frozenset({UnitId(TWO)})
    said = node.holders.for_another(row.ref, *asked, until=node.parts.clock() + 5)
    assert said == "its pod runs, or is about to start"
    assert node.owned() == {"gpu-0", "gpu-1"}


def test_an_error_of_taking_back_does_not_hide_why_a_call_failed(node: PluginNode) -> None:
    drop(node, "pod-a")
    looks(node)
    full = [Temporary("the disk is full")]

    def fills() -> None:
        if full:
            raise full.pop()

    def breaks(_lease: Lease) -> object:
        raise Permanent("it cannot be set up")

    node.restart(boot_id=node.boot_id, point=Failpoints({"commit.released.before": fills}))
    node.configure = breaks
    assert "it cannot be set up" in refused(node.allocate(ONE))
    assert not full
    node.look()
    assert node.owned() == set()
