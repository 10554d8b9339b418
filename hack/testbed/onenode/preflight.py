# SPDX-License-Identifier: Apache-2.0
"""Can this machine run the test bed, and if not, what does it lack?

The answer is one list of short phrases, so that a person reads everything that is missing at
once. What the project may install by itself (Debian packages, as root) it installs; the rest it
only names.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from hack.testbed.onenode import cgroups

# What must be on the machine -> the Debian package that brings it.
NEEDED_FILES = {
    "/usr/sbin/runc": "runc",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
    "/bin/busybox": "busybox-static",
    "/usr/bin/openssl": "openssl",
    "/usr/bin/unshare": "util-linux",
    "/usr/bin/nsenter": "util-linux",
    "/usr/bin/mount": "mount",
    "/usr/sbin/ip": "iproute2",
    "/usr/bin/cc": "gcc",
    "/usr/include/stdlib.h": "libc6-dev",
    "/usr/bin/zsh": "zsh",
    "/usr/bin/fish": "fish",
    "/usr/bin/groff": "groff-base",
}
# unshare itself is asked for exactly the namespaces that the cluster will live in.
NAMESPACES = ("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "true")
APT_TIMEOUT_SECONDS = 600


def missing_packages() -> list[str]:
    """Debian packages whose file is not here."""
    return sorted({package for path, package in NEEDED_FILES.items() if not Path(path).exists()})


def _apt_get(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(
        ["apt-get", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=APT_TIMEOUT_SECONDS,
    )


def install_packages() -> list[str]:
    """Install what is missing; answer the packages that are missing still."""
    wanted = missing_packages()
    if not wanted or shutil.which("apt-get") is None or os.geteuid() != 0:
        return wanted
    install = ("install", "--yes", "--no-install-recommends", *wanted)
    if _apt_get(*install).returncode != 0:  # the package lists may be absent or old
        _apt_get("update")
        _apt_get(*install)
    return missing_packages()


def namespaces_work() -> bool:
    """Ask the kernel for the namespaces once, for real."""
    if shutil.which(NAMESPACES[0]) is None:
        return False
    return subprocess.run(NAMESPACES, capture_output=True, check=False).returncode == 0


def lacks() -> list[str]:
    """Everything that stands between this machine and a cluster, as phrases; empty when nothing."""
    found: list[str] = []
    if not sys.platform.startswith("linux"):
        return ["Linux"]
    if os.geteuid() != 0:
        found.append("root (namespaces, mounts and containers need it)")
    if shutil.which("go") is None:
        found.append("Go 1.26 or newer on PATH (it builds Kubernetes and containerd)")
    packages = install_packages()
    if packages:
        found.append(f"the Debian packages {', '.join(packages)} (could not install them)")
    if os.geteuid() == 0 and not namespaces_work():
        found.append("mount, network and process namespaces (`unshare` was refused)")
    if controllers := cgroups.missing():
        found.append(f"the cgroup controllers {', '.join(controllers)} below {cgroups.TOP}")
    return found


def require() -> None:
    """End the program with one line when something is missing."""
    found = lacks()
    if found:
        raise SystemExit(f"The test bed cannot run here. This machine lacks: {'; '.join(found)}.")
