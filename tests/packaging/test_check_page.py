# SPDX-License-Identifier: Apache-2.0
"""Does docs/check.md show what `check` and `convert` really print, and do the hooks for pre-commit name a command that exists?"""

import json
import re
from pathlib import Path

import pytest
import yaml

from dra_driver.cli.main import COMMANDS, main, parser

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "check.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def shown(text: str) -> tuple[list[str], str]:
    first, _, output = text.partition("\n")
    return first.removeprefix("$ dra-driver ").split(), output


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def test_the_findings_that_are_shown_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    Path("claim.yaml").write_text(blocks("yml")[0])
    arguments, output = shown(blocks("text")[0])
    assert main(arguments) == 1
    assert capsys.readouterr().out == output


def test_fix_makes_the_file_that_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Path("claim.yaml").write_text(blocks("yml")[0])
    assert main(["check", "--fix", "claim.yaml"]) == 0
    assert Path("claim.yaml").read_text() == blocks("yaml")[0]
    assert main(["check", "--strict", "claim.yaml"]) == 0


def test_convert_writes_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pod.yaml").write_text(blocks("yml")[1])
    arguments, output = shown(blocks("text")[1])
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out == output
    assert captured.err == "dra-driver: fits on h100x8: the devices fit on 1 of 1 nodes\n"
    Path("converted.yaml").write_text(captured.out)
    assert main(["check", "--strict", "converted.yaml"]) == 0


def test_the_hook_of_pre_commit_is_the_command() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program, command = hook["entry"].split()
    assert (program, command in COMMANDS, hook["language"]) == ("dra-driver", True, "python")
    (shown_hook,) = yaml.safe_load(blocks("yaml")[1])["repos"][0]["hooks"]
    assert shown_hook["id"] == hook["id"]


def test_the_gate_in_ci_is_commands_that_exist() -> None:
    (job,) = yaml.safe_load(blocks("yaml")[2])["jobs"].values()
    lines = [one.get("run", "").partition(" > ")[0].split() for one in job["steps"]]
    ours = [words[1:] for words in lines if words[:1] == ["dra-driver"]]
    assert [verb for verb, *_ in ours] == ["check", "explain"]
    for verb, *rest in ours:
        parser(verb, program="dra-driver", commands=COMMANDS).parse_args([verb, *rest])


def test_the_schema_for_editors_is_that_of_its_file() -> None:
    schema, _, document = blocks("yaml")[3].partition("\n")
    path = schema.partition("/dra-driver/docs/")[2]
    found = json.loads((ROOT / "docs" / path).read_text())
    assert yaml.safe_load(document).keys() <= found["properties"].keys()


def test_the_flags_that_are_described_exist(capsys: pytest.CaptureFixture[str]) -> None:
    text = ""
    for command in ("check", "convert"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text += capsys.readouterr().out
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert len(named) == 9
    assert [flag for flag in named if flag not in text] == []
