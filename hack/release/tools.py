# SPDX-License-Identifier: Apache-2.0
"""Where are the tools that check a release? In a folder of modules of their own, from the locked wheels of requirements/release.txt."""

import hashlib
import os
from pathlib import Path

from driverimage import wheels

from hack.testbed.onenode.products import product

LOCK = Path(__file__).resolve().parents[2] / "requirements" / "release.txt"


def folder() -> Path:
    """The folder of modules, with their programs in `bin`; made now if it is not there."""
    name = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    return product("release-tools", name, lambda _source, target: wheels.install(LOCK, target))


def environment() -> dict[str, str]:
    """Variables with which this Python finds the modules."""
    return {**os.environ, "PYTHONPATH": str(folder())}
