# SPDX-License-Identifier: Apache-2.0
"""Which release can do what, and what must be switched on for it?

One table. A cluster of a release gets every gate switched on that a test needs and that the release
has, even while it is alpha; what the release has not, no test may ask of it (see selection.py), and
docs/tested.md says so. From 1.34 on nothing has to be switched on for what is here. 1.30 and 1.31 have
claims in forms that the driver does not speak: no gate is switched on there, and nothing is served.
"""

from collections.abc import Mapping
from dataclasses import dataclass

DRA = "DynamicResourceAllocation"
# The versions of resource.k8s.io that each minor release needs, the newest first; later ones need v1 alone.
API_VERSIONS = {30: ("v1alpha2",), 31: ("v1alpha3",), 32: ("v1beta1",), 33: ("v1beta2", "v1beta1")}
OLDEST = min(API_VERSIONS)  # nobody has tried an older one
V1 = "v1"  # served without being asked for


@dataclass(frozen=True, slots=True)
class Feature:
    """Something of Kubernetes that a test may need.

    `since` is the first minor release that has it, `default_since` the first where nobody has to
    switch it on. Tests name it by `gate`: as a feature gate, or as what it would be called.
    """

    gate: str
    what: str
    since: int
    default_since: int

    def on(self, minor: int) -> bool:
        """Does a release have it at all?"""
        return minor >= self.since

    def to_switch_on(self, minor: int) -> bool:
        """Does a release have it, and not by itself?"""
        return self.since <= minor < self.default_since


FEATURES = (
    Feature(DRA, "devices through claims", 32, 34),
    Feature("DRAAdminAccess", "admin access", 32, 34),
    Feature("DRAPrioritizedList", "alternatives in a request (`firstAvailable`)", 33, 34),
    Feature("DRAResourceClaimDeviceStatus", "drivers report devices in `status.devices`", 32, 33),
    # Left off where it is off: nodes of those releases have it off, and the driver must cope.
    Feature(
        "KubeletPodResourcesDynamicResources",
        "the kubelet tells which pod holds which device",
        34,
        34,
    ),
    # No gate. Before 1.33 a kubelet knows one driver of a name, so a rolling update has a gap, and
    # it deletes the node's slices as soon as the driver leaves.
    Feature(
        "SeamlessDriverUpgrade",
        "two drivers of one name side by side (surge), slices that outlive a driver for 30 s",
        33,
        33,
    ),
    # Left off where it is off, too (gate DRADeviceBindingConditions): see docs/faults.md, devices that are held.
    Feature(
        "AllocationTimestamp",
        "the time of an allocation, the difference between two equal ones",
        36,
        36,
    ),
    # Left off where it is off: then a device that is held is not published.
    Feature("DRADeviceTaints", "taints, which keep pods from a device", 36, 36),
    # Nor here: by then the gates of everything that `explain` can name as a reason are on.
    Feature("SchedulerVerdicts", "every reason that `explain` gives, from one scheduler", 37, 37),
    # Nor here: two of the demos need gates that are off by default, and kinds of scheduling.k8s.io/v1beta1.
    Feature("ExampleDriverDemos", "all demos of the Kubernetes project's example driver", 37, 37),
    # Neither. Older API servers name other fields in a refusal, and drop taints without their gate.
    Feature("FakeSliceRules", "slice rules to the letter as the fake API server has them", 37, 37),
)


def minor_of(version: str) -> int:
    """The 34 of 1.34.4."""
    return int(version.split(".")[1])


def feature(gate: str) -> Feature:
    """The feature that a test names."""
    found = {entry.gate: entry for entry in FEATURES}
    if gate not in found:
        raise ValueError(f"{gate!r} is no feature of the table: {', '.join(found)}")
    return found[gate]


def missing(gates: tuple[str, ...], version: str) -> list[str]:
    """Those that a release does not have."""
    minor = minor_of(version)
    return [gate for gate in gates if not feature(gate).on(minor)]


def feature_gates(version: str) -> dict[str, bool]:
    """What every component is told."""
    minor = minor_of(version)
    return {entry.gate: True for entry in FEATURES if entry.to_switch_on(minor)}


def api_versions(version: str, gates: Mapping[str, bool] | None = None) -> tuple[str, ...]:
    """What a cluster of a release serves of resource.k8s.io, the newest first; none if claims are off.

    `gates` come on top of those that the release needs.
    """
    minor = minor_of(version)
    if minor < OLDEST:
        raise ValueError(
            f"Kubernetes {version} is older than 1.{OLDEST}, the oldest that was tried"
        )
    if minor not in API_VERSIONS:
        return (V1,)
    on = (feature_gates(version) | dict(gates or {})).get(DRA, False)
    return API_VERSIONS[minor] if on else ()


def runtime_config(version: str, gates: Mapping[str, bool] | None = None) -> dict[str, bool]:
    """What the API server is told to serve beyond its defaults.

    All versions that there are: the components of a release may still speak the older one.
    """
    served = api_versions(version, gates)
    return {f"resource.k8s.io/{name}": True for name in served if name != V1}
