# SPDX-License-Identifier: Apache-2.0
"""Which words are proposed where the user is typing, by the program and by the scripts of the shells."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.cli import completion_values
from dra_driver.cli.complete import Answer, complete
from dra_driver.cli.completion import SCRIPTS
from dra_driver.cli.completion_values import Asked, names
from dra_driver.cli.main import (
    COMMANDS,
    KUBECTL,
    KUBECTL_COMMANDS,
    command_line,
    kubectl,
    kubectl_complete,
    main,
)
from dra_driver.testing.fake_api import FakeApi, refusal
from tests.support.fleet_api import small_cluster

Propose = Callable[..., list[str]]
SECONDS = 60


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    """A cluster that the environment names, with a deployment beside its claims."""
    with small_cluster() as found:
        found.put("pods", {"metadata": {"name": "web-0"}})
        found.put("namespaces", {"metadata": {"name": "team"}})
        found.put("namespaces", {"metadata": {"name": "test"}})
        found.kubeconfig(tmp_path / "config")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield found


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def words(*typed: str, program: str = KUBECTL) -> list[str]:
    return [word for word, _ in answer(*typed, program=program).candidates]


def answer(*typed: str, program: str = KUBECTL) -> Answer:
    commands = KUBECTL_COMMANDS if program == KUBECTL else COMMANDS
    return complete(program, commands, typed)


def test_commands_with_what_they_do() -> None:
    assert words() == list(KUBECTL_COMMANDS)
    assert words("", program="dra-driver") == list(COMMANDS)
    found = answer("re", program="dra-driver")
    assert found.candidates == [("record", COMMANDS["record"]), ("release", COMMANDS["release"])]
    assert found.directive == 4


def test_flags_of_the_program_and_of_a_command() -> None:
    assert words("--") == ["--help", "--version"]
    assert words("usage", "--n") == ["--namespace", "--node", "--no-headers"]
    assert ("--no-headers", "leave the first line out") in answer("usage", "--no-").candidates
    assert words("claims", "-A", "--all") == ["--all-namespaces"]
    assert words("nothing", "--") == []


@pytest.mark.parametrize(
    ("program", "command"),
    [
        *(("dra-driver", command) for command in COMMANDS),
        *((KUBECTL, command) for command in KUBECTL_COMMANDS),
    ],
)
def test_all_that_the_parser_takes_is_proposed(program: str, command: str) -> None:
    commands = KUBECTL_COMMANDS if program == KUBECTL else COMMANDS
    parser = command_line(program, commands, command)
    shown = [one for one in parser.arguments if one.help != argparse.SUPPRESS]
    flags = {flag for one in shown for flag in one.option_strings if flag.startswith("--")}
    assert set(words(command, "--", program=program)) == flags
    assert "--help" in flags
    for one in shown:
        if one.choices:
            flag = one.option_strings[-1:]
            assert words(command, *flag, "", program=program) == list(map(str, one.choices))
    assert command in words("", program=program)


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        (("usage", "--by", "n"), ["namespace", "node"]),
        (("usage", "--by=n"), ["--by=namespace", "--by=node"]),
        (("usage", "--by=node", "--by", ""), ["namespace", "class", "node", "product", "driver"]),
        (("devices", "-o", ""), ["text", "wide", "json", "yaml", "name"]),
        (("why", "-o", "j"), ["json"]),
        (("devices", "--no-such=", ""), []),
        (("devices", "--no-such=x"), []),
        (("devices", "x"), []),
        (("free", "gpu", ""), []),
        (("explain", "--add-node", "h100x"), ["h100x8"]),
        (("explain", "--timeout", ""), []),
    ],
)
def test_values_that_need_no_cluster(typed: tuple[str, ...], proposed: list[str]) -> None:
    assert words(*typed) == proposed


def test_shells_and_profiles_of_the_driver() -> None:
    assert words("completion", "", program="dra-driver") == ["bash", "zsh", "fish"]
    assert "h100x8" in words("demo", "--profile", "", program="dra-driver")
    assert words("run", "--log-format", "", program="dra-driver") == ["json", "console"]


@pytest.mark.parametrize(
    "typed",
    [
        ("explain", "-f", ""),
        ("explain", "--from", "x"),
        ("explain", "--from=x"),
        ("devices", "--kubeconfig", ""),
        ("record", ""),
    ],
)
def test_files_are_left_to_the_shell(typed: tuple[str, ...]) -> None:
    assert answer(*typed) == Answer([], 0)


def test_folders_of_a_setting_are_left_to_the_shell() -> None:
    assert answer("run", "--cdi-dir", "", program="dra-driver") == Answer([], 0)


def test_a_config_file_is_left_to_the_shell() -> None:
    assert answer("run", "--config", "", program="dra-driver") == Answer([], 0)


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        (("claims", "-n", "t"), ["team", "test"]),
        (("claims", "--namespace=tea"), ["--namespace=team"]),
        (("devices", "--node", ""), ["n1", "n2"]),
        (("devices", "--driver", ""), ["gpu.example.com", "nic.example.com"]),
        (("free", "g"), ["gpu"]),
        (("free", "--node", "n1", "g"), ["gpu"]),
        (("free", "--node=n1", "-w", "g"), ["gpu"]),
        (("claims", "-n", "team", "n"), ["next", "notebook"]),
        (("claims", "-n", "team", "next", "tr"), ["train"]),
        (("why", "-n", "team", "claim/n"), ["claim/next", "claim/notebook"]),
        (("why", "--namespace=team", "claim", "t"), ["train"]),
        (("why", "claim/"), []),
        (("why", "we"), ["web-0"]),
        (("why", "template/"), []),
        (("why", "deployment/"), []),
        (("why", "rc/"), []),
        (("why", "banana/"), []),
        (("why", "pod/web-0", "pod/w"), ["pod/web-0"]),
    ],
)
def test_names_of_the_cluster(api: FakeApi, typed: tuple[str, ...], proposed: list[str]) -> None:
    assert words(*typed) == proposed


def test_kinds_are_followed_by_no_space(api: FakeApi) -> None:
    assert answer("why", "clai") == Answer([("claim/", "")], 6)
    assert "web-0" in words("why", "")


def test_contexts_of_the_kubeconfig(api: FakeApi, tmp_path: Path) -> None:
    (known,) = words("devices", "--context", "")
    config = str(tmp_path / "config")
    assert words("devices", "--kubeconfig", config, "--context", known[:1]) == [known]
    assert words("devices", "--kubeconfig", str(tmp_path / "none"), "--context", "") == []
    (tmp_path / "odd").write_text("contexts: [1, {}, {name: b}, {name: a}]")
    assert words("devices", "--kubeconfig", str(tmp_path / "odd"), "--context", "") == ["a", "b"]
    (tmp_path / "odd").write_text("contexts: none")
    assert words("devices", "--kubeconfig", str(tmp_path / "odd"), "--context", "") == []


def test_without_a_cluster_there_are_just_no_names(nowhere: None, capsys) -> None:
    assert words("devices", "--node", "") == []
    assert words("devices", "--context", "") == []
    assert capsys.readouterr().err == ""


def test_without_the_right_there_are_just_no_names(api: FakeApi) -> None:
    api.faults.add(refusal(403), verb="list", resource="nodes")
    assert words("devices", "--node", "") == []


def test_nobody_waits_for_a_cluster_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion_values.cluster, "target", lambda _: time.sleep(SECONDS))
    begun = time.monotonic()
    assert names(Asked("", "", None), "nodes", seconds=0.05) == ()
    assert time.monotonic() - begun < SECONDS / 2


def test_the_answer_has_the_form_that_kubectl_reads(capsys) -> None:
    assert kubectl_complete(["usage", "--by", "no"]) == 0
    assert capsys.readouterr().out == "node\n:4\n"
    assert kubectl(["__complete", "fr"]) == 0
    assert capsys.readouterr().out == f"free\t{KUBECTL_COMMANDS['free']}\n:4\n"
    assert main(["__complete", "--vers"]) == 0
    assert capsys.readouterr().out == "--version\tshow program's version number and exit\n:4\n"


@pytest.mark.parametrize("name", ["a\x1b\n:0", "a$(touch${IFS}x)", "a;b", "a`b`", "a b", "*"])
def test_names_that_a_shell_would_read_are_not_proposed(name: str, api: FakeApi, capsys) -> None:
    api.put("pods", {"metadata": {"name": name}})
    assert kubectl(["__complete", "why", "pod/"]) == 0
    assert capsys.readouterr().out == "pod/web-0\n:4\n"


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_script_of_a_shell_is_printed(shell: str, capsys) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == SCRIPTS[shell]


@pytest.mark.parametrize(
    ("line", "proposed"),
    [
        (("usage", "--by", "no"), "node"),
        (("usage", "--by", "=", "no"), "node"),
        (("free", "--no"), "--node --no-headers"),
        (("explain", "--add-node", "h100x8", ":", ""), ""),
        (("record", ""), ""),
    ],
)
def test_bash_completes(tmp_path: Path, line: tuple[str, ...], proposed: str) -> None:
    program = tmp_path / "kubectl-dra"
    call = "import sys; from dra_driver.cli.main import kubectl; sys.exit(kubectl(sys.argv[1:]))"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{call}' \"$@\"\n")
    program.chmod(0o755)
    script = tmp_path / "script"
    quoted = " ".join(f"'{word}'" for word in (program, *line))
    script.write_text(
        f"compopt() {{ :; }}\n{SCRIPTS['bash']}\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(line)}\n"
        '_dra_driver\necho "${COMPREPLY[*]}"\n'
    )
    said = subprocess.run(
        ["bash", str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (said.stdout, said.stderr) == (f"{proposed}\n", "")
