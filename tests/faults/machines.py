# SPDX-License-Identifier: Apache-2.0
"""The machines of the random walk, and a scheduler for each.

* `equal`: eight GPUs, each for one claim.
* `mixed`: two GPUs with all their partitions, two that are shared, and two that somebody else has to make ready (binding conditions).

What a claim has of a device is one text, the same in all of the walk: "gpu-0", or for a share "gpu-2/SHARE/AMOUNT".
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.allocated_devices import AllocatedDevices
from dra_driver.backends.partitions import MIG_80GB, places
from dra_driver.backends.profiles import PROFILES, Group, Profile, Slot
from dra_driver.backends.simulated import SimulatedOptions
from dra_driver.kube.wire.objects import load
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    DeviceCapacity,
    ResourceSlice,
)
from dra_driver.testing.stage import DRIVER, NODE
from tests.support.boards import H100, L40S
from tests.support.physical import gpu_of, overlap

if TYPE_CHECKING:
    from tests.faults.walk import Walk

READY, FAILED = "walk.example.com/ready", "walk.example.com/failed"
PROFILE = "walk"
KINDS = ("whole", *(kind.name for kind in MIG_80GB.kinds))
AMOUNTS = ("8Gi", "16Gi")
TRIES = 3

_SHARED = {
    "allow_multiple_allocations": True,
    "capacity": {
        "memory": DeviceCapacity(
            value="40Gi",
            request_policy=CapacityRequestPolicy(
                default="8Gi", valid_range=CapacityRequestPolicyRange(min="8Gi", step="8Gi")
            ),
        )
    },
}
_BOUND = {"binding_conditions": [READY], "binding_failure_conditions": [FAILED]}
MIXED = Profile(
    (
        Group(H100, (Slot("1a", "15"), Slot("1b", "15")), MIG_80GB),
        Group(L40S, (Slot("65", "64"), Slot("ca", "c7")), fields=_SHARED),
        Group(L40S, (Slot("e3", "e2"), Slot("17", "14")), fields=_BOUND),
    )
)
"""A machine for the walk only; `offer` adds it to the profiles."""
PARTITIONED, SHARED, BOUND = ("gpu-0", "gpu-1"), ("gpu-2", "gpu-3"), ("gpu-4", "gpu-5")


def offer() -> None:
    """Let the simulated backend of this process know the machine."""
    PROFILES[PROFILE] = MIXED
    (told,) = get_type_hints(SimulatedOptions, include_extras=True)["profile"].__metadata__
    told.extra_json_schema["enum"].append(PROFILE)


def device_of(given: str) -> str:
    """The device of what a claim has."""
    return given.partition("/")[0]


def share_of(given: str) -> str:
    """The share ID of what a claim has; "" for a whole device."""
    return given.split("/")[1] if "/" in given else ""


def clash(one: str, other: str) -> bool:
    """Whether both cannot be in two claims at once."""
    if not overlap(device_of(one), device_of(other)):
        return False
    return not (share_of(one) and share_of(other)) or share_of(one) == share_of(other)


def result(given: str, *, admin: bool) -> dict[str, Any]:
    """The scheduler's result for what a claim has."""
    device, _, share = given.partition("/")
    found: dict[str, Any] = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
    if share:
        share_id, _, amount = share.partition("/")
        found |= {"shareID": share_id, "consumedCapacity": {"memory": amount}}
    if admin:
        found["adminAccess"] = True
    return found


def given_in(result: Mapping[str, Any]) -> str:
    """The other way round: what a claim has by this result."""
    if not result.get("shareID"):
        device: str = result["device"]
        return device
    return f"{result['device']}/{result['shareID']}/{result['consumedCapacity']['memory']}"


@dataclass(frozen=True, slots=True)
class Equal:
    """Eight equal GPUs; the scheduler takes any that no allocated claim has."""

    flags: tuple[str, ...] = ()
    devices: tuple[str, ...] = tuple(f"gpu-{index}" for index in range(8))
    bound: tuple[str, ...] = ()

    def choose(self, walk: Walk, *, admin: bool = False, most: int = 2) -> tuple[str, ...]:
        """What a new claim gets; nothing if it does not fit."""
        wished = list(self.devices) if admin else walk.free_devices()
        count = min(walk.chance.randint(1, most), len(wished))
        return tuple(sorted(walk.chance.sample(wished, count)))


@dataclass(frozen=True, slots=True)
class Mixed:
    """Partitions, shares and binding conditions; the scheduler is the driver's allocator, and reads the slices at the API server."""

    flags: tuple[str, ...] = ("--simulated-profile", PROFILE)
    devices: tuple[str, ...] = (
        *PARTITIONED,
        *(
            f"{gpu}-mig-{kind.name.replace('.', '-')}-{start}"
            for gpu in PARTITIONED
            for kind, start in places(MIG_80GB)
        ),
        *SHARED,
        *BOUND,
    )
    bound: tuple[str, ...] = BOUND

    def choose(self, walk: Walk, *, admin: bool = False, most: int = 2) -> tuple[str, ...]:
        """What a new claim gets; nothing if it does not fit.

        Now and then the scheduler has not seen the newest slices, and gives away what is tainted.
        """
        stale = walk.chance.random() < 0.4
        slices = self._slices(walk, stale=stale)
        claims = [load(ResourceClaim, one) for one in walk.bed.api.objects("resourceclaims")]
        used = AllocatedDevices.of(claims, consumable_capacity=True).state()
        found = Allocator(slices, [_CLASS], used, new_share_id=lambda: _share_id(walk))
        for _ in range(TRIES):
            requests = [
                _request(walk, index, admin=admin) for index in range(walk.chance.randint(1, most))
            ]
            chosen = found.allocate(_NODE, [load(ResourceClaim, _claim(requests))])
            if chosen is None:
                continue
            devices = tuple(sorted(_given(one) for one in chosen[0].devices.results or ()))
            # A scheduler that knows what lingers, or does not.
            if stale or not walk.lingers(devices):
                return devices
        return ()

    def _slices(self, walk: Walk, *, stale: bool) -> list[ResourceSlice]:
        stored = deepcopy(walk.bed.published())
        if stale:
            stored = deepcopy(walk.seen_slices) or stored
            for one in stored:
                for device in one["spec"].get("devices") or ():
                    device.pop("taints", None)
        elif stored:
            walk.seen_slices = deepcopy(stored)
        for one in stored:
            walk.chance.shuffle(one["spec"].get("devices") or [])
        return [load(ResourceSlice, one) for one in stored]


Machine = Equal | Mixed
MACHINES: Mapping[str, Machine] = {"equal": Equal(), "mixed": Mixed()}

_CLASS = load(
    DeviceClass,
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "any"},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
    },
)
_NODE = load(Node, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


def _share_id(walk: Walk) -> str:
    return str(uuid.UUID(int=walk.chance.getrandbits(128), version=4))


def _request(walk: Walk, index: int, *, admin: bool) -> dict[str, Any]:
    kind = walk.chance.choice(("partition", "partition", "partition", "share", "share", "bound"))
    exactly: dict[str, Any] = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    if kind == "partition":
        wanted = walk.chance.choice(KINDS)
        cel = f"device.attributes['{DRIVER}'].?profile.orValue('') == '{wanted}'"
    elif kind == "share":
        cel = "device.allowMultipleAllocations"
        exactly["capacity"] = {"requests": {"memory": walk.chance.choice(AMOUNTS)}}
    else:
        indexes = [int(device.partition("-")[2]) for device in BOUND]
        cel = f"device.attributes['{DRIVER}'].?index.orValue(-1) in {indexes} && !device.allowMultipleAllocations"
    if admin:
        exactly["adminAccess"] = True
    exactly["selectors"] = [{"cel": {"expression": cel}}]
    return {"name": f"r{index}", "exactly": exactly}


def _claim(requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "new", "namespace": "default"},
        "spec": {"devices": {"requests": list(requests)}},
    }


def _given(one: Any) -> str:
    if not one.share_id:
        device: str = one.device
        return device
    return f"{one.device}/{one.share_id}/{one.consumed_capacity['memory']}"


def vanishing(walk: Walk) -> set[str]:
    """Which devices the hardware does not show now: whole GPUs with all their parts, or any ones."""
    machine = walk.machine
    count = walk.chance.choice((0, 0, 1, 2))
    if walk.chance.random() < 0.3:
        return set(walk.chance.sample(machine.devices, count))
    gpus = sorted({gpu_of(device) for device in machine.devices})
    gone = set(walk.chance.sample(gpus, count))
    return {device for device in machine.devices if gpu_of(device) in gone}


def devices_of(given: Iterable[str]) -> set[str]:
    """The devices of what claims have."""
    return {device_of(one) for one in given}
