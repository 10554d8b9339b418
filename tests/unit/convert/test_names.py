# SPDX-License-Identifier: Apache-2.0
"""A new claim or template gets a name that is free."""

from dra_driver.convert.names import Names


def test_a_name_that_is_taken_gets_a_number() -> None:
    names = Names([("ns", "a-2")])
    names.add([("ns", "a-4")])
    assert [names.new("ns", "a") for _ in range(3)] == ["a", "a-3", "a-5"]
    assert names.new("other", "a") == "a"
    assert names.new("ns", "b") == "b"


def test_the_last_of_many_of_one_name_is_found_as_fast_as_the_first() -> None:
    """If each went through all before it, this would take minutes."""
    names = Names()
    assert [names.new("", "a") for _ in range(60_000)][-1] == "a-60000"
