# SPDX-License-Identifier: Apache-2.0
"""The table of the values of NVIDIA's chart names values that this project's chart has."""

from pathlib import Path

import pytest
import yaml

from dra_driver.backends.nvidia.plugin.helm import VALUES, HelmValue

CHART = Path(__file__).resolve().parents[5] / "helm" / "dra-driver"
OURS = yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.name)
def test_each_value_has_an_equivalent_that_exists_or_words(value: HelmValue) -> None:
    assert value.ours or value.words
    for name in value.ours:
        found = OURS
        for part in name.split("."):
            assert part in found, name
            found = found[part]


def test_no_value_is_there_twice() -> None:
    names = [value.name for value in VALUES]
    assert len(names) == len(set(names))
