# SPDX-License-Identifier: Apache-2.0
"""Does everything that this repository installs come by hash, and as a wheel?"""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from driverimage import wheels

from hack.testbed.onenode import products
from tests.support import tree_files

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("dev", "runtime", "lock", "release")
# Where pip is started; each has its test below.
CALLERS = {
    "hack/setup",
    "hack/lock",
    "hack/bench/cost/installed.py",
    "tests/e2e/test_bare_python.py",  # from a folder of locked wheels, in a network without any other machine
    "hack/image/driverimage/wheels.py",
}


def programs() -> list[Path]:
    folders = ("hack/", "tests/", ".ci/", "Makefile", "Dockerfile", "dra_driver/")
    paths = [ROOT / name for name in tree_files.files() if name.startswith(folders)]
    return [path for path in paths if path.is_file() and path != Path(__file__)]


def test_pip_is_started_in_known_places_only() -> None:
    starts = re.compile(
        r"""["' ]-m["', ]+pip["' ,]|/bin/pip\b|\bpip3? (?:install|download)\b|\buv pip (?:install|sync)\b"""
    )
    found = {
        path.relative_to(ROOT).as_posix()
        for path in programs()
        if path.suffix != ".patch"  # a deliberate breakage is started by nobody
        and starts.search(path.read_bytes().decode("utf-8", "replace"))
    }  # fmt: skip
    assert found == CALLERS


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_of_a_lock_has_a_version_and_hashes(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    entries = re.findall(r"^(\S.*(?:\n    .*)*)$", text, re.MULTILINE)
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9-]+(\[[a-z0-9,-]+\])?==\S+ (; .*)?\\\n", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
    assert "://" not in text
    assert "--index" not in text


def test_the_build_backend_is_the_locked_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    locked = re.findall(
        r"^(hatchling==\S+)", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE
    )
    assert project["build-system"]["requires"] == locked


def test_a_new_lock_takes_the_build_backend_along(tmp_path: Path) -> None:
    lock = runpy.run_path(str(ROOT / "hack" / "lock"))
    (tmp_path / "requirements").mkdir()
    dev = tmp_path / "requirements" / "dev.txt"
    dev.write_text("hatchling==9.9.9 \\\n    --hash=sha256:0\n")
    before = (ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(before)
    lock["pin_backend"](tmp_path)
    after = (tmp_path / "pyproject.toml").read_text()
    assert tomllib.loads(after)["build-system"]["requires"] == ["hatchling==9.9.9"]
    changed = set(after.splitlines()) ^ set(before.splitlines())
    assert len(changed) == 2
    dev.write_text("")
    with pytest.raises(SystemExit, match="has no hatchling"):
        lock["pin_backend"](tmp_path)


def test_a_lock_is_made_by_the_tool_of_the_lock_before(tmp_path: Path) -> None:
    said = commands(tmp_path, "hack/lock")
    installing = [line for line in said if " pip install " in line]
    assert installing == [
        f"{said_by(installing)} -m pip install --quiet --require-hashes --only-binary :all: -r requirements/lock.txt"
    ]
    compiled = [line.split(" pip compile ")[1] for line in said if "/uv pip compile" in line]
    assert [line.split()[-1] for line in compiled] == [f"requirements/{n}.txt" for n in LOCKS]
    assert all("--generate-hashes" in line and "--only-binary :all:" in line for line in compiled)


def said_by(lines: list[str]) -> str:
    return lines[0].partition(" ")[0]


def test_the_environment_is_set_up_from_hashed_wheels_alone(tmp_path: Path) -> None:
    said = commands(tmp_path, "hack/setup", "python")
    installing = [line.partition(" -m pip install ")[2] for line in said if " pip install " in line]
    assert installing == [
        "--quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements/dev.txt",
        "--quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --editable .",
    ]


def test_the_images_wheels_come_by_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = a_recorder(tmp_path)
    monkeypatch.setattr(sys, "executable", str(recorder))
    wheels.download(Path("lock.txt"), tmp_path)
    (said,) = [line for line in (tmp_path / "said").read_text().splitlines() if "download" in line]
    assert {"--no-deps", "--require-hashes", "--only-binary=:all:", "--requirement=lock.txt"} <= {
        *said.split()
    }


def test_so_do_those_of_the_measurements() -> None:
    text = (ROOT / "hack" / "bench" / "cost" / "installed.py").read_text()
    calls = re.findall(r"_pip\(interpreter, (.*)\)$", text, re.MULTILINE)
    assert calls == [
        '"--require-hashes", "--only-binary=:all:", "-r", str(tree / LOCKED)',
        '"--no-index", "--no-deps", "--force-reinstall", str(wheel)',
    ]


# A Go that has nothing to offer.
GO = """#!/bin/sh
echo "$* GONOSUMDB=$GONOSUMDB GOFLAGS=$GOFLAGS" >> {said}
case "$*" in
    "env GOSUMDB") echo "{database}" ;;
    *) echo '{{"GoMod": "/dev/null"}}' ;;
esac
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    def install(database: str) -> Path:
        program, said = tmp_path / "bin" / "go", tmp_path / "said"
        program.parent.mkdir()
        program.write_text(GO.format(said=said, database=database))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return said

    return install


def test_go_modules_are_verified_whatever_this_machine_excepts(
    tmp_path: Path, go: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONOSUMDB", "*")
    monkeypatch.setenv("GOFLAGS", "-insecure")
    said = go("sum.example.com")
    assert products.upstream_go_mod("k8s.io/kubernetes", "1.37.1", tmp_path) == ""
    assert said.read_text().splitlines() == [
        "env GOSUMDB GONOSUMDB=none GOFLAGS=-mod=mod -trimpath",
        "mod download -json k8s.io/kubernetes@v1.37.1 GONOSUMDB=none GOFLAGS=-mod=mod -trimpath",
    ]


def test_without_the_checksum_database_nothing_is_built(
    tmp_path: Path, go: Callable[[str], Path]
) -> None:
    said = go("off")
    with pytest.raises(products.BuildError, match="checksum database is switched off"):
        products.upstream_go_mod("k8s.io/kubernetes", "1.37.1", tmp_path)
    assert "download" not in said.read_text()


# A Python that writes down what it is asked for, and makes environments of itself.
RECORDER = """#!/bin/sh
echo "$0 $*" >> {said}
if [ "$1 $2" = "-m venv" ]; then
    for last in "$@"; do :; done
    mkdir -p "$last/bin"
    cp "$0" "$last/bin/python"
    cp "$0" "$last/bin/uv"
fi
"""


def a_recorder(folder: Path) -> Path:
    recorder = folder / "bin" / "python"
    recorder.parent.mkdir()
    recorder.write_text(RECORDER.format(said=folder / "said"))
    recorder.chmod(0o755)
    return recorder


def commands(folder: Path, program: str, *arguments: str) -> list[str]:
    """Run a program of hack/ in a folder of its own; answers what it started."""
    for name in (program, "pyproject.toml", "requirements/dev.txt"):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    recorder = a_recorder(folder)
    environment = {**os.environ, "PATH": f"{recorder.parent}:{os.environ['PATH']}"}
    command = [str(folder / program), *arguments]
    if program == "hack/lock":
        # It starts the Python that runs it.
        start = "import runpy, sys; sys.executable = sys.argv.pop(1); runpy.run_path(sys.argv[1], run_name='__main__')"
        command = [sys.executable, "-c", start, str(recorder), *command]
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=60)
    return (folder / "said").read_text().splitlines()
