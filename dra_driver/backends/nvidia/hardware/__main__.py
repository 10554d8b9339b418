# SPDX-License-Identifier: Apache-2.0
"""The hardware process as a child of the driver: `python -m dra_driver.backends.nvidia.hardware`, see `child.py`."""

import argparse
import socket

from dra_driver.backends.nvidia.hardware.worker import work


def main() -> None:
    """Serve the connections that come over the control socket, until it is closed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host-root", default="/")
    parser.add_argument("--driver-root", default="")
    parser.add_argument("--control", type=int, required=True)
    chosen = parser.parse_args()
    control = socket.socket(fileno=chosen.control)
    work(control, host_root=chosen.host_root, driver_root=chosen.driver_root)


if __name__ == "__main__":
    main()
