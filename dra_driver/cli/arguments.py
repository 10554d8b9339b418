# SPDX-License-Identifier: Apache-2.0
"""Which arguments does each subcommand have?

`main` imports this module only when a subcommand was chosen, so that `dra-driver --help` stays fast.
"""

import argparse
import shlex
from collections.abc import Callable, Mapping
from typing import NoReturn

from dra_driver.cli.common_arguments import (
    add_cluster,
    add_context,
    add_output,
    add_record,
    add_timeout,
    seconds,
)
from dra_driver.cli.manifest_arguments import add_check, add_convert
from dra_driver.config.options import CONFIG_VARIABLE, DEFAULT_DRIVER_NAME, OPTIONS, Option
from dra_driver.model.exit_codes import COMMANDS, summary

CLEANUP_FLAGS = {
    "--dry-run": "list what would be removed and what prevents it; change nothing",
    "--force": "remove everything although claims are prepared or held, and say what breaks: two pods may then use one device. "
    "Refused while the driver runs",
    "--keep-slices": "do not delete the ResourceSlices, and do not contact the API server",
}
SNAPSHOT_FLAGS = {
    "--keep-identifiers": "keep UUIDs and serial numbers, which are replaced otherwise"
}
SHELLS = ("bash", "zsh", "fish")
PENDING_SECONDS = 300.0


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """Give a subcommand's parser its arguments."""
    if command in COMMANDS:
        parser.epilog = summary(command)
    match command:
        case "run":
            add_settings(parser)
        case "devices":
            add_settings(parser)
            add_output(
                parser,
                lines="one line of JSON for each device",
                wide="with taints, capacity and attributes as they are published",
            )
        case "doctor":
            add_settings(parser)
            _add_node(parser)
            add_doctor(parser)
        case "snapshot":
            add_settings(parser)
            _add_file(parser)
            _add_flags(parser, SNAPSHOT_FLAGS)
        case "release":
            add_settings(parser)
            parser.add_argument(
                "claim", metavar="CLAIM", help="the held claim: NAMESPACE/NAME or its UID"
            )
            parser.add_argument(
                "--force",
                action="store_true",
                help="release even if a pod that used the claim still runs: another pod may then use its devices too",
            )
        case "cleanup":
            add_settings(parser)
            _add_flags(parser, CLEANUP_FLAGS)
        case "record":
            add_cluster(parser)
            _add_file(parser)
        case _:
            _add_other(command, parser)


def _add_other(command: str, parser: argparse.ArgumentParser) -> None:
    """Arguments of subcommands that read none of the driver's settings."""
    match command:
        case "explain":
            add_explain(parser)
        case "check":
            add_check(parser)
        case "convert":
            add_convert(parser)
        case "migration":
            add_migration(parser)
        case "pending-events":
            _add_pending_events(parser)
        case "demo":
            _add_demo(parser)
        case "hardware":
            _add_hardware(parser)
        case "completion":
            parser.epilog = f"{parser.epilog}. docs/kubectl-dra.md says where the script belongs"
            parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")
        case _:
            raise ValueError(f"{command!r} is no subcommand")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Give the parser one flag for each entry of `config.options.OPTIONS`, and --config."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"YAML document with settings and the options of backends (kind DriverConfig) [{CONFIG_VARIABLE}]",
    )
    for option in OPTIONS:
        default = f" (default: {option.default})" if option.default else ""
        action = "append" if option.repeated else "store"
        parser.add_argument(
            option.flag,
            dest=option.name,
            action=action,
            metavar=option.metavar,
            help=f"{option.help}{default} [{option.variable}]",
        )


def _add_flags(parser: argparse.ArgumentParser, flags: Mapping[str, str]) -> None:
    for flag, text in flags.items():
        parser.add_argument(flag, action="store_true", help=text)


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the file to write; - for standard output")
    parser.add_argument("--force", action="store_true", help="overwrite FILE if it exists")


def _add_node(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root",
        type=_absolute,
        default=None,
        metavar="FOLDER",
        help="where the node's / is mounted; all paths of the node are looked for below it (default: /). In a container only what is "
        "mounted is looked at without it",
    )
    add_context(parser)


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Give the parser what asking about a node takes, from the node or from anywhere."""
    parser.epilog = f"{parser.epilog}. docs/troubleshooting.md explains each finding"
    parser.add_argument(
        "--node",
        default="",
        metavar="NAME",
        help="do not look at this machine; say what the API server shows of this node",
    )
    parser.add_argument(
        "--service-account",
        default="",
        metavar="NAMESPACE/NAME",
        help="the driver's service account, to look at its rights from outside",
    )
    parser.add_argument(
        "--bundle",
        default="",
        metavar="FILE",
        help="write everything that was found to one file for a bug report, without identifiers and texts of other programs; - for standard output, as through `kubectl exec`. "
        "`explain --from` and `--backend recorded` read it",
    )
    parser.add_argument("--force", action="store_true", help="overwrite the file of --bundle")
    parser.add_argument(
        "--from",
        dest="record",
        default="",
        metavar="FILE",
        help="ask a file of --bundle about its node, or with --node a file of `dra-driver record` about a node of its cluster",
    )
    parser.add_argument(
        "--log",
        default="",
        metavar="FILE",
        help="the driver's log (kubectl logs): the bundle gets times and names of its events, and nothing else of it",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="show also what is fine")
    add_output(parser, lines="one line of JSON for each finding")


def _absolute(text: str) -> str:
    """Parse the value of --root. Raises the error that argparse shows."""
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r} is no absolute path; give for example /host")
    return text


def _add_hardware(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--socket", metavar="FILE", required=True, help="the unix socket; only root may use it"
    )
    parser.add_argument(
        "--host-root",
        metavar="FOLDER",
        default="/",
        help="where the host's / is mounted (default: /)",
    )
    parser.add_argument(
        "--driver-root",
        metavar="FOLDER",
        default="",
        help="the host's folder with NVIDIA's driver (default: it looks in the usual places)",
    )
    other = parser.add_mutually_exclusive_group()
    other.add_argument(
        "--probe",
        action="store_true",
        help="only ask whether the process at this socket answers; it does not look at the hardware for it",
    )
    other.add_argument(
        "--let-go",
        action="store_true",
        help="let the process at this socket close the library and all device files for a minute, so that the kernel driver can be "
        "unloaded; it opens them again only if the kernel driver is loaded",
    )


def _add_demo(parser: argparse.ArgumentParser) -> None:
    from dra_driver.backends.profiles import DEMO_PROFILES  # noqa: PLC0415  the backends take a tenth of the time of other commands

    add_output(parser, lines="one line of JSON for each step")
    parser.add_argument(
        "--profile",
        choices=DEMO_PROFILES,
        default="h100x8",
        help="the machine that the demo simulates (default: h100x8)",
    )


class _Kustomize(argparse.Action):
    """An argument of `kubectl apply` that this program does not have: it runs no kustomize."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        values: object,
        _option: str | None = None,
    ) -> NoReturn:
        """End the process, and say what to pipe."""
        folder = shlex.quote(str(values))
        parser.error(
            f"kustomize is not run: `kubectl kustomize {folder} | {parser.prog} -f -` explains what it makes"
        )


def add_explain(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `explain`."""
    parser.epilog = f"{parser.epilog}. docs/pending.md explains the answers"
    _add_subjects(parser)
    _add_view(parser)
    add_cluster(parser)


def _add_subjects(parser: argparse.ArgumentParser) -> None:
    """What is explained."""
    parser.add_argument(
        "subject",
        nargs="*",
        metavar="SUBJECT",
        help="KIND/NAME or KIND NAME, several of them, or NAME alone for a pod; without any: all pods that ask for devices and have no node. "
        "Kinds: pod, claim, template, and workloads, whose pods without a node are explained (deploy, sts, ds, rs, rc, job, cronjob)",
    )
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="file or directory with manifests, - for standard input; explained as if they were applied, but nothing is applied; may be repeated",
    )
    parser.add_argument(
        "-R", "--recursive", action="store_true", help="with -f DIRECTORY: its subdirectories too"
    )
    parser.add_argument(
        *("-k", "--kustomize"), action=_Kustomize, dest="kustomize", help=argparse.SUPPRESS
    )
    parser.add_argument(
        "-l",
        "--selector",
        default="",
        metavar="LABELS",
        help="only pods with these labels, for example app=train,tier!=test",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        default="",
        help="namespace (default: the namespace of the context, or `default`)",
    )
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="the pods of all namespaces"
    )


def _add_view(parser: argparse.ArgumentParser) -> None:
    """How it is looked at, and for how long."""
    parser.add_argument(
        "-w",
        "--watch",
        action="store_true",
        help="explain again when something changes, and print each answer that is another, until the pods have nodes or Ctrl-C",
    )
    add_record(parser)
    parser.add_argument("--node", default="", metavar="NAME", help="explain this node only")
    parser.add_argument(
        "--add-node",
        default="",
        metavar="PROFILE",
        help="try also whether one more node like this machine would help (docs/reference/profiles.md has all); PROFILE:DRIVER for "
        f"another driver than {DEFAULT_DRIVER_NAME}",
    )
    add_output(parser)
    add_timeout(parser, "stop searching after this time")


def add_migration(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `migration`."""
    parser.epilog = f"{parser.epilog}. docs/moving-to-dra.md explains the steps"
    parser.add_argument("--node", default="", metavar="NAME", help="this node only")
    parser.add_argument(
        "--driver-name",
        default=str(DEFAULT_DRIVER_NAME),
        metavar="NAME",
        help=f"the driver to move to (default: {DEFAULT_DRIVER_NAME})",
    )
    add_record(parser)
    add_output(parser, lines="one line of JSON for each node")
    add_cluster(parser)


def _add_pending_events(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        f"{parser.epilog}. docs/pending.md has the Events, and how the chart installs it"
    )
    parser.add_argument(
        "--after",
        type=seconds,
        default=PENDING_SECONDS,
        metavar="SECONDS",
        help=f"for so long a pod may wait before anything is said (default: {PENDING_SECONDS:g})",
    )
    parser.add_argument(
        "--names-of-others",
        action="store_true",
        help="an Event may name claims and pods of other namespaces than its pod's; whoever reads a namespace's Events then sees them",
    )
    for name in ("http_address", "log_level", "log_format"):
        option = next(one for one in OPTIONS if one.name == name)
        parser.add_argument(
            option.flag,
            dest=name,
            type=_as_argument(option),
            default=option.default,
            metavar=option.metavar,
            help=f"{option.help} (default: {option.default})",
        )
    add_cluster(parser)


def _as_argument(option: Option) -> Callable[[str], object]:
    """Return what parses the value of a setting that is only an argument here."""

    def parse(text: str) -> object:
        try:
            return option.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse
