# SPDX-License-Identifier: Apache-2.0
"""An exit code means the same in every command, and no command has one of its own."""

import ast
import signal
from pathlib import Path

import pytest

from dra_driver.cli.main import COMMANDS as COMMAND_LINE
from dra_driver.cli.main import KUBECTL_COMMANDS, kubectl, main
from dra_driver.model import exit_codes
from dra_driver.model.exit_codes import COMMANDS, KUBECTL, MEANINGS, WRONG_USAGE, summary

ROOT = Path(__file__).resolve().parents[3]
MODULES = [
    *(
        ROOT / "dra_driver" / "cli" / f"{name.replace('-', '_')}.py"
        for name in (*COMMANDS, "main", "overview", "version", "complete")
    ),
    ROOT / "dra_driver" / "daemon" / "lifecycle.py",
]
NAMES = {
    name: value for name, value in vars(exit_codes).items() if name.isupper() and type(value) is int
}


def test_every_command_and_every_code_is_described() -> None:
    assert list(COMMANDS) == list(COMMAND_LINE)
    assert list(KUBECTL) == list(KUBECTL_COMMANDS)
    assert list(NAMES.values()) == list(MEANINGS)
    assert {code for codes in COMMANDS.values() for code in codes} | {WRONG_USAGE} == set(MEANINGS)


def test_codes_of_signals_are_those_of_a_shell() -> None:
    signals = {exit_codes.INTERRUPTED: signal.SIGINT, exit_codes.TERMINATED: signal.SIGTERM}
    assert {code - 128: code for code in signals} == {
        number: code for code, number in signals.items()
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_its_codes(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert summary(command) in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", KUBECTL)
def test_the_help_of_the_plugin_has_its_codes(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        kubectl([command, "--help"])
    assert summary(command, KUBECTL) in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_ends_with_the_code_for_wrong_usage(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--no-such-flag"])
    assert left.value.code == WRONG_USAGE
    assert "usage: dra-driver" in capsys.readouterr().err


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_command_writes_no_code_as_a_number(path: Path) -> None:
    """Each `return` of a function that returns an int, and each exit of the process."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and getattr(node.returns, "id", "") == "int":
            found += [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("exit", "_exit"):
            found += node.args[:1]
    assert [node.value for node in found if isinstance(node, ast.Constant)] == []


@pytest.mark.parametrize("command", ["record", "cleanup", "release", "demo", "devices", "explain"])
def test_the_codes_that_a_command_uses_are_those_that_it_documents(command: str) -> None:
    tree = ast.parse((ROOT / "dra_driver" / "cli" / f"{command}.py").read_text())
    used = {
        NAMES[node.id] for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in NAMES
    }
    assert used - {WRONG_USAGE} <= COMMANDS[command].keys()


@pytest.mark.parametrize(("module", "command"), [("overview", "usage"), ("version", "version")])
def test_the_codes_that_the_plugin_uses_are_those_that_it_documents(
    module: str, command: str
) -> None:
    tree = ast.parse((ROOT / "dra_driver" / "cli" / f"{module}.py").read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert {NAMES[name] for name in names & NAMES.keys()} == KUBECTL[command].keys()
