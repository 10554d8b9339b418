# SPDX-License-Identifier: Apache-2.0
"""The man pages are what the command line says. tests/e2e asks groff whether they are troff that can be read."""

import tomllib
from pathlib import Path

import pytest

from dra_driver.cli.main import COMMANDS, KUBECTL_COMMANDS
from hack.man_pages import _text, man_pages

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "man"


def test_the_pages_are_those_of_the_command_line() -> None:
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == man_pages()


def test_each_command_has_a_page() -> None:
    commands = [f"dra-driver-{name}" for name in COMMANDS]
    commands += [f"kubectl-dra-{name}" for name in KUBECTL_COMMANDS]
    assert {path.stem for path in FOLDER.iterdir()} == {"dra-driver", "kubectl-dra", *commands}


def test_the_wheel_has_them_where_man_looks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert shared["docs/man"] == "share/man/man1"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a-b", "a\\-b"),
        (".TH x", "\\&.TH x"),
        ("'x", "\\&'x"),
        ("a\\b", "a\\eb"),
        ("…", "\\[u2026]"),
        ("", ""),
    ],
)
def test_what_troff_would_obey_is_escaped(text: str, escaped: str) -> None:
    assert _text(text) == escaped


def test_a_page_tells_arguments_flags_and_exit_codes() -> None:
    page = (FOLDER / "kubectl-dra-free.1").read_text()
    for part in (
        ".SH SYNOPSIS\n.B kubectl dra free\n[\\fIOPTIONS\\fR] [\\fICLASS\\fR]\n",
        ".SH ARGUMENTS\n.TP\n[\\fICLASS\\fR]\na DeviceClass (default: all)\n",
        ".TP\n\\fB\\-\\-node\\fR \\fINAME\\fR\nonly devices of this node\n",
        ".TP\n\\fB64\\fR\nwrong usage\n",
    ):
        assert part in page
    assert "[\\fISUBJECT\\fR...]" in (FOLDER / "dra-driver-explain.1").read_text()
    assert "\n\\fIFILE\\fR\n" in (FOLDER / "dra-driver-record.1").read_text()
