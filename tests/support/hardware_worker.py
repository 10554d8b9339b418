# SPDX-License-Identifier: Apache-2.0
"""A hardware process with the stand-in of the library, started as a program: `python hardware_worker.py SCRIPT --control FD`.

SCRIPT is a JSON document (`Script`): which GPUs there are, what hangs, what fails, and which misbehaviour of the process itself is
played. It is read anew when another process starts, so the next one may be better.
"""

import os
import signal
import socket
import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]


class Script(msgspec.Struct, kw_only=True):
    """What the process plays. `say` instead of any answer: bytes, written in Latin-1."""

    gpus: int = 2
    hang: tuple[tuple[str, int], ...] = ()
    fail: tuple[tuple[str, int, int], ...] = ()
    deadline: float = 60.0
    say: str | None = None
    dies: bool = False
    deaf: bool = False
    host_root: str = "/nonexistent"


def main() -> None:
    """Play the script until the control socket is closed."""
    sys.path.insert(0, str(ROOT))
    script = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Script)
    control = socket.socket(fileno=int(sys.argv[-1]))
    if script.deaf:
        signal.pause()
    if script.dies:
        sys.exit(3)
    work(script, control)


def work(script: Script, control: socket.socket, closed_until: float = 0.0) -> None:
    """Serve as the worker does, with the stand-in."""
    from dra_driver.backends.nvidia.hardware import wire  # noqa: PLC0415  after sys.path
    from dra_driver.backends.nvidia.hardware.control import take  # noqa: PLC0415
    from dra_driver.backends.nvidia.hardware.nvml import Found, Library  # noqa: PLC0415
    from dra_driver.backends.nvidia.hardware.server import (  # noqa: PLC0415
        Server,
        Watchdog,
        end,
    )
    from dra_driver.backends.nvidia.hardware.verbs import Verbs  # noqa: PLC0415
    from dra_driver.testing.nvml import boards, machine  # noqa: PLC0415
    from tests.support.nvml_link import INSTALLED  # noqa: PLC0415
    from tests.support.nvml_standin import StandIn  # noqa: PLC0415

    for verb in wire.DEADLINES:
        wire.DEADLINES[verb] = script.deadline  # type: ignore[index]
    library = StandIn(machine.node(boards.T4, script.gpus))
    library.hang = set(script.hang)
    library.fail = {(name, index): code for name, index, code in script.fail}
    found = Found(INSTALLED, "/nonexistent/libnvidia-ml.so.1")
    opened = Library(library, lambda: found, load=lambda _: None)
    verbs = Verbs(library, opened, host_root=script.host_root, closed_until=closed_until)
    server = Server(verbs, Watchdog(), end)

    def garbage(connection: socket.socket) -> None:
        with connection:
            connection.recv(1024)
            connection.sendall((script.say or "").encode("latin-1"))

    taken = server.take if script.say is None else garbage
    take(control, taken)
    os._exit(0)


if __name__ == "__main__":
    main()
