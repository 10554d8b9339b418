# SPDX-License-Identifier: Apache-2.0
"""Break the driver on purpose, one wrong at a time, and see who notices: python hack/breakages/replay.py [names]

Two kinds: patches (hack/breakages/patches/*.patch, each a mistake that was made or could be), and mutants made by rule
(mutants.py). Each is put into a copy of the last commit; the tests nearest to the broken file run first, then those with real
processes, then the random walk, until one fails. A test or a walk has noticed only if it passes on the unbroken copy, and code that
cannot be imported is no breakage. Nobody noticing is a finding: write a test, or name the mutant in equivalents.yaml with the
reason why nothing can be seen of it.

The table is printed, and written with --table; the exit code is 1 below --at-least percent.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import yaml

from hack.breakages.mutants import Mutant, broken, drawn

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Against a mutant that never ends: ten times what the slowest stage takes on a busy machine.
HANG_SECONDS = 1800
TEST_SECONDS = 120
NOBODY = "nobody"
NOT_IMPORTED = "nobody: the broken code cannot be imported"
WITH_PROCESSES = ("tests/property", "tests/crash", "tests/integration", "tests/faults")
PYTEST = (
    *(
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "--tb=no",
        "-n",
        "0",
    ),
    *("--timeout", str(TEST_SECONDS)),
)
# The first argument is the copy, the others the modules that are broken in it.
IMPORT = """
import importlib, sys
for name in sys.argv[2:]:
    assert importlib.import_module(name).__file__.startswith(sys.argv[1] + "/"), name
"""
HANGS = -1
WALK = ("hack/random-walk", "--steps", "2000", "--seed", "2026")


@dataclass(frozen=True, slots=True)
class Breakage:
    """One wrong: what is broken, how it is put into a copy of the tree, and the tests nearest to it."""

    name: str
    what: str
    files: tuple[str, ...]
    apply: Callable[[Path], None]
    nearest: tuple[str, ...]  # files or single tests
    rooms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """Who noticed it: a test's id, the walk's step, or nobody."""

    breakage: Breakage
    noticed_by: str
    seconds: float

    @property
    def unnoticed(self) -> bool:
        """Whether nobody did."""
        return self.noticed_by.startswith(NOBODY)


def patches() -> Iterator[Breakage]:
    """The patches by name. The text before the diff says what is broken; `tests:` in it names more tests to begin with."""
    for path in sorted((HERE / "patches").glob("*.patch")):
        text = path.read_text(encoding="utf-8")
        head = text.partition("diff --git ")[0]
        words = [line.removeprefix("#").strip() for line in head.splitlines()]
        named = [line.removeprefix("tests:").split() for line in words if line.startswith("tests:")]
        what = " ".join(line for line in words if line and not line.startswith("tests:"))
        files = re.findall(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE)
        tests = [test for group in named for test in group]
        near = _near([*tests, *map(_tests_of, files)])
        yield Breakage(path.stem, what, tuple(files), _patch(path), *near)


def mutants(count: int, seed: int) -> Iterator[Breakage]:
    """Mutants of the code that keeps devices apart, but those that change nothing anybody could see."""
    for number, mutant in enumerate(drawn(ROOT, count, seed), 1):
        if mutant.key not in equivalents():
            yield Breakage(
                f"mutant-{number:03}",
                f"{mutant.file}:{mutant.line} {mutant.key.partition(':')[2]}",
                (mutant.file,),
                _write(mutant),
                *_near([_tests_of(mutant.file)]),
            )


def equivalents() -> dict[str, str]:
    """Mutants of which nothing can be seen, and why."""
    found: dict[str, str] = yaml.safe_load((HERE / "equivalents.yaml").read_text()) or {}
    return found


def _patch(path: Path) -> Callable[[Path], None]:
    def apply(tree: Path) -> None:
        subprocess.run(["git", "apply", "--recount", str(path)], cwd=tree, check=True)

    return apply


def _write(mutant: Mutant) -> Callable[[Path], None]:
    def apply(tree: Path) -> None:
        (tree / mutant.file).write_text(broken(tree, mutant), encoding="utf-8")

    return apply


def _tests_of(file: str) -> str:
    """The tests of the broken file's room, its own first."""
    path = Path(file)
    if path.parts[0] != "dra_driver":
        return "tests/packaging"
    return str(Path("tests/unit", *path.parts[1:-1], f"test_{path.stem}.py"))


def _near(tests: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that are there, and the rooms in which they would stand."""
    files = [test.partition("::")[0] for test in tests]
    rooms = [str(Path(*Path(file).parts[:3])) for file in files if file.startswith("tests/unit/")]
    rooms = [*rooms, "tests/unit/services", "tests/unit/planning"]
    there = [test for test, file in zip(tests, files, strict=True) if (ROOT / file).exists()]
    return tuple(dict.fromkeys(there)), tuple(
        dict.fromkeys(room for room in rooms if (ROOT / room).is_dir())
    )


@contextmanager
def _copy(parent: Path) -> Iterator[Path]:
    """A copy of the last commit, for one worker to break and mend again."""
    tree = Path(tempfile.mkdtemp(prefix="tree-", dir=parent))
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(tree)], check=True)
    yield tree
    shutil.rmtree(tree)


class Room:
    """One worker's copy of the tree, which is broken and mended again."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._sound: dict[tuple[str, ...], bool] = {}

    def replay(self, breakage: Breakage) -> Found:
        """Break the copy, ask everybody in turn, mend it."""
        begun = time.monotonic()
        try:
            breakage.apply(self._tree)
            by = self._noticed(breakage)
        finally:
            self._mend()
        return Found(breakage, by, time.monotonic() - begun)

    def _noticed(self, breakage: Breakage) -> str:
        if not self._is_imported(breakage.files):
            return NOT_IMPORTED
        for tests in filter(None, (breakage.nearest, breakage.rooms, WITH_PROCESSES)):
            by, again = self._pytest(tests)
            if by and self._is_sound(breakage, again):
                return by
        ends, output = self._output(WALK)
        if ends == 0 or not self._is_sound(breakage, WALK):
            return NOBODY
        steps = re.findall(r"^seed \d+, step (\d+)", output, re.MULTILINE)
        return f"the walk, by step {steps[-1]}" if steps else "the walk"

    def _is_imported(self, files: Sequence[str]) -> bool:
        """Whether a program that runs here gets the broken modules, and they can be read."""
        paths = [Path(file) for file in files if file.startswith("dra_driver/")]
        names = [".".join(path.with_suffix("").parts) for path in paths if path.suffix == ".py"]
        ends, _ = self._output(("-c", IMPORT, str(self._tree), *names))
        return ends == 0

    def _pytest(self, tests: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """Who noticed, and how to ask it again."""
        ends, output = self._output((*PYTEST, *tests))
        # Without what stands in brackets: a test's parameters may be words, with spaces between them.
        found = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", output, re.MULTILINE)
        if found:
            return found[1], (*PYTEST, found[1])
        return ("" if ends == 0 else f"pytest ends with {ends}"), (*PYTEST, *tests)

    def _is_sound(self, breakage: Breakage, arguments: tuple[str, ...]) -> bool:
        """Whether the same passes without the breakage."""
        if arguments not in self._sound:
            self._mend()
            self._sound[arguments] = self._output(arguments)[0] == 0
            breakage.apply(self._tree)
        return self._sound[arguments]

    def _mend(self) -> None:
        for command in (("reset", "--hard", "--quiet"), ("clean", "-fdq")):
            subprocess.run(["git", *command], cwd=self._tree, check=True)

    def _output(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Exit code and output of a Python program of the copy; one that does not end is killed."""
        environment = {
            "PYTHONPATH": str(self._tree),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
        }
        with subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self._tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=HANG_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                return HANGS, ""
        return process.returncode, output


def replay(breakages: Sequence[Breakage], workers: int) -> Iterator[Found]:
    """Each in turn, as many side by side as there are copies."""
    with tempfile.TemporaryDirectory(prefix="breakages-") as folder:
        rooms: SimpleQueue[Room] = SimpleQueue()
        with ThreadPoolExecutor(workers) as pool:
            copies = [_copy(Path(folder)) for _ in range(workers)]
            for copy in copies:
                rooms.put(Room(copy.__enter__()))

            def one(breakage: Breakage) -> Found:
                room = rooms.get()
                try:
                    return room.replay(breakage)
                finally:
                    rooms.put(room)

            yield from pool.map(one, breakages)


def row(found: Found) -> str:
    """One line of the table."""
    what = found.breakage.what.replace("|", "\\|")
    return f"| {found.breakage.name} | {what} | {found.noticed_by} | {found.seconds:.0f} |"


def main() -> int:
    """Replay what was asked for; 1 when too few were noticed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="patches or mutants by name; all without any")
    parser.add_argument("--mutants", type=int, default=64, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--at-least", type=float, default=95, metavar="PERCENT")
    parser.add_argument("--table", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    asked = [*patches(), *mutants(chosen.mutants, chosen.seed)]
    asked = [one for one in asked if not chosen.names or one.name in chosen.names]
    lines = ["| breakage | what is broken | noticed by | s |", "| --- | --- | --- | --- |"]
    print("\n".join(lines), flush=True)
    unnoticed = 0
    for found in replay(asked, chosen.workers):
        lines.append(row(found))
        unnoticed += found.unnoticed
        print(lines[-1], flush=True)
    share = 100 * (len(asked) - unnoticed) / max(len(asked), 1)
    print(f"\n{len(asked) - unnoticed} of {len(asked)} noticed ({share:.0f} %)")
    if chosen.table:
        chosen.table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(share < chosen.at_least)


if __name__ == "__main__":
    sys.exit(main())
