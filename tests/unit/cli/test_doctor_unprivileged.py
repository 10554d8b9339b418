# SPDX-License-Identifier: Apache-2.0
"""`dra-driver doctor` as a user without rights, in a process that has really none. What it may not read, it never takes for missing or broken."""

import json
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

DRIVER = "gpu.dra-driver.dev"
PLUGINS = f"/var/lib/kubelet/plugins/{DRIVER}"
SOCKETS = (
    "/run/containerd/containerd.sock",
    "/var/lib/kubelet/pod-resources/kubelet.sock",
    f"/var/lib/kubelet/plugins_registry/{DRIVER}-reg.sock",
)
NOBODY = """
import contextlib, io, os, sys
from dra_driver.cli.main import main
words = ["doctor", "--root", sys.argv[1], *sys.argv[3:]]
with contextlib.redirect_stdout(io.StringIO()):
    main(words)  # what is imported late may be where nobody can read it
for path in filter(None, sys.argv[2].split(",")):
    os.chmod(path, 0)
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
code = main(words)
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A node with a kubelet, containerd, a CDI file and a state file, below a folder into which everybody may look."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NODE_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("DRA_DRIVER_HTTP_ADDRESS", "")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, ExitStack() as stack:
        host = Path(folder)
        host.chmod(0o755)
        put(host, "/etc/containerd/config.toml", "version = 2\n")
        put(
            host,
            "/var/lib/kubelet/config.yaml",
            "featureGates: {DynamicResourceAllocation: false}\n",
        )
        put(host, "/sys/fs/cgroup/cgroup.controllers", "pids")
        put(host, "/sys/fs/cgroup/kubepods.slice/cgroup.events", "populated 1\n")
        put(host, "/run/cdi/x.json", "broken")
        put(host, f"{PLUGINS}/state.db", "no database")
        put(host, "/proc/1/comm", "init\n")
        (host / "dev").mkdir()
        (host / "var/run").symlink_to("/run")
        for path in SOCKETS:
            place = host / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            listening = stack.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(str(place))
            listening.listen()
            place.chmod(0o700)
        yield host
        for path in (host, *(host / one.lstrip("/") for one in FOLDERS)):
            path.chmod(0o755)


def put(root: Path, path: str, text: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


FOLDERS = (
    "/dev",
    "/etc/containerd",
    "/run/cdi",
    "/run/containerd",
    "/sys/fs/cgroup",
    "/var/lib/kubelet",
)
FILES = (
    "/etc/containerd/config.toml",
    "/run/cdi/x.json",
    f"{PLUGINS}/state.db",
    "/var/lib/kubelet/config.yaml",
)
ALL = {"gpu-driver", "device-files", "other-accelerators", "imex"}
CLOSED = {
    *("container-runtime", "cdi-files", "kubelet", "driver", "device-plugins"),
    *("state-file", "held-devices", "api"),
}
BEHIND_FOLDERS = {"cgroups", "disk", "device-files"}


def nobody(root: Path, closed: tuple[str, ...]) -> tuple[int, list[dict[str, Any]], str]:
    paths = ",".join(str(root / one.lstrip("/")) for one in closed)
    done = subprocess.run(
        [sys.executable, "-c", NOBODY, str(root), paths, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.parametrize(
    ("closed", "code", "checks"),
    [
        (FILES, 3, CLOSED),
        (FOLDERS, 3, CLOSED | BEHIND_FOLDERS),
        (("/",), 2, CLOSED | BEHIND_FOLDERS | ALL),
    ],
    ids=["files", "folders", "everything"],
)
def test_each_thing_that_may_not_be_read_is_told_with_what_to_do(
    root: Path, closed: tuple[str, ...], code: int, checks: set[str]
) -> None:
    ended, found, errors = nobody(root, closed)
    assert (errors, ended) == ("", code)
    hidden = [one for one in found if one["severity"] == "unknown"]
    assert {one["check"] for one in hidden} == checks
    for one in hidden:
        todo = "run `dra-driver doctor` as root|mount the node's|--kubeconfig"
        assert re.search(todo, one["nextStep"]), one
        # Whoever reads it works on the host itself.
        assert str(root) not in one["object"] + one["found"]
    # Nothing that was only not seen is said to be wrong.
    assert {one["id"] for one in found if one["severity"] not in ("unknown", "ok")} == set()
