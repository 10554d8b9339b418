# SPDX-License-Identifier: Apache-2.0
"""What does `dra-driver check` say when its time is over before all files are checked?"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dra_driver.check.check import finder
from dra_driver.check.finding import Finding
from dra_driver.check.fixing import Fixed
from dra_driver.check.given import Given, Known
from dra_driver.cli import check as command
from dra_driver.cli import check_fix
from dra_driver.cli.main import main
from dra_driver.cli.over_files import Limit, OutOfTime, named
from tests.unit.check.findings import claim

BROKEN = claim("deviceClassName: gpu\nselectors: [{cel: {expression: 'true && x'}}]")
WARNED = claim("deviceClassName: gpu.nvida.com")
OLD = claim("deviceClassName: gpu").replace("/v1\n", "/v1beta2\n")
SHORT = ("--timeout", "0.2")  # 2 s on the clock of the wall


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("a.yaml", BROKEN), ("b.yaml", WARNED), ("d.yaml", BROKEN)):
        Path(name).write_text(text)


@pytest.fixture
def pipe() -> str:
    """A file that is opened, and never ends."""
    os.mkfifo("c.yaml")
    return "c.yaml"


def work_for_ever() -> None:
    while True:
        sum(range(1000))


def test_files_that_were_read_in_time_are_checked(
    pipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "a.yaml", pipe, "d.yaml", *SHORT]) == 2
    out, said = capsys.readouterr()
    assert out.startswith("a.yaml:10:51: error: ResourceClaim c: the expression does not compile")
    assert out.endswith("\n1 file: 1 error; 2 files not looked into\n")
    assert said == (
        "dra-driver: gave up after 0.2 s of work (--timeout), or 2 s with what it waited for: 2 of 3 files were not looked into: "
        "c.yaml, d.yaml; give more time, or fewer files\n"
    )


def test_what_may_be_in_a_file_that_was_not_read_is_not_called_missing(
    pipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "b.yaml", *SHORT]) == 0
    assert "[ref-class]" in capsys.readouterr().out
    assert main(["check", "b.yaml", pipe, *SHORT]) == 2
    assert capsys.readouterr().out == "1 file: nothing found; 1 file not looked into\n"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second object of the files takes for ever."""

    def slow_finder(given: Sequence[Given], facts: Known) -> Callable[[Given], list[Finding]]:
        find = finder(given, facts)

        def found(one: Given) -> list[Finding]:
            if one is given[1]:
                work_for_ever()
            return find(one)

        return found

    monkeypatch.setattr(command, "finder", slow_finder)


@pytest.mark.usefixtures("slow")
def test_what_was_found_in_time_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "a.yaml", "d.yaml", *SHORT]) == 2
    assert capsys.readouterr().out.endswith("\n1 file: 1 error; 1 file not looked into\n")


@pytest.mark.usefixtures("slow")
def test_a_file_of_which_one_object_is_checked_is_not_checked_and_leaves_time_for_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a.yaml").write_text(f"{BROKEN}---\n{BROKEN}")
    assert main(["check", "a.yaml", "d.yaml", *SHORT]) == 2
    out = capsys.readouterr().out
    assert out.startswith("d.yaml:10:51: error: ")
    assert out.endswith("\n1 file: 1 error; 1 file not looked into\n")


def test_a_bug_costs_what_is_said_of_its_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaking_finder(given: Sequence[Given], facts: Known) -> Callable[[Given], list[Finding]]:
        find = finder(given, facts)
        return lambda one: find(one) if one.file == "d.yaml" else [][len(one.file)]

    monkeypatch.setattr(command, "finder", breaking_finder)
    assert main(["check", "a.yaml", "d.yaml"]) == 2
    out, said = capsys.readouterr()
    assert out.startswith("d.yaml:10:51: error: ")
    assert out.endswith("\n1 file: 1 error; 1 file not looked into\n")
    assert "dra-driver: a.yaml: this is a bug in dra-driver (IndexError)" in said
    assert "Traceback" in said


def test_if_what_is_about_all_files_takes_too_long_none_is_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "of_all", lambda _given, _facts: work_for_ever())
    assert main(["check", "a.yaml", "d.yaml", *SHORT]) == 2
    assert capsys.readouterr().out == "0 files: nothing is checked; 2 files not looked into\n"


@pytest.mark.usefixtures("slow")
def test_a_file_without_an_object_is_done_when_it_is_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("d.yaml").write_text("a: [\n")
    assert main(["check", "a.yaml", "b.yaml", "d.yaml", *SHORT]) == 2
    out = capsys.readouterr().out
    assert "d.yaml:2:1: error: the file: " in out
    assert out.endswith("\n2 files: 2 errors; 1 file not looked into\n")


@pytest.mark.usefixtures("slow")
def test_documents_say_that_they_are_incomplete(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "a.yaml", "d.yaml", "-o", "json", *SHORT]) == 2
    found = json.loads(capsys.readouterr().out)
    assert [one["file"] for one in found["findings"]] == ["a.yaml"]
    assert (found["files"], found["errors"]) == (1, 1)
    assert found["unchecked"] == [{"file": "d.yaml", "reason": "the time of --timeout was over"}]


@pytest.mark.usefixtures("slow")
def test_sarif_says_that_it_is_incomplete(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "a.yaml", "d.yaml", "-o", "sarif", *SHORT]) == 2
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert [one["ruleId"] for one in run["results"]] == ["cel-compile"]
    (invocation,) = run["invocations"]
    assert not invocation["executionSuccessful"]
    (told,) = invocation["toolExecutionNotifications"]
    assert told == {
        "level": "error",
        "message": {"text": "not checked: the time of --timeout was over"},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": "d.yaml"}}}],
    }


def test_sarif_of_all_files_says_that_it_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "a.yaml", "-o", "sarif"]) == 1
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    ended = {"executionSuccessful": True, "toolExecutionNotifications": []}
    assert run["invocations"] == [ended]


def test_what_was_not_corrected_in_time_is_said_and_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.yaml", "d.yaml"):
        Path(name).write_text(OLD)
    usual = check_fix.corrected

    def slow(text: str, file: str, facts: Any) -> Fixed:
        if file == "d.yaml":
            work_for_ever()
        return usual(text, file, facts)

    monkeypatch.setattr(check_fix, "corrected", slow)
    assert main(["check", "--fix", "a.yaml", "d.yaml", "b.yaml", "--timeout", "1"]) == 2
    assert ("/v1beta2" in Path("a.yaml").read_text(), Path("d.yaml").read_text()) == (False, OLD)
    out, said = capsys.readouterr()
    assert "a.yaml:1:13: fixed: resource.k8s.io/v1beta2 is an older form [old-version]" in out
    assert "d.yaml:1:13: warning: ResourceClaim c: resource.k8s.io/v1beta2 is an older form" in out
    assert out.endswith("3 files: 2 warnings; 1 fixed; --fix would correct 1\n")
    assert "s with what it waited for: 2 of 3 files were not corrected: d.yaml, b.yaml\n" in said


def test_many_parts_in_no_time_are_not_begun() -> None:
    limit = Limit.of(0)
    with pytest.raises(OutOfTime):
        limit.run(lambda: None)


def test_the_first_names_and_the_number_of_the_others() -> None:
    assert [named(list("abc")), named(list("abcde"))] == ["a, b, c", "a, b, c and 2 more"]
