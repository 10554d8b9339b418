# SPDX-License-Identifier: Apache-2.0
"""What an admin decided about the device plugin API: who shares a device, what resources are called, how containers get devices.

The driver's own config document says it, and a vendor's configuration that an admin brings along may say it in its own words. A
backend turns the latter into these values, so planning knows no vendor. None and empty mean: nobody said it.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from msgspec import Struct, field

from dra_driver.model.ids import ResourceName
from dra_driver.model.plugin import Path, Sharing, Strategy


class MigStrategy(Enum):
    """How the parts of a partitioned GPU are offered. NONE: not at all, a GPU is offered as a whole. SINGLE: under the name of whole GPUs;
    all parts of the node have to be alike. MIXED: each profile under a name of its own.
    """

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class DeviceChoice(Struct, frozen=True):
    """Some devices of a resource: the first `count`, or those that are named.

    A name is a UUID, the index of a device ("0"), or of a device and of a part of it ("0:1").
    """

    count: int = 0
    named: tuple[str, ...] = ()


class SharingRule(Struct, frozen=True):
    """How the devices of one resource are shared. Without `devices` the rule is for all; the others of the resource stay whole.

    `rename` is the resource under which the shares are listed; None: the same. With `refuses_several` a container may have one share only.
    """

    resource: ResourceName
    sharing: Sharing = Sharing.REPLICAS
    replicas: int = 1
    rename: ResourceName | None = None
    refuses_several: bool = False
    devices: DeviceChoice | None = None


class ResourceRule(Struct, frozen=True):
    """The resource of the devices whose product (for `parts`: whose profile) fits the pattern. The first rule that fits counts.

    In a pattern `*` stands for any text, and what is before and after the pattern is free as well: "A100" fits each A100.
    """

    pattern: str
    name: ResourceName
    parts: bool = False

    def fits(self, text: str) -> bool:
        at = 0
        for piece in self.pattern.split("*"):
            found = text.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        return True


class PluginPolicy(Struct, frozen=True):
    """All that was said. `strategies` are allowed ways to a container, the best one first. `packed`: shares fill one device before the next.

    `paths` says for a DeviceClass or a resource, by its name, which API offers its devices.
    """

    mig_strategy: MigStrategy | None = None
    sharing: tuple[SharingRule, ...] = ()
    resources: tuple[ResourceRule, ...] = ()
    strategies: tuple[Strategy, ...] = ()
    packed: bool | None = None
    paths: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}))

    def over(self, other: "PluginPolicy") -> "PluginPolicy":
        """Both together. Where both say something, this one counts; of sharing, for each resource by itself."""
        own = {rule.resource for rule in self.sharing}
        others = tuple(rule for rule in other.sharing if rule.resource not in own)
        return PluginPolicy(
            mig_strategy=self.mig_strategy or other.mig_strategy,
            sharing=self.sharing + others,
            resources=self.resources + other.resources,
            strategies=self.strategies or other.strategies,
            packed=other.packed if self.packed is None else self.packed,
            paths=MappingProxyType({**other.paths, **self.paths}),
        )


class BroughtPolicy(Struct, frozen=True):
    """What a vendor's own configuration says. `problems` are sentences about what does not count, `notes` about what needs nothing."""

    policy: PluginPolicy = field(default_factory=PluginPolicy)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
