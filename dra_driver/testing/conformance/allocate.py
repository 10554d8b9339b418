# SPDX-License-Identifier: Apache-2.0
"""One problem of allocation: claims, slices and a node. The answer has the allocation results, or the error.

In:  {"name", "impl", "features", "classes", "slices", "node", "claims", "allocatedDevices", "allocatedSharedDeviceIDs",
      "allocatedCapacity"}
Out: {"name", "results", "error"}

The name of a device is "driver/pool/device", and of a share "driver/pool/device/share". The name of a pool may contain slashes.
"""

import itertools
import re
from typing import Any, Literal

import msgspec

from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.failures import AllocationError, NodeAllocationError
from dra_driver.allocator.state import AllocatedState, DeviceID, SharedDeviceID
from dra_driver.model.api.core import Node
from dra_driver.model.api.meta import QuantityText
from dra_driver.model.api.resource_claim import DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.testing.conformance.lines import Answer

_SYNTAX_ERROR = re.compile(r"Syntax error: [^\n]*")


class Problem(msgspec.Struct, frozen=True, rename="camel"):
    """One line of the input. If `impl` is empty, the allocator is the one that the scheduler would choose."""

    name: str = ""
    impl: Literal["", "stable", "incubating", "experimental"] = ""
    features: frozenset[str] = frozenset()
    classes: list[DeviceClass] | None = None
    slices: list[ResourceSlice] | None = None
    node: Node = msgspec.field(default_factory=Node)
    claims: list[ResourceClaim] | None = None
    allocated_devices: list[str] | None = None
    allocated_shares: list[str] | None = msgspec.field(
        default=None, name="allocatedSharedDeviceIDs"
    )
    allocated_capacity: dict[str, dict[str, QuantityText]] | None = None

    @property
    def state(self) -> AllocatedState:
        """The devices and shares that are allocated to other claims."""
        return AllocatedState(
            allocated_devices={device_named(name) for name in self.allocated_devices or ()},
            allocated_shared_device_ids={share_named(name) for name in self.allocated_shares or ()},
            aggregated_capacity={
                device_named(name): consumed
                for name, consumed in (self.allocated_capacity or {}).items()
            },
        )


def device_named(name: str) -> DeviceID:
    """Parse "driver/pool/device"."""
    driver, _, rest = name.partition("/")
    pool, slash, device = rest.rpartition("/")
    if not slash:
        raise ValueError(f"{name!r} is not driver/pool/device")
    return DeviceID(driver, pool, device)


def share_named(name: str) -> SharedDeviceID:
    """Parse "driver/pool/device/share"."""
    device, _, share = name.rpartition("/")
    return SharedDeviceID(*device_named(device), share)


def answer(problem: dict[str, Any]) -> Answer:
    """Return the answer to one problem. Its share IDs are numbers, as in `comparable`."""
    asked = msgspec.convert(problem, Problem)
    numbers = itertools.count(1)
    try:
        allocator = Allocator(
            asked.slices or (),
            asked.classes or (),
            asked.state,
            features=asked.features,
            implementation=asked.impl or None,
            new_share_id=lambda: f"share-{next(numbers)}",
        )
        results = allocator.allocate(asked.node, asked.claims or ())
    except (AllocationError, NodeAllocationError) as error:
        return refusal(asked.name, str(error))
    return {"name": asked.name, "results": msgspec.to_builtins(results), "error": ""}


def refusal(name: str, reason: str) -> Answer:
    """Return the answer to a line that is not a valid problem."""
    return {"name": name, "results": None, "error": reason}


def comparable(answer: Answer) -> Answer:
    """Return the answer in the form in which two answers are compared.

    Share IDs are random, so they are replaced by numbers in the order of their appearance. Empty fields are removed. The text after
    "Syntax error:" comes from the generated parser of the API server and is not copied here, so it is removed; the column stays.
    """
    shares: dict[str, str] = {}
    results = answer.get("results")
    return {
        "results": None if results is None else [_tidy(each, shares) for each in results],
        "error": _SYNTAX_ERROR.sub("Syntax error", answer.get("error") or ""),
    }


def _tidy(value: Any, shares: dict[str, str]) -> Any:
    if isinstance(value, dict):
        tidied = {
            name: shares.setdefault(part, f"share {len(shares)}")
            if name == "shareID"
            else _tidy(part, shares)
            for name, part in value.items()
        }
        return {name: part for name, part in tidied.items() if part not in (None, [], {})}
    if isinstance(value, list):
        return [_tidy(part, shares) for part in value]
    return value
