# SPDX-License-Identifier: Apache-2.0
"""The CDI directory becomes read-only, for real, at each moment of a call; and writable again.

In a process with private user and mount namespaces, so that nothing outside changes.
"""

import json
import subprocess
import sys

import pytest

from dra_driver.testing.failpoints import FAILPOINTS

pytestmark = pytest.mark.real  # mounts need namespaces, which not every user gets

SUBJECTS = ("WriteCdiSpec", "RemoveCdiSpec", "file", "ConfigureDevice", "ResetDevice")
POINTS = [point for point in FAILPOINTS if point.split(".")[1] in SUBJECTS]

CHILD = """
import json, subprocess, sys
from pathlib import Path
from dra_driver.testing.builders import a_claim, a_result
from tests.support.local_node import LocalNode, ManualClock

def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)

class ReadOnlyAt:
    def __init__(self, name, place):
        self.name, self.place, self.reached = name, place, False
    def __call__(self, name):
        if name == self.name:
            self.reached, self.name = True, ""
            mount("-o", "remount,ro,bind", str(self.place))

def walked(directory, point):
    cdi = directory / "cdi"
    node = LocalNode(directory, clock=ManualClock())
    mount("--bind", str(cdi), str(cdi))
    old, new = node.add(a_claim("old"), a_claim("new", results=[a_result("gpu-1")]))
    node.prepare(old)
    trouble = ReadOnlyAt(point, cdi)
    node.restart(point=trouble)
    told = []
    for call, ref in ((node.prepare, new), (node.unprepare, old)):
        reason = getattr(call(ref)[ref.uid], "reason", "")
        told += [reason] if reason else []
        if trouble.reached:
            mount("-o", "remount,rw,bind", str(cdi))
    node.restart()
    node.recover()
    node.unprepare(old), node.prepare(new)
    found = [trouble.reached, told, node.violations(), sorted(path.name for path in cdi.iterdir())]
    node.close()
    return found

directory = Path(sys.argv[1])
print(json.dumps({point: walked(directory / point, point) for point in sys.argv[2:]}))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict:
    directory = tmp_path_factory.mktemp("mounts")
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", CHILD, str(directory), *POINTS],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("point", POINTS)
def test_a_cdi_directory_that_becomes_read_only_at_any_moment_breaks_no_promise(
    told: dict, point: str
) -> None:
    reached, reasons, wrong, files = told[point]
    assert reached
    assert all("the filesystem is read-only; mount it writable" in reason for reason in reasons)
    assert wrong == []
    assert files == ["k8s.gpu.dra-driver.dev-claim_uid-new.json"]
