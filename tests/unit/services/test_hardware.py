# SPDX-License-Identifier: Apache-2.0
"""Devices that are the same hardware: who excludes whom, and who sets up and undoes what they share."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Barrier, Thread
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from dra_driver.errors import Permanent, Temporary
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware, Lease
from dra_driver.model.plan import Refusal
from dra_driver.model.presence import Alive
from dra_driver.model.state import Phase, PodDevice
from dra_driver.services.hardware import LeasedHardware
from dra_driver.testing.builders import (
    A_DRIVER,
    A_POOL,
    a_cdi_id,
    a_claim,
    a_device,
    a_ref,
    a_result,
    an_inventory,
)
from tests.support.local_node import LocalNode, ManualClock

DEADLINE = 300  # seconds, against hanging only
NewNode = Callable[..., LocalNode]


def partitions() -> Inventory:
    """One GPU, and three partitions of it; two of them overlap."""
    parts = {"gpu-0": (), "part-0": ("s0", "s1"), "part-1": ("s1",), "part-2": ("s2",)}
    return Inventory(
        tuple(
            replace(a_device(name), hardware=Hardware("GPU-1", slices))
            for name, slices in parts.items()
        )
    )


def shared() -> Inventory:
    """One device that several claims may share."""
    device = a_device()
    api = structs.replace(device.api, allow_multiple_allocations=True)
    return Inventory((replace(device, api=api),))


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ("gpu-0", "part-0", False),
        ("part-2", "gpu-0", False),
        ("part-0", "part-1", False),
        ("part-0", "part-2", True),
        ("part-1", "part-2", True),
    ],
)
def test_devices_that_are_the_same_hardware_exclude_each_other(
    new_node: NewNode, first: str, second: str, fits: bool
) -> None:
    node = new_node(inventory=partitions())
    one, two = node.add(
        a_claim("one", results=[a_result(first)]), a_claim("two", results=[a_result(second)])
    )
    assert isinstance(node.prepare(one)[one.uid], tuple)
    answer = node.prepare(two)[two.uid]
    assert isinstance(answer, tuple) is fits
    if isinstance(answer, Refusal):
        assert f"device {second} is prepared for claim default/one (uid uid-one)" in answer.reason
    node.unprepare(one)
    assert isinstance(node.prepare(two)[two.uid], tuple)


def test_a_partition_that_was_adopted_before_the_first_scan_keeps_its_gpu_from_others(
    new_node: NewNode,
) -> None:
    node = new_node(inventory=partitions())
    one, two = node.add(
        a_claim("one", results=[a_result("part-0")]), a_claim("two", results=[a_result("gpu-0")])
    )
    node.prepare(one)
    row = node.parts.row(one.uid)
    assert row is not None
    (node.directory / "state.db").unlink()
    node.restart()
    with node.store.transaction("recovered") as transaction:
        transaction.start(replace(row, leases=None))
    assert isinstance(node.prepare(two)[two.uid], Refusal)


def test_a_claim_that_was_reserved_before_the_first_scan_does_not_get_hardware_that_another_one_uses(
    new_node: NewNode,
) -> None:
    node = new_node(inventory=partitions())
    runs, other = a_claim("one", results=[a_result("part-0")]), a_claim("two")
    one, two = node.add(runs, other)
    node.prepare(one)
    node.presences |= dict.fromkeys(runs.reserved_for, Alive("its cgroup has processes"))
    # The state is lost. The API server has an older backup: there the whole GPU is the other claim's, which has a damaged file.
    node.delete(one)
    node.cdi.write(two.uid, "{")
    node.pod_devices = frozenset(
        {
            PodDevice(
                "default",
                "one",
                A_DRIVER,
                A_POOL,
                DeviceName("part-0"),
                cdi_ids=(a_cdi_id(runs, "part-0"),),
            )
        }
    )
    node.lose_state()
    node.inventory = Inventory(scanned=False)
    node.sweep()
    node.inventory = partitions()
    waits = PodDevice(
        "default", "two", A_DRIVER, A_POOL, DeviceName("gpu-0"), cdi_ids=(a_cdi_id(other),)
    )
    node.pod_devices |= {waits}
    node.sweep()
    for _ in range(2):
        answer = node.prepare(two)[two.uid]
        assert isinstance(answer, Refusal)
        assert "device gpu-0 is prepared for claim default/one" in answer.reason
        # The API server knows the first claim again: the sweep writes the names of its requests into its row.
        node.add(runs)
        node.sweep()
    row = node.parts.row(one.uid)
    assert row is not None
    assert row.devices[0].request_names == ("gpu",)
    assert not [call for call in node.backend_calls if call[2] == two.uid]


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ("gpu-0", "part-0", False),
        ("part-2", "gpu-0", False),
        ("part-0", "part-1", False),
        ("part-0", "part-2", True),
        ("part-0", "nic", True),
    ],
)
def test_a_claim_for_the_same_hardware_twice_costs_only_itself(
    new_node: NewNode, first: str, second: str, fits: bool
) -> None:
    node = new_node(inventory=Inventory((*partitions().devices, a_device("nic"), a_device("cpu"))))
    both = [a_result(first, request="one"), a_result(second, request="two")]
    twice, other = node.add(
        a_claim("twice", results=both), a_claim("other", results=[a_result("cpu")])
    )
    answers = node.prepare(twice, other)
    assert isinstance(answers[other.uid], tuple)
    answer = answers[twice.uid]
    assert isinstance(answer, tuple) is fits
    if isinstance(answer, Refusal):
        assert f"devices {first} and {second}, which are the same hardware" in answer.reason


def test_a_process_that_has_scanned_less_takes_no_hardware_out_of_the_state(
    new_node: NewNode,
) -> None:
    """Beside a driver that knows all devices, a new one starts whose second backend has not answered yet, or is not configured."""
    node = new_node(inventory=Inventory((*partitions().devices, a_device("nic"))))
    one, two, nic = node.add(
        a_claim("one", results=[a_result("part-0")]),
        a_claim("two", results=[a_result("gpu-0")]),
        a_claim("nic", results=[a_result("nic")]),
    )
    node.prepare(nic)
    other = LocalNode(node.directory, inventory=Inventory((a_device("nic"),)))
    other.claims = node.claims
    assert isinstance(other.prepare(nic)[nic.uid], tuple)
    other.parts.learn(other.inventory)
    other.close()
    assert isinstance(node.prepare(one)[one.uid], tuple)
    answer = node.prepare(two)[two.uid]
    assert isinstance(answer, Refusal)
    assert "is owned by claim default/one" in answer.reason


def test_hardware_that_was_set_up_stays_its_claims_when_the_mapping_changes(
    new_node: NewNode,
) -> None:
    node = new_node(inventory=partitions())
    one, two = node.add(
        a_claim("one", results=[a_result("part-0")]), a_claim("two", results=[a_result("part-1")])
    )
    node.prepare(one)
    moved = {"part-0": ("s2",), "part-2": ("s0",)}
    node.inventory = Inventory(
        tuple(
            replace(device, hardware=Hardware("GPU-1", moved[device.name]))
            if device.name in moved
            else device
            for device in partitions().devices
        )
    )
    assert isinstance(node.prepare(two)[two.uid], Refusal)
    node.unprepare(one)
    assert isinstance(node.prepare(two)[two.uid], tuple)


def test_the_first_lease_is_told_that_it_is_alone_and_the_last_one_too(new_node: NewNode) -> None:
    node = new_node(inventory=shared())
    told: list[tuple[str, bool]] = []
    node.configure = lambda lease: told.append((f"configure {lease.share_id}", lease.is_alone))
    node.reset = lambda lease: told.append((f"reset {lease.share_id}", lease.is_alone))
    one, two = node.add(
        a_claim("one", results=[a_result(share="s1")]),
        a_claim("two", results=[a_result(share="s2")]),
    )
    node.prepare(one)
    node.prepare(two)
    node.unprepare(one)
    node.unprepare(two)
    assert told == [
        ("configure s1", True),
        ("configure s2", False),
        ("reset s1", False),
        ("reset s2", True),
    ]


def test_of_two_leases_that_end_together_one_is_the_last(new_node: NewNode) -> None:
    """Both rows are still there while both are undone: the lease that is undone is taken out of its row at once."""
    node = new_node(inventory=shared())
    alone: list[bool] = []
    node.reset = lambda lease: alone.append(lease.is_alone)
    refs = node.add(
        *(a_claim(f"c{number}", results=[a_result(share=f"s{number}")]) for number in range(4))
    )
    node.prepare(*refs)
    start = Barrier(len(refs), timeout=DEADLINE)

    def end(ref: object) -> None:
        start.wait()
        node.unprepare(ref)  # type: ignore[arg-type]  # a ClaimRef

    threads = [Thread(target=end, args=(ref,), daemon=True) for ref in refs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert sorted(alone) == [False, False, False, True]
    assert node.disk().claims == {}


def test_a_lease_whose_set_up_failed_counts_until_it_is_undone(new_node: NewNode) -> None:
    """It may have set up what is shared before it failed."""
    node = new_node(inventory=shared())
    one, two = node.add(
        a_claim("one", results=[a_result(share="s1")]),
        a_claim("two", results=[a_result(share="s2")]),
    )
    alone: list[bool] = []

    def configure(lease: Lease) -> None:
        alone.append(lease.is_alone)
        if lease.share_id == "s1":
            raise Permanent("half done")

    node.configure = configure
    node.reset = lambda lease: alone.append(lease.is_alone)
    node.prepare(one)
    node.prepare(two)
    node.unprepare(two)
    node.unprepare(one)
    assert alone == [True, False, False, True]


def test_a_lease_that_recovery_undid_does_not_count(new_node: NewNode) -> None:
    node = new_node(inventory=shared())
    one, two = node.add(
        a_claim("one", results=[a_result(share="s1")]),
        a_claim("two", results=[a_result(share="s2")]),
    )
    node.prepare(one)
    node.prepare(two)
    with node.store.transaction("recovered") as transaction:
        transaction.set_phase(one.uid, Phase.STARTED)
    node.cdi.remove(one.uid)
    node.restart()
    assert node.recover() == {}
    row = node.parts.row(one.uid)
    assert row is not None
    assert row.leases == ()
    alone: list[bool] = []
    node.reset = lambda lease: alone.append(lease.is_alone)
    node.unprepare(two)
    assert alone == [True]


def test_leases_of_one_piece_of_hardware_are_set_up_one_after_the_other(new_node: NewNode) -> None:
    node = new_node(inventory=partitions(), clock=ManualClock())
    (ref,) = node.add(a_claim(results=[a_result("part-0")]))
    (name,) = [name for name in _locks(node) if name.startswith("hardware-")]
    with node.lock([name], 0.0, "setting up part-2"):
        answer = node.prepare(ref)[ref.uid]
    assert isinstance(answer, Refusal)
    assert f"{name} is locked by process" in answer.reason
    assert isinstance(node.prepare(ref)[ref.uid], tuple)


def _locks(node: LocalNode) -> list[str]:
    """The names of the locks that a set-up of part-0 takes."""
    names: list[str] = []
    (other,) = node.add(a_claim("other", results=[a_result("part-2")]))

    def configure(_lease: Lease) -> None:
        names.extend(path.stem for path in (node.directory / "locks").iterdir())

    node.configure = configure
    node.prepare(other)
    node.configure = lambda _lease: None
    return names


def test_a_device_that_the_hardware_sees_in_use_stays_held(node: LocalNode) -> None:
    first, second = node.add(a_claim("first"), a_claim("second"))
    node.prepare(first)
    node.used.add("gpu-0")  # type: ignore[arg-type]  # a DeviceName
    assert node.unprepare(first) == {first.uid: None}
    row = node.parts.row(first.uid)
    assert row is not None
    assert row.held is not None
    assert node.backend_calls == [("configure", "gpu-0", first.uid, "")]
    node.used.clear()
    node.look_at_held()
    assert node.disk().claims == {}
    assert isinstance(node.prepare(second)[second.uid], tuple)


def test_a_device_whose_name_has_moved_is_asked_about_by_its_hardware(node: LocalNode) -> None:
    """The kernel driver was loaded anew, and the two GPUs have each other's name."""
    (first,) = node.add(a_claim("first"))
    node.prepare(first)
    one, other, *_ = node.inventory.devices
    node.inventory = Inventory((replace(one, uuid=other.uuid), replace(other, uuid=one.uuid)))
    node.used.add(DeviceName("gpu-1"))
    node.unprepare(first)
    row = node.parts.row(first.uid)
    assert row is not None
    assert row.held is not None
    node.used = {DeviceName("gpu-0")}
    node.look_at_held()
    assert node.disk().claims == {}


def test_a_device_whose_hardware_is_gone_is_not_asked_about(node: LocalNode) -> None:
    (first,) = node.add(a_claim("first"))
    node.prepare(first)
    another = replace(node.inventory.devices[0], uuid="uuid of another")
    node.inventory = Inventory((another,))
    node.used.add(DeviceName("gpu-0"))
    node.unprepare(first)
    assert node.disk().claims == {}


def test_of_a_share_the_hardware_is_not_asked(new_node: NewNode) -> None:
    """A process on the device may be that of another share."""
    node = new_node(inventory=shared())
    (ref,) = node.add(a_claim(results=[a_result(share="s1")]))
    node.prepare(ref)
    node.used.add("gpu-0")  # type: ignore[arg-type]  # a DeviceName
    assert node.unprepare(ref) == {ref.uid: None}
    assert node.disk().claims == {}


def test_a_partition_is_held_for_its_own_processes(new_node: NewNode) -> None:
    node = new_node(inventory=partitions())
    (ref,) = node.add(a_claim(results=[a_result("part-2")]))
    node.prepare(ref)
    node.used |= {DeviceName("part-1"), DeviceName("part-2")}
    assert node.unprepare(ref) == {ref.uid: None}
    assert set(node.disk().claims) == {ref.uid}
    node.used.discard(DeviceName("part-2"))
    node.look_at_held()
    assert node.disk().claims == {}


def test_a_device_that_vanished_is_asked_for_as_long_as_it_may_be_used(new_node: NewNode) -> None:
    node = new_node(inventory=partitions())
    (ref,) = node.add(a_claim(results=[a_result("part-2")]))
    node.prepare(ref)
    node.inventory = Inventory()
    assert node.unprepare(ref) == {ref.uid: None}
    assert node.disk().claims == {}


@pytest.mark.parametrize("name", ["device-part-0", "device-gpu-0"])
def test_the_lock_of_an_older_process_on_the_device_counts(new_node: NewNode, name: str) -> None:
    node = new_node(inventory=partitions(), clock=ManualClock())
    (ref,) = node.add(a_claim(results=[a_result("part-0")]))
    with node.lock([name], 0.0, "an older driver sets up"):
        answer = node.prepare(ref)[ref.uid]
    assert isinstance(answer, Refusal) is (name == "device-part-0")


def test_an_undone_lease_leaves_its_row_before_the_lock_of_the_hardware_is_released() -> None:
    """Otherwise two leases that end together would each take the other one for one that stays."""
    done: list[str] = []

    @contextmanager
    def noted(name: str) -> Iterator[Any]:
        done.append(f"{name} begins")
        yield Recorder()
        done.append(f"{name} ends")

    class Recorder:
        def reset(self, _lease: Lease) -> None:
            done.append("reset")

        def has_other_lease(self, _lease: Lease) -> bool:
            return False

        def set_undone(self, _lease: Lease) -> None:
            done.append("undone")

        def transaction(self, commit: str) -> AbstractContextManager[Any]:
            return noted(f"commit {commit}")

        def reading(self) -> AbstractContextManager[Any]:
            return nullcontext(Recorder())

    found: Any = Recorder()
    hardware = LeasedHardware(
        found, found, partitions, lambda *_: noted("lock"), lambda _inventory: None
    )
    hardware.reset(Lease(a_ref().uid, "gpu", DeviceName("part-2"), parent="GPU-1"), 1.0)
    assert done == [
        *("lock begins", "reset", "commit undone begins", "undone"),
        *("commit undone ends", "lock ends"),
    ]


def test_a_partition_in_a_row_of_an_older_driver_is_reset_with_its_parts(
    new_node: NewNode,
) -> None:
    node = new_node(inventory=partitions())
    (ref,) = node.add(a_claim(results=[a_result("part-0")]))
    node.prepare(ref)
    row = node.parts.row(ref.uid)
    assert row is not None
    with node.store.transaction("recovered") as transaction:
        transaction.start(replace(row, leases=None))
    leases: list[Lease] = []
    node.reset = leases.append
    node.unprepare(ref)
    assert [(lease.parent, lease.parts) for lease in leases] == [("GPU-1", ("s0", "s1"))]


def test_a_row_of_an_older_driver_is_reset_with_the_hardware_of_the_inventory(
    node: LocalNode,
) -> None:
    (ref,) = node.add(a_claim(results=[a_result("gpu-1")]))
    node.prepare(ref)
    row = node.parts.row(ref.uid)
    assert row is not None
    with node.store.transaction("recovered") as transaction:
        transaction.start(replace(row, leases=None))
    leases: list[Lease] = []
    node.reset = leases.append
    node.unprepare(ref)
    assert leases == [Lease(ref.uid, "", "gpu-1", parent="uuid-gpu-1")]  # type: ignore[arg-type]  # a DeviceName


def test_a_vanished_device_is_reset_by_what_its_lease_says(node: LocalNode) -> None:
    (ref,) = node.add(a_claim(results=[a_result("gpu-1")]))
    node.prepare(ref)
    node.inventory = an_inventory(1)
    leases: list[Lease] = []
    node.reset = leases.append
    node.unprepare(ref)
    assert [(lease.device, lease.parent) for lease in leases] == [("gpu-1", "uuid-gpu-1")]


def test_hardware_is_written_down_once_and_again_when_it_changes(new_node: NewNode) -> None:
    commits: list[str] = []
    node = new_node(point=commits.append)
    node.parts.learn(node.inventory)
    node.parts.learn(node.inventory)
    node.parts.learn(Inventory(node.inventory.devices))
    node.parts.learn(Inventory(scanned=False))
    assert commits.count("commit.learned.after") == 1
    node.parts.learn(partitions())
    assert commits.count("commit.learned.after") == 2


def test_what_could_not_be_written_down_is_written_by_the_next_call(new_node: NewNode) -> None:
    fails = [True]

    def point(name: str) -> None:
        if name == "commit.learned.before" and fails:
            raise Temporary("no space")

    node = new_node(point=point, inventory=partitions())
    one, two = node.add(
        a_claim("one", results=[a_result("part-0")]), a_claim("two", results=[a_result("gpu-0")])
    )
    assert isinstance(node.prepare(one)[one.uid], Refusal)
    fails.clear()
    assert isinstance(node.prepare(one)[one.uid], tuple)
    assert isinstance(node.prepare(two)[two.uid], Refusal)


def test_who_was_adopted_before_the_first_scan_is_no_less_there(new_node: NewNode) -> None:
    """The state was lost: its rows have no leases, and the first call that needs to know them may be an unprepare."""
    node = new_node(inventory=partitions())
    refs = node.add(
        a_claim("one", results=[a_result("part-0")]), a_claim("two", results=[a_result("part-2")])
    )
    node.prepare(*refs)
    rows = [node.parts.row(ref.uid) for ref in refs]
    (node.directory / "state.db").unlink()
    node.restart()
    with node.store.transaction("recovered") as transaction:
        for row in rows:
            assert row is not None
            transaction.start(replace(row, leases=None))
    alone: list[bool] = []
    node.reset = lambda lease: alone.append(lease.is_alone)
    for ref in refs:
        node.unprepare(ref)
    assert alone == [False, True]


def test_a_device_that_vanished_from_a_lost_state_is_never_the_last_of_its_parent(
    new_node: NewNode,
) -> None:
    node = new_node(inventory=partitions())
    (ref,) = node.add(a_claim("one", results=[a_result("part-0")]))
    node.prepare(ref)
    row = node.parts.row(ref.uid)
    assert row is not None
    with node.store.transaction("recovered") as transaction:
        transaction.start(replace(row, leases=None))
    node.inventory = Inventory(tuple(one for one in node.inventory.devices if one.name != "part-0"))
    alone: list[bool] = []
    node.reset = lambda lease: alone.append(lease.is_alone)
    node.unprepare(ref)
    assert alone == [False]
