# SPDX-License-Identifier: Apache-2.0
"""Which API offers the devices of a node."""

from dataclasses import replace

import pytest

from dra_driver.model.plugin import Path
from dra_driver.planning.path import (
    REGISTERED_WITHIN_SECONDS,
    PathFacts,
    choose_path,
    minor_version,
)

WORKS = PathFacts(served=True, registered=True, kubelet_version="v1.37.1")
LATE = REGISTERED_WITHIN_SECONDS


@pytest.mark.parametrize(
    ("facts", "path", "reason"),
    [
        (WORKS, Path.DRA, "the kubelet has registered the driver"),
        (replace(WORKS, kubelet_version=""), Path.DRA, "the kubelet has registered the driver"),
        (replace(WORKS, served=False), Path.DEVICE_PLUGIN, "in no version that this driver speaks"),
        (replace(WORKS, served=None), None, "the API server has not said yet"),
        (replace(WORKS, registered=False), None, "the kubelet has not registered the driver yet"),
        (
            replace(WORKS, registered=False, registration_waited_seconds=LATE),
            Path.DEVICE_PLUGIN,
            "(v1.37.1) has not registered the driver for 30 s; its feature gate",
        ),
        (
            PathFacts(served=True, registration_waited_seconds=LATE),
            Path.DEVICE_PLUGIN,
            "(version unknown)",
        ),
        (
            PathFacts(kubelet_version="v1.31.13"),
            Path.DEVICE_PLUGIN,
            "the kubelet is v1.31.13; with DRA this driver needs 1.32 or later",
        ),
        (PathFacts(kubelet_version="nonsense"), None, "the API server has not said yet"),
    ],
)
def test_dra_where_it_works_and_else_the_device_plugin_api(
    facts: PathFacts, path: Path | None, reason: str
) -> None:
    found = choose_path(facts)
    assert found.path is path
    assert reason in found.reason


@pytest.mark.parametrize("wish", list(Path))
def test_the_admin_has_the_last_word(wish: Path) -> None:
    found = choose_path(PathFacts(), wish)
    assert (found.path, found.reason) == (wish, f"the option path is {wish.value}")


def test_versions_are_compared_as_numbers() -> None:
    assert minor_version("v1.9.0+k3s1") == (1, 9)
    assert minor_version("1.30") == (1, 30)
    assert minor_version("") is None
