# SPDX-License-Identifier: Apache-2.0
"""How do the equal parts of many objects take memory only once?

Of 100,000 devices most have the model, the driver's version and the capacities of others, and most claims ask for what others ask for. After
JSON was decoded each of these parts is an object of its own. Parts are values that nobody changes, so one of each is enough.
"""

from collections.abc import Hashable
from typing import Any, TypeVar

import msgspec

from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice

Part = TypeVar("Part")
_MOST_KEPT = 10_000
"""More different values than this are names of single devices, such as UUIDs: to keep them would take more than it gives."""


class _Known:
    def __init__(self) -> None:
        self._parts: dict[Hashable, Any] = {}

    def one(self, key: Hashable, part: Part) -> Part:
        """Return the part that came first with this key; the key says all that the part has."""
        known = self._parts
        found: Part = (known.setdefault if len(known) < _MOST_KEPT else known.get)(key, part)
        return found

    def equal(self, part: Part) -> Part:
        """Return the part that came first and says the same. A part with an integer of more than 64 bits, which is no key, stays its own."""
        try:
            return self.one(msgspec.msgpack.encode(part), part)
        except OverflowError:
            return part


class SharedParts:
    """Lets equal attributes, capacities and specs of objects be the same object. Only for objects that were just decoded: nobody else has them yet."""

    def __init__(self) -> None:
        self._attributes, self._capacities, self._specs = _Known(), _Known(), _Known()

    def of_slice(self, one: ResourceSlice) -> ResourceSlice:
        """Return the slice, with the parts that came first."""
        for device in one.spec.devices or ():
            known = device.attributes or {}
            for name, attribute in known.items():
                try:
                    known[name] = self._attributes.one(attribute, attribute)
                except TypeError:  # an attribute with a list has no hash; few devices have one
                    continue
            if device.capacity:
                _set(device, "capacity", self._capacities.equal(device.capacity))
        return one

    def of_claim(self, claim: ResourceClaim) -> ResourceClaim:
        """Return the claim, with the spec that came first."""
        _set(claim, "spec", self._specs.equal(claim.spec))
        return claim


def _set(value: msgspec.Struct, name: str, part: object) -> None:
    msgspec.structs.force_setattr(value, name, part)
