# SPDX-License-Identifier: Apache-2.0
"""What a claim can ask of simulated devices: a label, and the configuration of the example driver."""

import pytest

from dra_driver.backends.simulated_config import (
    GPU,
    GPU_OF_LATER_RELEASES,
    LABEL,
    GpuConfig,
    LabelConfig,
)
from dra_driver.model.claim import DeviceConfig
from dra_driver.planning.config import BadConfig, config_for
from dra_driver.testing.builders import a_config

PATH = "status.allocation.devices.config[0].opaque.parameters"
TIME = {"SHARING_STRATEGY": "TimeSlicing", "TIMESLICE_INTERVAL": "Default"}
EXAMPLE = (LABEL, GPU, GPU_OF_LATER_RELEASES)


def decoded(kind, fields):
    parameters = {"apiVersion": kind.api_version, "kind": kind.kind, **fields}
    return config_for("gpu", [a_config(parameters)], EXAMPLE)


@pytest.mark.parametrize("label", ["", "a", "a=b", "../../etc", '~ !"$(x)`', "x" * 63])
def test_printable_labels_are_taken_as_they_are(label: str) -> None:
    assert decoded(LABEL, {"label": label}) == LABEL.config(LabelConfig(label=label))


@pytest.mark.parametrize(
    "label",
    ["x" * 64, "é", "\ud800", "a\nLD_PRELOAD=x", "a\n", "\n", "a\0", "\x7f", 7, None, {"a": 1}],
)
def test_every_other_label_is_refused(label: object) -> None:
    bad = decoded(LABEL, {"label": label})
    assert isinstance(bad, BadConfig)
    (mistake,) = bad.mistakes
    assert mistake.path == f"{PATH}.label"
    assert mistake.found.endswith(
        " must be a text of at most 63 characters (A text that the container gets in a variable; printable ASCII only)"
    )


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [
        (None, TIME),
        ({"strategy": "TimeSlicing"}, TIME),
        (
            {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
            {"SHARING_STRATEGY": "TimeSlicing", "TIMESLICE_INTERVAL": "Long"},
        ),
        (
            {"strategy": "SpacePartitioning", "spacePartitioningConfig": {"partitionCount": 10}},
            {"SHARING_STRATEGY": "SpacePartitioning", "PARTITION_COUNT": "10"},
        ),
        (
            {"strategy": "SpacePartitioning"},
            {"SHARING_STRATEGY": "SpacePartitioning", "PARTITION_COUNT": "0"},
        ),
    ],
)
@pytest.mark.parametrize("kind", [GPU, GPU_OF_LATER_RELEASES], ids=["old", "later"])
def test_the_example_devices_read_upstreams_configuration(kind, sharing, expected) -> None:
    config = decoded(kind, {} if sharing is None else {"sharing": sharing})
    assert isinstance(config, DeviceConfig)
    assert isinstance(config.value, GpuConfig)
    assert (config.api_version, config.value.sharing.variables) == (kind.api_version, expected)


def test_the_example_devices_share_by_time_unless_told_otherwise() -> None:
    assert config_for("gpu", [], EXAMPLE) == GPU.config(GpuConfig())
    assert config_for("gpu", [], (LABEL,)) == DeviceConfig()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"label": "x"}, ".label: unknown field; known are sharing"),
        ({"sharing": []}, ".sharing: [] must be a mapping of fields"),
        (
            {"sharing": {}},
            ".sharing.strategy: missing; it must be one of SpacePartitioning, TimeSlicing",
        ),
        (
            {"sharing": {"strategy": "X"}},
            ".sharing.strategy: 'X' must be one of SpacePartitioning, TimeSlicing",
        ),
        (
            {"sharing": {"strategy": "TimeSlicing", "spacePartitioningConfig": {}}},
            ".sharing: spacePartitioningConfig does not belong to strategy TimeSlicing",
        ),
        (
            {"sharing": {"strategy": "SpacePartitioning", "timeSlicingConfig": {}}},
            ".sharing: timeSlicingConfig does not belong to strategy SpacePartitioning",
        ),
        (
            {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "x"}}},
            ".sharing.timeSlicingConfig.interval: 'x' must be one of Default, Long, Medium, Short",
        ),
        (
            {
                "sharing": {
                    "strategy": "SpacePartitioning",
                    "spacePartitioningConfig": {"partitionCount": -1},
                }
            },
            ".sharing.spacePartitioningConfig.partitionCount: -1 must be a whole number from 0",
        ),
        (
            {
                "sharing": {
                    "strategy": "SpacePartitioning",
                    "spacePartitioningConfig": {"partitionCount": True},
                }
            },
            ".sharing.spacePartitioningConfig.partitionCount: True must be a whole number from 0",
        ),
    ],
)
def test_what_upstream_refuses_is_refused_with_its_path(fields, said: str) -> None:
    bad = decoded(GPU, fields)
    assert isinstance(bad, BadConfig)
    assert str(bad).startswith(PATH + said)
