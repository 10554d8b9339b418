# SPDX-License-Identifier: Apache-2.0
"""Which features of device allocation, and of what pods count for on their nodes, are on in a cluster?

The feature gates of a scheduler cannot be read. So a gate whose state is not known has the default of the release. A gate that a
release does not have is off.
Source: k8s.io/kubernetes pkg/features/kube_features.go of 1.32 to 1.37; AllocatorFeatures in the scheduler's plugin.
"""

from collections.abc import Mapping

NEWEST = 37
OFF, ON = False, True
DEFAULTS: Mapping[str, Mapping[int, bool]] = {
    "DRAAdminAccess": {32: OFF, 34: ON},
    "DRAConsumableCapacity": {34: OFF, 36: ON},
    "DRADerivedAttributes": {37: OFF},
    "DRADeviceBindingConditions": {34: OFF, 36: ON},
    "DRADeviceCompatibilityGroups": {37: OFF},
    "DRADeviceTaintRules": {35: OFF, 37: ON},
    "DRADeviceTaints": {33: OFF, 36: ON},
    "DRAExtendedResource": {34: OFF, 36: ON},
    "DRAFractionalCapacityRange": {37: OFF},  # on only where nothing may roll back to 1.36
    "DRAListTypeAttributes": {36: OFF},
    "DRAOptionalNodeOperations": {37: OFF},
    "DRAPartitionableDevices": {33: OFF, 36: ON},
    "DRAPrioritizedList": {33: OFF, 34: ON},
    "DRAResourceClaimDeviceStatus": {32: OFF, 33: ON},
    "InPlacePodLevelResourcesVerticalScaling": {35: OFF, 36: ON},
    "InPlacePodVerticalScaling": {32: OFF, 33: ON},
}
ALLOCATION = "DynamicResourceAllocation"
"""The main gate. A cluster that serves claims has it on, even if it is off by default (1.32 and 1.33)."""
TAINT_RULES = "DRADeviceTaintRules"
POD_RESIZE = "InPlacePodVerticalScaling"
WHOLE_POD_RESIZE = "InPlacePodLevelResourcesVerticalScaling"
_ALLOCATOR = (
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRADeviceTaints",
    "DRAFractionalCapacityRange",
    "DRAListTypeAttributes",
    "DRAOptionalNodeOperations",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
)
_BINDING = ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus")
BINDING = "+".join(_BINDING)
"""The allocator's name of a feature that is on only if two gates are on."""
_RULES_BEFORE = 35
"""Before this release DeviceTaintRules had no gate of their own; DRADeviceTaints enabled them too."""


def is_on(gate: str, minor: int | None, known: Mapping[str, bool]) -> bool:
    """Whether a gate is on in a cluster of release 1.`minor` (None: the newest). `known` are the gates whose state is known."""
    if gate in known:
        return known[gate]
    if gate == ALLOCATION:
        return True
    release = NEWEST if minor is None else minor
    if gate == TAINT_RULES and release < _RULES_BEFORE:
        return is_on("DRADeviceTaints", release, known)
    defaults = [on for since, on in DEFAULTS.get(gate, {}).items() if since <= release]
    return defaults[-1] if defaults else False


def allocator_features(minor: int | None, known: Mapping[str, bool]) -> frozenset[str]:
    """The features that the scheduler enables in its allocator, by their names in the Kubernetes source."""
    features = {gate for gate in _ALLOCATOR if is_on(gate, minor, known)}
    if all(is_on(gate, minor, known) for gate in _BINDING):
        features.add(BINDING)
    return frozenset(features)
