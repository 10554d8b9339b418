# SPDX-License-Identifier: Apache-2.0
"""Which implementation serves which features."""

import pytest

from dra_driver.allocator import features
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import Rules, choose_implementation


@pytest.mark.parametrize(
    ("on", "chosen"),
    [
        (frozenset[str](), "stable"),
        ({features.TAINTS, features.PARTITIONABLE}, "stable"),
        (features.ENABLED_BY_DEFAULT, "incubating"),
        ({features.BINDING_CONDITIONS}, "incubating"),
        ({features.TAINTS, features.LIST_ATTRIBUTES}, "experimental"),
        (features.ALL, "experimental"),
    ],
)
def test_the_oldest_implementation_that_knows_all_features_is_chosen(
    on: set[str], chosen: str
) -> None:
    assert choose_implementation(frozenset(on)) == chosen


def test_a_feature_of_the_future_has_no_implementation() -> None:
    with pytest.raises(AllocationError) as caught:
        choose_implementation(frozenset({features.TAINTS, "DRAFromTomorrow"}))
    assert str(caught.value) == (
        "internal error: no allocator available for feature set {AdminAccess:false"
        " CompatibilityGroups:false ConsumableCapacity:false DerivedAttributes:false"
        " DeviceBindingAndStatus:false DeviceTaints:true FractionalCapacityRange:false"
        " ListTypeAttributes:false OptionalNodeOperations:false PartitionableDevices:false"
        " PrioritizedList:false}, enabled allocators: stable, incubating, experimental"
    )


def test_an_implementation_refuses_features_that_it_does_not_know() -> None:
    with pytest.raises(AllocationError, match=r"enabled allocators: stable$"):
        Rules.of(features.ENABLED_BY_DEFAULT, "stable")


def test_rules_follow_the_features_and_the_implementation() -> None:
    rules = Rules.of(frozenset({features.TAINTS}), None)
    assert (rules.taints, rules.partitionable, rules.newer_than_stable) == (True, False, False)
    rules = Rules.of(frozenset({features.TAINTS}), "experimental")
    assert (rules.taints, rules.newer_than_stable, rules.experimental) == (True, True, True)


@pytest.mark.parametrize("implementation", features.SUPPORTED)
@pytest.mark.parametrize(
    ("minor", "incomplete", "none"),
    [
        (32, True, True),
        (33, True, False),
        (34, True, False),
        (35, False, False),
        (37, False, False),
    ],
)
def test_four_rules_follow_the_release(
    minor: int, incomplete: bool, none: bool, implementation: features.Implementation
) -> None:
    rules = Rules.of(frozenset(), implementation, minor)
    assert (rules.takes_from_incomplete_pools, rules.all_may_be_none) == (incomplete, none)
    assert rules.counters_beside_devices == (minor < 35)
    assert rules.ignores_counter_slices == (minor != 34)
    newest = Rules.of(frozenset(), implementation)
    assert newest == Rules.of(frozenset(), implementation, 37)
