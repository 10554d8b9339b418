# SPDX-License-Identifier: Apache-2.0
"""Which tests `make quick` runs for a change."""

from pathlib import Path

import pytest

from hack.suite import touched

ROOT = Path(__file__).resolve().parents[2]
IMPORTERS = {"kube": {"daemon", "cli"}, "errors": {"kube"}, "cel": {"allocator"}}
TESTS = {
    "tests/unit/kube/test_http.py": frozenset({"dra_driver.kube.http"}),
    "tests/unit/kube/test_auth.py": frozenset({"dra_driver.kube.auth"}),
    "tests/unit/daemon/test_signals.py": frozenset({"dra_driver.daemon"}),
    "tests/unit/cli/test_main.py": frozenset({"dra_driver.cli.main"}),
    "tests/unit/cel/syntax/test_parser.py": frozenset({"dra_driver.cel.syntax.parser"}),
    "tests/unit/allocator/test_search.py": frozenset({"dra_driver.allocator.search"}),
    "tests/unit/test_errors.py": frozenset({"dra_driver.errors"}),
    "tests/property/test_cel_front.py": frozenset({"dra_driver.cel.syntax.parser", "hypothesis"}),
    "tests/integration/test_daemon.py": frozenset({"tests.support.stages", "dra_driver.cel"}),
    "tests/packaging/test_docs.py": frozenset({"dra_driver.kube.wire"}),
    "tests/packaging/test_chart.py": frozenset(),
}


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ([], []),
        (["LICENSE"], []),
        (
            ["dra_driver/kube/http.py"],
            [
                "tests/unit/cli/test_main.py",
                "tests/unit/daemon/test_signals.py",
                "tests/unit/kube/test_auth.py",
                "tests/unit/kube/test_http.py",
            ],
        ),
        # Importers of importers are left to the whole run.
        (
            ["dra_driver/errors.py"],
            [
                "tests/unit/kube/test_auth.py",
                "tests/unit/kube/test_http.py",
                "tests/unit/test_errors.py",
            ],
        ),
        (
            ["dra_driver/cel/syntax/parser.py"],
            [
                "tests/property/test_cel_front.py",
                "tests/unit/allocator/test_search.py",
                "tests/unit/cel/syntax/test_parser.py",
            ],
        ),
        # A new room that nobody imports yet.
        (["dra_driver/sharing/mps.py"], []),
        (["tests/unit/kube/test_auth.py"], ["tests/unit/kube/test_auth.py"]),
        (
            ["tests/unit/kube/conftest.py"],
            ["tests/unit/kube/test_auth.py", "tests/unit/kube/test_http.py"],
        ),
        (["tests/unit/cel/costs/costs.jsonl"], ["tests/unit/cel/syntax/test_parser.py"]),
        (["tests/support/stages.py"], ["tests/integration/test_daemon.py"]),
        (["docs/why.md", "docs2/x"], ["tests/packaging/test_docs.py"]),
        (["helm/dra-driver/values.yaml"], ["tests/packaging/test_chart.py"]),
    ],
)
def test_a_change_selects_the_tests_of_its_rooms_and_of_their_direct_importers(
    changed: list[str], wanted: list[str]
) -> None:
    assert touched.selected(changed, IMPORTERS, TESTS) == wanted


def test_the_importers_of_the_rooms_are_those_of_this_package(tmp_path: Path) -> None:
    importers = touched.importers_by_room(tmp_path)
    assert {"planning", "services", "node"} <= importers["model"]
    assert "cel" not in importers["allocator"]
    assert all(room not in others for room, others in importers.items())


def test_what_tests_import_is_read_from_their_sources() -> None:
    tests = touched.imports_of_tests(ROOT)
    assert {"hack.suite", "pytest", "pathlib"} <= tests["tests/unit/test_touched.py"]
    assert "tests.support.stages" in tests["tests/integration/test_daemon.py"]
    assert "tests.support.starting" in tests["tests/unit/test_starting.py"]


def test_every_test_that_a_file_outside_the_package_names_exists() -> None:
    assert [test for test in touched.OF_FILES.values() if not (ROOT / test).exists()] == []
    assert [part for part in touched.OF_FILES if not (ROOT / part).exists()] == []
