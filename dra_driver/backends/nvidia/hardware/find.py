# SPDX-License-Identifier: Apache-2.0
"""Which library is used, and of which installation."""

from pathlib import Path

from dra_driver.backends.nvidia.hardware.installation import InstallationReader, nvml_library
from dra_driver.backends.nvidia.hardware.nvml import Found


class Finder:
    """Looks again at each call. `host_root` is where this process sees the host's /; an empty `driver_root` means: look for it."""

    def __init__(self, host_root: str, driver_root: str) -> None:
        self._host_root = Path(host_root)
        self._reader = InstallationReader(self._host_root, driver_root)

    def __call__(self) -> Found:
        """Return what is installed now."""
        installation = self._reader.read()
        library = nvml_library(installation, self._host_root)
        return Found(installation, str(library or ""))
