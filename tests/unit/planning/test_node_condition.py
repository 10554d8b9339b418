# SPDX-License-Identifier: Apache-2.0
"""What the condition of the Node says, and when it is written."""

import pytest
from msgspec.structs import replace

from dra_driver.model.own_node import NodeCondition
from dra_driver.model.slices import StoredSlice
from dra_driver.planning.node_condition import (
    Offer,
    condition_of,
    condition_to_write,
    missing_of,
)
from tests.support.api_values import published, slice_spec

THEN, NOW = "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z"
SHOWN = Offer(published=8, missing="")


@pytest.mark.parametrize(
    ("offer", "is_true", "reason", "message"),
    [
        (Offer(), False, "Starting", "the devices have not been published yet"),
        (Offer(published=8), False, "Starting", "the devices have not been published yet"),
        (SHOWN, True, "Published", "8 devices published"),
        (replace(SHOWN, published=1), True, "Published", "1 device published"),
        (replace(SHOWN, published=0), False, "NoDevices", "no device was found on this node"),
        (replace(SHOWN, missing="0 of 8"), False, "SlicesIncomplete", "0 of 8"),
        (replace(SHOWN, failure="403"), False, "PublishFailed", "403"),
        (replace(SHOWN, failure="x" * 2000), False, "PublishFailed", "x" * 1000),
        (replace(SHOWN, unknown="no scan", failure="403"), False, "DevicesUnknown", "no scan"),
        (Offer(listed=4), True, "Listed", "the kubelet has 4 devices"),
        (Offer(unknown="no scan", listed=1), True, "Listed", "the kubelet has 1 device"),
        (Offer(listed=0), False, "Starting", "the devices have not been published yet"),
    ],
)
def test_the_condition_follows_from_what_is_known(
    offer: Offer, is_true: bool, reason: str, message: str
) -> None:
    assert condition_of(offer) == NodeCondition(is_true, reason, message)


def a_slice(generation: int, count: int, devices: int, name: str = "s") -> StoredSlice:
    content = [published(f"gpu-{index}") for index in range(devices)]
    return StoredSlice(name, "u", "1", slice_spec("node-1", generation, count, content))


@pytest.mark.parametrize(
    ("slices", "devices", "said"),
    [
        ([], 8, "the API server shows 0 of 1 ResourceSlices"),
        ([a_slice(1, 1, 8)], 8, ""),
        ([a_slice(1, 1, 0)], 0, ""),
        ([a_slice(1, 1, 7)], 8, "the API server shows 7 of 8 devices"),
        ([a_slice(2, 2, 4)], 8, "the API server shows 1 of 2 ResourceSlices"),
        ([a_slice(2, 2, 4), a_slice(2, 2, 4)], 8, ""),
        ([a_slice(1, 1, 8), a_slice(2, 2, 4), a_slice(2, 2, 4)], 8, ""),
    ],
)
def test_a_pool_that_the_scheduler_cannot_use_is_not_ready(
    slices: list[StoredSlice], devices: int, said: str
) -> None:
    assert missing_of(slices, devices) == said


READY = NodeCondition(True, "Published", "8 devices published")
NOT_READY = NodeCondition(False, "Starting", "the devices have not been published yet")


def written(
    wanted: NodeCondition, present: NodeCondition | None, now: str = NOW, lasted: float = 0.0
) -> NodeCondition | None:
    return condition_to_write(wanted, present, now, lasted_seconds=lasted)


def test_a_node_without_the_condition_gets_it() -> None:
    assert written(READY, None) == replace(READY, since=NOW, seen=NOW)
    assert written(NOT_READY, None) == replace(NOT_READY, since=NOW, seen=NOW)


def test_the_time_of_the_change_is_that_of_the_status() -> None:
    present = replace(NOT_READY, since=THEN, seen=THEN)
    assert written(READY, present) == replace(READY, since=NOW, seen=NOW)
    other = replace(NOT_READY, reason="NoDevices")
    assert written(other, present) == replace(other, since=THEN, seen=NOW)
    assert written(other, replace(present, since="")) == replace(other, since=NOW, seen=NOW)


def test_a_condition_that_is_true_is_kept_for_a_while() -> None:
    """A new process of the driver begins with nothing published."""
    present = replace(READY, since=THEN, seen=THEN)
    assert written(NOT_READY, present, lasted=59.9) is None
    assert written(NOT_READY, present, lasted=60.0) == replace(NOT_READY, since=NOW, seen=NOW)


@pytest.mark.parametrize(
    ("seen", "is_due"),
    [
        ("2026-01-02T03:00:06Z", False),
        ("2026-01-02T03:00:05Z", True),
        (NOW, False),
        ("2026-01-02T03:05:06Z", True),  # the clock was set back
        ("2026-01-02T03:05:00", True),
        ("yesterday", True),
        ("", True),
    ],
)
def test_at_rest_it_is_written_every_five_minutes(seen: str, is_due: bool) -> None:
    due = written(READY, replace(READY, since=THEN, seen=seen))
    assert due == (replace(READY, since=THEN, seen=NOW) if is_due else None)
