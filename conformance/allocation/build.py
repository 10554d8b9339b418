# SPDX-License-Identifier: Apache-2.0
"""Words to write small allocation problems with."""

from typing import Any

Json = dict[str, Any]

DRIVER = "gpu.example.com"
NODE = "node-1"
OTHER_DRIVER = "nic.example.org"
LIST = ["DRAPrioritizedList"]
ADMIN = ["DRAAdminAccess"]
CONFIG = {"opaque": {"driver": DRIVER, "parameters": {"mode": "fast"}}}
EAST = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["east"]}]}
    ]
}
WEST = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["west"]}]}
    ]
}
RANK = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["1"]}]}
    ]
}
IN_WEST = {"metadata": {"name": NODE, "labels": {"zone": "west", "rank": "7"}}}


def problem(devices: list[Json], *claims: Json, **more: Any) -> Json:
    """One slice of devices on the node, and claims; `more` replaces any part."""
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": NODE, "devices": devices}
    made: Json = {
        "name": "",
        "impl": "experimental",
        "features": [],
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "slices": [{"metadata": {"name": "slice"}, "spec": spec}],
        "node": {"metadata": {"name": NODE}},
        "claims": list(claims),
        "allocatedDevices": [],
        "allocatedSharedDeviceIDs": [],
        "allocatedCapacity": {},
    }
    return made | more


def claim(*requests: Json, name: str = "claim", **more: Any) -> Json:
    """A claim; `more` are constraints and config."""
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "spec": {"devices": {"requests": list(requests), **more}}}


def exactly(name: str, count: int = 1, **more: Any) -> Json:
    """A request for so many devices."""
    return {"name": name, "exactly": _asked(count) | more}


def every(name: str, **more: Any) -> Json:
    """A request for all devices."""
    return {"name": name, "exactly": {"deviceClassName": "any", "allocationMode": "All"} | more}


def first_of(name: str, *counts: int) -> Json:
    """A request with alternatives of so many devices each."""
    alternatives = [{"name": f"s{at}", **_asked(count)} for at, count in enumerate(counts)]
    return {"name": name, "firstAvailable": alternatives}


def asked(count: int = 1) -> Json:
    """What is asked for, of any class."""
    return _asked(count)


def _asked(count: int) -> Json:
    return {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}


def some(count: int, **more: Any) -> list[Json]:
    """Devices that are alike."""
    return [{"name": f"dev-{number:03}", **more} for number in range(count)]


def cel(expression: str) -> Json:
    """A selector."""
    return {"cel": {"expression": expression}}


def uses(value: str, counter_set: str = "set", *groups: str, counter: str = "slots") -> list[Json]:
    """What a device takes."""
    part: Json = {"counterSet": counter_set, "counters": {counter: {"value": value}}}
    return [part | ({"compatibilityGroups": [*groups]} if groups else {})]


def shared(name: str = "dev", value: str = "8Gi", policy: Json | None = None, **more: Any) -> Json:
    """A device that is given in shares."""
    memory: Json = {"value": value} | ({"requestPolicy": policy} if policy else {})
    return {"name": name, "allowMultipleAllocations": True, "capacity": {"memory": memory}} | more


def amount(name: str, quantity: str, count: int = 1, **more: Any) -> Json:
    """A request for so much memory."""
    return exactly(name, count, capacity={"requests": {"memory": quantity}}, **more)


def place(name: str, devices: list[Json], pool: str = "pool", **more: Any) -> Json:
    """A slice on the node, unless `more` says where; also its driver and what the pool says."""
    about = {"name": pool, "generation": 1, "resourceSliceCount": 1}
    for part in ("generation", "resourceSliceCount"):
        about[part] = more.pop(part, about[part])
    where = (
        {}
        if {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"} & set(more)
        else {"nodeName": NODE}
    )
    spec = {"driver": DRIVER, "pool": about, "devices": devices} | where | more
    return {"metadata": {"name": name}, "spec": spec}


def size(*names: str) -> list[Json]:
    """Devices that have their size as an attribute, here their name."""
    return [
        {"name": name, "attributes": {"size": {"string": name.split("-")[0]}}} for name in names
    ]


def sized(name: str) -> list[Json]:
    """Selectors of a size."""
    return [cel(f'device.attributes["{DRIVER}"].size == "{name}"')]


def with_value(*values: Json) -> list[Json]:
    """Devices with these values of an attribute; {} has none."""
    return [
        {"name": f"dev-{at}", "attributes": {"kind": value} if value else {}}
        for at, value in enumerate(values)
    ]
