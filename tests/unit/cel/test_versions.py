# SPDX-License-Identifier: Apache-2.0
"""What an environment switches on that is not a declaration."""

import pytest

from dra_driver.cel.versions import Environment, Features

OFF = Features(consumable_capacity=False, list_type_attributes=False)


def test_by_default_it_is_the_newest_scheduler() -> None:
    assert Environment() == Environment(37, "StoredExpressions", Features(True, True))


@pytest.mark.parametrize(
    ("environment", "attributes_may_be_lists", "lists_are_converted"),
    [
        (Environment(35), False, False),
        (Environment(36), True, True),
        (Environment(36, features=OFF), False, False),
        (Environment(36, "NewExpressions", OFF), False, False),
        (Environment(37, features=OFF), True, True),
        (Environment(37, "NewExpressions", OFF), False, True),
        (Environment(37, "NewExpressions"), True, True),
    ],
)
def test_lists_are_a_matter_of_release_kind_and_gate(
    environment: Environment, attributes_may_be_lists: bool, lists_are_converted: bool
) -> None:
    assert environment.list_attributes is attributes_may_be_lists
    assert environment.list_values is lists_are_converted
