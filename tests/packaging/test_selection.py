# SPDX-License-Identifier: Apache-2.0
"""Does a run on an old release leave out exactly what that release lacks, and write down the rest?"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.onenode.features import DRA

ROOT = Path(__file__).resolve().parents[2]
INI = "[pytest]\nmarkers =\n needs(gate): needs that\n shim: needs no DRA\n matrix: takes long\naddopts = --strict-markers\n"
TESTS = """
import pytest

pytestmark = pytest.mark.usefixtures("cluster")

@pytest.fixture
def cluster(): pass

def test_plain(): pass

@pytest.mark.needs("DRAAdminAccess")
def test_since_132(): pass

@pytest.mark.needs("DRAPrioritizedList")
def test_since_133(): pass

@pytest.mark.parametrize("name", ["a", pytest.param("b", marks=pytest.mark.needs("DRAPrioritizedList"))])
def test_each(name): pass

@pytest.mark.shim
def test_shim(): pass

@pytest.mark.shim(30, 31)
def test_shim_of_two_releases(): pass

@pytest.fixture
def breaks_afterwards():
    yield
    raise AssertionError

def test_ends_badly(breaks_afterwards): pass

def test_fails(): assert False

@pytest.mark.matrix
def test_that_takes_long(): pass
"""

LONG = "test_it.py::test_that_takes_long"
TWO_RELEASES = "test_it.py::test_shim_of_two_releases"


def recorded(folder: Path, kubernetes: str, *more: str) -> dict[str, Any]:
    """What a run on that release wrote down."""
    (folder / "pytest.ini").write_text(INI)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "test_without_a_cluster.py").write_text("def test_other(): pass\n")
    told = {
        "E2E_KUBERNETES": kubernetes,
        "E2E_RECORD": str(folder / "record"),
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # most of the time of such a run
    }
    plugins = (
        "-p",
        "hack.testbed.onenode.selection",
        "-p",
        "hack.testbed.onenode.record",
        "-p",
        "no:cacheprovider",
    )
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *more]
    subprocess.run(
        command, cwd=folder, env={**os.environ, **told}, check=False, capture_output=True
    )
    answer: dict[str, Any] = json.loads((folder / "record").read_text())
    return answer


@pytest.mark.parametrize(
    ("kubernetes", "left_out"),
    [
        ("1.37.1", set()),
        ("1.33.13", set()),
        ("1.32.5", {"test_it.py::test_since_133", "test_it.py::test_each[b]"}),
    ],
)
def test_what_a_release_lacks_is_left_out_with_the_reason_and_the_rest_runs(
    kubernetes: str, left_out: set[str], tmp_path: Path
) -> None:
    outcomes = {
        "test_it.py::test_plain": "passed",
        "test_it.py::test_since_132": "passed",
        "test_it.py::test_since_133": "passed",
        "test_it.py::test_each[a]": "passed",
        "test_it.py::test_each[b]": "passed",
        "test_it.py::test_shim": "passed",
        "test_it.py::test_ends_badly": "failed",
        "test_it.py::test_fails": "failed",
        LONG: "passed",
    }
    found = recorded(tmp_path, kubernetes)

    two_releases = {TWO_RELEASES: ["Kubernetes 1.30 or Kubernetes 1.31"]}
    assert found["left_out"] == {test: ["DRAPrioritizedList"] for test in left_out} | two_releases
    assert found["outcomes"] == {
        test: said for test, said in outcomes.items() if test not in left_out
    }
    assert found["seconds"] >= 0


def test_on_a_release_without_dra_only_tests_of_the_shim_run(tmp_path: Path) -> None:
    found = recorded(tmp_path, "1.30.14")

    assert found["outcomes"] == {"test_it.py::test_shim": "passed", TWO_RELEASES: "passed"}
    assert found["left_out"] == {
        "test_it.py::test_plain": [DRA],
        "test_it.py::test_since_132": [DRA, "DRAAdminAccess"],
        "test_it.py::test_since_133": [DRA, "DRAPrioritizedList"],
        "test_it.py::test_each[a]": [DRA],
        "test_it.py::test_each[b]": [DRA, "DRAPrioritizedList"],
        "test_it.py::test_ends_badly": [DRA],
        "test_it.py::test_fails": [DRA],
        LONG: [DRA],
    }


def test_what_takes_long_runs_only_if_a_release_is_named(tmp_path: Path) -> None:
    found = recorded(tmp_path, "")

    assert found["left_out"][LONG] == ["`make e2e-matrix`"]
    assert LONG not in found["outcomes"]
    assert found["outcomes"]["test_it.py::test_plain"] == "passed"


def test_what_a_person_did_not_ask_for_is_not_called_left_out(tmp_path: Path) -> None:
    found = recorded(tmp_path, "1.37.1", "-k", "plain")

    assert (found["outcomes"], found["left_out"]) == ({"test_it.py::test_plain": "passed"}, {})
