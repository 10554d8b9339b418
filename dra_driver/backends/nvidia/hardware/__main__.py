# SPDX-License-Identifier: Apache-2.0
"""The hardware process as a program: a child of the driver (`--control`, see `child.py`), or that of a container (`--listen`).

It reads its arguments without argparse: what is imported here stays in memory.
"""

import socket
import sys
from functools import partial

from dra_driver import PROJECT
from dra_driver.backends.nvidia.hardware.container import serve
from dra_driver.backends.nvidia.hardware.worker import work
from dra_driver.errors import DriverError


def main(arguments: list[str]) -> None:
    """Serve until the control socket is closed, or until a signal."""
    chosen = dict(zip(arguments[::2], arguments[1::2], strict=True))
    serving = partial(work, host_root=chosen["--host-root"], driver_root=chosen["--driver-root"])
    if "--control" in chosen:
        serving(socket.socket(fileno=int(chosen["--control"])))
        return
    try:
        serve(chosen["--listen"], serving)
    except DriverError as error:
        sys.exit(f"{PROJECT}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
