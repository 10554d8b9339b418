# SPDX-License-Identifier: Apache-2.0
"""A disk is full or read-only at each write, for one call or from one moment on."""

import errno
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.model.plan import Refusal
from dra_driver.testing.builders import a_claim, a_result
from dra_driver.testing.failpoints import FAILPOINTS, Failpoints, raising
from tests.support.local_node import LocalNode, ManualClock

ELSEWHERE = (
    "recovered",
    "ready",
    "damaged",
    "successor",
    "published",
    "joined",
    "undone",
    "MarkStartedAgain",
)
POINTS = [point for point in FAILPOINTS if point.split(".")[1] not in ELSEWHERE]


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("injected")
    error.sqlite_errorcode = code
    return error


FULL = {
    "commit": lambda: sqlite_error(sqlite3.SQLITE_FULL),
    "rename": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
}
READ_ONLY = {
    "commit": lambda: sqlite_error(sqlite3.SQLITE_READONLY),
    "rename": lambda: OSError(errno.EROFS, os.strerror(errno.EROFS)),
}
WRITES = [
    point for point in POINTS if point.startswith(("commit", "rename")) and point.endswith("before")
]


# The file comes after the commit that makes its row Prepared. If it cannot be written, the call is refused, so no container starts
# without it, and the next call or start writes it from the row.
NO_FILE_YET = ["claim uid-new is Prepared and has no right file"]
NO_FILES_YET = [*NO_FILE_YET, "claim uid-new has no right metadata files"]
FULL_BEFORE = {
    "commit.prepared.after": NO_FILES_YET,
    "step.WriteCdiSpec.before": NO_FILES_YET,
    "rename.metadata.before": NO_FILE_YET,
    "rename.metadata.after": NO_FILE_YET,
}


@pytest.mark.parametrize("point", WRITES)
@pytest.mark.parametrize("trouble", [FULL, READ_ONLY], ids=["full", "read-only"])
def test_one_write_that_fails_costs_one_answer_and_nothing_else(
    tmp_path: Path, point: str, trouble: dict[str, Callable[[], Exception]]
) -> None:
    node = LocalNode(tmp_path, clock=ManualClock(), metadata=True)
    old, new = node.add(a_claim("old"), a_claim("new", results=[a_result("gpu-1")]))
    answer = node.prepare(old)[old.uid]
    error = trouble[point.partition(".")[0]]()
    points = Failpoints({point: raising(error)})
    node.restart(point=points)
    answers = [node.prepare(new)[new.uid], node.unprepare(old)[old.uid]]
    assert point in points.passed
    (refused,) = [one for one in answers if isinstance(one, Refusal)]
    next_step = "free space" if trouble is FULL else "writable"
    assert next_step in refused.reason
    # Whoever was refused is as before, or half done and said so.
    expected = {"rename.file.before": NO_FILE_YET, "rename.metadata.before": NO_FILES_YET}
    assert node.violations() == expected.get(point, [])
    points.disarm()
    assert node.unprepare(old) == {old.uid: None}
    assert not isinstance(node.prepare(new)[new.uid], Refusal)
    assert node.disk().claims == {new.uid: ("Prepared", "boot-1")}
    assert answer
    assert node.violations() == []
    node.close()


# From one moment on no write of the process succeeds: the kernel says so, by RLIMIT_FSIZE.

CHILD = """
import json, resource, shutil, sys
from pathlib import Path
from dra_driver.errors import DriverError
from dra_driver.testing.builders import a_claim, a_result
from tests.support.local_node import LocalNode, ManualClock

_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

class FullAt:
    def __init__(self, name):
        self.name, self.reached = name, False
    def __call__(self, name):
        if name == self.name:
            self.reached = True
            limit(0)

def walked(directory, point):
    node = LocalNode(directory, clock=ManualClock(), metadata=True)
    old, new = node.add(a_claim("old"), a_claim("new", results=[a_result("gpu-1")]))
    node.prepare(old)
    full = FullAt(point)
    node.restart(point=full)
    for call, ref in ((node.prepare, new), (node.unprepare, old)):
        call(ref)
        limit(hard)
        full.name = full.name if not full.reached else ""
    wrong = node.violations()
    node.restart()
    node.recover()
    node.unprepare(old), node.prepare(new)
    told = [full.reached, wrong, node.violations(), {uid: row[0] for uid, row in node.disk().claims.items()}]
    node.close()
    return told

def started(directory):
    node = LocalNode(directory, clock=ManualClock(), metadata=True)
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    node.close()
    for path in directory.glob("state.db-*"):
        path.unlink()
    limit(0)
    try:
        node._open()
        error = ""
    except DriverError as caught:
        error = str(caught)
    limit(hard)
    if not error:
        node.close()
    node._open()
    told = [error, node.disk() == before, sorted(path.name for path in directory.glob("*damaged*"))]
    node.close()
    return told

directory = Path(sys.argv[1])
answers = {point: walked(directory / point, point) for point in sys.argv[2:]}
print(json.dumps({"points": answers, "start": started(directory / "start")}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path_factory.mktemp("disks")), *POINTS],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("point", POINTS)
def test_a_disk_that_fills_up_at_any_moment_breaks_no_promise(told: dict, point: str) -> None:
    reached, wrong_while_full, wrong_after, rows = told["points"][point]
    assert reached
    assert wrong_while_full == FULL_BEFORE.get(point, [])
    assert (wrong_after, rows) == ([], {"uid-new": "Prepared"})


def test_a_full_disk_at_the_start_damages_no_state(told: dict) -> None:
    error, same, set_aside = told["start"]
    assert (same, set_aside) == (True, [])
    assert "free space" in error
