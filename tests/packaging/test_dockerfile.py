# SPDX-License-Identifier: Apache-2.0
"""Does the Dockerfile refuse an unpinned base first, copy what exists, and say the same as build.py?"""

import json
import os
import re
import shlex
import subprocess
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from driverimage import archive

from dra_driver import __version__

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "0123456789abcdef" * 4
PINNED = f"python@sha256:{DIGEST}"
Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """Keyword and argument of each instruction, in order."""
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def arguments(keyword: str) -> list[str]:
    return [rest for word, rest in instructions() if word == keyword]


def refusal(image: str) -> subprocess.CompletedProcess[str]:
    """What the Dockerfile's check says, run by a shell as an engine would."""
    command = json.loads(arguments("RUN")[0].replace("/source/", f"{ROOT}/"))
    return subprocess.run(
        command, env={"BASE_IMAGE": image}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "image",
    [PINNED, f"registry.example:5000/a/b@sha256:{DIGEST}", f"python:3.13-slim@sha256:{DIGEST}"],
)
def test_a_base_image_by_digest_is_taken(image: str) -> None:
    ended = refusal(image)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "image",
    [
        "",
        "python",
        "python:3.13-slim",
        "python@sha256:",
        f"@sha256:{DIGEST}",
        f"python@sha256:{DIGEST[1:]}",
        f"python@sha256:{DIGEST}0",
        f"python@sha256:{DIGEST.upper()}",
        f"python@sha256:{DIGEST[1:]}g",
        f"python@md5:{DIGEST}",
        f"a@sha256:{DIGEST}@sha256:{DIGEST}",
        f"python:{DIGEST}",
    ],
)
def test_a_base_image_without_a_whole_digest_is_refused(image: str) -> None:
    ended = refusal(image)
    assert ended.returncode == 1
    assert f'BASE_IMAGE is "{image}": give an image by digest' in ended.stderr


def test_the_base_has_no_default_and_is_checked_before_anything_else() -> None:
    keywords = [word for word, _rest in instructions()]
    assert keywords[:5] == ["ARG", "FROM", "ARG", "COPY", "RUN"]
    assert arguments("ARG") == ["BASE_IMAGE", "BASE_IMAGE"]
    assert arguments("FROM") == ["${BASE_IMAGE} AS build", "scratch"]
    assert "require-digest" in arguments("COPY")[0]
    assert "require-digest" in arguments("RUN")[0]


def let_through(path: str) -> bool:
    """Whether .dockerignore leaves a path in the context: the last line that fits decides."""
    verdict = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!")
            parents = [path, *(str(parent) for parent in Path(path).parents)]
            if any(fnmatchcase(parent, pattern) for parent in parents):
                verdict = line.startswith("!")
    return verdict


def test_what_is_copied_exists_and_is_in_the_context() -> None:
    sources = [
        name
        for rest in arguments("COPY")
        if not rest.startswith("--from")
        for name in shlex.split(rest)[:-1]
    ]
    assert [name for name in sources if not (ROOT / name).exists()] == []
    assert [name for name in sources if not let_through(name)] == []
    assert let_through("dra_driver/cli/main.py")
    assert not let_through(".venv/bin/python")
    assert not let_through(".git/config")


def test_the_wheel_finds_in_the_build_all_that_it_is_made_of() -> None:
    (inside,) = [rest for word, rest in instructions() if word == "RUN" and "collect" in rest]
    command = json.loads(inside)
    assert command[:2] == ["python3", "/source/hack/image/collect.py"]
    copied = " ".join(arguments("COPY"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    needed = ("pyproject.toml", "README.md", "LICENSE", "dra_driver", *shared)
    assert [name for name in needed if f"{name} " not in copied] == []


def test_both_ways_to_build_make_an_image_that_starts_the_same() -> None:
    config = json.loads(archive.configuration([], created=0, labels={}))["config"]
    assert [json.loads(rest) for rest in arguments("ENTRYPOINT")] == [config["Entrypoint"]]
    assert [json.loads(rest) for rest in arguments("CMD")] == [config["Cmd"]]
    assert arguments("USER") == [config["User"]]
    assert arguments("WORKDIR") == [config["WorkingDir"]]
    assert arguments("ENV") == [" ".join(config["Env"])]


def docker_build(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the script with an engine that only writes down how it was called."""
    engine, calls = folder / "engine", folder / "calls"
    engine.write_text(f'#!/bin/sh\nfor word in "$@"; do echo "$word"; done >> {calls}\n')
    engine.chmod(0o755)
    ended = subprocess.run(
        [ROOT / "hack" / "image" / "docker-build", *words],
        env={**os.environ, "DOCKER": str(engine)},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended, calls.read_text().splitlines() if calls.exists() else []


def test_the_script_hands_a_pinned_base_to_the_engine(tmp_path: Path) -> None:
    ended, calls = docker_build(tmp_path, PINNED, "--push")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert calls == [
        "build", "--build-arg", f"BASE_IMAGE={PINNED}",
        "--tag", f"dra-driver/dra-driver:{__version__}", "--push", ".",
    ]  # fmt: skip


@pytest.mark.parametrize("words", [(), ("python:3.13-slim",)], ids=str)
def test_the_script_refuses_before_the_engine_is_called(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    ended, calls = docker_build(tmp_path, *words)
    assert (ended.returncode, calls) == (1, [])
    assert re.search(r"give an image by digest", ended.stderr)
