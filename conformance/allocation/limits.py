# SPDX-License-Identifier: Apache-2.0
"""Allocation problems below, at and above each limit.

Some limits are the allocator's own (32 devices for a claim); the others are those of the API's validation, which no object
in a cluster can pass: the allocator must live with objects at them, and one more is no reason to stumble.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from conformance.allocation.build import (
    DRIVER,
    NODE,
    cel,
    claim,
    every,
    exactly,
    first_of,
    problem,
    some,
)
from conformance.allocation.features import SUPPORTED

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limit:
    """What is counted, where its limit is, and how to make a problem with so many."""

    what: str
    at: int
    make: Callable[[int], Json]
    implementations: tuple[str, ...] = tuple(SUPPORTED)


def _sum_of_requests(count: int) -> Json:
    return problem(some(40), claim(exactly("a", 16), exactly("b", count - 16)))


def _exact_and_all(count: int) -> Json:
    narrow = cel('device.attributes["gpu.example.com"].?all.orValue(false)')
    offer = some(count - 4, attributes={"all": {"bool": True}}) + [
        {"name": f"x-{at}"} for at in range(4)
    ]
    return problem(
        offer,
        claim(exactly("four", 4, selectors=[_not(narrow)]), every("rest", selectors=[narrow])),
    )


def _not(selector: Json) -> Json:
    return cel(f"!({selector['cel']['expression']})")


def _later_alternative(count: int) -> Json:
    """The first alternative passes the limit together with what was chosen before it, the second does not."""
    asked = claim(first_of("a", 30, 1), first_of("b", count - 30, 1))
    return problem(some(64), asked, features=["DRAPrioritizedList"])


def _smallest_alternatives(count: int) -> Json:
    asked = claim(exactly("a", 30), first_of("b", count - 30, 40))
    return problem(some(64), asked, features=["DRAPrioritizedList"])


def _two_claims(count: int) -> Json:
    """The limit is one of each claim, not of all."""
    return problem(some(70), claim(exactly("a", count)), claim(exactly("a", count), name="other"))


def _alternatives(count: int) -> Json:
    only = cel('device.attributes["gpu.example.com"].?name.orValue("") == "none"')
    asked = first_of("a", *[1] * count)
    for one in asked["firstAvailable"][:-1]:
        one["selectors"] = [only]
    return problem(some(2), claim(asked), features=["DRAPrioritizedList"])


def _long_expression(length: int) -> Json:
    return problem(some(1), claim(exactly("a", selectors=[cel("true".rjust(length))])))


def _taints(count: int) -> Json:
    taints = [{"key": f"k{at}", "value": "v", "effect": "NoSchedule"} for at in range(count)]
    tolerated = [{"key": f"k{at}", "operator": "Exists"} for at in range(count)]
    return problem(
        some(2, taints=taints),
        claim(exactly("a", tolerations=tolerated)),
        features=["DRADeviceTaints"],
    )


def _counters(count: int) -> Json:
    """So many devices can be had at once of one counter."""
    uses = [{"counterSet": "set", "counters": {"slots": {"value": "1"}}}]
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 2}
    own = {"driver": DRIVER, "pool": pool, "nodeName": NODE}
    sets = [{"name": "set", "counters": {"slots": {"value": "4"}}}]
    slices = [
        {"metadata": {"name": "a"}, "spec": own | {"devices": some(6, consumesCounters=uses)}},
        {"metadata": {"name": "b"}, "spec": own | {"sharedCounters": sets}},
    ]
    return problem(
        [], claim(exactly("a", count)), slices=slices, features=["DRAPartitionableDevices"]
    )


def _shares(count: int) -> Json:
    """So many shares of one device can be had."""
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    memory = {"value": "8Gi", "requestPolicy": policy}
    device = {"name": "dev", "allowMultipleAllocations": True, "capacity": {"memory": memory}}
    asked = [exactly(f"r{number}") for number in range(count)]
    return problem([device], claim(*asked), features=["DRAConsumableCapacity"])


def _amount(request: str) -> Callable[[int], Json]:
    """A request for an amount, from 8Gi and at most 8Gi."""

    def make(mebibytes: int) -> Json:
        memory = {"value": "16Gi", "requestPolicy": {"default": "1Gi", request: _bounds(request)}}
        device = {"name": "dev", "allowMultipleAllocations": True, "capacity": {"memory": memory}}
        capacity = {"requests": {"memory": f"{mebibytes}Mi"}}
        return problem(
            [device], claim(exactly("a", capacity=capacity)), features=["DRAConsumableCapacity"]
        )

    return make


def _bounds(request: str) -> Any:
    return (
        ["1Gi", "8Gi"] if request == "validValues" else {"min": "1Gi", "max": "8Gi", "step": "1Gi"}
    )


def _whole(mebibytes: int) -> Json:
    """A device that is not shared fits if it is large enough."""
    device = {"name": "dev", "capacity": {"memory": {"value": "8Gi"}}}
    capacity = {"requests": {"memory": f"{mebibytes}Mi"}}
    return problem(
        [device], claim(exactly("a", capacity=capacity)), features=["DRAConsumableCapacity"]
    )


def _largest_integer(beyond: int) -> Json:
    policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    memory = {"value": "20E", "requestPolicy": policy}
    device = {"name": "dev", "allowMultipleAllocations": True, "capacity": {"memory": memory}}
    capacity = {"requests": {"memory": str(beyond)}}
    return problem(
        [device], claim(exactly("a", capacity=capacity)), features=["DRAConsumableCapacity"]
    )


def _constraints(count: int) -> Json:
    parts = [{"matchAttribute": f"{DRIVER}/a{at}"} for at in range(count)]
    attributes = {f"a{at}": {"int": at} for at in range(count)}
    return problem(some(2, attributes=attributes), claim(exactly("a", 2), constraints=parts))


def _requests(count: int) -> Json:
    return problem(some(40), claim(*[exactly(f"r{at}") for at in range(count)]))


def _selectors(count: int) -> Json:
    return problem(some(1), claim(exactly("a", selectors=[cel("true")] * count)))


def _groups(count: int) -> Json:
    """The sets of groups of this many devices have one in common up to three."""
    uses = [
        {
            "counterSet": "set",
            "counters": {"slots": {"value": "1"}},
            "compatibilityGroups": [*groups],
        }
        for groups in ("xa", "xb", "xc", "a")
    ]
    made = _counters(count)
    devices = [{"name": f"dev-{at}", "consumesCounters": [part]} for at, part in enumerate(uses)]
    made["slices"][0]["spec"]["devices"] = devices
    made["features"] = ["DRAPartitionableDevices", "DRADeviceCompatibilityGroups"]
    return made


SHARING = ("incubating", "experimental")
LIMITS = (
    Limit(
        "devices of one request", 32, lambda count: problem(some(40), claim(exactly("a", count)))
    ),
    Limit("devices of several requests", 32, _sum_of_requests),
    Limit("all devices", 32, lambda count: problem(some(count), claim(every("a")))),
    Limit("devices of an exact request and one for all", 32, _exact_and_all),
    Limit("devices of the alternatives that are tried first", 32, _later_alternative),
    Limit("devices of the smallest alternatives", 32, _smallest_alternatives),
    Limit("devices of each of two claims", 32, _two_claims, SHARING),
    Limit("devices that there are", 5, lambda count: problem(some(5), claim(exactly("a", count)))),
    Limit("no devices", 1, lambda count: problem(some(1), claim(exactly("a", count)))),
    Limit(
        "a count of 2^63 - 1", 2**63 - 2, lambda count: problem(some(2), claim(exactly("a", count)))
    ),
    Limit("requests of a claim", 32, _requests),
    Limit("alternatives of a request", 8, _alternatives),
    Limit("selectors of a request", 32, _selectors, ("experimental",)),
    Limit("constraints of a claim", 32, _constraints),
    Limit("length of an expression", 10_240, _long_expression, ("experimental",)),
    Limit("taints and tolerations", 16, _taints),
    Limit(
        "devices of a slice",
        128,
        lambda count: problem(some(count), claim(exactly("a", 32))),
        SHARING,
    ),
    Limit("devices that share counters", 4, _counters),
    Limit("shares of a device", 8, _shares, SHARING),
    Limit("amount in a range, least", 1024, _amount("validRange"), SHARING),
    Limit("amount in a range, most", 8192, _amount("validRange"), SHARING),
    Limit("amount of several, least", 1024, _amount("validValues"), SHARING),
    Limit("amount of several, most", 8192, _amount("validValues"), SHARING),
    Limit("amount of a whole device", 8192, _whole, SHARING),
    Limit("amount as a 64-bit integer", 2**63 - 1, _largest_integer, SHARING),
    Limit("devices with a group in common", 3, _groups, ("experimental",)),
)


def problems() -> Iterator[tuple[Limit, str, Json]]:
    """Each limit's problems for each implementation that can tell, with where they are."""
    for limit in LIMITS:
        for where, number in (("below", -1), ("at", 0), ("above", 1)):
            for implementation in limit.implementations:
                made = limit.make(limit.at + number)
                name = f"limit: {limit.what}: {where} ({limit.at + number}), {implementation}"
                yield limit, where, made | {"name": name, "impl": implementation}
