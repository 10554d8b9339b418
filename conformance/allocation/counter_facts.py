# SPDX-License-Identifier: Apache-2.0
"""What is known of upstream's allocator: shared counters of partitions, and their compatibility groups."""

from collections.abc import Iterator
from typing import Any

from conformance.allocation.build import (
    ADMIN,
    DRIVER,
    EAST,
    IN_WEST,
    LIST,
    NODE,
    WEST,
    claim,
    every,
    exactly,
    first_of,
    place,
    problem,
    some,
    uses,
)

Json = dict[str, Any]

PARTS = ["DRAPartitionableDevices"]
GROUPS = [*PARTS, "DRADeviceCompatibilityGroups"]
HELD_SHARE = "11111111-1111-1111-1111-111111111111"


def sets(value: str, name: str = "set", **more: Any) -> Json:
    """A slice of counters."""
    return place(
        f"counters-{name}",
        [],
        resourceSliceCount=2,
        sharedCounters=[
            {"name": name, "counters": {"slots": {"value": value}, "idle": {"value": "1"}}}
        ],
        **more,
    )


def parts(*values: str, available: str = "4", **more: Any) -> list[Json]:
    """Slices with devices that take so much, and what there is."""
    devices = [
        {"name": f"dev-{at}", "consumesCounters": uses(value)} for at, value in enumerate(values)
    ]
    return [place("devices", devices, resourceSliceCount=2, **more), sets(available)]


def counters() -> Iterator[tuple[str, Json]]:
    """Devices that take from common counters."""
    two = claim(exactly("a", 2))
    yield "parts that fit", problem([], two, slices=parts("2", "2"), features=PARTS)
    yield "parts with the feature off", problem([], two, slices=parts("2", "2"))
    yield "a large part first", problem([], two, slices=parts("4", "2", "2"), features=PARTS)
    yield "parts that do not fit", problem([], two, slices=parts("3", "3"), features=PARTS)
    yield "parts in other units", problem([], two, slices=parts("2000m", "2"), features=PARTS)
    yield (
        "a held part counts",
        problem(
            [],
            claim(exactly("a")),
            slices=parts("3", "2", "1"),
            features=PARTS,
            allocatedDevices=[f"{DRIVER}/pool/dev-0"],
        ),
    )
    yield "held parts beyond what there is", problem(
        [], claim(exactly("a")), slices=parts("3", "3", "0"), features=PARTS,
        allocatedDevices=[f"{DRIVER}/pool/dev-0", f"{DRIVER}/pool/dev-1"],
    )  # fmt: skip
    yield from _beyond()
    yield (
        "all parts at once",
        problem([], claim(every("a")), slices=parts("2", "3"), features=PARTS),
    )
    yield (
        "parts of two claims",
        problem(
            [],
            claim(exactly("a")),
            claim(exactly("a"), name="other"),
            slices=parts("3", "2", "1"),
            features=PARTS,
        ),
    )
    yield (
        "admin access takes parts too",
        problem(
            [],
            claim(exactly("a", 2, adminAccess=True)),
            slices=parts("3", "3"),
            features=PARTS + ADMIN,
        ),
    )
    yield (
        "alternatives with parts",
        problem(
            [],
            claim(first_of("a", 2, 1), exactly("b")),
            slices=parts("2", "2", "2"),
            features=PARTS + LIST,
        ),
    )
    yield from _unknown_counters()
    yield from _on_nodes()


def _beyond() -> Iterator[tuple[str, Json]]:
    """A counter of which more is held than there is."""
    offer = parts("9", "1")
    offer[0]["spec"]["devices"][1]["consumesCounters"] = uses("1", counter="idle")
    one = claim(exactly("a"))
    held = [f"{DRIVER}/pool/dev-0"]
    yield (
        "a counter beyond its end stops devices that take from others",
        problem([], one, slices=offer, features=PARTS, allocatedDevices=held),
    )
    share = [f"{DRIVER}/pool/dev-0/{HELD_SHARE}"]
    yield (
        "the device that takes too much is held in shares",
        problem([], one, slices=offer, features=PARTS, allocatedSharedDeviceIDs=share),
    )
    grouped = [{"name": "x", "consumesCounters": uses("1", "set", "red")}]
    away = [
        place("a", some(1), resourceSliceCount=2),
        place("b", grouped, resourceSliceCount=2, nodeName="node-2"),
    ]
    yield (
        "groups on another node with the feature off",
        problem([], one, slices=away, features=PARTS),
    )
    both = sets("4")
    both["spec"] |= {"devices": [{"name": "x", "consumesCounters": uses("1", "gone")}]}
    yield (
        "a device beside the counters",
        problem([], one, slices=[both, place("z", some(1), resourceSliceCount=2)], features=PARTS),
    )
    yield "nobody holds what takes too much", problem([], one, slices=offer, features=PARTS)


def _unknown_counters() -> Iterator[tuple[str, Json]]:
    """Pools that say nonsense."""
    for what, consumed in (("set", uses("1", "gone")), ("counter", uses("1", counter="gone"))):
        device = [{"name": "x", "consumesCounters": consumed}]
        offer = [place("s", device, resourceSliceCount=2), sets("4")]
        yield (
            f"a {what} that is not there",
            problem([], claim(exactly("a")), slices=offer, features=PARTS),
        )
        away = [
            place("s", some(1), resourceSliceCount=3),
            place("t", device, resourceSliceCount=3, nodeName="node-2"),
            place(
                "u", [], resourceSliceCount=3, sharedCounters=sets("4")["spec"]["sharedCounters"]
            ),
        ]
        yield (
            f"a {what} that is not there, on another node",
            problem([], claim(exactly("a")), slices=away, features=PARTS),
        )
    twice = [sets("4"), sets("4")]
    twice[1]["metadata"]["name"] = "again"
    yield (
        "the same set twice",
        problem(
            [], claim(exactly("a")), slices=[*twice, place("d", some(1), "p2")], features=PARTS
        ),
    )


def _on_nodes() -> Iterator[tuple[str, Json]]:
    one = claim(exactly("a"))
    wheres: dict[str, Json] = {
        "this node": {"nodeName": NODE},
        "another node": {"nodeName": "node-2"},
        "all nodes": {"allNodes": True},
        "matching": {"nodeSelector": WEST},
        "not matching": {"nodeSelector": EAST},
        "nothing": {},
    }
    for what, where in wheres.items():
        devices = [{"name": "x"} | where]
        for features in (PARTS, []):
            state = "on" if features else "off"
            offer = [place("s", devices, perDeviceNodeSelection=True)]
            yield (
                f"each device for itself: {what}, feature {state}",
                problem([], one, slices=offer, node=IN_WEST, features=features),
            )
        offer = parts("4", "1")
        offer[0]["spec"] |= {
            "nodeName": "node-2",
            "pool": offer[0]["spec"]["pool"] | {"resourceSliceCount": 3},
        }
        offer[1]["spec"]["pool"]["resourceSliceCount"] = 3
        here = [{"name": "here", "consumesCounters": uses("1")}]
        offer.append(place("here", here, resourceSliceCount=3))
        for selection in ("nodeName", "allNodes"):
            offer[1]["spec"].pop(selection, None)
        offer[1]["spec"] |= where or {"allNodes": True}
        yield (
            f"counters for {what} while a part on another node is held",
            problem(
                [],
                one,
                slices=offer,
                node=IN_WEST,
                features=PARTS,
                allocatedDevices=[f"{DRIVER}/pool/dev-0"],
            ),
        )


def groups() -> Iterator[tuple[str, Json]]:
    """Parts that do not go together with every other part."""
    two = claim(exactly("a", 2))
    for what, members in {
        "one group": ("r", "r"),
        "two groups": ("r", "b"),
        "none": ("", ""),
        "one and none": ("r", ""),
        "none and one": ("", "r"),
        "overlapping": ("rb", "b"),
        "a third one": ("rb", "bg", "g"),
        "the first one leads nowhere": ("r", "b", "b"),
    }.items():
        offer = parts(*["1"] * len(members))
        for device, member in zip(offer[0]["spec"]["devices"], members, strict=True):
            device["consumesCounters"] = uses("1", "set", *member)
        count = claim(exactly("a", 3)) if what == "a third one" else two
        for features in (GROUPS, PARTS):
            state = "on" if features is GROUPS else "off"
            yield f"groups: {what}, {state}", problem([], count, slices=offer, features=features)
        yield (
            f"groups: {what}, the first is held",
            problem(
                [],
                claim(exactly("a")),
                slices=offer,
                features=GROUPS,
                allocatedDevices=[f"{DRIVER}/pool/dev-0"],
            ),
        )
        yield (
            f"groups: {what}, of two claims",
            problem(
                [],
                claim(exactly("a")),
                claim(exactly("a"), name="other"),
                slices=offer,
                features=GROUPS,
            ),
        )
