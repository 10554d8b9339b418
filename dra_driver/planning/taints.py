# SPDX-License-Identifier: Apache-2.0
"""Check the taints of published devices, add the driver's own taints, and set the time of each taint.

The `timeAdded` of a taint decides when pods are evicted, because tolerationSeconds begins at that time. If a taint has no time,
the API server sets the time of the write, again at each write. So the driver sets the time itself, once, and then always publishes
the same time.

Source: validateDeviceTaint in pkg/apis/resource/validation of Kubernetes 1.37, SetDefaults_DeviceTaint in pkg/apis/resource/v1.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import msgspec

from dra_driver.model.api.resource_slice import Device, DeviceTaint
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.dns_names import LABEL_PART, is_label_key
from dra_driver.model.health import HealthStatus
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.names import (
    HELD_BY_TAINT,
    HELD_REASON,
    HELD_TAINT,
    NOT_CLEAN_REASON,
    NOT_CLEAN_TAINT,
    OCCUPIED_REASON,
    OCCUPIED_TAINT,
    OWN_TAINTS,
    UNHEALTHY_REASON,
    UNHEALTHY_TAINT,
    VANISHED_REASON,
    VANISHED_TAINT,
)
from dra_driver.model.state import PreparedClaim

MOST_TAINTS = 16
_NOBODY: Mapping[DeviceName, str] = MappingProxyType({})
EFFECTS = ("NoSchedule", "NoExecute", "None")

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)

TaintId = tuple[str, str, str, str]
"""Device, key, value and effect: a taint that changes one of them is a new taint."""


def wrong_taints(taints: Iterable[DeviceTaint]) -> Iterator[str]:
    """Yield the reasons why the API server would refuse these taints of one device."""
    found = tuple(taints)
    if len(found) > MOST_TAINTS:
        yield f"more than {MOST_TAINTS} taints"
    for index, taint in enumerate(found):
        yield from (f"[{index}].{wrong}" for wrong in _wrong_taint(taint))


def _wrong_taint(taint: DeviceTaint) -> Iterator[str]:
    if not is_label_key(taint.key):
        yield f"key: {taint.key[:80]!a} is no label key"
    if taint.value and not re.fullmatch(LABEL_PART, taint.value):
        yield f"value: {taint.value[:80]!a} is no label value"
    if taint.effect not in EFFECTS:
        yield f"effect: {taint.effect[:80]!a} is none of {', '.join(EFFECTS)}"
    if taint.time_added and not _seconds(taint.time_added):
        yield f"timeAdded: {taint.time_added[:80]!a} is no time of RFC 3339"


def with_own_taints(
    found: AllocatableDevice,
    held: Collection[DeviceName],
    not_clean: Collection[DeviceName] = (),
    occupied: Collection[DeviceName] = (),
    foreign: Mapping[DeviceName, str] = _NOBODY,
) -> Device:
    """Return the device of a backend with the driver's taints: one if it is ill, one if an ended claim may still use it, one if a claim
    has its hardware under another name, one with its value in `foreign` if somebody else's plugin gives it out, or else one if no claim has
    it and it is not clean.

    A device with shares gets no taint for one share that is held: the other shares are free.
    """
    reasons = {}
    if found.health.status is HealthStatus.UNHEALTHY:
        reasons[UNHEALTHY_TAINT] = UNHEALTHY_REASON
    if found.name in held and not found.api.allow_multiple_allocations:
        reasons[HELD_TAINT] = HELD_REASON
    if found.name in occupied:
        reasons[OCCUPIED_TAINT] = OCCUPIED_REASON
    if found.name in foreign:
        reasons[HELD_BY_TAINT] = foreign[found.name]
    if found.name in not_clean and not reasons:  # another reason keeps claims away already
        reasons[NOT_CLEAN_TAINT] = NOT_CLEAN_REASON
    if not reasons or not isinstance(found.api.taints or [], list):
        return found.api  # a wrong type: the check of the device reports it
    others = [one for one in found.api.taints or () if getattr(one, "key", "") not in OWN_TAINTS]
    return msgspec.structs.replace(found.api, taints=[*others, *_own(reasons)])


def vanished(device: Device) -> Device:
    """Return a vanished device with a taint, so that no new claim gets it. The device keeps the taints of its backend.

    A NoExecute taint of the backend evicts pods, and must still do so when the device has vanished.
    """
    # An earlier version used the driver's name as the domain of the key.
    others = [
        taint
        for taint in device.taints or ()
        if taint.key not in OWN_TAINTS
        and taint.value != VANISHED_REASON
        and next(_wrong_taint(taint), None) is None
    ]
    own = _own({VANISHED_TAINT: VANISHED_REASON})
    return msgspec.structs.replace(device, taints=[*others[: MOST_TAINTS - 1], *own])


def _own(reasons: Mapping[str, str]) -> list[DeviceTaint]:
    return [
        DeviceTaint(key=key, value=reason, effect="NoSchedule") for key, reason in reasons.items()
    ]


def devices_held_by(rows: Iterable[PreparedClaim], pool: PoolName) -> frozenset[DeviceName]:
    """Return the devices of the pool that these held claims own as a whole."""
    keys = (key for row in rows for key in row.owned)
    return frozenset(key.device for key in keys if key.pool == pool and not key.share)


def taint_times(devices: Iterable[Device]) -> Mapping[TaintId, str]:
    """Return the times of these devices' taints. If two devices have the same name, the later one is used."""
    return {
        _id(device, taint): since
        for device in devices
        for taint in device.taints or ()
        if (since := _seconds(taint.time_added or ""))
    }


def dated(device: Device, times: Mapping[TaintId, str], now: str) -> Device:
    """Return the device with a time in each taint: the backend's own time, or else the time in `times`, or else `now`."""
    if not device.taints:
        return device
    taints = [
        msgspec.structs.replace(
            taint,
            time_added=_seconds(taint.time_added or "") or times.get(_id(device, taint), now),
        )
        for taint in device.taints
    ]
    return msgspec.structs.replace(device, taints=taints)


def _id(device: Device, taint: DeviceTaint) -> TaintId:
    return device.name, taint.key, taint.value, taint.effect


def _seconds(text: str) -> str:
    """Return the time as the API server stores it: UTC, in whole seconds; empty for a text that is no time."""
    if not _TIME.fullmatch(text):
        return ""
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    # Not strftime: its %Y has fewer than four digits before the year 1000, and Go's zero time is in the year 1.
    return f"{moment.replace(tzinfo=None, microsecond=0).isoformat()}Z"
