# SPDX-License-Identifier: Apache-2.0
"""`dra-driver hardware`: the process that touches hardware, for a container of its own. It imports nothing of the daemon."""

import argparse
import os
import sys
from contextlib import closing
from importlib import import_module

from dra_driver.errors import Temporary
from dra_driver.model.exit_codes import DONE

MODULE = "dra_driver.backends.nvidia.hardware"


def run(chosen: argparse.Namespace) -> int:
    """Serve until a signal, or ask the process that serves. Returns the exit code."""
    verb = "ping" if chosen.probe else "let_go" if chosen.let_go else ""
    if not verb:
        # As another program in this process: what the command line needed does not stay in memory.
        program = (sys.executable, "-I", "-m", MODULE, "--listen", chosen.socket)
        roots = ("--host-root", chosen.host_root, "--driver-root", chosen.driver_root)
        os.execv(program[0], (*program, *roots))  # noqa: S606  it does not return
    return _ask(chosen.socket, verb)


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
