# SPDX-License-Identifier: Apache-2.0
"""`dra-driver hardware`: the process that touches hardware, for a container of its own. It imports nothing of the daemon."""

import argparse
from contextlib import closing
from functools import partial
from importlib import import_module

from dra_driver.errors import Temporary
from dra_driver.model.exit_codes import DONE


def run(chosen: argparse.Namespace) -> int:
    """Serve until a signal, or ask the process that serves. Returns the exit code."""
    if chosen.probe:
        return _ask(chosen.socket, "ping")
    if chosen.let_go:
        return _ask(chosen.socket, "let_go")
    # Loaded before the fork, so that both processes share it.
    container = import_module("dra_driver.backends.nvidia.hardware.container")
    worker = import_module("dra_driver.backends.nvidia.hardware.worker")
    work = partial(worker.work, host_root=chosen.host_root, driver_root=chosen.driver_root)
    container.serve(chosen.socket, work)
    return DONE


def _ask(path: str, verb: str) -> int:
    link = import_module("dra_driver.backends.nvidia.link")
    wire = import_module("dra_driver.backends.nvidia.hardware.wire")
    with closing(link.Socket(path).connect().socket) as connection:
        try:
            wire.send(connection, wire.Request(verb), seconds=wire.DEADLINES[verb])
            answer = wire.receive(connection, wire.Answer, seconds=wire.DEADLINES[verb] + 2)
        except (wire.Broken, TimeoutError) as error:
            raise Temporary(
                f"the hardware process at {path} does not answer `{verb}`: {error or 'no answer in time'}; see its log"
            ) from error
    if answer.error is not None:
        raise Temporary(answer.error.message)
    return DONE
