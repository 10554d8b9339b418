# SPDX-License-Identifier: Apache-2.0
"""`dra-driver`: the subcommands.

The exit codes are in `dra_driver.model.exit_codes`. A command that ends with an error prints one line that says what to do. The module
of a subcommand is imported only when the subcommand was chosen, so that `--help` stays fast.
"""

import argparse
import gc
import importlib
import sys
from collections.abc import Iterable, Sequence

from dra_driver import PROJECT, __version__
from dra_driver.cli import interrupt
from dra_driver.errors import DriverError, Refused
from dra_driver.model.exit_codes import NOT_DONE, REFUSED, WRONG_USAGE

TYPE_CHECKING = False  # the import of `typing` alone takes a tenth of the time of `--help`
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

COMMANDS = {
    "run": "serve the kubelet and publish this node's devices",
    "devices": "show the devices of this node as the driver would publish them",
    "doctor": "say what is wrong on this node, what it means, and which command mends it",
    "explain": "say why a pod or claim gets no devices, or which devices it gets",
    "check": "say what is wrong with manifests: limits, selectors, names, references, older forms; correct them",
    "convert": "turn pods that ask a device plugin for GPUs into pods with claims",
    "record": "save the cluster state that `explain` needs to a file, without secrets",
    "pending-events": "write a Warning Event on each pod that waits for devices longer than a while: what is in the way",
    "migration": "say which nodes still use device plugins, what blocks them, and what to move next",
    "snapshot": "save what this node's hardware answers to a file, which `--backend recorded` plays",
    "release": "release the devices of an ended claim that the driver still holds",
    "cleanup": "remove everything that the driver leaves on this node after it was uninstalled",
    "hardware": "touch the hardware for a driver in another container, which asks over a socket",
    "demo": "show the driver at work on this machine, without cluster, GPU or root",
    "completion": "print a script that completes command lines in bash, zsh or fish",
}
KUBECTL = "kubectl dra"
KUBECTL_COMMANDS = {
    "devices": "list the devices of the cluster: where and how they are, who has them, and what is free of them",
    "claims": "list the claims: who uses them, on which node, and with which devices; and those that still wait",
    "free": "say what a new claim of one device could get now, for each DeviceClass",
    "usage": "add up devices, memory and device-hours, by namespace, class, node, product or driver",
    "doctor": "say what is wrong with a node, as the API server shows it, what it means, and which command mends it",
    "why": COMMANDS["explain"],
    "explain": COMMANDS["explain"],
    "check": COMMANDS["check"],
    "convert": COMMANDS["convert"],
    "migration": COMMANDS["migration"],
    "record": COMMANDS["record"],
    "version": "show the versions of this program, of the cluster and of resource.k8s.io, and the drivers that publish devices",
}
"""The subcommands of the kubectl plugin. They look at a cluster and at the devices of any driver; `devices` of `dra-driver` itself shows one node."""
KUBECTL_MODULES = {
    **dict.fromkeys(("devices", "claims", "free", "usage"), "overview"),
    "why": "explain",
}
"""The module of those that have another name than the command."""
DESCRIPTIONS = {
    PROJECT: "Dynamic Resource Allocation driver for accelerators",
    KUBECTL: "devices, claims and what is free of a cluster with Dynamic Resource Allocation, whatever its drivers are",
}
COMPLETE = "__complete"
"""The command that the scripts of `completion` call. It is in no help."""


class CommandLine(argparse.ArgumentParser):
    """A parser with the driver's exit code for wrong usage."""

    def error(self, message: str) -> "NoReturn":
        """Print the usage and the error, and exit."""
        plain = _imported("dra_driver.model.printable").printable
        self.print_usage(sys.stderr)
        self.exit(WRONG_USAGE, f"{self.prog}: error: {plain(message)}\n")

    def refuse(self, rest: Sequence[str]) -> "NoReturn":
        """Print the usage and the arguments that this command does not have, and exit."""
        # Whoever mistypes another flag must not be led to one that overwrites files.
        options = self._option_string_actions.keys() - {"--force"}
        flags = [flag for one in rest if (flag := one.partition("=")[0]).startswith("-")]
        meant = next(
            (f"; did you mean {near}?" for flag in flags if (near := _near(flag, options))), ""
        )
        self.error(f"unrecognized arguments: {' '.join(rest)}{meant}")

    @property
    def arguments(self) -> "Sequence[argparse.Action]":
        """All flags and positional arguments, for completion and for the man pages."""
        return tuple(self._actions)


def parser(
    command: str, *, program: str = PROJECT, commands: "Mapping[str, str]" = COMMANDS
) -> CommandLine:
    """Make the parser of the command line. Only the subcommand `command` gets its arguments; --help shows the others by name."""
    return _parsers(command, program, commands)[0]


def command_line(program: str, commands: "Mapping[str, str]", command: str) -> CommandLine:
    """Make the parser of one subcommand alone."""
    return _parsers(command, program, commands)[1][command]


def _parsers(
    command: str, program: str, commands: "Mapping[str, str]"
) -> tuple[CommandLine, dict[str, CommandLine]]:
    top = CommandLine(prog=program, description=DESCRIPTIONS[program])
    top.add_argument("--version", action="version", version=f"{PROJECT} {__version__}")
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    found = {}
    for name, about in commands.items():
        sub = found[name] = subparsers.add_parser(name, help=about, description=about)
        if name == command:
            home = "cluster_arguments" if program == KUBECTL else "arguments"
            _imported(f"dra_driver.cli.{home}").add_arguments(name, sub)
            # A command finds mistakes that argparse cannot see; its usage and exit code are the same for them.
            sub.set_defaults(parser=sub)
    return top, found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand of `dra-driver`. Returns the exit code."""
    return _run(sys.argv[1:] if arguments is None else arguments, PROJECT, COMMANDS)


def kubectl(arguments: Sequence[str] | None = None) -> int:
    """Run `kubectl dra`: a kubectl plugin with the subcommands that read a cluster. Returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    return _run(given, KUBECTL, KUBECTL_COMMANDS)


def kubectl_complete(arguments: Sequence[str] | None = None) -> int:
    """Complete the words after `kubectl dra`. kubectl runs the program `kubectl_complete-dra` with them; the last one is being typed."""
    return kubectl([COMPLETE, *(sys.argv[1:] if arguments is None else arguments)])


def _run(given: Sequence[str], program: str, commands: "Mapping[str, str]") -> int:
    if given and given[0] == COMPLETE:
        done: int = _imported("dra_driver.cli.complete").run(program, commands, given[1:])
        return done
    given = _as_flags(given, commands)
    command = next((argument for argument in given if not argument.startswith("-")), "")
    top = parser(command, program=program, commands=commands)
    there = f"there are {', '.join(commands)}; `{program} --help` says what each does"
    if command and command not in commands:
        later = next((argument for argument in given if argument in commands), "")
        if later and given[0].startswith("-"):
            words = [later, *given[: given.index(later)], *given[given.index(later) + 1 :]]
            top.error(f"flags come after the command: `{program} {' '.join(words)}`")
        near = _near(command, commands)
        known = f"did you mean {near}?" if near else there
        top.error(f"there is no command {command!r}; {known}")
    if not given:
        top.error(f"give a command; {there}")
    chosen, rest = top.parse_known_args(given)
    if rest:
        # The parser of the command, not the one of all commands: its usage shows what the command takes.
        chosen.parser.refuse(rest)
    home = KUBECTL_MODULES.get(command, command) if program == KUBECTL else command
    name = f"dra_driver.cli.{home.replace('-', '_')}"
    try:
        module = _imported(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        top.error(
            f"the image has no {command!r}: install {PROJECT} on another machine and run it there"
        )
    interrupt.raise_again()
    try:
        code: int = module.run(chosen)
    except DriverError as error:
        _imported("dra_driver.cli.render").error(str(error))
        return REFUSED if isinstance(error, Refused) else NOT_DONE
    return code


def _as_flags(given: Sequence[str], commands: "Mapping[str, str]") -> Sequence[str]:
    """Return the command line with `--help` or `--version` for `help` or `version`, which other programs have as commands."""
    first, *rest = given or ("",)
    if first == "help":
        return [*rest, "--help"]
    return ["--version"] if first == "version" and first not in commands else given


def _near(word: str, known: Iterable[str]) -> str:
    """Return the known word that is most like `word`; "" if none is like it."""
    found: list[str] = _imported("difflib").get_close_matches(word, sorted(known), 1)
    return found[0] if found else ""


def _imported(name: str) -> "Any":
    """Import a module without garbage collection, which would only slow the import down.

    The objects of a module live as long as the process. After `gc.freeze` the collector ignores them later, too.
    """
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
