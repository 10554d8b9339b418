# SPDX-License-Identifier: Apache-2.0
"""Under which cgroup do the kubelet's pods stand?

One of each cluster's own, named after its folder: a kubelet ends the processes in every pod's cgroup below its own that it does
not know, and two clusters on one machine would do that to each other.
"""

import os
from contextlib import suppress
from pathlib import Path

from hack.testbed.onenode.namespaces import TestBedError

TOP = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuset", "memory", "pids")  # what a kubelet asks of version 2


def _is_version_2() -> bool:
    return (TOP / "cgroup.controllers").exists()


def missing() -> tuple[str, ...]:
    """Controllers that a kubelet needs and this machine does not have."""
    if _is_version_2():
        there = set((TOP / "cgroup.controllers").read_text().split())
    else:
        there = {path.name for path in TOP.iterdir()}
    return tuple(name for name in CONTROLLERS if name not in there)


def _hierarchies() -> list[Path]:
    if _is_version_2():
        return [TOP]
    return [path for path in TOP.iterdir() if path.is_dir() and not path.is_symlink()]


def make(name: str) -> None:
    """Make the cluster's cgroup in every hierarchy."""
    if _is_version_2():
        try:
            (TOP / "cgroup.subtree_control").write_text(
                " ".join(f"+{name}" for name in CONTROLLERS)
            )
        except OSError as error:
            raise TestBedError(
                f"cannot hand the controllers {', '.join(CONTROLLERS)} down from {TOP}: {error}; "
                f"move the processes that stand there into a cgroup of their own"
            ) from error
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir(exist_ok=True)


def remove(name: str) -> None:
    """Remove the cluster's cgroup and all below, once nothing runs there."""
    for hierarchy in _hierarchies():
        for folder, _, _ in os.walk(hierarchy / name, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
