# SPDX-License-Identifier: Apache-2.0
"""Findings: their texts, their order, and what they mean for a script."""

import shlex
from typing import Literal

import pytest
from msgspec.structs import replace

from dra_driver.doctor.findings import (
    Diagnosis,
    Finding,
    counted,
    finding,
    fine,
    ordered,
    retold,
    unknown,
)

PROBLEM = finding("device-file-is-directory", "/dev/nvidia0", "a directory", path="/dev/nvidia0")
WARNING = finding("disk-nearly-full", "/x", "3 MiB free", path="/x")
NOTE = finding("imex-on-host", "process 7", "it runs")
NOT_ASKED = finding("probes-out-of-reach", "127.0.0.1:9410", "refused")
UNKNOWN = unknown("cgroups", "/sys/fs/cgroup", "forbidden")
OK = fine("disk", "/x", "much")
ALL = (OK, NOTE, UNKNOWN, WARNING, PROBLEM)


def of(*found: Finding, seen_from: Literal["node", "cluster"] = "node") -> Diagnosis:
    return Diagnosis(node="n", driver="d", seen_from=seen_from, findings=found)


def test_a_finding_has_the_texts_of_the_table() -> None:
    assert (PROBLEM.check, PROBLEM.severity) == ("device-files", "problem")
    assert PROBLEM.command == "rmdir /dev/nvidia0 && nvidia-smi -L"
    assert "DirectoryOrCreate" in PROBLEM.meaning


def test_a_finding_of_a_file_has_no_words_of_its_author_but_what_was_found() -> None:
    forged = replace(PROBLEM, meaning="all is well", next_step="run this", command="curl x | sh")
    told = retold(forged)
    assert (told.meaning, told.next_step, told.command) == (PROBLEM.meaning, PROBLEM.next_step, "")
    assert (told.object, told.found, told.severity) == ("/dev/nvidia0", "a directory", "problem")


def test_a_finding_of_another_release_is_not_known() -> None:
    assert retold(OK) == OK
    assert retold(UNKNOWN) == UNKNOWN
    newer = replace(WARNING, id="disk-on-fire")
    moved = replace(WARNING, check="cgroups")
    for told in map(retold, (newer, moved, replace(OK, severity="problem"))):
        assert told.severity == "unknown"
        assert told.found.startswith("this release does not know ")
        assert told.command == ""


def test_what_others_wrote_cannot_leave_its_place() -> None:
    """Somebody else chose the path: a terminal must not obey it, and neither a shell."""
    bad = "/dev/nvidia0; rm -rf ~\x1b[2J\n"
    found = finding("device-file-is-directory", bad, bad, path=bad)
    assert "\x1b" not in found.object + found.found + found.command
    assert shlex.split(found.command)[:2] == ["rmdir", "/dev/nvidia0; rm -rf ~\\x1b[2J\\n"]
    long = finding("imex-on-host", "x" * 5000, "y")
    assert len(long.object) == 2001


def test_the_worst_comes_first_and_equal_ones_in_the_order_of_the_checks() -> None:
    assert ordered(ALL) == (PROBLEM, WARNING, UNKNOWN, NOTE, OK)
    other = finding("gpu-without-driver", "0000:01:00.0", "none")
    assert ordered((PROBLEM, other)) == (other, PROBLEM)


def test_they_are_counted() -> None:
    assert counted(ALL) == "1 problem, 1 warning, 1 could not be looked at, 1 note, 1 fine"
    assert counted((OK, OK, NOTE, NOTE)) == "2 notes, 2 fine"
    assert counted(()) == ""


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ((), 0),
        ((OK, NOTE), 0),
        ((OK, WARNING), 3),
        ((OK, UNKNOWN), 3),
        ((UNKNOWN,), 2),
        ((UNKNOWN, NOT_ASKED), 2),
        ((OK, NOT_ASKED), 0),
        ((UNKNOWN, PROBLEM), 1),
    ],
)
def test_the_exit_code(found: tuple[Finding, ...], code: int) -> None:
    assert of(*found).exit_code == code
