# SPDX-License-Identifier: Apache-2.0
"""Are versions ordered as semver.org orders them?"""

import itertools

import pytest

from dra_driver.testing.semver import Semver

IN_ORDER = (
    "0.9.9",
    "1.0.0-1",
    "1.0.0-2",
    "1.0.0-10",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.1.0",
    "2.0.0",
    "10.0.0",
)


@pytest.mark.parametrize(("lower", "higher"), list(itertools.pairwise(IN_ORDER)))
def test_each_version_stands_before_the_next(lower: str, higher: str) -> None:
    assert Semver.parse(lower) < Semver.parse(higher)
    assert not Semver.parse(higher) < Semver.parse(lower)


def test_build_metadata_does_not_count() -> None:
    assert Semver.parse("1.0.0+a") == Semver.parse("1.0.0+b.1")


@pytest.mark.parametrize(
    "text", ["1", "1.2", "v1.2.3", "1.2.3.4", "01.2.3", "1.2.3-", "1.2.3-01", ""]
)
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no semantic version"):
        Semver.parse(text)


@pytest.mark.parametrize("text", IN_ORDER)
def test_a_version_is_shown_as_it_was_read(text: str) -> None:
    assert str(Semver.parse(text)) == text
