# SPDX-License-Identifier: Apache-2.0
"""`dra-driver`: subcommands and exit codes.

Exit codes: 0 done, 1 failed (one line on standard error says what to do), 2 wrong usage; `cleanup` has a fourth. Each
subcommand's module is imported when it is chosen, so that `--help` needs none of them.
"""

import argparse
import gc
import importlib
from collections.abc import Sequence
from typing import Any

from dra_driver import __version__
from dra_driver.cli import render
from dra_driver.config import OPTIONS
from dra_driver.errors import DriverError

COMMANDS = {
    "run": "serve the kubelet and publish this node's devices",
    "devices": "show what this node has, as the driver would publish it",
    "cleanup": "remove what the driver leaves on this node, when it shall not run here again",
    "demo": "play the whole story on this machine, without cluster, GPU or root",
}

CLEANUP_FLAGS = {
    "--dry-run": "list what would be removed and what speaks against it; change nothing",
    "--force": "remove it although claims are prepared; says what that breaks. A running driver is never overridden",
    "--keep-slices": "leave the ResourceSlices, and do not ask the API server",
}


def add_settings(parser: argparse.ArgumentParser) -> None:
    """One flag for each entry of the table of settings."""
    parser.add_argument(
        "--config", metavar="FILE", help="YAML file with these settings, names with _ for -"
    )
    for option in OPTIONS:
        default = f" (default: {option.default})" if option.default else ""
        action = "append" if option.repeated else "store"
        parser.add_argument(
            option.flag,
            dest=option.name,
            action=action,
            metavar="VALUE",
            help=f"{option.help}{default} [{option.variable}]",
        )


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="dra-driver", description="Dynamic Resource Allocation driver for accelerators"
    )
    top.add_argument("--version", action="version", version=f"dra-driver {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    parsers = {
        name: commands.add_parser(name, help=text, description=text)
        for name, text in COMMANDS.items()
    }
    add_settings(parsers["run"])
    add_settings(parsers["devices"])
    parsers["devices"].add_argument(
        "--json", action="store_true", help="one JSON document for each device"
    )
    add_settings(parsers["cleanup"])
    for flag, text in CLEANUP_FLAGS.items():
        parsers["cleanup"].add_argument(flag, action="store_true", help=text)
    parsers["demo"].add_argument(
        "--json", action="store_true", help="one JSON document for each step"
    )
    parsers["demo"].add_argument(
        "--profile", default="h100x8", help="which machine the demo simulates (default: h100x8)"
    )
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; answers the exit code."""
    chosen = parser().parse_args(arguments)
    command = _imported(f"dra_driver.cli.{chosen.command}")
    try:
        code: int = command.run(chosen)
    except DriverError as error:
        render.error(str(error))
        return 1
    return code


def _imported(name: str) -> Any:
    """A module, whose objects stay as long as the process: the garbage collector looks at them neither now nor later."""
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
