# SPDX-License-Identifier: Apache-2.0
"""Through which API are the devices of a node offered: by claims, or by the device plugin API?

DRA works on a node if the API server serves resource.k8s.io in a version that the driver speaks, and if the node's kubelet has called the driver's
registration: a kubelet whose gate is off does not. Everywhere else the device plugin API is served. What is not known yet decides nothing: an API
server that does not answer may well serve DRA.
"""

import re
from dataclasses import dataclass

from dra_driver.model.plugin import Path

REGISTERED_WITHIN_SECONDS = 30.0
"""A kubelet with DRA calls within about a second after the socket was made, or after its own start."""
FIRST_WITH_DRA = (1, 32)
"""Older kubelets speak a protocol that this driver does not have."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class PathFacts:
    """What is known. `served` and `registered` are about DRA; `served` is None as long as the API server has not answered.

    `kubelet_version` is for example "v1.37.1", and empty if it is not known. `registration_waited_seconds` is the time since the driver began to
    wait for the kubelet.
    """

    served: bool | None = None
    registered: bool = False
    kubelet_version: str = ""
    registration_waited_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PathChoice:
    """The path, and why; `path` is None as long as it is not known."""

    path: Path | None
    reason: str


def choose_path(facts: PathFacts, wish: Path | None = None) -> PathChoice:
    """Return the path of a node. `wish` is the admin's; None: the facts decide."""
    if wish is not None:
        return PathChoice(wish, f"the option path is {wish.value}")
    version = minor_version(facts.kubelet_version)
    if version is not None and version < FIRST_WITH_DRA:
        needed = ".".join(map(str, FIRST_WITH_DRA))
        return PathChoice(
            Path.DEVICE_PLUGIN,
            f"the kubelet is {facts.kubelet_version}; with DRA this driver needs {needed} or later",
        )
    match facts.served:
        case None:
            return PathChoice(None, "the API server has not said yet whether it serves DRA")
        case False:
            return PathChoice(
                Path.DEVICE_PLUGIN,
                "the API server serves resource.k8s.io in no version that this driver speaks",
            )
        case True:
            return _by_registration(facts)


def _by_registration(facts: PathFacts) -> PathChoice:
    if facts.registered:
        return PathChoice(
            Path.DRA, "the API server serves DRA, and the kubelet has registered the driver"
        )
    if facts.registration_waited_seconds < REGISTERED_WITHIN_SECONDS:
        return PathChoice(None, "the kubelet has not registered the driver yet")
    return PathChoice(
        Path.DEVICE_PLUGIN,
        f"the API server serves DRA, but the kubelet ({facts.kubelet_version or 'version unknown'}) has not registered the driver for "
        f"{facts.registration_waited_seconds:.0f} s; its feature gate DynamicResourceAllocation may be off",
    )


def minor_version(version: str) -> tuple[int, int] | None:
    """Return the major and the minor number of a Kubernetes version; None if the text is none."""
    found = _VERSION.match(version)
    return None if found is None else (int(found[1]), int(found[2]))
