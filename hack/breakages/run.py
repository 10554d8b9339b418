# SPDX-License-Identifier: Apache-2.0
"""Break the driver on purpose, one wrong at a time, and see who notices: python hack/breakages/run.py [names]

Two kinds: patches (hack/breakages/patches/*.patch, each a mistake that was made or could be), and mutants made by rule
(mutants.py). Each is put into a copy of the last commit; the tests nearest to the broken file run first, then those with real
processes, then the random walk, until one fails. Nobody noticing is a finding: write a test, or name the mutant in
equivalents.yaml with the reason why nothing can be seen of it.

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
from mutants import drawn

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Against a mutant that never ends: ten times what the slowest stage takes on a busy machine.
HANG_SECONDS = 1800
NOBODY = "nobody"
WITH_PROCESSES = ("tests/property", "tests/crash", "tests/integration", "tests/faults")
WALK = ("hack/random-walk", "--steps", "2000", "--seed", "2026")


@dataclass(frozen=True, slots=True)
class Breakage:
    """One wrong: what is broken, how it is put into a copy of the tree, and the tests nearest to it."""

    name: str
    what: str
    apply: Callable[[Path], None]
    nearest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Who noticed it: a test's id, the walk's step, or nobody."""

    breakage: Breakage
    noticed_by: str
    seconds: float


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
        yield Breakage(path.stem, what, _patch(path), _nearest([*tests, *map(_tests_of, files)]))


def mutants(count: int, seed: int) -> Iterator[Breakage]:
    """Mutants of the code that keeps devices apart, but those that change nothing anybody could see."""
    for number, mutant in enumerate(drawn(ROOT, count, seed), 1):
        if mutant.key not in equivalents():
            yield Breakage(
                f"mutant-{number:03}",
                f"{mutant.file}:{mutant.line} {mutant.key.partition(':')[2]}",
                _write(mutant.file, mutant.source),
                _nearest([_tests_of(mutant.file)]),
            )


def equivalents() -> dict[str, str]:
    """Mutants of which nothing can be seen, and why."""
    found: dict[str, str] = yaml.safe_load((HERE / "equivalents.yaml").read_text()) or {}
    return found


def _patch(path: Path) -> Callable[[Path], None]:
    def apply(tree: Path) -> None:
        subprocess.run(["git", "apply", "--recount", str(path)], cwd=tree, check=True)

    return apply


def _write(file: str, source: str) -> Callable[[Path], None]:
    def apply(tree: Path) -> None:
        (tree / file).write_text(source, encoding="utf-8")

    return apply


def _tests_of(file: str) -> str:
    """The tests of the broken file's room, its own first."""
    path = Path(file)
    if path.parts[0] != "dra_driver":
        return "tests/packaging"
    return str(Path("tests/unit", *path.parts[1:-1], f"test_{path.stem}.py"))


def _nearest(tests: Sequence[str]) -> tuple[str, ...]:
    there = [test for test in tests if (ROOT / test.partition("::")[0]).exists()]
    rooms = [str(Path(test).parent) for test in there if test.startswith("tests/unit/")]
    return tuple(dict.fromkeys([*there, *rooms, "tests/unit/services", "tests/unit/planning"]))


@contextmanager
def _copy(parent: Path) -> Iterator[Path]:
    """A copy of the last commit, for one worker to break and mend again."""
    tree = Path(tempfile.mkdtemp(prefix="tree-", dir=parent))
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(tree)], check=True)
    yield tree
    shutil.rmtree(tree)


def noticed(breakage: Breakage, tree: Path) -> Found:
    """Break the copy, ask everybody in turn, mend it."""
    begun = time.monotonic()
    try:
        breakage.apply(tree)
        by = next(filter(None, (ask(tree) for ask in _askers(breakage))), NOBODY)
    finally:
        for command in (("reset", "--hard", "--quiet"), ("clean", "-fdq")):
            subprocess.run(["git", *command], cwd=tree, check=True)
    return Found(breakage, by, time.monotonic() - begun)


def _askers(breakage: Breakage) -> Iterator[Callable[[Path], str]]:
    yield lambda tree: _pytest(tree, breakage.nearest)
    yield lambda tree: _pytest(tree, WITH_PROCESSES)
    yield _walk


def _pytest(tree: Path, tests: Sequence[str]) -> str:
    options = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--tb=no", "-n", "0")
    output = _output(tree, ("-m", "pytest", *options, *tests))
    if output is None:
        return "the tests hang"
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", output[1], re.MULTILINE)
    return found[1] if found else ("" if output[0] == 0 else f"pytest ends with {output[0]}")


def _walk(tree: Path) -> str:
    output = _output(tree, WALK)
    if output is None:
        return "the walk hangs"
    steps = re.findall(r"^\s*(\d+)\b", output[1], re.MULTILINE)
    return "" if output[0] == 0 else f"the walk, by step {steps[-1] if steps else '?'}"


def _output(tree: Path, arguments: Sequence[str]) -> tuple[int, str] | None:
    """Exit code and output of a Python program of the copy; None when it does not end."""
    environment = {
        "PYTHONPATH": str(tree),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
    }
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=HANG_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return None
    return process.returncode, output


def replay(breakages: Sequence[Breakage], workers: int) -> Iterator[Found]:
    """Each in turn, as many side by side as there are copies."""
    with tempfile.TemporaryDirectory(prefix="breakages-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        with ThreadPoolExecutor(workers) as pool:
            copies = [_copy(Path(folder)) for _ in range(workers)]
            for copy in copies:
                trees.put(copy.__enter__())

            def one(breakage: Breakage) -> Found:
                tree = trees.get()
                try:
                    return noticed(breakage, tree)
                finally:
                    trees.put(tree)

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
        unnoticed += found.noticed_by == NOBODY
        print(lines[-1], flush=True)
    share = 100 * (len(asked) - unnoticed) / max(len(asked), 1)
    print(f"\n{len(asked) - unnoticed} of {len(asked)} noticed ({share:.0f} %)")
    if chosen.table:
        chosen.table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(share < chosen.at_least)


if __name__ == "__main__":
    sys.exit(main())
