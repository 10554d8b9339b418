# SPDX-License-Identifier: Apache-2.0
"""Errors say who must act."""

import pytest

from dra_driver.errors import DriverError, Fatal, Permanent, Temporary


@pytest.mark.parametrize("kind", [Temporary, Permanent, Fatal])
def test_every_error_is_the_drivers_and_shows_its_sentence(kind: type[DriverError]) -> None:
    assert issubclass(kind, DriverError)
    assert str(kind("free space")) == "free space"


def test_a_temporary_error_may_know_when_to_come_back() -> None:
    assert Temporary("x").retry_after_seconds is None
    assert Temporary("x", retry_after_seconds=2.5).retry_after_seconds == 2.5
