# SPDX-License-Identifier: Apache-2.0
"""Which rules does the scheduler's allocator follow with these feature gates, and in this release?

Upstream has three implementations of the allocator: stable, incubating, experimental. Each is a copy of the one before
with more features. The scheduler uses the first one that supports all enabled features. This project has one search. Where
the three implementations differ, the search reads `Rules`. The rules are those of release 1.37. Older releases differ in
more; of that, `Rules` has four rules, which are the same in all implementations of a release.
Source: k8s.io/dynamic-resource-allocation/structured/allocator.go and internal/types.go.
"""

from functools import lru_cache
from typing import Literal

from msgspec import Struct

from dra_driver.allocator.failures import AllocationError
from dra_driver.model.gates import NEWEST

Implementation = Literal["stable", "incubating", "experimental"]

ADMIN_ACCESS = "DRAAdminAccess"
COMPATIBILITY_GROUPS = "DRADeviceCompatibilityGroups"
CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
DERIVED_ATTRIBUTES = "DRADerivedAttributes"
BINDING_CONDITIONS = "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus"
TAINTS = "DRADeviceTaints"
FRACTIONAL_CAPACITY = "DRAFractionalCapacityRange"
LIST_ATTRIBUTES = "DRAListTypeAttributes"
OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"
PARTITIONABLE = "DRAPartitionableDevices"
PRIORITIZED_LIST = "DRAPrioritizedList"

_STABLE = frozenset({ADMIN_ACCESS, PRIORITIZED_LIST, PARTITIONABLE, TAINTS})
_INCUBATING = _STABLE | {BINDING_CONDITIONS, CONSUMABLE_CAPACITY, FRACTIONAL_CAPACITY}
_EXPERIMENTAL = _INCUBATING | {
    LIST_ATTRIBUTES,
    OPTIONAL_NODE_OPERATIONS,
    DERIVED_ATTRIBUTES,
    COMPATIBILITY_GROUPS,
}

SUPPORTED: dict[Implementation, frozenset[str]] = {
    "stable": _STABLE,
    "incubating": _INCUBATING,
    "experimental": _EXPERIMENTAL,
}
ALL = _EXPERIMENTAL
ENABLED_BY_DEFAULT = _INCUBATING
"""The features that a scheduler of release 1.37 enables without any --feature-gates flag if its control plane may not be rolled back to
1.36 (--min-compatibility-version=1.37); else FRACTIONAL_CAPACITY is off, and `dra_driver.model.gates` takes it for off."""

_COMPLETE_POOLS_ONLY = 35
"""Before this minor release the search took devices of incomplete pools. It looked at the slices for one node only."""
_COUNTERS_APART = 35
"""Before this minor release counter sets were in the slice of the devices that consume them; since then, in slices without devices."""
_COUNTERS_WITHOUT_GATE = 34
"""In this minor release the search read slices with counters although PARTITIONABLE was off."""
_ALL_NEEDS_A_DEVICE = 33
"""Before this minor release allocationMode All was satisfied with no devices if none matched."""

# The field names of upstream's Features struct, in their order. Upstream prints the struct in its error message.
_STRUCT = {
    "AdminAccess": ADMIN_ACCESS,
    "CompatibilityGroups": COMPATIBILITY_GROUPS,
    "ConsumableCapacity": CONSUMABLE_CAPACITY,
    "DerivedAttributes": DERIVED_ATTRIBUTES,
    "DeviceBindingAndStatus": BINDING_CONDITIONS,
    "DeviceTaints": TAINTS,
    "FractionalCapacityRange": FRACTIONAL_CAPACITY,
    "ListTypeAttributes": LIST_ATTRIBUTES,
    "OptionalNodeOperations": OPTIONAL_NODE_OPERATIONS,
    "PartitionableDevices": PARTITIONABLE,
    "PrioritizedList": PRIORITIZED_LIST,
}


def choose_implementation(features: frozenset[str]) -> Implementation:
    """Return the first implementation that supports all `features`. Raises AllocationError if none does."""
    for implementation, supported in SUPPORTED.items():
        if features <= supported:
            return implementation
    raise _nobody(features, ", ".join(SUPPORTED))


def _nobody(features: frozenset[str], enabled: str) -> AllocationError:
    struct = " ".join(f"{word}:{str(name in features).lower()}" for word, name in _STRUCT.items())
    return AllocationError(
        "internal error: no allocator available for feature set "
        f"{{{struct}}}, enabled allocators: {enabled}"
    )


class Rules(Struct, frozen=True):
    """The enabled features, and the differences between the three implementations."""

    admin_access: bool
    compatibility_groups: bool
    consumable_capacity: bool
    derived_attributes: bool
    binding_conditions: bool
    taints: bool
    fractional_capacity: bool
    list_attributes: bool
    optional_node_operations: bool
    partitionable: bool
    prioritized_list: bool

    newer_than_stable: bool
    """The implementation is incubating or experimental. Only these know distinctAttribute, capacity requests, shares of
    a device and bindsToNode. They try combinations of devices; stable tries permutations. They sort the pools. They read
    only the slices with counters that belong to a pool of the node."""

    experimental: bool
    """The implementation is experimental. Only this one reads skipNodeOperations."""

    takes_from_incomplete_pools: bool
    """An incomplete pool blocks only requests with allocationMode All, and is incomplete if one slice is not for the node."""

    counters_beside_devices: bool
    """Counter sets are in the slice of the devices that consume them, and no other slice of the pool has a part in them."""

    ignores_counter_slices: bool
    """Slices with counters are ignored: their feature is off. The devices of such slices that need no counters cannot be had either."""

    all_may_be_none: bool
    """A request with allocationMode All may get no devices."""

    @classmethod
    @lru_cache(maxsize=64)
    def of(
        cls,
        features: frozenset[str],
        implementation: Implementation | None,
        minor: int = NEWEST,
    ) -> "Rules":
        """Return the rules of `implementation` in release 1.`minor`; if it is None, of the one that the scheduler would choose."""
        chosen = implementation or choose_implementation(features)
        if not features <= SUPPORTED[chosen]:
            raise _nobody(features, chosen)
        return cls(
            admin_access=ADMIN_ACCESS in features,
            compatibility_groups=COMPATIBILITY_GROUPS in features,
            consumable_capacity=CONSUMABLE_CAPACITY in features,
            derived_attributes=DERIVED_ATTRIBUTES in features,
            binding_conditions=BINDING_CONDITIONS in features,
            taints=TAINTS in features,
            fractional_capacity=FRACTIONAL_CAPACITY in features,
            list_attributes=LIST_ATTRIBUTES in features,
            optional_node_operations=OPTIONAL_NODE_OPERATIONS in features,
            partitionable=PARTITIONABLE in features,
            prioritized_list=PRIORITIZED_LIST in features,
            newer_than_stable=chosen != "stable",
            experimental=chosen == "experimental",
            takes_from_incomplete_pools=minor < _COMPLETE_POOLS_ONLY,
            counters_beside_devices=minor < _COUNTERS_APART,
            ignores_counter_slices=PARTITIONABLE not in features
            and minor != _COUNTERS_WITHOUT_GATE,
            all_may_be_none=minor < _ALL_NEEDS_A_DEVICE,
        )
