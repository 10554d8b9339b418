# SPDX-License-Identifier: Apache-2.0
"""Which library is used, and of which installation."""

from pathlib import Path

from dra_driver.backends.nvidia.hardware.installation import InstallationReader, nvml_library
from dra_driver.backends.nvidia.hardware.nvml import Found


class Finder:
    """Looks again at each call; files are opened again only if they changed."""

    def __init__(self, host_root: str, driver_root: str) -> None:
        self._host_root = Path(host_root)
        self._reader = InstallationReader(self._host_root, driver_root)

    def __call__(self) -> Found:
        installation = self._reader.read()
        return Found(installation, str(nvml_library(installation, self._host_root) or ""))
