# SPDX-License-Identifier: Apache-2.0
"""This module formats the answers of `kubectl dra devices`, `claims`, `free` and `usage` as columns, as kubectl does."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.cli.render import GREEN, RED, YELLOW, pairs
from dra_driver.model.api.resource_claim import GROUP
from dra_driver.model.names import CLUSTER_CLAIMS_KIND, FREE_DEVICES_KIND
from dra_driver.overview.ages import age
from dra_driver.overview.claims import PENDING, ClusterClaim, ClusterClaims
from dra_driver.overview.cluster import FREE, PARTLY_FREE
from dra_driver.overview.devices import (
    OK,
    UNHEALTHY,
    WARNING,
    ClusterDevice,
    ClusterDevices,
    HolderOfDevice,
    TaintOfDevice,
)
from dra_driver.overview.free import FreeDevices, FreeOfClass
from dra_driver.overview.part import Gap
from dra_driver.overview.steady import Document
from dra_driver.overview.usage import DeviceUsage, UsageRow
from dra_driver.overview.values import MEMORIES, bare

NONE, ALL, UNKNOWN = "<none>", "<all>", "<unknown>"
MARKS = {FREE: GREEN, OK: GREEN, WARNING: YELLOW, PENDING: YELLOW, UNHEALTHY: RED}
"""The colours of cells."""
CUT = "…"
ROLES_PAGE = "docs/kubectl-dra.md"
_SHOWN = 2
_GIB = 2**30


class Row(Struct, frozen=True):
    """One row. `key` names what it is about; `said` are its cells without those that change as time passes."""

    key: tuple[str, ...]
    cells: tuple[str, ...]
    said: tuple[str, ...]


class Sheet(Struct, frozen=True):
    """An answer in columns. `notes` belong below it; `empty` is what to say if there are no rows."""

    headers: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    empty: str


class Look(Struct, frozen=True):
    """How an answer is shown: with all columns (`wide`), with all names (`uncut`), and with the namespace of each claim.

    `namespace` is the one that is asked about, "" for all.
    """

    now: datetime
    wide: bool = False
    namespaces: bool = False
    uncut: bool = False
    namespace: str = ""


def sentence(gap: Gap) -> str:
    """Return what an answer lacks, why, and who gives the right."""
    what = f"{gap.resource} {gap.name}".rstrip()
    if not gap.role:
        return f"not in the answer: {gap.lacks}; {what} could not be read: {gap.message}"
    return (
        f"not in the answer: {gap.lacks}; you may not {gap.verb} {what}. The ClusterRole …-{gap.role} of the driver's chart "
        f"gives this right ({ROLES_PAGE})"
    )


def sheet(document: Document, look: Look) -> Sheet:
    """Return the answer in columns. Where something could not be read, nothing is said about an empty answer."""
    found = _sheet(document, look)
    return replace(found, empty="") if document.not_read else found


def names(found: Sheet, document: Document) -> Sheet:
    """Return the sheet with the names of the objects that its rows are about, as kubectl takes them, and without the rows that are about none."""
    group = _OBJECTS[document.by if isinstance(document, DeviceUsage) else document.kind]
    rows = (replace(row, cells=(f"{group}/{row.key[-1]}",)) for row in found.rows if all(row.key))
    return replace(found, headers=("NAME",), rows=tuple(rows))


_CLASS = f"deviceclass.{GROUP}"
_OBJECTS = {
    CLUSTER_CLAIMS_KIND: f"resourceclaim.{GROUP}",
    FREE_DEVICES_KIND: _CLASS,
    "class": _CLASS,
    "namespace": "namespace",
    "node": "node",
}
"""What the rows of a document, or of usage by a property, are about."""


def _sheet(document: Document, look: Look) -> Sheet:
    match document:
        case ClusterDevices():
            return _devices(document, look)
        case ClusterClaims():
            return _claims(document, look)
        case FreeDevices():
            return _free(document, look)
        case DeviceUsage():
            return _usage(document, look)


def _devices(document: ClusterDevices, look: Look) -> Sheet:
    headers = (
        *("NODE", "DRIVER", "DEVICE", "PRODUCT", "MEMORY", "HEALTH", "TAINTS", "HOLDER", "FREE"),
        *(("POOL", "CAPACITY", "ATTRIBUTES") if look.wide else ()),
    )
    rows = tuple(_plain_row(_key(one), _device(one, look)) for one in document.devices)
    return Sheet(headers, rows, (), "no device is published that is asked about")


def _key(one: ClusterDevice) -> tuple[str, ...]:
    return one.driver, one.pool, one.name


def _device(one: ClusterDevice, look: Look) -> tuple[str, ...]:
    nodes = ALL if one.all_nodes else _names(one.nodes, look)
    taints = _names([_taint(taint) for taint in one.taints], look, shown=1)
    health = (
        f"{one.health} ({one.health_reason})" if look.wide and one.health_reason else one.health
    )
    cells = (
        *(nodes, one.driver, one.name, one.product or NONE, one.memory or NONE, health, taints),
        *(_names([_holder(holder) for holder in one.holders], look), _share(one, look)),
    )
    if not look.wide:
        return cells
    return *cells, one.pool, pairs(one.capacity) or NONE, pairs(one.attributes) or NONE


def _taint(one: TaintOfDevice) -> str:
    value = f"={one.value}" if one.value else ""
    rule = f" by {one.rule}" if one.rule else ""
    return f"{one.key}{value}:{one.effect}{rule}"


def _holder(one: HolderOfDevice) -> str:
    return f"{one.namespace}/{one.claim}" + (" (admin)" if one.admin_access else "")


def _share(one: ClusterDevice, look: Look) -> str:
    """Return what is left of a device that can be shared, in its memory or else its first capacity; the state of any other device.

    Of a device that could be had without the claims on other parts of its hardware these are told.
    """
    if one.used_up_by:
        return f"{one.free} by {_names(one.used_up_by, look)}"
    if one.free not in (FREE, PARTLY_FREE) or not one.free_share:
        return one.free
    names = sorted(one.free_share, key=lambda name: (bare(name) not in MEMORIES, name))
    name = names[0]
    return f"{one.free_share[name]} of {one.capacity[name]}"


def _claims(document: ClusterClaims, look: Look) -> Sheet:
    headers = (
        *(("NAMESPACE",) if look.namespaces else ()),
        *("CLAIM", "STATE", "AGE", "POD", "NODE", "DEVICE"),
        *(("CLASS", "ALLOCATED") if look.wide else ()),
    )
    rows = tuple(_claim(one, look) for one in document.claims)
    empty = "there is no claim that is asked about"
    if look.namespace:
        empty = f"namespace {look.namespace} has no claim that is asked about; -A shows those of all namespaces"
    return Sheet(headers, rows, (), empty)


def _claim(one: ClusterClaim, look: Look) -> Row:
    devices = [
        f"{device.driver}/{device.pool}/{device.name}" if look.wide else device.name
        for device in one.devices
    ]
    users = (*(f"podgroup/{name}" for name in one.pod_groups), *one.pods)
    ages = age(one.created_at, look.now) or UNKNOWN, age(one.allocated_at, look.now) or NONE
    said = (
        *((one.namespace,) if look.namespaces else ()),
        *(one.name, one.state, _names(users, look), _names(one.nodes, look)),
        *(_names(devices, look), *((_names(one.device_classes, look),) if look.wide else ())),
    )
    place = 3 if look.namespaces else 2
    cells = (*said[:place], ages[0], *said[place:], *((ages[1],) if look.wide else ()))
    return Row((one.namespace, one.name), cells, said)


def _free(document: FreeDevices, look: Look) -> Sheet:
    headers = (
        *("CLASS", "FREE", "MATCHING", "NODES", "LARGEST", "PRODUCTS"),
        *(("PARTLY", "CLOSED", "EXTENDED-RESOURCE") if look.wide else ()),
    )
    rows = tuple(_plain_row((one.device_class,), _class(one, look)) for one in document.classes)
    notes = tuple(note for one in document.classes for note in _class_notes(one))
    return Sheet(headers, rows, notes, "there is no DeviceClass: no claim can ask for devices")


def _class(one: FreeOfClass, look: Look) -> tuple[str, ...]:
    nodes = _names(one.nodes, look) if look.wide else str(len(one.nodes))
    products = [f"{two.product or UNKNOWN} x{two.together}" for two in one.products]
    found = (
        *(str(one.together), ALL if one.all_nodes else nodes, one.largest_memory or NONE),
        *(_names(products, look), str(one.partly_free), str(one.on_closed_nodes)),
    )
    free, *offers, partly, closed = found if one.is_complete else (UNKNOWN,) * len(found)
    cells = (one.device_class, free, str(one.matching), *offers)
    return (*cells, partly, closed, one.extended_resource or NONE) if look.wide else cells


def _class_notes(one: FreeOfClass) -> Iterator[str]:
    if one.on_closed_nodes and one.is_complete:
        are = "device is" if one.on_closed_nodes == 1 else "devices are"
        yield f"class {one.device_class}: {one.on_closed_nodes} more {are} free, on nodes that are cordoned or not ready"
    if one.together < one.free and one.is_complete:
        yield (
            f"class {one.device_class}: each of {one.free} devices is free, but some are parts of the same hardware: "
            f"claims can have {one.together} of them at the same time"
        )
    if one.problem:
        yield f"class {one.device_class}: {one.problem}"


def _usage(document: DeviceUsage, look: Look) -> Sheet:
    headers = (
        *(document.by.upper(), "CLAIMS", "DEVICES", "SHARES", "GIB", "DEVICE-HOURS"),
        *(("UNPUBLISHED",) if look.wide else ()),
    )
    total = (document.total,) if len(document.rows) > 1 else ()
    rows = [_used((one.name,), one, look) for one in document.rows]
    rows += [_used(("", "total"), one, look) for one in total]
    return Sheet(headers, tuple(rows), tuple(_usage_notes(document.total)), "no claim has devices")


def _used(key: tuple[str, ...], one: UsageRow, look: Look) -> Row:
    said = (
        *(one.name or UNKNOWN, str(one.claims), str(one.devices), str(one.shares)),
        f"{one.memory_bytes / _GIB:.1f}",
    )
    more = (str(one.not_published),) if look.wide else ()
    return Row(key, (*said, f"{one.device_hours:.1f}", *more), (*said, *more))


def _usage_notes(total: UsageRow) -> Iterator[str]:
    if total.since_creation:
        yield "the server does not give the time of each allocation: device-hours count from the creation of the claim there"
    if total.not_published:
        yield f"{total.not_published} of the devices in use are in no slice now, so their memory is not counted"


def _plain_row(key: tuple[str, ...], cells: tuple[str, ...]) -> Row:
    return Row(key, cells, cells)


def _names(names: Sequence[str], look: Look, *, shown: int = _SHOWN) -> str:
    """Return the names with commas between; only the first ones unless the look is wide."""
    if not names:
        return NONE
    if look.wide or look.uncut or len(names) <= shown:
        return ",".join(names)
    return f"{','.join(names[:shown])},{CUT} ({len(names)})"
