# SPDX-License-Identifier: Apache-2.0
"""The options of the NVIDIA backend, as an admin writes them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dra_driver.backends.nvidia.options import HealthOptions, NvidiaOptions

PAGE = Path(__file__).resolve().parents[4] / "docs" / "nvidia.md"


def options(found: dict[str, Any]) -> NvidiaOptions:
    return msgspec.convert(found, NvidiaOptions)


def test_without_options_the_limits_are_usual_ones():
    assert options({}).health == HealthOptions(
        max_temperature=90, temperature_hysteresis=5, ignored_xids=(), recovery_seconds=60
    )


def test_the_example_of_the_page_is_read():
    (text,) = [
        block.partition("```")[0]
        for block in PAGE.read_text().split("```yaml\n")[1:]
        if "maxTemperature" in block.partition("```")[0]
    ]
    found = options(yaml.safe_load(text)["backends"]["nvidia"])
    assert found.health == HealthOptions(max_temperature=85, ignored_xids=(74,))


@pytest.mark.parametrize(
    "wrong",
    [
        {"maxTemperature": -1},
        {"temperatureHysteresis": 51},
        {"recoverySeconds": 0},
        {"ignoredXids": ["74"]},
        {"ignoredXids": [-1]},
        {"maxTemprature": 80},
    ],
)
def test_a_wrong_option_is_refused(wrong: dict[str, Any]):
    with pytest.raises(msgspec.ValidationError):
        options({"health": wrong})
