# SPDX-License-Identifier: Apache-2.0
"""A check that fails or hangs costs its own answer only."""

from collections.abc import Iterator
from threading import Event

import pytest

from dra_driver.cli.checks import Check, run_checks
from dra_driver.doctor.findings import Finding, fine
from dra_driver.errors import Permanent

GOOD = Check("disk", "/x", lambda: [fine("disk", "/x", "much")])


def failing(error: Exception) -> Check:
    def look() -> Iterator[Finding]:
        yield fine("cgroups", "/y", "begun")
        raise error

    return Check("cgroups", "/y", look)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (Permanent("a sentence"), "a sentence"),
        (PermissionError(13, "Permission denied", "/z"), "cannot look at /z: Permission denied"),
        (OSError("odd"), "cannot look at /y: OSError"),
        (
            KeyError("token=secret"),
            "the check itself failed (KeyError); that is a fault of dra-driver: please report it",
        ),
    ],
)
def test_one_that_fails_says_why_and_the_others_answer(error: Exception, why: str) -> None:
    first, second = run_checks([failing(error), GOOD])
    assert (first.check, first.severity, first.found) == ("cgroups", "unknown", why)
    assert first.next_step.startswith("mount the node's /sys/fs/cgroup")
    assert second.found == "much"


def test_one_that_hangs_is_left_behind() -> None:
    let_go = Event()

    def hang() -> list[Finding]:
        let_go.wait()
        return []

    try:
        first, second = run_checks([Check("state-file", "/s", hang, 0.2), GOOD])
    finally:
        let_go.set()
    assert (first.check, first.severity, first.found) == (
        "state-file",
        "unknown",
        "no answer in 0.2 s",
    )
    assert second.found == "much"
