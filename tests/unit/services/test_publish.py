# SPDX-License-Identifier: Apache-2.0
"""What the publisher writes, when, and how often it asks; whoever disturbs it, and whatever the API server answers."""

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from dra_driver.errors import Permanent, Temporary
from dra_driver.kube.base import Conflict, Invalid, NodeEvent
from dra_driver.model.api.resource_slice import ResourceSliceSpec
from dra_driver.model.events import (
    DriverEvent,
    FieldsDropped,
    PublicationProblem,
    Published,
    PublishFailed,
    SliceLost,
    SliceWritten,
    ThreadFailed,
)
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.names import HARDWARE_NOT_READY
from dra_driver.model.slices import Problem
from dra_driver.planning.reconcile import slice_name
from dra_driver.testing.builders import A_DRIVER, A_NODE
from tests.support.api_values import published
from tests.support.publishing_node import FIRST, SECOND, Node, devices, spec
from tests.support.scripted_api import Step


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


def test_a_refusal_is_told_on_the_node_once_and_tried_again_ever_more_slowly():
    """It may pass: a role that is being replaced refuses for a second."""
    node = Node(0)
    node.api.fail("create", *[Invalid("spec.devices[0].name: bad")] * 7)
    node.follow(node.step, *[node.after(60)] * 6)
    assert node.told(PublishFailed) == [
        PublishFailed("spec.devices[0].name: bad", delay)
        for delay in (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 60.0)
    ]
    assert node.api.node_events == [
        NodeEvent("Warning", "PublishFailed", "spec.devices[0].name: bad")
    ]
    node.follow(node.after(60))
    assert node.stored() == {FIRST: spec(0)}


def test_an_error_that_nobody_foresaw_is_counted_said_and_tried_again_ever_more_slowly():
    node = Node(0)

    def breaks(_spec: ResourceSliceSpec) -> ResourceSliceSpec:
        raise ZeroDivisionError("by chance")

    node.api.stores = breaks
    with capture_logs() as logs:
        node.follow(node.step, node.after(1), node.after(2))
    assert node.told(ThreadFailed) == [
        ThreadFailed("publish", "ZeroDivisionError: by chance", delay) for delay in (1.0, 2.0, 5.0)
    ]
    assert [line["event"] for line in logs] == ["publish_failed_unexpectedly"] * 3
    node.api.stores = lambda written: written
    node.now += 5
    node.step()
    assert node.stored() == {FIRST: spec(0)}


def test_news_may_be_what_a_failure_waited_for_but_not_for_ever():
    """Whoever tries again because of what came of the last try would never stop."""
    node = Node(0)
    node.api.fail("create", *[Temporary("down")] * 100)
    node.follow(node.step)
    for _ in range(50):
        node.looks()
    assert len(node.writes()) == 10
    pauses: list[float] = []
    for _ in range(4):
        before, tries = node.now, len(node.writes())
        while len(node.writes()) == tries:
            node.now += 0.5
            node.looks()
        pauses.append(node.now - before)
    assert pauses == [5.0, 5.0, 5.0, 10.0]


# Fields that the server does not store.


def test_dropped_fields_are_told_once_and_then_taken_as_the_wish():
    node = Node()
    node.inventory = Inventory(devices(0, index=0, model="x"))

    def without_model(written: ResourceSliceSpec) -> ResourceSliceSpec:
        kept = [
            replace(
                device,
                attributes={
                    name: value
                    for name, value in (device.attributes or {}).items()
                    if name != "model"
                },
            )
            for device in written.devices or ()
        ]
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
    node.api.stores = lambda written: replace(written, devices=(written.devices or [])[::-1])
    node.follow(node.step, *[node.looks, node.after(100)] * 3)
    assert node.told(FieldsDropped) == [FieldsDropped(FIRST, ("devices",))]
    assert node.writes() == [f"create {FIRST}"]


# What others change in our slices.


@pytest.mark.parametrize(
    "path",
    [
        "metadata.finalizers",
        "metadata.ownerReferences",
        "spec.devices[gpu-0].fieldOfTheNextRelease",
        "spec.fieldOfTheNextRelease",
    ],
)
def test_what_somebody_writes_into_a_slice_is_put_right_in_any_field(path: str):
    node = Node(0)
    before = spec(0)
    with capture_logs() as logs:
        node.follow(
            node.step,
            lambda: node.api.put(FIRST, before, unlike={path: "true"}),
            node.step,
            node.after(0.3),
        )
    assert node.writes() == [f"create {FIRST}", f"update {FIRST}"]
    assert node.api.slices[FIRST].unlike == {}
    (line,) = logs
    assert (line["event"], line["slices"]) == ("slice_changed_by_somebody_else", {FIRST: (path,)})


def test_what_somebody_writes_into_a_device_is_put_right_and_named():
    node = Node(0)
    shared = replace(published("gpu-0"), allow_multiple_allocations=True)
    with capture_logs() as logs:
        node.follow(
            node.step, lambda: node.api.put(FIRST, spec(shared)), node.step, node.after(0.3)
        )
    assert node.writes() == [f"create {FIRST}", f"update {FIRST}"]
    assert node.stored() == {FIRST: spec(0)}
    (line,) = logs
    path = "devices.gpu-0.allowMultipleAllocations"
    assert (line["event"], line["slices"]) == ("slice_changed_by_somebody_else", {FIRST: (path,)})


def test_what_the_server_puts_into_a_device_is_told_once_and_causes_no_loop():
    node = Node(0)
    node.api.stores = lambda written: replace(
        written, devices=[replace(device, binds_to_node=True) for device in written.devices or ()]
    )
    node.follow(node.step, *[node.looks, node.after(100)] * 3)
    assert node.told(FieldsDropped) == [FieldsDropped(FIRST, ("devices.gpu-0.bindsToNode",))]
    assert node.writes() == [f"create {FIRST}"]


def test_what_was_written_into_a_slice_while_the_driver_was_down_is_put_right_at_once():
    node = Node(0)
    node.follow(node.step)
    node.api.put(FIRST, spec(0), unlike={"metadata.ownerReferences": ""})
    node.restarted()
    node.follow(node.step)
    assert node.writes() == [f"create {FIRST}", f"update {FIRST}"]


def test_what_the_server_puts_into_every_slice_is_told_once_and_causes_no_loop():
    node = Node(0)
    node.api.adds = {"spec.addedByAWebhook": "1"}
    node.follow(node.step, *[node.looks, node.after(100)] * 3)
    assert node.told(FieldsDropped) == [FieldsDropped(FIRST, ("spec.addedByAWebhook",))]
    assert node.writes() == [f"create {FIRST}"]
    other = {"spec.addedByAWebhook": "2"}
    node.follow(
        node.step, lambda: node.api.put(FIRST, spec(0), unlike=other), node.step, node.after(0.3)
    )
    assert node.writes() == [f"create {FIRST}", f"update {FIRST}"]


def test_what_the_server_puts_into_slices_no_more_causes_no_loop():
    """A webhook is removed, and then the kubelet deletes the slices, as it does at its start."""
    node = Node(0)
    node.api.adds = {"spec.addedByAWebhook": "1"}
    node.follow(node.step, node.looks)
    node.api.adds = {}
    node.follow(node.step, lambda: node.api.lose(FIRST), node.step, node.after(0.3))
    writes = node.writes()
    assert writes[-1] == f"create {FIRST}"
    node.follow(*[node.looks, node.after(100)] * 3)
    assert node.writes() == writes


def test_labels_and_annotations_of_others_cause_no_write_and_survive_the_next_one():
    node = Node(0)
    labels, annotations = {"team": "a"}, {"note": "b"}
    node.follow(
        node.step,
        lambda: node.api.put(FIRST, spec(0), labels=labels, annotations=annotations),
        node.step,
        node.after(100),
    )
    assert node.writes() == [f"create {FIRST}"]
    node.follow(node.has(0, 1))
    found = node.api.slices[FIRST]
    assert (found.spec, found.labels, found.annotations) == (spec(0, 1), labels, annotations)


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


def test_hardware_that_cannot_be_offered_yet_has_a_reason_of_its_own():
    node = Node()
    why = "the kernel module is not loaded"
    problem = Problem(
        DeviceName("nvidia"), "library", why, "load it", "backend", HARDWARE_NOT_READY
    )
    node.inventory = Inventory(left_out=(problem,))
    node.follow(node.step)
    message = "backend nvidia: library: the kernel module is not loaded; load it"
    assert node.api.node_events == [NodeEvent("Warning", "HardwareNotReady", message)]


def test_an_event_that_cannot_be_written_costs_a_log_line_and_is_written_later():
    node = Node()
    node.inventory = Inventory(devices(0, bad="x" * 65))
    node.api.fail("event", Permanent("events are forbidden"))
    with capture_logs() as logs:
        node.follow(node.step)
        assert [(line["event"], line["error"]) for line in logs] == [
            ("event_not_written", "events are forbidden")
        ]
        assert node.publisher.published_once.is_set()
        assert node.api.node_events == []
        node.follow(node.after(1), node.after(1))
    assert [event.reason for event in node.api.node_events] == ["DeviceAttributeDropped"]
    assert len(node.writes()) == 1
