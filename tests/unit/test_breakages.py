# SPDX-License-Identifier: Apache-2.0
"""Can each deliberate breakage still be made, and is none counted that proves nothing?"""

import ast
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.breakages.mutants import broken, drawn, mutants
from hack.breakages.replay import NOT_IMPORTED, Breakage, Room, equivalents, patches

ROOT = Path(__file__).resolve().parents[2]
PATCHES = sorted(ROOT.glob("hack/breakages/patches/*.patch"))
LEAST = 60  # mutants

Tree = Callable[[], Path]


def git(tree: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=tree, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with one module and a test of it."""
    (tmp_path / "dra_driver").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "dra_driver" / "__init__.py").write_text("")
    (tmp_path / "dra_driver" / "one.py").write_text("ONE = 1\n")
    (tmp_path / "tests" / "test_one.py").write_text(
        "import pytest\nfrom dra_driver.one import ONE\n\n\ndef test_one():\n    assert ONE == 1\n"
        "\n\ndef test_never():\n    assert False\n"
        "\n\n@pytest.mark.parametrize('one', [1], ids=['in words - of its own'])"
        "\ndef test_words(one):\n    assert ONE == one\n"
    )
    for command in (
        ("init", "-q"),
        ("add", "-A"),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "One"),
    ):
        git(tmp_path, *command)
    return tmp_path


def breakage(source: str, *nearest: str) -> Breakage:
    def apply(tree: Path) -> None:
        (tree / "dra_driver" / "one.py").write_text(source)

    return Breakage("one", "what", ("dra_driver/one.py",), apply, nearest)


def test_each_patch_says_what_it_breaks_and_can_be_made() -> None:
    assert len(PATCHES) >= len({*PATCHES}) > 200
    stale = [path.name for path in PATCHES if not applies(path)]
    assert stale == []
    assert [one.name for one in patches() if not one.what or not one.files] == []


def applies(path: Path) -> bool:
    command = ["git", "apply", "--recount", "--check", str(path)]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode == 0


def test_mutants_are_enough_and_the_same_each_time() -> None:
    first = drawn(ROOT, 64, 1)
    assert first == drawn(ROOT, 64, 1)
    assert first != drawn(ROOT, 64, 2)
    assert len({one.key for one in first} - equivalents().keys()) >= LEAST


def test_each_mutant_is_a_program_with_one_wrong() -> None:
    for mutant in drawn(ROOT, LEAST, 1):
        before = (ROOT / mutant.file).read_text(encoding="utf-8")
        after = broken(ROOT, mutant)
        compile(after, mutant.file, "exec")
        assert after != ast.unparse(ast.parse(before)), mutant.key


def test_what_is_called_equivalent_is_a_mutant() -> None:
    keys = [mutant.key for mutant in mutants(ROOT)]
    assert len(keys) == len(set(keys))
    assert equivalents().keys() <= set(keys)
    assert all(equivalents().values())


def test_a_test_that_fails_on_the_broken_copy_alone_has_noticed(tree: Path) -> None:
    room = Room(tree)
    assert room.replay(breakage("ONE = 2\n", "tests/test_one.py::test_one")).noticed_by == (
        "tests/test_one.py::test_one"
    )
    assert (tree / "dra_driver" / "one.py").read_text() == "ONE = 1\n"


def test_a_test_whose_parameters_are_words_has_noticed(tree: Path) -> None:
    found = Room(tree).replay(breakage("ONE = 2\n", "tests/test_one.py::test_words"))
    assert found.noticed_by == "tests/test_one.py::test_words"


def test_a_test_that_fails_anyway_has_not_noticed(tree: Path) -> None:
    found = Room(tree).replay(breakage("ONE = 2\n", "tests/test_one.py::test_never"))
    assert found.unnoticed


def test_code_that_cannot_be_imported_is_no_breakage(tree: Path) -> None:
    found = Room(tree).replay(breakage("ONE = (\n", "tests/test_one.py"))
    assert (found.noticed_by, found.unnoticed) == (NOT_IMPORTED, True)
