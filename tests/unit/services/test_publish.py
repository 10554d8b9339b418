# SPDX-License-Identifier: Apache-2.0
"""What the publisher writes, when, and how often it asks; whoever disturbs it, and whatever the API server answers."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.kube.base import Conflict, Invalid, NodeEvent
from dra_driver.model.device import Device
from dra_driver.model.events import (
    DeviceVanished,
    DriverEvent,
    FieldsDropped,
    PublicationProblem,
    Published,
    PublishFailed,
    SliceLost,
    SliceWritten,
)
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.slices import Problem, PublishedDevice, SliceSpec
from dra_driver.planning.reconcile import slice_name
from dra_driver.services.publish import KEPT_SECONDS, NoMemory, Publisher, PublisherInputs
from dra_driver.testing.builders import A_DRIVER, A_NODE, A_PLACE, A_POOL, a_claim, a_result
from dra_driver.testing.scripted_api import ScriptedApi, Step

FIRST, SECOND = (slice_name(index, A_DRIVER, A_NODE) for index in range(2))


def devices(*indices: int, **attributes: int | str) -> tuple[Device, ...]:
    return tuple(
        Device(DeviceName(f"gpu-{index}"), f"uuid-{index}", attributes=attributes)
        for index in indices
    )


def spec(*content: int, generation: int = 1, count: int = 1) -> SliceSpec:
    published = tuple(PublishedDevice(DeviceName(f"gpu-{index}")) for index in content)
    return SliceSpec(A_POOL, generation, count, published)


class Memory:
    """What the node's disk remembers; it can fail."""

    def __init__(self) -> None:
        self.devices: tuple[PublishedDevice, ...] = ()
        self.writes = 0
        self.errors: list[DriverError] = []

    def read(self) -> tuple[PublishedDevice, ...]:
        if self.errors:
            raise self.errors.pop()
        return self.devices

    def write(self, devices: Sequence[PublishedDevice], /) -> None:
        if self.errors:
            raise self.errors.pop()
        self.devices = tuple(devices)
        self.writes += 1


class Node:
    """A publisher, its API server, and a clock that only moves by hand."""

    def __init__(self, *indices: int) -> None:
        self.api = ScriptedApi()
        self.now = 5000.0
        self.inventory = Inventory(devices(*indices))
        self.unknown: DriverError | None = None
        self.prepared: frozenset[DeviceName] = frozenset()
        self.kept: list[tuple[DeviceName, ...]] = []
        self.memory = Memory()
        self.events: list[DriverEvent] = []
        self.publisher = self.restarted()

    def restarted(self) -> Publisher:
        self.publisher = Publisher(
            self.api,
            PublisherInputs(self._inventory, self._prepared, self._set_kept, self.memory),
            place=A_PLACE,
            observe=self.events.append,
            clock=lambda: self.now,
        )
        return self.publisher

    def follow(self, *steps: Step) -> None:
        self.api.follow(self.publisher.watch, *steps)

    def step(self) -> None:
        self.publisher.step()

    def after(self, seconds: float) -> Step:
        """Time passes, then the publisher looks whether something is due."""

        def passes() -> None:
            self.now += seconds
            self.publisher.step()

        return passes

    def looks(self) -> None:
        """The publisher is woken for no reason."""
        self.publisher.wake()
        self.publisher.step()

    def has(self, *indices: int) -> Step:
        """The backend now finds these devices."""

        def changes() -> None:
            self.inventory = Inventory(devices(*indices))
            self.publisher.wake()
            self.publisher.step()

        return changes

    def stored(self) -> dict[str, SliceSpec]:
        return {name: stored.spec for name, stored in sorted(self.api.slices.items())}

    def writes(self) -> list[str]:
        return [
            request
            for request in self.api.requests
            if request.startswith(("create", "update", "delete"))
        ]

    def told(self, *kinds: type) -> list[DriverEvent]:
        return [event for event in self.events if isinstance(event, kinds)]

    def _inventory(self) -> Inventory:
        if self.unknown:
            raise self.unknown
        return self.inventory

    def _prepared(self) -> frozenset[DeviceName]:
        return self.prepared

    def _set_kept(self, names: Sequence[DeviceName]) -> None:
        self.kept.append(tuple(names))


def test_the_first_publication_creates_the_slice_and_is_told():
    node = Node(0, 1)
    assert not node.publisher.published_once.is_set()
    node.follow(node.step)
    assert node.stored() == {FIRST: spec(0, 1)}
    assert node.events == [SliceWritten(FIRST, "create"), Published(devices=2, slices=1)]
    assert node.publisher.published_once.is_set()
    assert node.kept == [()]


def test_while_nothing_changes_the_watch_is_the_only_request():
    node = Node(0)
    node.follow(node.step, *[node.after(3600)] * 5)
    assert node.api.requests == ["list", "watch 0", f"create {FIRST}"]


def test_a_restart_with_the_same_devices_writes_nothing_and_is_ready():
    node = Node(0, 1)
    node.follow(node.step)
    node.restarted()
    node.events.clear()
    node.follow(node.step)
    assert node.writes() == [f"create {FIRST}"]
    assert node.events == [Published(devices=2, slices=1)]
    assert node.publisher.published_once.is_set()


def test_nothing_is_decided_before_the_slices_were_listed():
    node = Node(0)
    node.publisher.wake()
    node.step()
    assert node.api.requests == []
    node.follow(node.step)
    assert node.stored() == {FIRST: spec(0)}


def test_nothing_is_published_before_the_devices_are_known():
    node = Node()
    node.unknown = Temporary("not scanned yet")
    node.follow(node.step)
    assert (node.stored(), node.events) == ({}, [PublishFailed("not scanned yet", 1.0)])
    node.unknown = None
    node.follow(node.has(0))
    assert node.stored() == {FIRST: spec(0)}


def test_a_node_without_devices_publishes_one_empty_slice():
    node = Node()
    node.follow(node.step)
    assert node.stored() == {FIRST: spec()}


def test_only_the_slice_that_changed_is_written():
    node = Node(*range(65))
    node.follow(node.step, node.has(*range(66)))
    assert node.stored() == {
        FIRST: spec(*range(64), count=2),
        SECOND: spec(64, 65, count=2),
    }
    assert node.writes() == [f"create {FIRST}", f"create {SECOND}", f"update {SECOND}"]


# Somebody else.


def test_a_deleted_slice_comes_back_with_growing_patience():
    node = Node(0)

    def lost_and_restored(pause: float) -> list[Step]:
        return [
            lambda: node.api.lose(FIRST),
            node.step,
            node.after(pause - 0.01),
            lambda: node.events.append(SliceLost("nothing written before", pause)),
            node.after(0.02),
        ]

    pauses = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 60.0)
    node.follow(node.step, *(step for pause in pauses for step in lost_and_restored(pause)))
    expected: list[DriverEvent] = [SliceWritten(FIRST, "create"), Published(1, 1)]
    for pause in pauses:
        expected += [
            SliceLost(FIRST, pytest.approx(pause)),
            SliceLost("nothing written before", pause),
            SliceWritten(FIRST, "create"),
            Published(1, 1),
        ]
    assert node.events == expected
    assert node.stored() == {FIRST: spec(0)}


def test_patience_starts_anew_after_a_quiet_time():
    node = Node(0)
    lose = [lambda: node.api.lose(FIRST), node.step, node.after(0.6)]
    node.follow(node.step, *lose, *lose, node.after(601), *lose)
    lost = [event for event in node.events if isinstance(event, SliceLost)]
    assert [round(event.delay_seconds, 3) for event in lost] == [0.2, 0.5, 0.2]


def test_slices_that_are_all_deleted_at_once_come_back_in_one_go():
    node = Node(*range(130))
    names = list(node_names(3))
    node.follow(node.step, lambda: node.api.lose(*names), node.step, node.after(0.3))
    assert len(node.told(SliceLost)) == 3
    assert list(node.stored()) == names
    assert node.writes() == [f"create {name}" for name in [*names, *names]]


def node_names(count: int) -> tuple[str, ...]:
    return tuple(slice_name(index, A_DRIVER, A_NODE) for index in range(count))


def test_a_slice_that_somebody_changes_is_put_right_with_patience_too():
    node = Node(0, 1)

    def meddle() -> None:
        node.api.put(FIRST, spec(0))

    with capture_logs() as logs:
        node.follow(
            node.step, meddle, node.step, node.after(0.3), meddle, node.step, node.after(0.3)
        )
    assert node.writes() == [f"create {FIRST}", f"update {FIRST}"]  # the second still has to wait
    node.now += 0.3
    node.step()
    assert node.stored() == {FIRST: spec(0, 1)}
    assert [line["event"] for line in logs] == ["slice_changed_by_somebody_else"] * 2


def test_slices_of_an_earlier_layout_are_removed():
    node = Node(0)
    node.api.put("gpu.example.com-node-1-abcde", spec(0, 1, generation=7))
    node.follow(node.step)
    assert node.stored() == {FIRST: spec(0, generation=8)}


def test_what_was_disturbed_and_is_right_again_by_itself_needs_no_write_and_no_patience():
    node = Node(0)
    whole = spec(0)
    node.follow(
        node.step,
        lambda: node.api.lose(FIRST),
        node.step,
        lambda: node.api.put(FIRST, whole),
        node.after(1),
        lambda: node.api.lose(FIRST),
        node.step,
    )
    assert node.writes() == [f"create {FIRST}"]
    lost = [event for event in node.events if isinstance(event, SliceLost)]
    assert [round(event.delay_seconds, 3) for event in lost] == [0.2, 0.2]


def test_a_change_of_the_inventory_does_not_wait_for_patience():
    node = Node(0)
    node.follow(node.step, lambda: node.api.lose(FIRST), node.step, node.has(0, 1))
    assert node.stored() == {FIRST: spec(0, 1)}


# What the API server answers.


def test_after_a_conflict_it_is_listed_and_decided_again():
    node = Node(0)
    node.api.fail("create", Conflict("exists"))
    with capture_logs() as logs:
        node.follow(node.step)
    assert node.api.requests == ["list", "watch 0", f"create {FIRST}", "list", f"create {FIRST}"]
    assert node.stored() == {FIRST: spec(0)}
    assert [line["event"] for line in logs] == ["slice_conflict"]


def test_endless_conflicts_are_a_failure_that_names_the_likely_cause():
    node = Node(0)
    node.api.fail("create", *[Conflict("exists")] * 3)
    node.follow(node.step)
    assert node.events == [
        PublishFailed(
            "somebody else changed the slices of pool node-1 3 times while they were written; "
            "see whether a second driver runs under the name gpu.dra-driver.dev on this node",
            1.0,
        )
    ]


def test_failures_are_tried_again_after_growing_times_and_never_before_the_server_asked():
    node = Node(0)
    errors = [Temporary("down")] * 6 + [Temporary("throttled", retry_after_seconds=77.0)]
    node.api.fail("create", *errors)
    node.follow(node.step, *[node.after(100)] * 7)
    assert node.told(PublishFailed) == [
        *(PublishFailed("down", delay) for delay in (1.0, 2.0, 5.0, 10.0, 30.0, 30.0)),
        PublishFailed("throttled", 77.0),
    ]
    assert node.stored() == {FIRST: spec(0)}
    node.api.fail("update", Temporary("down again"))
    node.follow(node.has(0, 1))
    assert node.told(PublishFailed)[-1] == PublishFailed("down again", 1.0)


def test_it_is_not_tried_again_before_the_time():
    node = Node(0)
    node.api.fail("create", Temporary("throttled", retry_after_seconds=20.0))
    node.follow(node.step, node.after(19.9))
    assert node.writes() == [f"create {FIRST}"]
    node.now += 0.2
    node.step()
    assert node.writes() == [f"create {FIRST}"] * 2


def test_what_was_half_written_is_finished_without_patience():
    node = Node(*range(65))
    node.follow(node.step)
    node.api.fail("update", Temporary("down"))
    node.follow(node.has(*range(130)), node.after(1.0))
    assert node.stored() == {
        name: spec(*content, generation=2, count=3)
        for name, content in zip(
            node_names(3), (range(64), range(64, 128), range(128, 130)), strict=True
        )
    }
    assert node.told(SliceLost) == []


def test_a_way_back_from_what_was_half_written_is_nobodys_disturbance():
    node = Node(0)
    node.follow(node.step)
    node.api.fail("create", Temporary("down"))
    node.follow(node.has(*range(65)), node.has(0))
    assert node.stored() == {FIRST: spec(0, generation=2)}
    assert node.told(SliceLost) == []


def test_a_refusal_is_told_on_the_node_once_and_tried_again_slowly():
    node = Node(0)
    node.api.fail("create", *[Invalid("spec.devices[0].name: bad")] * 2)
    node.follow(node.step, node.after(59), node.after(1))
    assert node.told(PublishFailed) == [PublishFailed("spec.devices[0].name: bad", 60.0)] * 2
    assert node.api.node_events == [
        NodeEvent("Warning", "PublishFailed", "spec.devices[0].name: bad")
    ]


def test_an_error_that_nobody_foresaw_is_left_to_the_guard_and_tried_again():
    node = Node(0)

    def breaks(_spec: SliceSpec) -> SliceSpec:
        raise ZeroDivisionError

    def step() -> None:
        with pytest.raises(ZeroDivisionError):
            node.step()

    node.api.stores = breaks
    node.follow(step)
    node.api.stores = lambda written: written
    node.now += 60
    node.step()
    assert node.stored() == {FIRST: spec(0)}


# Fields that the server does not store.


def test_dropped_fields_are_told_once_and_then_taken_as_the_wish():
    node = Node()
    node.inventory = Inventory(devices(0, index=0, model="x"))

    def without_model(written: SliceSpec) -> SliceSpec:
        kept = tuple(
            replace(
                device,
                attributes={
                    name: value for name, value in device.attributes.items() if name != "model"
                },
            )
            for device in written.devices
        )
        return replace(written, devices=kept)

    node.api.stores = without_model
    node.follow(node.step, *[node.looks, node.after(100)] * 3)
    assert node.told(FieldsDropped) == [FieldsDropped(FIRST, ("devices.gpu-0.attributes.model",))]
    assert node.writes() == [f"create {FIRST}"]
    node.inventory = Inventory(devices(0, index=0, model="y"))
    node.publisher.wake()
    node.step()
    assert node.writes() == [f"create {FIRST}", f"update {FIRST}"]


def test_a_server_that_stores_something_else_altogether_does_not_cause_a_loop():
    node = Node(0, 1)
    node.api.stores = lambda written: replace(written, devices=written.devices[::-1])
    node.follow(node.step, *[node.looks, node.after(100)] * 3)
    assert node.told(FieldsDropped) == [FieldsDropped(FIRST, ("devices",))]
    assert node.writes() == [f"create {FIRST}"]


# Vanished devices.


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
        node.follow(node.step, before, node.after(KEPT_SECONDS - 1))
        assert node.stored() == {FIRST: spec(0, 2, 1)}
        assert node.kept[-1] == ("gpu-1",)
        assert node.api.requests.count("claims") == 1
        node.api.claims = ()
        node.now += 1
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
        replace(a_claim(), results=None),
    )
    node.follow(node.step, node.has())
    assert node.stored() == {FIRST: spec()}


def test_a_vanished_device_that_is_prepared_here_stays_without_asking_the_api_server():
    node = Node(0, 1)
    node.prepared = frozenset({DeviceName("gpu-1")})
    node.follow(node.step, node.has(0), node.publisher.released, node.step)
    assert node.stored() == {FIRST: spec(0, 1)}
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
    assert node.stored() == {FIRST: spec(0, 1)}
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
    assert node.stored() == {FIRST: spec(0, 2)}
    assert node.told(DeviceVanished) == [
        DeviceVanished("gpu-1", kept=False),
        DeviceVanished("gpu-2", kept=True),
        DeviceVanished("gpu-3", kept=False),
    ]


def test_a_kept_device_survives_the_deletion_of_its_slice():
    node = Node(0, 1)
    node.prepared = frozenset({DeviceName("gpu-1")})
    node.follow(node.step, node.has(0), lambda: node.api.lose(FIRST), node.step, node.after(1))
    assert node.stored() == {FIRST: spec(0, 1)}


def test_a_device_that_comes_back_is_a_device_like_any_other():
    node = Node(0, 1)
    node.prepared = frozenset({DeviceName("gpu-0")})
    node.follow(node.step, node.has(1), node.has(0, 1))
    assert node.stored() == {FIRST: spec(0, 1)}
    assert node.kept[-1] == ()
    node.follow(node.has(1))
    assert node.told(DeviceVanished) == [DeviceVanished("gpu-0", kept=True)] * 2


# What is remembered across restarts.


def test_what_is_published_is_remembered_before_it_is_written():
    node = Node(0, 1)
    remembered_at_write: list[int] = []
    node.api.on_write = lambda: remembered_at_write.append(len(node.memory.devices))
    node.follow(node.step, *[node.looks] * 3, node.has(0))
    assert remembered_at_write == [2, 1]
    assert node.memory.devices == spec(0).devices
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
    assert node.memory.devices[0].attributes["ready"] is True


def test_a_device_that_vanished_with_its_slice_while_the_driver_was_down_comes_back_from_memory():
    node = Node()
    node.inventory = Inventory(devices(0, 1, 2, model="x"))
    node.follow(node.step)
    (published,) = node.stored().values()
    node.api.lose(FIRST)
    node.inventory = Inventory(devices(0, model="x"))
    node.api.claims = (a_claim(results=[a_result("gpu-2")]),)
    node.restarted()
    node.follow(node.step)
    zero, _, two = published.devices
    assert node.stored() == {FIRST: replace(published, devices=(zero, two))}
    assert node.memory.devices == (zero, two)
    assert node.told(DeviceVanished) == [
        DeviceVanished("gpu-1", kept=False),
        DeviceVanished("gpu-2", kept=True),
    ]


def test_what_the_api_server_holds_counts_more_than_memory():
    node = Node()
    node.inventory = Inventory(devices(0, 1, model="new"))
    node.follow(node.step)
    node.memory.devices = (PublishedDevice(DeviceName("gpu-1"), {"model": "old"}),)
    node.prepared = frozenset({DeviceName("gpu-1")})
    node.inventory = Inventory(devices(0, model="new"))
    node.restarted()
    node.follow(node.step)
    (found,) = node.stored().values()
    assert [device.attributes["model"] for device in found.devices] == ["new", "new"]


def test_a_memory_that_fails_costs_a_warning_and_is_asked_again():
    node = Node(0, 1)
    node.memory.errors = [Temporary("disk full"), Temporary("cannot read")]
    with capture_logs() as logs:
        node.follow(node.step)
        assert node.stored() == {FIRST: spec(0, 1)}
        assert node.memory.devices == ()
        node.follow(node.has(0, 1, 2))
    assert [(line["event"], line["error"]) for line in logs] == [
        ("publication_not_recalled", "cannot read"),
        ("publication_not_remembered", "disk full"),
    ]
    assert node.memory.devices == spec(0, 1, 2).devices


def test_without_a_memory_nothing_is_remembered():
    memory = NoMemory()
    memory.write(spec(0).devices)
    assert memory.read() == ()


# What could not be published.


def test_a_problem_is_told_once_to_the_node_the_log_and_the_metrics():
    node = Node()
    node.inventory = Inventory(devices(0, bad="x" * 65))
    problem = Problem(
        DeviceName("gpu-0"),
        "attribute bad",
        f"'{'x' * 65}' is longer than 64 bytes",
        "it was left out of the slice, everything else is published; correct it in the backend",
    )
    node.follow(node.step)
    node.inventory = Inventory(devices(0, bad="y" * 65, index=1))
    node.publisher.wake()
    node.step()
    assert node.told(PublicationProblem) == [PublicationProblem(problem)]
    assert node.api.node_events == [NodeEvent("Warning", "DeviceAttributeDropped", str(problem))]


def test_an_event_that_cannot_be_written_costs_a_log_line():
    node = Node()
    node.inventory = Inventory(devices(0, bad="x" * 65))
    node.api.fail("event", Permanent("events are forbidden"))
    with capture_logs() as logs:
        node.follow(node.step)
    assert [(line["event"], line["error"]) for line in logs] == [
        ("event_not_written", "events are forbidden")
    ]
    assert node.publisher.published_once.is_set()
