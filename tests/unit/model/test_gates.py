# SPDX-License-Identifier: Apache-2.0
"""Which features are on in a cluster."""

import pytest

from dra_driver.allocator.features import ENABLED_BY_DEFAULT
from dra_driver.model.gates import BINDING, allocator_features, is_on


@pytest.mark.parametrize(
    ("gate", "minor", "expected"),
    [
        ("DRADeviceTaints", 32, False),
        ("DRADeviceTaints", 35, False),
        ("DRADeviceTaints", 36, True),
        ("DRADeviceTaints", 99, True),
        ("DRADeviceTaints", None, True),
        ("DRADeviceTaintRules", 36, False),
        ("DRADeviceTaintRules", 37, True),
        ("DRANobodyKnows", 37, False),
        ("DynamicResourceAllocation", 32, True),
    ],
)
def test_a_gate_follows_the_release(gate: str, minor: int | None, expected: bool) -> None:
    assert is_on(gate, minor, {}) is expected


def test_what_is_known_wins() -> None:
    assert not is_on("DynamicResourceAllocation", 37, {"DynamicResourceAllocation": False})
    assert is_on("DRADeviceTaints", 33, {"DRADeviceTaints": True})
    assert is_on("DRADeviceTaintRules", 34, {"DRADeviceTaints": True})


def test_the_allocators_features_are_the_gates_and_one_pair() -> None:
    fractional = {"DRAFractionalCapacityRange": True}
    assert allocator_features(37, fractional) == ENABLED_BY_DEFAULT
    assert BINDING not in allocator_features(37, {"DRADeviceBindingConditions": False})
    assert allocator_features(32, {}) == frozenset()
