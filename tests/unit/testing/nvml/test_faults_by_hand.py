# SPDX-License-Identifier: Apache-2.0
"""A fault that would do nothing is refused, and the message has what is known."""

from pathlib import Path

import pytest

from dra_driver.testing.nvml.faults_by_hand import (
    OF_FABRIC,
    OF_GPU,
    OF_NODE,
    WORDS,
    gpu_count,
    mistakes,
)

SOURCES = Path(__file__).parents[4] / "dra_driver/testing/nvml/src"


@pytest.mark.parametrize(
    ("fault", "words", "named", "expected"),
    [
        ("set", [0], {"blah": 3}, "there is no value blah; known are temperature, "),
        ("set", ["node"], {"temperature": 3}, "there is no value temperature; known are cc_fea"),
        ("set", [0], {"temperature": "hot"}, "temperature=hot must be a number"),
        ("set", [0], {}, "set needs name=value; known are temperature"),
        ("fabric", [0], {"colour": 3}, "there is no value colour; known are state, "),
        ("lost", [7], {}, "there is no GPU 7: the node has 2, from 0 on"),
        ("lost", ["node"], {}, "there is no GPU node"),
        ("lost", [], {}, "lost does not take these arguments: missing a required argument: 'gpu'"),
        ("restore", [0], {}, "there is no word 0; known are fail, lost"),
        ("fail", ["nvmlDeviceGetName", 999], {}, "there is no GPU 999"),
        ("fail", ["nvmlDeviceGetNam"], {"error": 999}, "there is no function nvmlDeviceGetNam;"),
        ("xid", [0, 79], {"mig": 1}, "mig needs Python"),
    ],
)
def test_what_does_nothing_is_refused(fault, words, named, expected):
    (mistake,) = mistakes(fault, words, named, gpus=2)
    assert mistake.startswith(expected)


@pytest.mark.parametrize(
    ("fault", "words", "named"),
    [
        ("set", [1], {"temperature": 95}),
        ("set", ["node"], {"cc_feature": 1, "driver_version": "1.2"}),
        ("fabric", [0], {"state": 3, "cluster": "00-11"}),
        ("fail", ["nvmlDeviceGetMemoryInfo*"], {"gpu": 0, "error": 999}),
        ("fail", [], {"error": 999}),
        ("lost", ["*"], {}),
        ("restore", ["lost", 1], {}),
        ("clear", [], {}),
        ("unloaded", [], {}),
        ("hide_mig", [0], {"uuid": "MIG-1"}),
    ],
)
def test_what_the_library_knows_is_taken(fault, words, named):
    assert list(mistakes(fault, words, named, gpus=2)) == []


def test_each_name_is_read_by_the_library():
    source = (SOURCES / "world.c").read_text()
    for name in (*OF_GPU, *OF_NODE, *OF_FABRIC, *WORDS):
        assert f'"{name}"' in source


def test_a_folder_without_a_mock_node_is_none(tmp_path: Path):
    assert gpu_count(tmp_path) is None
    (tmp_path / "host/proc/driver/nvidia/gpus/0000:1a:00.0").mkdir(parents=True)
    assert gpu_count(tmp_path) == 1
