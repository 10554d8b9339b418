# SPDX-License-Identifier: Apache-2.0
"""Versions of NVIDIA's library as semantic versions."""

import pytest

from dra_driver.backends.nvidia.numbers import cuda_version, semver


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("550.54.15", "550.54.15"),
        ("535.183.06", "535.183.6"),  # a leading zero is no semantic version
        ("470.57", "470.57.0"),
        ("600", "600.0.0"),
        ("580.95.05-beta", ""),
        ("1.2.3.4", ""),
        ("", ""),
        ("\N{FULLWIDTH DIGIT NINE}.1.2", ""),
        ("1" * 10, ""),
    ],
)
def test_a_driver_version_becomes_a_semantic_version_or_nothing(text: str, version: str):
    assert semver(text) == version


@pytest.mark.parametrize(
    ("number", "version"), [(12040, "12.4.0"), (13000, "13.0.0"), (11080, "11.8.0")]
)
def test_the_number_of_a_cuda_version_becomes_a_version(number: int, version: str):
    assert cuda_version(number) == version
