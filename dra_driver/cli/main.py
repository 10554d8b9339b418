# SPDX-License-Identifier: Apache-2.0
"""`dra-driver`: subcommands and exit codes.

Exit codes: 0 done, 1 failed (one line on standard error says what to do), 2 wrong usage; `cleanup`, `explain` and `record`
have more. Each subcommand's module and arguments are imported when it is chosen, so that `--help` needs none of them.
"""

import argparse
import gc
import importlib
import sys
from collections.abc import Sequence

from dra_driver import __version__
from dra_driver.errors import DriverError

TYPE_CHECKING = False  # `typing` is a tenth of what `--help` takes
if TYPE_CHECKING:
    from typing import Any, NoReturn

COMMANDS = {
    "run": "serve the kubelet and publish this node's devices",
    "devices": "show what this node has, as the driver would publish it",
    "explain": "say why a pod or claim gets no devices, or which ones it gets",
    "record": "write what `explain` needs to know of a cluster to a file, without secrets",
    "release": "give the devices of a claim back whose pods cannot be shown to have ended",
    "cleanup": "remove what the driver leaves on this node, when it shall not run here again",
    "demo": "play the whole story on this machine, without cluster, GPU or root",
}
KUBECTL_COMMANDS = ("explain", "record")
WRONG_USAGE = 2
WRONG_USAGE_OF = {"explain": 64}
"""`explain` says other things with the small numbers."""


class CommandLine(argparse.ArgumentParser):
    """A parser whose exit code for wrong usage can be chosen."""

    wrong_usage = WRONG_USAGE

    def error(self, message: str) -> "NoReturn":
        """Say how it is used, and leave."""
        self.print_usage(sys.stderr)
        self.exit(self.wrong_usage, f"{self.prog}: error: {message}\n")


def parser(
    command: str, *, program: str = "dra-driver", commands: Sequence[str] = tuple(COMMANDS)
) -> argparse.ArgumentParser:
    """The command line; of the subcommands only `command` has its arguments."""
    top = CommandLine(
        prog=program, description="Dynamic Resource Allocation driver for accelerators"
    )
    top.wrong_usage = WRONG_USAGE_OF.get(command, WRONG_USAGE)
    top.add_argument("--version", action="version", version=f"dra-driver {__version__}")
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in commands:
        sub = subparsers.add_parser(name, help=COMMANDS[name], description=COMMANDS[name])
        sub.wrong_usage = top.wrong_usage
        if name == command:
            _imported("dra_driver.cli.arguments").add_arguments(name, sub)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; answers the exit code."""
    return _run(sys.argv[1:] if arguments is None else arguments, "dra-driver", tuple(COMMANDS))


def kubectl(arguments: Sequence[str] | None = None) -> int:
    """`kubectl dra`: the commands that look at a cluster, as a plugin of kubectl."""
    given = sys.argv[1:] if arguments is None else arguments
    return _run(given, "kubectl dra", KUBECTL_COMMANDS)


def _run(given: Sequence[str], program: str, commands: Sequence[str]) -> int:
    command = next((argument for argument in given if not argument.startswith("-")), "")
    chosen = parser(command, program=program, commands=commands).parse_args(given)
    module = _imported(f"dra_driver.cli.{chosen.command}")
    try:
        code: int = module.run(chosen)
    except DriverError as error:
        _imported("dra_driver.cli.render").error(str(error))
        return 1
    return code


def _imported(name: str) -> "Any":
    """A module, whose objects stay as long as the process: the garbage collector looks at them neither now nor later."""
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
