# SPDX-License-Identifier: Apache-2.0
"""Which library is used, and of which installation."""

import os
from pathlib import Path

from dra_driver.backends.nvidia.facts import Installation
from dra_driver.backends.nvidia.hardware.nvml import Found

_ROOTS = ("/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia", "/usr/local/nvidia")
_FOLDERS = ("usr/lib64", f"usr/lib/{os.uname().machine}-linux-gnu", "lib64", "lib", "usr/lib")
_LIBRARY = "libnvidia-ml.so.1"


def find(host_root: str, driver_root: str) -> Found:
    """Look for the library below the driver root, or below the usual ones."""
    kernel = _kernel_version(Path(host_root, "proc/driver/nvidia/version"))
    for root in (driver_root,) if driver_root else _ROOTS:
        for folder in _FOLDERS:
            path = Path(host_root, root.strip("/"), folder, _LIBRARY)
            if path.exists():
                installation = Installation(driver_root=root, kernel_version=kernel)
                return Found(installation, str(path))
    return Found(Installation(kernel_version=kernel))


def _kernel_version(path: Path) -> str:
    try:
        words = path.read_text(errors="replace").partition("\n")[0].split()
    except OSError:
        return ""
    return next((word for word in words if word[:1].isdigit() and "." in word), "unknown")
