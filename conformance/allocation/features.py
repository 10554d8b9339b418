# SPDX-License-Identifier: Apache-2.0
"""Which features of device allocation does a problem use? Read from the problem, not from what its maker intended.

A feature counts only where its gate is on, so that the table of pairs says what was exercised and not what was refused.
Names are short because they head the columns of that table.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]

BINDING = "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus"
GATES = (
    "DRAAdminAccess",
    "DRADeviceCompatibilityGroups",
    "DRAConsumableCapacity",
    "DRADerivedAttributes",
    "DRADeviceTaints",
    "DRAFractionalCapacityRange",
    "DRAListTypeAttributes",
    "DRAOptionalNodeOperations",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
    BINDING,
)
STABLE = {"DRAAdminAccess", "DRAPrioritizedList", "DRAPartitionableDevices", "DRADeviceTaints"}
INCUBATING = STABLE | {BINDING, "DRAConsumableCapacity", "DRAFractionalCapacityRange"}
SUPPORTED = {"stable": STABLE, "incubating": INCUBATING, "experimental": set(GATES)}

# The gate that a feature stands behind; a feature that is not here needs none.
GATE_OF = {
    "first available": "DRAPrioritizedList",
    "admin access": "DRAAdminAccess",
    "counters": "DRAPartitionableDevices",
    "per-device nodes": "DRAPartitionableDevices",
    "groups": "DRADeviceCompatibilityGroups",
    "taints": "DRADeviceTaints",
    "tolerations": "DRADeviceTaints",
    "binding conditions": BINDING,
    "binds to node": BINDING,
    "shared devices": "DRAConsumableCapacity",
    "capacity request": "DRAConsumableCapacity",
    "range policy": "DRAConsumableCapacity",
    "values policy": "DRAConsumableCapacity",
    "default policy": "DRAConsumableCapacity",
    "shares in use": "DRAConsumableCapacity",
    "capacity in use": "DRAConsumableCapacity",
    "fractional range": "DRAFractionalCapacityRange",
    "list attributes": "DRAListTypeAttributes",
    "skip node operations": "DRAOptionalNodeOperations",
    "derived attributes": "DRADerivedAttributes",
}


def devices(problem: Json) -> Iterator[tuple[Json, Json]]:
    """Every device with its slice."""
    for found in problem["slices"]:
        for device in found["spec"].get("devices") or ():
            yield found, device


def requests(problem: Json) -> Iterator[Json]:
    """What is asked for: the exact requests and all alternatives."""
    for claim in problem["claims"]:
        for request in claim["spec"]["devices"].get("requests") or ():
            if "exactly" in request:
                yield request["exactly"]
            yield from request.get("firstAvailable") or ()


def _claims(problem: Json, part: str) -> list[Json]:
    return [
        entry for claim in problem["claims"] for entry in claim["spec"]["devices"].get(part) or ()
    ]


def _policies(problem: Json) -> list[Json]:
    return [
        capacity["requestPolicy"]
        for _, device in devices(problem)
        for capacity in (device.get("capacity") or {}).values()
        if capacity.get("requestPolicy")
    ]


def _pools(problem: Json) -> dict[tuple[str, str], list[Json]]:
    pools: dict[tuple[str, str], list[Json]] = {}
    for found in problem["slices"]:
        spec = found["spec"]
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    return pools


def _newest(specs: list[Json]) -> list[Json]:
    newest = max(spec["pool"]["generation"] for spec in specs)
    return [spec for spec in specs if spec["pool"]["generation"] == newest]


def _incomplete(specs: list[Json]) -> bool:
    newest = _newest(specs)
    return len(newest) != newest[0]["pool"]["resourceSliceCount"]


def _invalid(specs: list[Json]) -> bool:
    names = [device["name"] for spec in _newest(specs) for device in spec.get("devices") or ()]
    sets = [one["name"] for spec in _newest(specs) for one in spec.get("sharedCounters") or ()]
    consumed = {
        part["counterSet"]
        for spec in _newest(specs)
        for device in spec.get("devices") or ()
        for part in device.get("consumesCounters") or ()
    }
    return len(set(names)) < len(names) or len(set(sets)) < len(sets) or not consumed.issubset(sets)


def _any_device(test: Callable[[Json], object]) -> Callable[[Json], bool]:
    return lambda problem: any(test(device) for _, device in devices(problem))


def _any_slice(test: Callable[[Json], object]) -> Callable[[Json], bool]:
    return lambda problem: any(test(found["spec"]) for found in problem["slices"])


def _any_request(test: Callable[[Json], object]) -> Callable[[Json], bool]:
    return lambda problem: any(test(request) for request in requests(problem))


def _counts(device: Json) -> object:
    return device.get("consumesCounters")


def _grouped(device: Json) -> bool:
    return any(part.get("compatibilityGroups") for part in device.get("consumesCounters") or ())


def _listed(device: Json) -> bool:
    values = (device.get("attributes") or {}).values()
    return any(
        kind in value for value in values for kind in ("ints", "bools", "strings", "versions")
    )


def _fractional(policy: Json) -> bool:
    bounds = (policy.get("validRange") or {}).values()
    return any("." in str(bound) or str(bound).endswith("m") for bound in bounds)


FEATURES: dict[str, Callable[[Json], bool]] = {
    "several claims": lambda problem: len(problem["claims"]) > 1,
    "several requests": lambda problem: any(
        len(claim["spec"]["devices"].get("requests") or ()) > 1 for claim in problem["claims"]
    ),
    "count above one": _any_request(lambda request: request.get("count", 0) > 1),
    "all": _any_request(lambda request: request.get("allocationMode") == "All"),
    "first available": lambda problem: any(
        request.get("firstAvailable") for request in _claims(problem, "requests")
    ),
    "request selector": _any_request(lambda request: request.get("selectors")),
    "match": lambda problem: any(
        one.get("matchAttribute") for one in _claims(problem, "constraints")
    ),
    "distinct": lambda problem: any(
        one.get("distinctAttribute") for one in _claims(problem, "constraints")
    ),
    "constraint on some": lambda problem: any(
        one.get("requests") for one in _claims(problem, "constraints")
    ),
    "class config": lambda problem: any(one["spec"].get("config") for one in problem["classes"]),
    "claim config": lambda problem: bool(_claims(problem, "config")),
    "admin access": _any_request(lambda request: request.get("adminAccess")),
    "tolerations": _any_request(lambda request: request.get("tolerations")),
    "capacity request": _any_request(lambda request: request.get("capacity")),
    "derived attributes": _any_request(lambda request: request.get("derivedAttributes")),
    "taints": _any_device(lambda device: device.get("taints")),
    "counters": _any_device(_counts),
    "groups": _any_device(_grouped),
    "list attributes": _any_device(_listed),
    "shared devices": _any_device(lambda device: device.get("allowMultipleAllocations")),
    "range policy": lambda problem: any("validRange" in one for one in _policies(problem)),
    "values policy": lambda problem: any("validValues" in one for one in _policies(problem)),
    "default policy": lambda problem: any("default" in one for one in _policies(problem)),
    "fractional range": lambda problem: any(_fractional(one) for one in _policies(problem)),
    "binding conditions": _any_device(lambda device: device.get("bindingConditions")),
    "binds to node": _any_device(lambda device: device.get("bindsToNode")),
    "per-device nodes": _any_slice(lambda spec: spec.get("perDeviceNodeSelection")),
    "node selector": _any_slice(lambda spec: spec.get("nodeSelector")),
    "all nodes": _any_slice(lambda spec: spec.get("allNodes")),
    "other nodes": lambda problem: any(
        found["spec"].get("nodeName", problem["node"]["metadata"]["name"])
        != problem["node"]["metadata"]["name"]
        for found in problem["slices"]
    ),
    "skip node operations": _any_slice(lambda spec: spec.get("skipNodeOperations")),
    "several slices": lambda problem: any(
        len(_newest(specs)) > 1 for specs in _pools(problem).values()
    ),
    "several pools": lambda problem: len(_pools(problem)) > 1,
    "several drivers": lambda problem: len({driver for driver, _ in _pools(problem)}) > 1,
    "old generation": lambda problem: any(
        len(_newest(specs)) < len(specs) for specs in _pools(problem).values()
    ),
    "incomplete pool": lambda problem: any(
        _incomplete(specs) for specs in _pools(problem).values()
    ),
    "invalid pool": lambda problem: any(_invalid(specs) for specs in _pools(problem).values()),
    "allocated devices": lambda problem: bool(problem["allocatedDevices"]),
    "shares in use": lambda problem: bool(problem["allocatedSharedDeviceIDs"]),
    "capacity in use": lambda problem: bool(problem["allocatedCapacity"]),
}
PAIRS = tuple(itertools.combinations(FEATURES, 2))


def features_of(problem: Json) -> frozenset[str]:
    """The features that the problem uses with their gates on."""
    on = set(problem["features"])
    return frozenset(
        name
        for name, uses in FEATURES.items()
        if GATE_OF.get(name, "") in {"", *on} and uses(problem)
    )
