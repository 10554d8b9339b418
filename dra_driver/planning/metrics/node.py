# SPDX-License-Identifier: Apache-2.0
"""All series of one scrape that are made from what the driver sampled: of the state, of devices, and of claims.

A device that hangs gives no new sample. Its last one counts for `STALE_SECONDS`; then its values vanish, and only its age goes on. If it
hangs when the process starts, its age begins then. The
number of series is bounded by devices and claims of the node; a value of a device that several claims share is one series.
"""

from collections.abc import Collection, Iterator
from datetime import UTC, datetime

from dra_driver.model.api.resource_slice import Device
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.state import Phase, PreparedClaim
from dra_driver.model.usage import Holder, NodeUsage
from dra_driver.planning.claim_totals import device_seconds
from dra_driver.planning.device_holders import common, holders
from dra_driver.planning.metrics.aliases import SCHEMES
from dra_driver.planning.metrics.families import Family, Measured, Place, Series, measured_families
from dra_driver.planning.metrics.own import own_labels

STALE_SECONDS = 60.0
"""Four samples."""
_NOBODY = Holder("", "")


def node_families(
    usage: NodeUsage, now: float, place: Place, names: Collection[str]
) -> tuple[Family, ...]:
    """Return the metrics at `now`, with the measurements under these names. Without devices and rows they have no series."""
    has = holders(usage.rows or (), usage.uses, place.pool)
    measured = tuple(
        Measured(device, sample.usage, common(has.get(device.name, ())))
        for device in usage.devices
        if (sample := usage.samples.get(device.name)) is not None
        and now - sample.taken <= STALE_SECONDS
    )
    tables = tuple(
        family
        for name, (measures, labels) in SCHEMES.items()
        if name in names
        for family in measured_families(measures, measured, labels, place)
    )
    return (*_of_state(usage), *_of_devices(usage, now, place), *_of_claims(usage, now), *tables)


def _of_state(usage: NodeUsage) -> Iterator[Family]:
    rows = usage.rows
    prepared = [row for row in rows or () if row.phase is Phase.PREPARED]
    held = {key for row in rows or () if row.held is not None for key in row.owned}
    yield Family(
        "dra_driver_prepared_claims",
        "gauge",
        "Claims and Allocate calls whose devices are set up now",
        () if rows is None else (({}, float(len(prepared))),),
    )
    yield Family(
        "dra_driver_held_devices",
        "gauge",
        "Devices and shares of ended claims that no other claim gets now, because a process may still use them",
        () if rows is None else (({}, float(len(held))),),
    )
    yield Family(
        "dra_driver_claim_held_since_timestamp_seconds",
        "gauge",
        "Since when the devices of an ended claim are held, in seconds since 1970",
        tuple(_held_since(rows or ())),
    )
    yield Family(
        "dra_driver_state_bytes",
        "gauge",
        "Size of the state file with its log",
        () if usage.state_bytes is None else (({}, float(usage.state_bytes)),),
    )


def _held_since(rows: tuple[PreparedClaim, ...]) -> Iterator[Series]:
    for row in rows:
        if row.held is None:
            continue
        try:
            since = datetime.strptime(row.held.since, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            continue  # the time is for people, and an older driver may have written another form
        labels = {"namespace": row.ref.namespace, "claim": row.ref.name, "uid": row.ref.uid}
        yield labels, since.timestamp()


def _of_devices(usage: NodeUsage, now: float, place: Place) -> Iterator[Family]:
    has = holders(usage.rows or (), usage.uses, place.pool)
    known = usage.rows is not None
    yield Family(
        "dra_driver_device_allocated",
        "gauge",
        "1 for each container (or claim, or pod) that has the device or a share of it, also if no scan finds the device; 0 without these labels if nobody has it",
        tuple(
            (own_labels(device, holder, place), float(holder is not _NOBODY))
            for device in (*usage.devices, *_not_found(usage, has))
            if known
            for holder in has.get(device.name, (_NOBODY,))
        ),
    )
    yield Family(
        "dra_driver_device_not_clean",
        "gauge",
        "Whether something uses the device although nobody has it (1) or not (0)",
        tuple(
            ({"device": device.name}, float(bool(device.not_clean) and device.name not in has))
            for device in usage.devices
            if known
        ),
    )
    yield Family(
        "dra_driver_device_sample_age_seconds",
        "gauge",
        f"Age of the device's measurements; after {STALE_SECONDS:.0f} s they are not shown any more. Of a device that was not measured yet: how long this process has had it",
        tuple(
            ({"device": device.name}, max(0.0, now - since))
            for device in usage.devices
            if (since := _measured_at(usage, device.name)) is not None
        ),
    )


def _not_found(usage: NodeUsage, has: Collection[DeviceName]) -> Iterator[AllocatableDevice]:
    """The devices that somebody has and no scan finds (it is gone, or its backend has not answered yet), as the rows know them."""
    uuids = {
        device.device: device.uuid
        for row in usage.rows or ()
        for device in row.devices
        if device.uuid
    }
    for name in sorted({*has} - {device.name for device in usage.devices}):
        yield AllocatableDevice(Device(name), uuids.get(name, ""))


def _measured_at(usage: NodeUsage, name: DeviceName) -> float | None:
    """When the device was measured last, or else found; None if its backend measures nothing."""
    sample = usage.samples.get(name)
    return usage.found.get(name) if sample is None else sample.taken


def _of_claims(usage: NodeUsage, now: float) -> Iterator[Family]:
    counted = [
        ({"namespace": one.namespace, "claim": one.claim, "device": key.device}, one)
        for key, one in sorted(usage.totals.items())
    ]
    yield Family(
        "dra_driver_claim_device_seconds",
        "counter",
        "Time for which a claim has had a device or a share of it, since this process began to serve it",
        tuple((labels, device_seconds(one, now)) for labels, one in counted),
    )
    yield Family(
        "dra_driver_claim_memory_byte_seconds",
        "counter",
        "Used memory of a claim's device, added up over time; a device of several claims has none",
        tuple(
            (labels, one.memory_byte_seconds)
            for labels, one in counted
            if one.memory_byte_seconds is not None
        ),
    )
