# SPDX-License-Identifier: Apache-2.0
"""The real shells complete what the program proposes. bash is on every machine, so tests/unit has it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dra_driver.cli.completion import SCRIPTS
from hack.testbed.onenode import preflight

pytestmark = pytest.mark.real
SECONDS = 60
# What zsh's own functions would do with the proposals: compadd prints them.
ZSH = """
compdef() { :; }
_files() { print -l files; }
_describe() { local name=$2; print -l -- "${(P@)name%%:*}"; }
source "$1"
words=("${@[2,-1]}")
CURRENT=${#words}
_dra_driver
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`dra-driver`, in a folder of its own."""
    preflight.require()
    found = tmp_path_factory.mktemp("bin") / "dra-driver"
    found.write_text(f'#!/bin/sh\nexec {sys.executable} -m dra_driver "$@"\n')
    found.chmod(0o755)
    return found


def said(program: Path, *command: str) -> list[str]:
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
        env={**os.environ, "PATH": path, "HOME": str(program.parent)},
    )
    assert ended.stderr == ""
    return ended.stdout.splitlines()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_has_no_wrong_syntax(shell: str, program: Path) -> None:
    script = program.with_name(f"script.{shell}")
    script.write_text(SCRIPTS[shell])
    assert said(program, shell, "-n", str(script)) == []


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (("mig",), ["migration"]),
        (("explain", "--add-node", "h100"), ["h100x8"]),
        (("nonsense-that-nobody-wrote",), []),
    ],
)
def test_each_shell_proposes_the_same(
    program: Path, words: tuple[str, ...], proposed: list[str]
) -> None:
    script = program.with_name("script.zsh")
    script.write_text(SCRIPTS["zsh"])
    by_zsh = said(program, "zsh", "-f", "-c", ZSH, "zsh", str(script), "dra-driver", *words)
    assert by_zsh == proposed
    script = program.with_name("script.fish")
    script.write_text(SCRIPTS["fish"])
    line = " ".join(("dra-driver", *words))
    asked = f"source {script}; complete --do-complete '{line}'"
    by_fish = said(program, "fish", "--no-config", "-c", asked)
    assert [one.partition("\t")[0] for one in by_fish] == proposed
