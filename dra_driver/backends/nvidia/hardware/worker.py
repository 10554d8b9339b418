# SPDX-License-Identifier: Apache-2.0
"""The process in which the library is loaded. It gets its connections over a control socket, and ends when that is closed."""

import socket

import pynvml

from dra_driver.backends.nvidia.hardware.control import take
from dra_driver.backends.nvidia.hardware.find import Finder
from dra_driver.backends.nvidia.hardware.nvml import Library
from dra_driver.backends.nvidia.hardware.server import Server, Watchdog, end
from dra_driver.backends.nvidia.hardware.verbs import Verbs


def work(
    control: socket.socket, closed_until: float = 0.0, *, host_root: str, driver_root: str
) -> None:
    """Serve until the control socket is closed. Does not return. The library is not opened before a time of the monotonic clock."""
    control.set_inheritable(False)  # nvidia-smi must not keep it open
    library = Library(pynvml, Finder(host_root, driver_root))
    server = Server(
        Verbs(pynvml, library, host_root=host_root, closed_until=closed_until), Watchdog(), end
    )
    take(control, server.take)
    end()
