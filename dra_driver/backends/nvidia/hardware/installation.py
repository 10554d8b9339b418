# SPDX-License-Identifier: Apache-2.0
"""Which files of the driver installation a container needs: read from the host's file system."""

from pathlib import Path

from dra_driver.backends.nvidia.facts import Installation


class InstallationReader:
    """Reads the installation again and again; a library is opened again only if the file changed.

    `host_root` is where this process sees the host's /. An empty `driver_root` means: look for it.
    """

    def __init__(self, host_root: Path = Path("/"), driver_root: str = "") -> None:
        self._host_root = host_root
        self._driver_root = driver_root

    def read(self) -> Installation:
        """Return what is there now. Never raises: what cannot be read is missing, and `problems` say why."""
        raise NotImplementedError


def read_installation(host_root: Path = Path("/"), driver_root: str = "") -> Installation:
    """Read it once."""
    return InstallationReader(host_root, driver_root).read()


def nvml_library(installation: Installation, host_root: Path = Path("/")) -> Path | None:
    """Return where this process finds libnvidia-ml.so.1 of the installation; None if there is none."""
    raise NotImplementedError
