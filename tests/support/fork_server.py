# SPDX-License-Identifier: Apache-2.0
"""A process that has imported the driver and forks whenever a test starts one: `python -m tests.support.fork_server`.

Importing costs three quarters of what a start of the driver costs. A child of this process runs a module as `python -m`
does, with its own arguments, environment, directory and files; until then nothing of the driver has run, no thread exists
and gRPC is only imported: it makes its threads with the first server or channel, which the check before each fork holds it to.

Standard input is a socket of whole messages: {"start": …} with three files is answered by {"pid": N}, {"wait": N} by
{"code": null} while the child runs, else by what `subprocess` calls its return code. A child stays a zombie until then, so
that no number means another process meanwhile. When the tests' end of the socket is gone, so are all children.
"""

import gc
import json
import os
import runpy
import signal
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MESSAGE_BYTES = 1 << 17
FILES = 3
# What `run`, its failpoints and its faults need; modules that are run themselves are not among them.
IMPORTED = (
    "dra_driver.backends.simulated",
    "dra_driver.cli.arguments",
    "dra_driver.cli.cleanup",
    "dra_driver.cli.main",
    "dra_driver.cli.render",
    "dra_driver.cli.run",
    "dra_driver.kube.http",
    "dra_driver.testing.failpoints",
)


@dataclass(frozen=True, slots=True)
class Order:
    """What a child becomes."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    own_session: bool
    files: list[int] = field(default_factory=list)


def serve(asked: socket.socket) -> Order | None:
    """Answer until nobody asks any more; in a child the order that it has to follow, else None."""
    children: set[int] = set()
    while True:
        message, files, _, _ = socket.recv_fds(asked, MESSAGE_BYTES, FILES)
        if not message:
            _end(children)
            return None
        request = json.loads(message)
        if "wait" in request:
            answer: dict[str, Any] = {"code": _code_of(request["wait"], children)}
        else:
            order = Order(**request["start"], files=files)
            child = _forked()
            if child == 0:
                asked.close()
                return order
            children.add(child)
            for file in files:
                os.close(file)
            answer = {"pid": child}
        asked.sendall(json.dumps(answer).encode())


def _forked() -> int:
    threads = [path.name for path in Path("/proc/self/task").iterdir()]
    if len(threads) != 1:
        raise RuntimeError(f"a fork would lose threads: {threads}; what was imported started them")
    return os.fork()


def _code_of(child: int, children: set[int]) -> int | None:
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended == 0:
        return None
    children.discard(child)
    return os.waitstatus_to_exitcode(status)


def _end(children: set[int]) -> None:
    for child in children:
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)


def become(order: Order) -> None:
    """Be the process that was asked for; ends as `python -m MODULE` ends."""
    if order.own_session:
        os.setsid()
    for number, file in enumerate(order.files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(order.directory)
    for name in os.environ.keys() - order.environment.keys():
        del os.environ[name]
    os.environ.update(order.environment)
    sys.argv[1:] = order.arguments
    runpy.run_module(order.module, run_name="__main__", alter_sys=True)


def main() -> None:
    """Import, serve, and in a child run what was asked for: at the top, where an exit ends the interpreter."""
    for name in IMPORTED:
        __import__(name)
    gc.collect()
    gc.freeze()  # children look at none of it, so the pages stay shared
    asked = socket.socket(fileno=os.dup(0))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    order = serve(asked)
    if order is not None:
        become(order)


if __name__ == "__main__":
    main()
