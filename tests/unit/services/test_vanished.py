# SPDX-License-Identifier: Apache-2.0
"""Devices that are gone: which leave the slices at once, which stay for their owner, and what is remembered of them."""

import dataclasses
from datetime import UTC, datetime

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from dra_driver.errors import Temporary
from dra_driver.model.api.resource_slice import Device, DeviceTaint, ResourceSliceSpec
from dra_driver.model.device import AllocatableDevice, plain
from dra_driver.model.events import DeviceVanished, FieldsDropped, PublicationProblem
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.names import VANISHED_TAINT as VANISHED
from dra_driver.planning.combine import combine
from dra_driver.services.vanished import KEPT_SECONDS, NoMemory, utc_now
from dra_driver.testing.builders import A_DRIVER, a_claim, a_result
from tests.support.api_values import device_taint, published
from tests.support.publishing_node import FIRST, Node, devices, gone, spec


def test_a_vanished_device_that_nobody_uses_is_withdrawn_after_one_question():
    node = Node(0, 1)
    node.api.claims = (a_claim(results=[a_result("gpu-0")]),)
    node.follow(node.step, node.has(0), *[node.after(3600)] * 3)
    assert node.stored() == {FIRST: spec(0)}
    assert node.told(DeviceVanished) == [DeviceVanished("gpu-1", kept=False)]
    assert node.api.requests.count("claims") == 1
    assert node.kept[-1] == ()


def test_a_vanished_device_that_a_claim_names_stays_until_the_claim_is_gone():
    node = Node(0, 1, 2)
    node.api.claims = (a_claim(results=[a_result("gpu-1"), a_result("gpu-7")]),)
    before = node.has(0, 2)
    with capture_logs() as logs:
        node.follow(node.step, before, node.after(59.0))
        assert node.stored() == {FIRST: spec(0, 2, gone(1))}
        assert node.kept[-1] == ("gpu-1",)
        assert node.api.requests.count("claims") == 1
        node.api.claims = ()
        node.now += 1  # a minute in all
        node.step()
    assert node.stored() == {FIRST: spec(0, 2)}
    assert node.kept[-1] == ()
    assert node.told(DeviceVanished) == [DeviceVanished("gpu-1", kept=True)]
    assert [line for line in logs if line["event"] == "vanished_device_withdrawn"] == [
        {"event": "vanished_device_withdrawn", "device": "gpu-1", "log_level": "info"}
    ]


def test_results_of_other_drivers_and_pools_keep_nothing():
    node = Node(0)
    node.api.claims = (
        a_claim(results=[a_result("gpu-0", driver="nic.example.com")]),
        a_claim(results=[a_result("gpu-0", pool="node-2")]),
        dataclasses.replace(a_claim(), results=None),
    )
    node.follow(node.step, node.has())
    assert node.stored() == {FIRST: spec()}


def test_a_vanished_device_that_is_prepared_here_stays_without_asking_the_api_server():
    node = Node(0, 1)
    node.prepared = frozenset({DeviceName("gpu-1")})
    node.follow(node.step, node.has(0), node.publisher.released, node.step)
    assert node.stored() == {FIRST: spec(0, gone(1))}
    assert "claims" not in node.api.requests
    node.prepared = frozenset()
    node.publisher.released()
    node.step()
    assert node.stored() == {FIRST: spec(0)}


def test_an_end_of_a_claim_wakes_nobody_while_no_device_is_missing():
    node = Node(0)
    node.follow(node.step)
    decisions = len(node.kept)
    node.publisher.released()
    node.step()
    assert len(node.kept) == decisions


def test_who_cannot_be_asked_may_have_said_yes():
    node = Node(0, 1)
    node.api.fail("claims", Temporary("API server is down"))
    with capture_logs() as logs:
        node.follow(node.step, node.has(0))
    assert node.stored() == {FIRST: spec(0, gone(1))}
    assert [line["event"] for line in logs] == ["allocations_unknown"]
    node.now += KEPT_SECONDS
    node.step()
    assert node.stored() == {FIRST: spec(0)}


def test_a_smaller_machine_after_a_restart_keeps_what_is_allocated():
    node = Node(0, 1, 2, 3)
    node.follow(node.step)
    node.inventory = Inventory(devices(0))
    node.api.claims = (a_claim(results=[a_result("gpu-2")]),)
    node.restarted()
    node.follow(node.step)
    assert node.stored() == {FIRST: spec(0, gone(2))}
    assert node.told(DeviceVanished) == [
        DeviceVanished("gpu-1", kept=False),
        DeviceVanished("gpu-2", kept=True),
        DeviceVanished("gpu-3", kept=False),
    ]


def test_a_kept_device_survives_the_deletion_of_its_slice():
    node = Node(0, 1)
    node.prepared = frozenset({DeviceName("gpu-1")})
    node.follow(node.step, node.has(0), lambda: node.api.lose(FIRST), node.step, node.after(1))
    assert node.stored() == {FIRST: spec(0, gone(1))}


def test_a_device_that_comes_back_is_a_device_like_any_other():
    node = Node(0, 1)
    node.prepared = frozenset({DeviceName("gpu-0")})
    node.follow(node.step, node.has(1), node.has(0, 1))
    assert node.stored() == {FIRST: spec(0, 1)}
    assert node.kept[-1] == ()
    node.follow(node.has(1))
    assert node.told(DeviceVanished) == [DeviceVanished("gpu-0", kept=True)] * 2


def test_admin_access_keeps_nothing():
    """A monitor of all devices would keep every one that breaks on offer, and each pod that gets it would be refused."""
    node = Node(0, 1)
    monitor = a_claim(results=[a_result("gpu-0", admin=True), a_result("gpu-1", admin=True)])
    node.api.claims = (monitor,)
    node.follow(node.step, node.has(0))
    assert node.stored() == {FIRST: spec(0)}
    assert node.told(DeviceVanished) == [DeviceVanished("gpu-1", kept=False)]
    assert node.kept[-1] == ()


def test_an_owner_keeps_a_device_beside_admin_access():
    node = Node(0, 1)
    node.api.claims = (
        a_claim("owner", results=[a_result("gpu-1")]),
        a_claim("monitor", results=[a_result("gpu-1", admin=True)]),
    )
    node.follow(node.step, node.has(0))
    assert node.stored() == {FIRST: spec(0, gone(1))}


def test_an_answer_about_claims_that_nobody_foresaw_is_no_answer():
    node = Node(0, 1, 2)

    def breaks(_pool: object) -> object:
        raise RecursionError("too deep")

    node.api.allocated_claims = breaks
    node.restarted()
    with capture_logs() as logs:
        node.follow(node.step, node.has(0, 2))
    assert node.stored() == {FIRST: spec(0, 2, gone(1))}
    assert [(line["event"], line["error"]) for line in logs] == [
        ("allocations_unknown", "RecursionError('too deep')")
    ]


# The taint.


def test_the_time_of_a_taint_stays_whatever_happens_to_the_slice():
    node = Node(0, 1)
    node.prepared = frozenset({DeviceName("gpu-1")})
    node.follow(node.step, node.has(0))
    node.today = datetime(2026, 6, 1, tzinfo=UTC)
    node.follow(node.looks, lambda: node.api.lose(FIRST), node.step, node.after(1))
    assert node.stored() == {FIRST: spec(0, gone(1))}
    node.api.lose(FIRST)
    node.restarted()  # only the memory knows it now
    node.follow(node.step)
    assert node.stored() == {FIRST: spec(0, gone(1))}


def test_a_device_that_vanishes_again_is_tainted_anew():
    node = Node(0, 1)
    node.prepared = frozenset({DeviceName("gpu-1")})
    node.follow(node.step, node.has(0), node.has(0, 1))
    node.today = datetime(2026, 6, 1, tzinfo=UTC)
    node.follow(node.has(0))
    assert node.stored() == {FIRST: spec(0, gone(1, "2026-06-01T00:00:00Z"))}


def test_on_a_server_without_taints_a_vanished_device_leaves_the_slice_and_this_is_told_once():
    """Without its taint, the scheduler would give the device to the next pod when its claim ends."""
    node = Node(0, 1)
    node.prepared = frozenset({DeviceName("gpu-1")})

    def without_taints(written: ResourceSliceSpec) -> ResourceSliceSpec:
        return structs.replace(
            written,
            devices=[structs.replace(device, taints=None) for device in written.devices or ()],
        )

    node.api.stores = without_taints
    node.follow(node.step, node.has(0), *[node.after(100)] * 3)
    assert node.stored() == {FIRST: spec(0)}
    assert node.kept[-1] == ("gpu-1",)
    (told,) = node.told(PublicationProblem)
    assert str(told.problem) == (
        "feature gate DRADeviceTaints: taints: device gpu-1 has it; the API server drops it: the gate is off, or this release "
        "does not have it; without it anybody could get device gpu-1, so it is not published until the reason for the taint "
        "of this driver is over. Nothing has to be done; with the gate on in the API server and the scheduler, published devices keep such a taint"
    )
    assert node.told(FieldsDropped) == []
    assert node.writes() == [f"create {FIRST}", f"update {FIRST}"]
    assert len(node.api.tried) == 1


@pytest.mark.parametrize("count", [64, 65, 128, 130])
def test_a_taint_cuts_no_pool_anew(count: int):
    """The API takes 128 devices in a slice, but 64 as soon as one of them is tainted."""
    node = Node(*range(count))
    node.prepared = frozenset({DeviceName(f"gpu-{count - 1}")})
    node.follow(node.step, node.has(*range(count - 1)))
    found = node.stored().values()
    assert all(len(content.devices or ()) <= 64 for content in found)
    assert {content.pool.generation for content in found} == {1}
    assert {content.pool.resource_slice_count for content in found} == {len(found)}


def test_taints_are_stamped_with_the_time_of_today():
    assert utc_now().tzinfo is UTC


# What is remembered across restarts.


def test_what_is_published_is_remembered_before_it_is_written():
    node = Node(0, 1)
    remembered_at_write: list[int] = []
    node.api.on_write = lambda: remembered_at_write.append(len(node.memory.devices))
    node.follow(node.step, *[node.looks] * 3, node.has(0))
    assert remembered_at_write == [2, 1]
    assert node.memory.devices == tuple(spec(0).devices or ())
    assert node.memory.writes == 2
    node.restarted()
    node.follow(node.step)
    assert node.memory.writes == 2


def test_a_change_of_an_attributes_type_is_remembered_too():
    node = Node()
    node.inventory = Inventory(devices(0, ready=1))
    node.follow(node.step)
    node.inventory = Inventory(devices(0, ready=True))
    node.follow(node.looks, node.after(1))
    assert node.memory.devices == (published("gpu-0", {"ready": True}),)


def test_a_device_that_vanished_with_its_slice_while_the_driver_was_down_comes_back_from_memory():
    node = Node()
    node.inventory = Inventory(devices(0, 1, 2, model="x"))
    node.follow(node.step)
    (before,) = node.stored().values()
    node.api.lose(FIRST)
    node.inventory = Inventory(devices(0, model="x"))
    node.api.claims = (a_claim(results=[a_result("gpu-2")]),)
    node.restarted()
    node.follow(node.step)
    zero, _, two = before.devices or ()
    two = structs.replace(two, taints=gone(2).taints)
    assert node.stored() == {FIRST: structs.replace(before, devices=[zero, two])}
    assert node.memory.devices == (zero, two)
    assert node.told(DeviceVanished) == [
        DeviceVanished("gpu-1", kept=False),
        DeviceVanished("gpu-2", kept=True),
    ]


def test_what_this_driver_remembers_counts_more_than_what_stands_in_the_slices():
    """Anybody may have written into a slice while the driver was down."""
    node = Node(0, 1)
    node.follow(node.step)
    evil = device_taint("evil.example.com/x", "", "NoExecute", "2026-01-01T00:00:00Z")
    changed = published(
        "gpu-1", {"model": "foreign"}, taints=(evil,), allow_multiple_allocations=True
    )
    node.api.put(FIRST, spec(0, changed))
    node.prepared = frozenset({DeviceName("gpu-1")})
    node.inventory = Inventory(devices(0))
    node.restarted()
    node.follow(node.step, node.after(1))
    assert node.stored() == {FIRST: spec(0, gone(1))}


def test_what_stands_in_the_slices_counts_where_nothing_is_remembered():
    node = Node(0)
    node.api.put(FIRST, spec(0, published("gpu-1", {"model": "x"})))
    node.prepared = frozenset({DeviceName("gpu-1")})
    node.follow(node.step)
    (found,) = node.stored().values()
    assert [device.name for device in found.devices or ()] == ["gpu-0", "gpu-1"]
    assert plain(((found.devices or [])[1].attributes or {})["model"]) == "x"


SICK = DeviceTaint(key="gpu.example.com/ecc", effect="NoExecute")


def sick(*names: str, value: str = "") -> Inventory:
    """Devices with a taint of their backend, without a time."""
    taint = structs.replace(SICK, value=value)
    return Inventory(
        tuple(
            AllocatableDevice(Device(name=name, taints=[taint]), f"uuid-{name}") for name in names
        )
    )


def taint_times(node: Node) -> list[str | None]:
    return [
        taint.time_added
        for stored in node.stored().values()
        for device in stored.devices or ()
        for taint in device.taints or ()
    ]


def test_a_taint_keeps_its_time_over_changes_and_restarts():
    """The time decides when pods are evicted. The API server sets a new one for a taint that is written without any."""
    node = Node()
    node.inventory = sick("gpu-0")
    node.follow(node.step)
    first = ["2026-05-04T03:02:01Z"]
    assert taint_times(node) == first
    assert node.told(FieldsDropped) == []
    node.today = datetime(2026, 6, 1, tzinfo=UTC)
    node.restarted()
    node.follow(node.step, node.after(100))
    assert node.writes() == [f"create {FIRST}"]
    node.inventory = sick("gpu-0", "gpu-1")
    node.follow(node.looks)
    assert taint_times(node) == [*first, "2026-06-01T00:00:00Z"]
    node.api.lose(FIRST)  # only the memory knows the times now
    node.restarted()
    node.follow(node.step)
    assert taint_times(node) == [*first, "2026-06-01T00:00:00Z"]
    node.inventory = sick("gpu-0", value="worse")
    node.follow(node.looks)
    assert taint_times(node) == ["2026-06-01T00:00:00Z"]


def test_the_time_of_a_taint_is_taken_from_the_slices_where_nothing_is_remembered():
    """As an older driver left it, which wrote taints without a time."""
    node = Node()
    since = "2026-02-02T02:02:02Z"
    node.api.put(FIRST, spec(published("gpu-0", taints=(structs.replace(SICK, time_added=since),))))
    node.memory.devices = (published("gpu-0", taints=(SICK,)),)
    node.inventory = sick("gpu-0")
    node.follow(node.step)
    assert node.writes() == []
    assert taint_times(node) == [since]


def test_a_vanished_device_keeps_the_taints_of_its_backend():
    """A NoExecute taint evicts pods, which have to go all the more when their device is gone."""
    node = Node()
    node.inventory = sick("gpu-0")
    node.prepared = frozenset({DeviceName("gpu-0")})
    node.follow(node.step, node.has())
    (stored,) = node.stored().values()
    (device,) = stored.devices or ()
    assert [(taint.key, taint.effect) for taint in device.taints or ()] == [
        ("gpu.example.com/ecc", "NoExecute"),
        (f"{A_DRIVER}/vanished", "NoSchedule"),
    ]


def test_a_memory_that_fails_costs_a_warning_and_is_asked_again():
    node = Node(0, 1)
    node.memory.errors = [Temporary("disk full"), Temporary("cannot read")]
    with capture_logs() as logs:
        node.follow(node.step)
        assert node.stored() == {FIRST: spec(0, 1)}
        assert node.memory.devices == ()
        node.memory.errors = []
        node.follow(node.step)
        node.memory.errors = [Temporary("disk full")]
        node.follow(node.has(0, 1, 2), node.has(0, 1))
    assert [(line["event"], line["error"]) for line in logs] == [
        ("publication_not_recalled", "cannot read"),
        ("publication_not_remembered", "disk full"),
    ]
    assert node.memory.devices == tuple(spec(0, 1).devices or ())


def test_a_memory_that_cannot_be_read_once_is_not_replaced_by_what_is_there_now():
    node = Node(0, 1)
    node.prepared = frozenset({DeviceName("gpu-1")})
    node.follow(node.step)
    node.inventory = Inventory(devices(0))
    node.api.lose(FIRST)
    node.restarted()
    node.memory.errors = [Temporary("cannot read")]
    node.follow(node.step)
    assert node.memory.devices == tuple(spec(0, 1).devices or ())
    node.now += KEPT_SECONDS
    node.step()
    assert node.stored() == {FIRST: spec(0, gone(1))}


def test_without_a_memory_nothing_is_remembered():
    memory = NoMemory()
    memory.write(spec(0).devices)
    assert memory.read() == ()
    assert memory.is_complete()


def test_devices_of_a_backend_that_has_not_answered_stay_as_they_are_until_it_does():
    node = Node(0, 1, 2)
    node.follow(node.step)
    had = {DeviceName(f"gpu-{index}"): "acme" if index else "other" for index in range(3)}

    def answers(**found: Inventory) -> None:
        node.inventory = combine(found, had)
        node.publisher.wake()
        node.step()

    node.restarted()
    silent = Inventory(scanned=False)
    node.follow(lambda: answers(acme=silent, other=Inventory(devices(0))))
    assert node.stored() == {FIRST: spec(0, 1, 2)}
    assert (node.told(DeviceVanished), node.kept[-1]) == ([], ())
    node.follow(lambda: answers(acme=silent, other=Inventory()))
    assert node.stored() == {FIRST: spec(1, 2)}
    node.follow(lambda: answers(acme=Inventory(devices(1)), other=Inventory()))
    assert node.stored() == {FIRST: spec(1)}
    assert [event.device for event in node.told(DeviceVanished)] == ["gpu-0", "gpu-2"]


def test_a_record_of_an_older_driver_is_written_again_once():
    node = Node(0)
    node.follow(node.step)
    node.memory.complete = False
    node.restarted()
    node.follow(node.step, node.looks, node.looks)
    assert node.memory.writes == 2


def test_the_name_of_a_claims_device_is_not_published_for_other_hardware_until_the_claim_ends():
    node = Node(0, 1)
    node.prepared = frozenset({DeviceName("gpu-0")})
    other = Inventory(devices(0, index=7))

    def becomes() -> None:
        node.moved = node.prepared
        node.finds(other)()

    node.follow(node.step, becomes)
    assert node.stored() == {FIRST: spec(gone(0))}
    assert node.kept[-1] == ("gpu-0",)
    assert node.told(DeviceVanished)[0] == DeviceVanished("gpu-0", kept=True)
    # After a restart too, and if nobody remembers the device, the other one is tainted.
    node.restarted()
    node.follow(node.looks)
    assert node.stored() == {FIRST: spec(gone(0))}
    node.memory.devices, node.api.slices = (), {}
    node.restarted()
    node.follow(node.looks)
    assert node.taints() == {"gpu-0": [VANISHED]}
    node.moved = node.prepared = frozenset()
    node.follow(node.looks)
    assert node.taints() == {"gpu-0": []}
