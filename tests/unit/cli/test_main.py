# SPDX-License-Identifier: Apache-2.0
"""The command line: subcommands, flags and exit codes."""

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver import __version__
from dra_driver.cli.arguments import add_arguments
from dra_driver.cli.main import COMMANDS, KUBECTL_COMMANDS, kubectl, main, parser
from dra_driver.cli.settings import settings_from
from dra_driver.config.options import OPTIONS
from dra_driver.config.settings import BackendSettings


def test_every_command_is_in_the_help(capsys) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert set(COMMANDS) <= set(text.split())


@pytest.mark.parametrize(
    ("program", "words", "flags"),
    [
        (main, ["help"], ["--help"]),
        (main, ["help", "explain"], ["explain", "--help"]),
        (main, ["version"], ["--version"]),
        (kubectl, ["help"], ["--help"]),
        (kubectl, ["help", "free"], ["free", "--help"]),
    ],
)
def test_help_and_version_may_be_typed_as_commands(
    capsys, program: Callable[[list[str]], int], words: list[str], flags: list[str]
) -> None:
    said = []
    for arguments in (words, flags):
        with pytest.raises(SystemExit) as left:
            program(arguments)
        assert left.value.code == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != ""


@pytest.mark.parametrize(
    ("program", "name"), [(main, "dra-driver"), (kubectl, "kubectl dra")], ids=["driver", "kubectl"]
)
def test_without_a_command_those_that_there_are_are_told(
    capsys, program: Callable[[list[str]], int], name: str
) -> None:
    with pytest.raises(SystemExit) as left:
        program([])
    assert left.value.code == 64
    last = capsys.readouterr().err.splitlines()[-1]
    commands = ", ".join(COMMANDS if program is main else KUBECTL_COMMANDS)
    assert last == (
        f"{name}: error: give a command; there are {commands}; `{name} --help` says what each does"
    )


def test_every_setting_is_a_flag_of_run(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = capsys.readouterr().out
    assert all(option.flag in text and f"[{option.variable}]" in text for option in OPTIONS)


def test_the_version_is_the_packages(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"dra-driver {__version__}\n"


@pytest.mark.parametrize(
    "arguments", [[], ["fly"], ["run", "--no-such-flag"], ["devices", "extra"]]
)
def test_wrong_usage_is_exit_code_64(capsys, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 64
    assert "usage: dra-driver" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "usage", "said"),
    [
        (["explan", "pod/x"], "dra-driver [-h]", "no command 'explan'; did you mean explain?"),
        (
            ["--from", "r.json", "explain", "-A"],
            "dra-driver [-h]",
            "flags come after the command: `dra-driver explain --from r.json -A`",
        ),
        (["--from", "r.json"], "dra-driver [-h]", "no command 'r.json'; there are run,"),
        (["fly", "explain"], "dra-driver [-h]", "no command 'fly'; there are run,"),
        (["fly"], "dra-driver [-h]", "no command 'fly'; there are run, devices, doctor,"),
        (["explain", "--no-such"], "dra-driver explain [-h]", "arguments: --no-such\n"),
        (["record", "f", "more"], "dra-driver record [-h]", "arguments: more\n"),
        (
            ["convert", "--from", "a"],
            "dra-driver convert [-h]",
            "arguments: --from\n",
        ),
        (["devices", "--jsn=1"], "dra-driver devices [-h]", "--jsn=1; did you mean --json?\n"),
        (["explain", "--a\033[31m"], "dra-driver explain [-h]", "arguments: --a\\x1b[31m\n"),
    ],
)
def test_wrong_usage_shows_the_usage_of_the_command_and_what_was_meant(
    capsys, arguments: list[str], usage: str, said: str
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 64
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"usage: {usage}")
    assert said in captured.err


def test_a_command_that_is_left_out_of_the_image_says_so(capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "dra_driver.cli.demo", None)
    with pytest.raises(SystemExit) as left:
        main(["demo"])
    assert left.value.code == 64
    assert capsys.readouterr().err.splitlines()[-1] == (
        "dra-driver: error: the image has no 'demo': install dra-driver on another machine and run it there"
    )


def test_a_library_that_is_missing_is_not_taken_for_a_command(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "dra_driver.cli.demo", raising=False)
    monkeypatch.setitem(sys.modules, "dra_driver.cli.demo_story", None)
    with pytest.raises(ModuleNotFoundError, match=r"dra_driver\.cli\.demo_story"):
        main(["demo"])


def test_an_error_is_one_line_and_exit_code_1(capsys, tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert main(["devices", "--config", str(missing)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"dra-driver: cannot read config file {missing}: ")
    assert captured.err.count("\n") == 1


def test_flags_reach_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("cdi_dir: /from/file\n")
    flags = [
        "--node-name",
        "n1",
        "--backend",
        "mine",
        "--backend-option",
        "a=1",
        "--backend-option",
        "b=2",
    ]
    chosen = parser("run").parse_args(["run", "--config", str(file), *flags])
    settings = settings_from(chosen)
    assert settings.node.name == "n1"
    assert settings.cdi_dir == Path("/from/file")
    assert settings.backends == (BackendSettings("mine", {"a": "1", "b": "2"}),)


def test_the_help_loads_no_server_and_no_client() -> None:
    script = (
        "import sys\nfrom dra_driver.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'grpc', 'urllib3', 'prometheus_client', 'structlog'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_help_loads_no_subcommand_and_no_table_of_settings() -> None:
    script = (
        "import sys\nfrom dra_driver.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(name for name in sys.modules if name.startswith('dra_driver')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    loaded = [
        *("dra_driver", "dra_driver.cli", "dra_driver.cli.interrupt", "dra_driver.cli.main"),
        *("dra_driver.errors",),
        *("dra_driver.model", "dra_driver.model.exit_codes"),
    ]
    assert done.stdout.splitlines()[-1] == str(loaded)


def test_kubectl_has_the_commands_that_look_at_a_cluster(capsys) -> None:
    with pytest.raises(SystemExit):
        kubectl(["--help"])
    text = capsys.readouterr().out
    assert text.startswith("usage: kubectl dra ")
    assert text.splitlines()[2].startswith("devices, claims and what is free of a cluster")
    assert re.findall(r"^    (\w+)", text, re.MULTILINE) == list(KUBECTL_COMMANDS)
    with pytest.raises(SystemExit) as left:
        kubectl(["run"])
    assert left.value.code == 64


def test_an_unknown_subcommand_has_no_arguments() -> None:
    with pytest.raises(ValueError, match="'fly' is no subcommand"):
        add_arguments("fly", argparse.ArgumentParser())


def test_the_environment_names_the_config_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = tmp_path / "none.yaml"
    monkeypatch.setenv("DRA_DRIVER_CONFIG", str(missing))
    assert main(["devices", "--node-name", "node-1"]) == 1
    assert f"cannot read config file {missing}: " in capsys.readouterr().err
    other = tmp_path / "other.yaml"
    assert main(["devices", "--node-name", "node-1", "--config", str(other)]) == 1
    assert f"cannot read config file {other}: " in capsys.readouterr().err
