# SPDX-License-Identifier: Apache-2.0
"""Why can a request get no devices at all?"""

from dra_driver.explain.names import condition, first_names, values_found
from dra_driver.explain.verdicts.base import Case
from dra_driver.model.admin_access import ADMIN_ACCESS_LABEL

TOO_FEW = "the devices that would do are too few for all of them, or share counters or capacity"
SHARED = "each of the devices can be had alone, but they share counters or capacity"
ONLY_ONCE = "one request gets a device that can be shared only once: write a request for each share"
APART = "one request gets a device that can be shared only once, and distinctAttribute wants another device for each share"
"""These are details of a ConstraintConflict in which no constraint has a part."""
NONE_MATCHES = "all matching devices are asked for, and none matches"
ALL_AT_ONCE = "all matching devices of a node are asked for, and they cannot be had at once"


class SelectorNeverMatches(Case, frozen=True):
    """The condition `part` is false for every device of the cluster, in use or not; with `nodes`, for every device of these nodes.

    With `others`: some devices meet `part`, but no device meets `part` and all of `others`. With `drivers`: only devices of these
    drivers were checked, because the selectors ask for them; there are devices of other drivers too.
    """

    source: str
    index: int
    part: str
    found: str
    hint: str = ""
    others: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        who = f"no device of {', '.join(self.drivers)}" if self.drivers else "no device"
        if self.nodes:
            who += f" on {'node' if len(self.nodes) == 1 else 'nodes'} {first_names(self.nodes)}"
        what = f"{who} {'matches' if self.nodes else 'can ever match'} {condition(self.part)}"
        if self.others:
            parts = [condition(one) for one in (self.part, *self.others)]
            what = f"{who} meets all of {first_names(parts, 'conditions')}"
        return f"{what}: {values_found(self.found)}" + (f" ({self.hint})" if self.hint else "")


class CompileError(Case, frozen=True):
    """A selector cannot be compiled."""

    source: str
    index: int
    message: str
    hint: str = ""

    def __str__(self) -> str:
        first = values_found(self.message.partition("\n")[0])
        return f"{self.source} selector #{self.index} does not compile: {first}" + (
            f" ({self.hint})" if self.hint else ""
        )


class ConstraintConflict(Case, frozen=True):
    """Each request fits alone, but not all together; `parts` is a smallest set of requests and constraints that does not fit."""

    parts: tuple[str, ...]
    detail: str = ""

    def __str__(self) -> str:
        return f"cannot be had together: {'; '.join(self.parts)}" + (
            f" ({self.detail})" if self.detail else ""
        )


class ClassMissing(Case, frozen=True):
    """The DeviceClass does not exist.

    With `resource`: that extended resource names the class; without a class, no DeviceClass provides it, and no device plugin offers it.
    """

    device_class: str
    hint: str = ""
    resource: str = ""

    def __str__(self) -> str:
        if self.resource and not self.device_class:
            return (
                f"no device class has extendedResourceName {self.resource}, and no device plugin offers it on any node"
                + (f" ({self.hint})" if self.hint else "")
            )
        if not self.device_class:
            return "the request names no device class"
        return f"device class {self.device_class} does not exist" + (
            f" ({self.hint})" if self.hint else ""
        )


class AdminAccessNotAllowed(Case, frozen=True):
    """The claim asks for admin access, and its namespace does not have the label for it, which has another name in 1.33."""

    namespace: str
    label: str = ADMIN_ACCESS_LABEL

    def __str__(self) -> str:
        return (
            f"namespace {self.namespace} has no label {self.label}=true, so admin access is refused"
        )


class TooManyDevices(Case, frozen=True):
    """The claim asks for more than `limit` devices, the most that one claim can have."""

    needed: int
    limit: int = 32

    def __str__(self) -> str:
        return f"{self.needed} devices are asked for, a claim holds at most {self.limit}"


class AllUnsatisfied(Case, frozen=True):
    """The request asks for all matching devices of a node, and none matches or one of them is not available."""

    detail: str

    def __str__(self) -> str:
        return self.detail


class NotEnoughDevices(Case, frozen=True):
    """No single node has as many devices as the request asks for.

    `empty`: the verdict is about a node that can use no device at all. `matching`: the node with the most has so many that match, in use
    or not, and these are too few, too; 0 if that is not so, not known, or if as many can be had.
    """

    needed: int
    available: int
    empty: bool = False
    matching: int = 0

    def __str__(self) -> str:
        if self.empty:
            return "no driver publishes a device for this node"
        needed = "1 device is" if self.needed == 1 else f"{self.needed} devices are"
        told = f"{needed} needed on one node, {self.available or 'none'} can be had"
        match = "matches" if self.matching == 1 else "match"
        most = f"the node with the most has {self.matching} that {match}"
        return f"{told}; {most}" if self.matching else told


class DriverPublishesNothing(Case, frozen=True):
    """The selector asks for a driver that has no ResourceSlice."""

    driver: str
    hint: str = ""

    def __str__(self) -> str:
        return f"driver {self.driver} publishes no ResourceSlice" + (
            f" ({self.hint})" if self.hint else ""
        )


class NoDevices(Case, frozen=True):
    """There is no device in the whole cluster."""

    def __str__(self) -> str:
        return "no driver publishes any device in this cluster"
