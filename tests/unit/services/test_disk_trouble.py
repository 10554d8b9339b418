# SPDX-License-Identifier: Apache-2.0
"""A full disk and a read-only directory, for real: a small tmpfs and a read-only bind mount.

Each scenario runs in a process of its own with private user and mount namespaces, so that it changes nothing outside.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real  # mounts need namespaces, which not every user gets

BEGIN = """
import json, subprocess, sys
from pathlib import Path
from dra_driver.testing.builders import a_claim, a_result, an_inventory
from tests.support.local_node import LocalNode, ManualClock

directory = Path(sys.argv[1])
cdi = directory / "cdi"
told = {}

def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)

def fill(place):
    with (place / "ballast").open("wb", buffering=0) as file:
        size = 4096
        while size:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2

def say(name, answers):
    told[name] = [getattr(answer, "reason", "done") for answer in answers.values()]

def opened():
    node = LocalNode(directory, clock=ManualClock())
    node.add(a_claim("old"), a_claim("new", results=[a_result("gpu-1")]))
    return node, *(claim.ref for claim in node.claims.values())
"""

END = """
told["violations"] = node.violations()
told["rows"] = {uid: phase for uid, (phase, _) in node.disk().claims.items()}
told["files"] = sorted(path.name for path in cdi.iterdir())
print(json.dumps(told))
"""

FULL_CDI = """
cdi.mkdir()
mount("-t", "tmpfs", "-o", "size=16k", "none", str(cdi))
node, old, new = opened()
say("before", node.prepare(old))
fill(cdi)
say("trouble", node.prepare(new))
told["half done"] = [path.name for path in cdi.glob(".*")]
(cdi / "ballast").unlink()
say("after", node.prepare(new))
"""

READ_ONLY_CDI = """
node, old, new = opened()
say("before", node.prepare(old))
mount("--bind", str(cdi), str(cdi))
mount("-o", "remount,ro,bind", str(cdi))
say("trouble", {**node.prepare(new), **node.unprepare(old)})
told["half done"] = [path.name for path in cdi.glob(".*")]
subprocess.run(["umount", str(cdi)], check=True)
say("after", node.prepare(new))
"""

FULL_STATE = """
mount("-t", "tmpfs", "-o", "size=512k", "none", str(directory))
node, old, new = opened()
say("before", node.prepare(old))
node.inventory = an_inventory(4, shared=True)
fill(directory)
crowd = [a_claim(f"c{index}", results=[a_result("gpu-2", share=f"s{index}")]) for index in range(64)]
answers = node.prepare(*node.add(*crowd))
told["trouble"] = sorted({answer.reason.partition(": ")[2] for answer in answers.values()})
told["half done"] = [path.name for path in cdi.glob(".*")] + [uid for uid in node.disk().claims if uid != old.uid]
(directory / "ballast").unlink()
say("after", node.prepare(new))
"""

READ_ONLY_STATE = """
from dra_driver.errors import DriverError
from dra_driver.node.state import StateStore
place = directory / "ro"
place.mkdir()
mount("--bind", str(place), str(place))
mount("-o", "remount,ro,bind", str(place))
try:
    StateStore(place / "state.db", boot_id="boot-1")
except DriverError as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


def told_by(script: str, directory: Path):
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", script, str(directory)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def file_of(directory: Path, uid: str) -> Path:
    return directory / "cdi" / f"k8s.gpu.dra-driver.dev-claim_{uid}.json"


def test_a_full_cdi_directory_refuses_the_claim_and_leaves_no_half_file(tmp_path: Path) -> None:
    assert told_by(BEGIN + FULL_CDI + END, tmp_path) == {
        "before": ["done"],
        "trouble": [
            (
                "cannot prepare claim default/new (uid uid-new): "
                f"cannot write {file_of(tmp_path, 'uid-new')}: the disk is full; free space, the kubelet tries again"
            )
        ],
        "half done": [],
        "after": ["done"],
        "violations": [],
        "rows": {"uid-old": "Prepared", "uid-new": "Prepared"},
        "files": [file_of(tmp_path, uid).name for uid in ("uid-new", "uid-old")],
    }


def test_a_read_only_cdi_directory_refuses_prepare_and_unprepare(tmp_path: Path) -> None:
    assert told_by(BEGIN + READ_ONLY_CDI + END, tmp_path) == {
        "before": ["done"],
        "trouble": [
            (
                "cannot prepare claim default/new (uid uid-new): "
                f"cannot remove {file_of(tmp_path, 'uid-new')}: the filesystem is read-only; mount it writable"
            ),
            (
                "cannot unprepare claim default/old (uid uid-old): "
                f"cannot remove {file_of(tmp_path, 'uid-old')}: the filesystem is read-only; mount it writable"
            ),
        ],
        "half done": [],
        "after": ["done"],
        "violations": [],
        "rows": {"uid-old": "Started", "uid-new": "Prepared"},
        "files": [file_of(tmp_path, uid).name for uid in ("uid-new", "uid-old")],
    }


def test_a_full_state_disk_refuses_the_whole_reservation(tmp_path: Path) -> None:
    assert told_by(BEGIN + FULL_STATE + END, tmp_path) == {
        "before": ["done"],
        "trouble": [
            (
                f"cannot write state file {tmp_path}/state.db: database or disk is full; "
                "free space on its disk, the kubelet tries again"
            )
        ],
        "half done": [],
        "after": ["done"],
        "violations": [],
        "rows": {"uid-old": "Prepared", "uid-new": "Prepared"},
        "files": [file_of(tmp_path, uid).name for uid in ("uid-new", "uid-old")],
    }


def test_a_read_only_state_directory_ends_the_start(tmp_path: Path) -> None:
    assert told_by(BEGIN + READ_ONLY_STATE, tmp_path) == [
        "Permanent",
        f"cannot make directory {tmp_path}/ro: the filesystem is read-only; mount it writable",
    ]
