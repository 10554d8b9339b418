# SPDX-License-Identifier: Apache-2.0
"""Which version of resource.k8s.io does the driver use in this cluster?

The discovery document of the group lists the served versions. The driver uses the newest one that it knows. A cluster without
the group answers 404.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from dra_driver.kube.base import NotServed
from dra_driver.kube.wire import objects
from dra_driver.kube.wire.objects import Loaded
from dra_driver.model.api.resource_claim import GROUP
from dra_driver.model.api.resource_slice import ResourceSliceSpec

DISCOVERY_PATH = f"/apis/{GROUP}"


class Wire(Struct, frozen=True):
    """One version of resource.k8s.io: its path, and how its objects are read and written."""

    version: str

    @property
    def path(self) -> str:
        return f"{DISCOVERY_PATH}/{self.version}"

    def load(self, kind: type[Loaded], item: object) -> Loaded:
        """An object of this version as an object of v1. Raises Unreadable."""
        return objects.load(kind, item, version=self.version)

    def write_slice(
        self, metadata: Mapping[str, Any], spec: ResourceSliceSpec
    ) -> Mapping[str, Any]:
        """A whole ResourceSlice of this version."""
        return objects.write_slice(metadata, spec, version=self.version)


WITHOUT_CLAIMS = (
    "pods of such a cluster get devices by the extended resources in their containers' limits and not by claims "
    "(docs/older-clusters.md)"
)
HOW_TO_SERVE = (
    "on Kubernetes 1.34 and later it is on by default, on 1.32 and 1.33 enable the feature gate DynamicResourceAllocation and start "
    f"the API server with --runtime-config={GROUP}/v1beta1=true"
)
WIRES: tuple[Wire, ...] = (Wire("v1"), Wire("v1beta2"), Wire("v1beta1"))
"""The versions that the driver knows, newest first."""


def choose(group: Mapping[str, Any], server: str) -> Wire:
    """The newest version that the driver knows and the APIGroup document lists. Raises NotServed."""
    served = versions_of(group)
    for wire in WIRES:
        if wire.version in served:
            return wire
    raise not_served(server, it_serves(served))


def it_serves(versions: Sequence[str]) -> str:
    """The served versions as a part of a sentence."""
    return f"it serves {', '.join(versions) or 'no version'}"


def versions_of(group: Mapping[str, Any]) -> tuple[str, ...]:
    """The versions that an APIGroup document lists."""
    entries = group.get("versions")
    if not isinstance(entries, list):
        return ()
    return tuple(str(entry.get("version")) for entry in entries if isinstance(entry, Mapping))


def not_served(server: str, found: str) -> NotServed:
    """The error for a cluster without dynamic resource allocation."""
    spoken = ", ".join(wire.version for wire in WIRES)
    return NotServed(
        f"{server} does not serve {GROUP} in a version that this driver speaks ({spoken}): {found}; {HOW_TO_SERVE}; "
        f"{WITHOUT_CLAIMS}"
    )
