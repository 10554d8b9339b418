# SPDX-License-Identifier: Apache-2.0
"""Nobody is told to tolerate a taint that says that a device does not work, or that somebody has it."""

import re

import pytest

from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.explain.verdict import Tainted
from dra_driver.model.names import TAINTS, FixedName
from tests.e2e import fleet as words
from tests.e2e.fleet import device, resource_slice
from tests.unit.explain.clusters import state


def advised(key: str, value: str) -> list[str]:
    """What would help if the only device has this taint."""
    taint = {"key": key, "value": value, "effect": "NoSchedule"}
    cluster = state(resource_slice([device("gpu-0", taints=[taint])]))
    report = explain(cluster, ManifestSubject((words.claim(),), "ns", "f.yaml"))
    assert report.exit_code == 1
    return [one.what for one in report.changes]


@pytest.mark.parametrize("taint", TAINTS, ids=lambda one: one.name)
def test_no_taint_that_this_driver_sets_is_tolerated_whatever_its_value(taint: FixedName) -> None:
    values = re.findall(r"`([\w.-]+)`", taint.meaning)
    for value in ("", "79", *values):
        assert advised(taint.name, value) == []


@pytest.mark.parametrize(
    "taint",
    [
        "gpu.nvidia.com/xid=48",
        "gpu.nvidia.com/gpu-lost",
        "gpu.intel.com/core-thermal=Warning",
        "gpu.intel.com/memory-thermal=Unknown",
        "gpu.intel.com/memory=Warning",
        "gpu.intel.com/fabric-port=Warning",
        "gaudi.intel.com/unhealthy=CriticalError",
        "gpu.amd.com/state=ECCError",
        "example.com/state=row-remap-failed",
        "example.com/action=gpu-reset",
        "nic.example.com/link=down",
        "example.com/GPUHealth=x",
    ],
)
def test_a_word_of_the_name_or_the_value_tells_that_a_device_of_others_is_ill(taint: str) -> None:
    key, _, value = taint.partition("=")
    assert advised(key, value) == []


@pytest.mark.parametrize(
    "taint",
    [
        "example.com/dedicated=training",
        "example.com/team=health",
        "health.example.com/reserved=x",
        "example.com/memory=large",
        "gpu.dra-driver.dev.example.com/pool=a",
        "gpu.dra-driver.dev/reserved=team-a",
    ],
)
def test_a_taint_that_reserves_a_device_can_be_tolerated(taint: str) -> None:
    key, _, value = taint.partition("=")
    assert advised(key, value) == [
        f"request gpu of claim ns/mine: tolerate {taint}:NoSchedule",
    ]


def test_a_taint_that_ends_pods_is_never_tolerated() -> None:
    assert Tainted("example.com/dedicated=training:NoExecute").is_broken
