# SPDX-License-Identifier: Apache-2.0
"""Which pods a PodDisruptionBudget is about."""

from typing import Any

import msgspec
import pytest

from dra_driver.model.api.policy import LabelSelector

LABELS = {"app": "train", "tier": "a"}


def needs(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({}, True),
        ({"matchLabels": {"app": "train"}}, True),
        ({"matchLabels": {"app": "train", "tier": "b"}}, False),
        (needs("app", "In", "train", "x"), True),
        (needs("app", "In", "x"), False),
        (needs("none", "In", "x"), False),
        (needs("app", "NotIn", "x"), True),
        (needs("none", "NotIn", "x"), True),
        (needs("app", "NotIn", "train"), False),
        (needs("app", "Exists"), True),
        (needs("none", "Exists"), False),
        (needs("none", "DoesNotExist"), True),
        (needs("app", "DoesNotExist"), False),
        (needs("app", "Like", "train"), False),
    ],
)
def test_a_selector_matches_labels(selector: dict[str, Any], matches: bool) -> None:
    assert msgspec.convert(selector, LabelSelector).matches(LABELS) is matches
