# SPDX-License-Identifier: Apache-2.0
"""How does a node get device files that the machine does not have? In a /dev of its own, which ends with its mount namespace."""

from collections.abc import Iterable
from pathlib import Path

from hack.testbed.onenode.cluster import Cluster

DEV = Path("/dev")
# Mounts of the node's own below /dev, which a copy does not bring along.
KEPT = ("pts", "shm", "mqueue")


def mount_own_dev(cluster: Cluster, dev: Path) -> None:
    """Let this folder of the node be its /dev: what is in it already, and the machine's device files."""
    # Some file of the machine may go while it is copied.
    cluster.output_of(["cp", "--archive", "--no-clobber", f"{DEV}/.", str(dev)], check=False)
    for name in KEPT:
        if (DEV / name).is_dir():
            cluster.output_of(["mount", "--rbind", str(DEV / name), str(dev / name)])
    cluster.output_of(["mount", "--rbind", str(dev), str(DEV)])


def unmount_own_dev(cluster: Cluster) -> None:
    """Give the node the machine's /dev back."""
    cluster.output_of(["umount", "--lazy", "--recursive", str(DEV)])


def make_device_files(cluster: Cluster, folder: Path, major: int, names: Iterable[str]) -> None:
    """Make a character device for each name, numbered from 0."""
    cluster.output_of(["mkdir", "-p", str(folder)])
    for minor, name in enumerate(names):
        cluster.output_of(["mknod", str(folder / name), "c", str(major), str(minor)])
