# SPDX-License-Identifier: Apache-2.0
"""What does the condition DevicesReady of the Node say, and when is it written?

It is True once the API server has shown the published devices, or the kubelet has taken the list of the device plugin. A condition that
is True becomes False only after GRACE_SECONDS: a driver that starts anew, or an API server that is away for a moment, must not look
like a node that lost its devices. It is written when it changes, and at rest every HEARTBEAT_SECONDS, as often as the kubelet reports
a Node on which nothing changes.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.model.names import PUBLISH_FAILED
from dra_driver.model.own_node import NodeCondition
from dra_driver.model.slices import StoredSlice

GRACE_SECONDS = 60.0
HEARTBEAT_SECONDS = 300.0
_LONGEST_MESSAGE = 1000


class Offer(Struct, frozen=True):
    """What is known of how this node's devices are offered.

    `unknown` says why no devices are known yet, and `failure` why the last publication failed; both are "" otherwise. `published` is how
    many devices the driver wrote, None before the first time. `missing` says what of them the API server does not show: "" if it
    shows all, None if it was not asked since they were written. `listed` is how many devices the kubelet took from the device plugin.
    """

    unknown: str = ""
    published: int | None = None
    failure: str = ""
    missing: str | None = None
    listed: int | None = None


def condition_of(offer: Offer) -> NodeCondition:
    """Return the condition without its times."""
    if offer.listed:
        return NodeCondition(True, "Listed", f"the kubelet has {_devices(offer.listed)}")
    is_starting = offer.published is None or offer.missing is None
    problems = (
        ("DevicesUnknown", offer.unknown),
        (PUBLISH_FAILED, offer.failure),
        ("Starting", "the devices have not been published yet" if is_starting else ""),
        ("SlicesIncomplete", offer.missing or ""),
        ("NoDevices", "" if offer.published else "no device was found on this node"),
    )
    for reason, message in problems:
        if message:
            return NodeCondition(False, reason, message[:_LONGEST_MESSAGE])
    return NodeCondition(True, "Published", f"{_devices(offer.published or 0)} published")


def missing_of(slices: Sequence[StoredSlice], devices: int) -> str:
    """Return what is missing of a pool in which this many devices were published; "" if the scheduler can use it."""
    newest = max((stored.spec.pool.generation for stored in slices), default=0)
    pool = [stored for stored in slices if stored.spec.pool.generation == newest]
    wanted = pool[0].spec.pool.resource_slice_count if pool else 1
    if len(pool) != wanted:
        return f"the API server shows {len(pool)} of {wanted} ResourceSlices"
    found = sum(len(stored.spec.devices or ()) for stored in pool)
    return "" if found == devices else f"the API server shows {found} of {_devices(devices)}"


def condition_to_write(
    wanted: NodeCondition, present: NodeCondition | None, now: str, *, lasted_seconds: float
) -> NodeCondition | None:
    """Return the condition to write; None if the present one is good. `lasted_seconds`: for so long it is wanted."""
    if present is None or present.is_true != wanted.is_true:
        if present is not None and present.is_true and lasted_seconds < GRACE_SECONDS:
            return None
        return replace(wanted, since=now, seen=now)
    if present.says == wanted.says and _age(present.seen, now) < HEARTBEAT_SECONDS:
        return None
    return replace(wanted, since=present.since or now, seen=now)


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"


def _age(then: str, now: str) -> float:
    """The seconds between two times of the API; very many if one is none, or if the clock was set back."""
    try:
        seconds = (datetime.fromisoformat(now) - datetime.fromisoformat(then)).total_seconds()
    except (ValueError, TypeError):  # TypeError: one has a time zone and the other has none
        return HEARTBEAT_SECONDS
    return seconds if seconds >= 0 else HEARTBEAT_SECONDS
