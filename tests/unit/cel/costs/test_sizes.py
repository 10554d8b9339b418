# SPDX-License-Identifier: Apache-2.0
"""How large the parts of a device can be, by their path."""

import pytest

from dra_driver.cel.costs.bounds import Bounds
from dra_driver.cel.costs.sizes import Path, size_at


@pytest.mark.parametrize(
    ("names", "largest"),
    [
        (("device",), 0),
        (("device", "driver"), 63),
        (("device", "allowMultipleAllocations"), 1),
        (("device", "attributes"), 32),
        (("device", "attributes", "@keys"), 63),
        (("device", "attributes", "@values"), 32),
        (("device", "attributes", "@values", "@keys"), 32),
        (("device", "attributes", "@values", "model"), 64),
        (("device", "attributes", "@values", "@items"), 64),
        (("device", "capacity", "@values", "@values"), 0),
    ],
)
def test_a_declared_part_has_a_largest_size(names: tuple[str, ...], largest: int) -> None:
    assert size_at(Path(*names)) == Bounds(0, largest)


@pytest.mark.parametrize(
    "names",
    [
        ("other",),
        ("device", "unknown"),
        ("device", "driver", "@items", "more"),
        ("device", "attributes", "gpu.example.com"),
        ("device", "capacity", "@values", "memory"),
    ],
)
def test_of_other_paths_nothing_is_known(names: tuple[str, ...]) -> None:
    assert size_at(Path(*names)) is None


def test_no_path_leads_nowhere() -> None:
    assert size_at(None) is None


def test_paths_from_one_place_share_what_is_written_behind_it_while_there_is_room() -> None:
    place = Path("device").then("attributes").then("@values")
    first = place.then("model")
    second = place.then("@keys")
    assert first.names == second.names == ("device", "attributes", "@values", "@keys")


def test_paths_from_a_full_place_are_their_own() -> None:
    place = Path("device").then("attributes")
    first, second = place.then("@values"), place.then("@keys")
    assert first.names == ("device", "attributes", "@values")
    assert second.names == ("device", "attributes", "@keys")
    assert Path().then("a").names == ("a",)
