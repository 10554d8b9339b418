# SPDX-License-Identifier: Apache-2.0
"""The options of the NVIDIA backend, as an admin writes them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from dra_driver.backends.base import BackendContext
from dra_driver.backends.nvidia.backend import NvidiaBackend
from dra_driver.backends.nvidia.edits import gpu_edits
from dra_driver.backends.nvidia.options import HealthOptions, NvidiaOptions
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.model.lease import Lease
from tests.support.watched_nvidia import NODE, a_node

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


def test_containers_get_what_the_admin_chose(tmp_path: Path):
    chosen = options({"capabilities": ["utility"], "additionalGids": True})
    backend = NvidiaBackend(BackendContext("node-1", chosen), hardware=a_node(tmp_path), sysfs=None)
    backend.scan()
    edits = backend.configure(Lease(ClaimUid("uid"), "main", DeviceName("gpu-0"), parent="GPU-0"))
    chosen_ones = gpu_edits(NODE.installation, NODE.gpus[0], capabilities={"utility"}, groups=True)
    assert edits == chosen_ones.merged(ContainerEdits({"GPU_DEVICE_0": "GPU-0"}))
    assert not any("libcuda" in mount.host_path for mount in edits.mounts)


def test_an_unknown_capability_is_refused():
    with pytest.raises(msgspec.ValidationError, match="Invalid enum value 'gaming'"):
        options({"capabilities": ["gaming"]})
