# SPDX-License-Identifier: Apache-2.0
"""Which features of device allocation are on in a cluster?

Nobody can ask a scheduler for its feature gates, so what is not known follows the defaults of the release. A gate that a
release does not have is off there.
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
}
ALLOCATION = "DynamicResourceAllocation"
"""The gate of it all. A cluster that shows claims has it on, also in 1.32 and 1.33, where nobody gets it unasked."""
TAINT_RULES = "DRADeviceTaintRules"
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
"""The allocator's name for what two gates together switch on."""
_RULES_BEFORE = 35
"""Before this release DeviceTaintRules followed the gate of the taints themselves."""


def is_on(gate: str, minor: int | None, known: Mapping[str, bool]) -> bool:
    """Whether a gate is on in a cluster of 1.`minor` (the newest, when unknown), of which some gates are `known`."""
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
    """The features that the scheduler hands to its allocator, by the names that upstream gives them."""
    features = {gate for gate in _ALLOCATOR if is_on(gate, minor, known)}
    if all(is_on(gate, minor, known) for gate in _BINDING):
        features.add(BINDING)
    return frozenset(features)
