# SPDX-License-Identifier: Apache-2.0
"""Through which API does this node offer its devices?

An admin can say so for the node, or for a class or a resource. Otherwise three facts decide: does the API server serve
resource.k8s.io, has the kubelet called the registration of the DRA plugin, and which release is the kubelet. DRA is chosen where all
of it works. What is not known yet stays open: an API server that does not answer is not one without DRA, and if the driver offered the devices
through the wrong API, the next pods would come through it, and the node would have to be drained again.

The choice is made anew from the facts whenever they change.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field

from dra_driver.model.ids import ResourceName
from dra_driver.model.plugin import Path

FIRST_RELEASE = (1, 32)
"""The first kubelet that asks a driver of resource.k8s.io/v1beta1 or later."""
LONGEST_WAIT_SECONDS = 30.0
"""A kubelet looks for new plugins all the time, and calls within a second or two."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\D.*)?", re.DOTALL)


class PathFacts(Struct, frozen=True):
    """What is known of the cluster and of the kubelet.

    `served`: whether the API server serves resource.k8s.io in a version that the driver reads; None: it has not said. `registered`:
    True after the kubelet has called the registration, False if it has told that it refuses the plugin; None: it has not called.
    `kubelet_version` is "" if it is not known. `registration_waited_seconds` is the time for which the socket of the registration is there.
    """

    served: bool | None = None
    registered: bool | None = None
    kubelet_version: str = ""
    registration_waited_seconds: float = 0.0


class PathChoice(Struct, frozen=True):
    """The API, or None if it is not known yet, and the reason in words."""

    path: Path | None
    reason: str


class Wishes(Struct, frozen=True):
    """What the admin said: for the node, and for resources and DeviceClasses by their names. None: the facts decide."""

    node: Path | None = None
    named: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, resource: ResourceName, device_class: str) -> Path | None:
        """The wish for a resource: by its name, else by its class, else that for the node."""
        return self.named.get(resource) or self.named.get(device_class) or self.node


def choose_path(facts: PathFacts, wish: Path | None) -> PathChoice:
    """Return through which API devices are offered. `wish` is what the admin said; None: the facts decide."""
    if wish is not None:
        return PathChoice(wish, f"the configuration says {wish.value}")
    if _is_old(facts.kubelet_version):
        first = ".".join(map(str, FIRST_RELEASE))
        reason = f"kubelet {facts.kubelet_version} has no DRA that this driver speaks; {first} has"
        return PathChoice(Path.DEVICE_PLUGIN, reason)
    if facts.served is None:
        return PathChoice(None, "the API server has not said whether it serves resource.k8s.io")
    if not facts.served:
        return PathChoice(Path.DEVICE_PLUGIN, "the API server does not serve resource.k8s.io")
    if facts.registered:
        reason = "the API server serves resource.k8s.io, and the kubelet has registered the driver"
        return PathChoice(Path.DRA, reason)
    return _unregistered(facts)


def _unregistered(facts: PathFacts) -> PathChoice:
    waited = facts.registration_waited_seconds
    said = (
        "has not called the driver's registration"
        if facts.registered is None
        else "refuses the driver's registration, see its log"
    )
    if waited < LONGEST_WAIT_SECONDS:
        return PathChoice(
            None, f"the kubelet {said}; the driver waits {LONGEST_WAIT_SECONDS:.0f} s"
        )
    reason = (
        f"the API server serves resource.k8s.io, and the kubelet {said} for {waited:.0f} s; its gate may be off: set "
        f"DynamicResourceAllocation in the kubelet, or path: device-plugin in the driver"
    )
    return PathChoice(Path.DEVICE_PLUGIN, reason)


def _is_old(version: str) -> bool:
    """Whether this kubelet is known to be too old. A version that nobody can read is not."""
    found = minor_version(version)
    return found is not None and found < FIRST_RELEASE


def minor_version(version: str) -> tuple[int, int] | None:
    """Return the major and the minor number of a Kubernetes version; None if the text is none."""
    found = _VERSION.fullmatch(version)
    return None if found is None else (int(found[1]), int(found[2]))
