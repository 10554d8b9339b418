# SPDX-License-Identifier: Apache-2.0
"""Opaque configuration: what is not known is refused, by the path of its field."""

import pytest

from dra_driver.model.claim import DeviceConfig
from dra_driver.planning.config import API_VERSION, EXAMPLE_API_VERSIONS, BadConfig, config_for
from dra_driver.testing.builders import a_config

PATH = "status.allocation.devices.config[0].opaque.parameters"
READS = "this driver reads gpu.dra-driver.dev/v1alpha1 DeviceConfig"
NO_KINDS: frozenset[str] = frozenset()
EXAMPLE = frozenset({"GpuConfig"})
OWN = {"apiVersion": API_VERSION, "kind": "DeviceConfig"}
THEIRS = {"apiVersion": EXAMPLE_API_VERSIONS[0], "kind": "GpuConfig"}


def decoded(parameters, kinds=NO_KINDS):
    return config_for("gpu", [a_config(parameters)], kinds)


def test_without_configuration_there_is_an_empty_one() -> None:
    assert config_for("gpu", [], NO_KINDS) == DeviceConfig()
    assert decoded(OWN) == DeviceConfig()


@pytest.mark.parametrize("label", ["", "a", "a=b", "../../etc", '~ !"$(x)`', "x" * 63])
def test_printable_labels_are_taken_as_they_are(label: str) -> None:
    assert decoded(OWN | {"label": label}) == DeviceConfig(label=label)


@pytest.mark.parametrize(
    ("parameters", "path", "found"),
    [
        ({}, PATH, f"apiVersion None, kind None: {READS}"),
        (OWN | {"kind": "Other"}, PATH, f"apiVersion '{API_VERSION}', kind 'Other': {READS}"),
        (OWN | {"apiVersion": 1}, PATH, f"apiVersion 1, kind 'DeviceConfig': {READS}"),
        (OWN | {"kind": ["x\n"]}, PATH, f"apiVersion '{API_VERSION}', kind ['x\\n']: {READS}"),
        (THEIRS, PATH, f"apiVersion '{EXAMPLE_API_VERSIONS[0]}', kind 'GpuConfig': {READS}"),
        (OWN | {"label": "x" * 64}, f"{PATH}.label", "longer than 63 bytes"),
        (OWN | {"label": "é" * 32}, f"{PATH}.label", "longer than 63 bytes"),
        (OWN | {"label": "\ud800"}, f"{PATH}.label", "'\\ud800': printable ASCII only"),
        (
            OWN | {"label": "a\nLD_PRELOAD=x"},
            f"{PATH}.label",
            "'a\\nLD_PRELOAD=x': printable ASCII only",
        ),
        (OWN | {"label": "a\0"}, f"{PATH}.label", "'a\\x00': printable ASCII only"),
        (OWN | {"label": "ü"}, f"{PATH}.label", "'\\xfc': printable ASCII only"),
        (OWN | {"label": "\x7f"}, f"{PATH}.label", "'\\x7f': printable ASCII only"),
        (OWN | {"label": 7}, f"{PATH}.label", "int: must be a string"),
        (OWN | {"label": None}, f"{PATH}.label", "NoneType: must be a string"),
        (OWN | {"label": {"a": 1}}, f"{PATH}.label", "dict: must be a string"),
        (OWN | {"Label": "x"}, f"{PATH}.Label", "unknown field"),
        (OWN | {"a\n=../\0ü": "x"}, f"{PATH}.a\\n=../\\x00\\xfc", "unknown field"),
        (OWN | {"f" * 500: "x"}, f"{PATH}.{'f' * 78}", "unknown field"),
    ],
)
def test_every_wrong_shape_is_refused_with_its_path(parameters, path: str, found: str) -> None:
    assert decoded(parameters) == BadConfig(path, found)


def test_a_hostile_kind_cannot_flood_the_message() -> None:
    bad = decoded({"apiVersion": "x" * 10_000, "kind": "ü" * 10_000})
    assert isinstance(bad, BadConfig)
    assert len(bad.found) < 300
    assert bad.found.isascii()


@pytest.mark.parametrize(
    ("requests", "request_name", "label"),
    [
        ([], "main/sub", "x"),
        (["main"], "main/sub", "x"),
        (["main/sub"], "main/sub", "x"),
        (["main/other"], "main/sub", ""),
        (["mai"], "main", ""),
        (["main/sub"], "main", ""),
    ],
)
def test_a_main_name_covers_its_alternatives(requests, request_name: str, label: str) -> None:
    config = config_for(request_name, [a_config(label="x", requests=requests)], NO_KINDS)
    assert config == DeviceConfig(label=label)


def test_the_last_entry_that_covers_the_request_counts() -> None:
    entries = [
        a_config(label="class"),
        a_config(label="claim", index=1),
        a_config(label="z", requests=["y"]),
    ]
    assert config_for("gpu", entries, NO_KINDS) == DeviceConfig(label="claim")


def test_an_entry_for_another_request_must_decode_too() -> None:
    entry = a_config({"kind": "X"}, requests=["other"], index=3)
    bad = config_for("gpu", [entry], NO_KINDS)
    assert isinstance(bad, BadConfig)
    assert bad.path == "status.allocation.devices.config[3].opaque.parameters"


TIME = {"SHARING_STRATEGY": "TimeSlicing", "TIMESLICE_INTERVAL": "Default"}


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
@pytest.mark.parametrize("version", EXAMPLE_API_VERSIONS)
def test_the_example_devices_read_upstreams_configuration(version: str, sharing, expected) -> None:
    parameters = (
        THEIRS | {"apiVersion": version} | ({} if sharing is None else {"sharing": sharing})
    )
    assert decoded(parameters, EXAMPLE) == DeviceConfig(sharing=expected)


def test_the_example_devices_share_by_time_unless_told_otherwise() -> None:
    assert config_for("gpu", [], EXAMPLE) == DeviceConfig(sharing=TIME)


@pytest.mark.parametrize(
    ("fields", "path", "found"),
    [
        ({"label": "x"}, f"{PATH}.label", "unknown field"),
        ({"sharing": []}, f"{PATH}.sharing", "list: must be an object"),
        ({"sharing": {}}, f"{PATH}.sharing.strategy", "unknown GPU sharing strategy: None"),
        (
            {"sharing": {"strategy": "MPS\n"}},
            f"{PATH}.sharing.strategy",
            "unknown GPU sharing strategy: 'MPS\\n'",
        ),
        (
            {"sharing": {"strategy": ["x"]}},
            f"{PATH}.sharing.strategy",
            "unknown GPU sharing strategy: ['x']",
        ),
        ({"sharing": {"strategy": "TimeSlicing", "x": 1}}, f"{PATH}.sharing.x", "unknown field"),
        (
            {"sharing": {"strategy": "TimeSlicing", "spacePartitioningConfig": {}}},
            f"{PATH}.sharing.spacePartitioningConfig",
            "does not belong to strategy TimeSlicing",
        ),
        (
            {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": None}},
            f"{PATH}.sharing.timeSlicingConfig",
            "NoneType: must be an object",
        ),
        (
            {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "X"}}},
            f"{PATH}.sharing.timeSlicingConfig.interval",
            "unknown time-slice interval: 'X'",
        ),
        (
            {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"x": 1}}},
            f"{PATH}.sharing.timeSlicingConfig.x",
            "unknown field",
        ),
        *(
            (
                {
                    "sharing": {
                        "strategy": "SpacePartitioning",
                        "spacePartitioningConfig": {"partitionCount": count},
                    }
                },
                f"{PATH}.sharing.spacePartitioningConfig.partitionCount",
                f"invalid partition count: {count!r}",
            )
            for count in (-1, True, "3", 1.0)
        ),
        (
            {"sharing": {"strategy": "SpacePartitioning", "spacePartitioningConfig": {"x": 1}}},
            f"{PATH}.sharing.spacePartitioningConfig.x",
            "unknown field",
        ),
    ],
)
def test_wrong_upstream_configuration_is_refused_with_its_path(
    fields, path: str, found: str
) -> None:
    assert decoded(THEIRS | fields, EXAMPLE) == BadConfig(path, found)
