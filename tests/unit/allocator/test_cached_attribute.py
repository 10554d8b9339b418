# SPDX-License-Identifier: Apache-2.0
"""Values that are made once."""

from dra_driver.allocator.cached_attribute import cached_attribute


class Counting:
    def __init__(self) -> None:
        self.made = 0

    @cached_attribute
    def value(self) -> int:
        """How often it was made."""
        self.made += 1
        return self.made


def test_a_value_is_made_when_asked_for_and_only_once() -> None:
    counting = Counting()
    assert counting.made == 0
    assert (counting.value, counting.value, counting.made) == (1, 1, 1)


def test_the_class_shows_what_the_value_is() -> None:
    assert isinstance(Counting.value, cached_attribute)
    assert Counting.value.__doc__ == "How often it was made."
