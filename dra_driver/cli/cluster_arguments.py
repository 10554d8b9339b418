# SPDX-License-Identifier: Apache-2.0
"""Which arguments does each subcommand of `kubectl dra` have?"""

import argparse
from typing import NoReturn

from dra_driver.cli.arguments import add_arguments as add_arguments_of_driver
from dra_driver.cli.arguments import add_doctor, add_explain, add_migration
from dra_driver.cli.common_arguments import add_cluster, add_output, add_record, add_timeout
from dra_driver.config.options import OPTIONS
from dra_driver.model.exit_codes import KUBECTL, summary
from dra_driver.overview.usage import BY

_WIDE = {
    "devices": "with all attributes and capacities, uncut",
    "claims": "with class, driver and pool, uncut",
    "free": "with the names of nodes and products, uncut",
    "usage": "with the devices that are in no slice",
}
_NAMES = {
    "devices": "refused, for a device is no object",
    "claims": "the claims as `kubectl get` takes them",
    "free": "the classes as `kubectl get` takes them",
    "usage": "namespaces, classes or nodes as `kubectl get` takes them",
}
_NAMESPACES = {
    "devices": "only devices that a claim of this namespace has",
    "claims": "namespace (default: the namespace of the context, or `default`)",
    "usage": "only claims of this namespace (default: all)",
}
_LABELS = {
    "devices": "only devices of claims with",
    "claims": "only claims with",
    "usage": "only claims with",
}
_NO_NAMESPACE = (
    "what is free belongs to no namespace and to no claim, so {flag} chooses nothing: leave it out; "
    "`kubectl dra devices {flag} …` shows the devices that claims have"
)


class _HasNone(argparse.Action):
    """An argument of the other commands, which has no meaning for this one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        _values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        """End the process, and say why."""
        parser.error(_NO_NAMESPACE.format(flag=option_string))


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """Give a subcommand's parser its arguments."""
    parser.epilog = summary(command, KUBECTL)
    match command:
        case "explain" | "why":
            add_explain(parser)
        case "migration":
            add_migration(parser)
        case "version":
            _add_version(parser)
        case "doctor":
            _add_doctor_from_outside(parser)
        case "devices" | "claims" | "free" | "usage":
            _add_overview(command, parser)
        case _:
            add_arguments_of_driver(command, parser)


def _add_doctor_from_outside(parser: argparse.ArgumentParser) -> None:
    """Of the settings only those that a look through the API server follows; the paths are those of a node."""
    parser.set_defaults(**{option.name: None for option in OPTIONS}, config="", root=None)
    add_doctor(parser)
    add_cluster(parser)
    parser.add_argument(
        "--driver-name",
        metavar="NAME",
        help="the driver's name, if its chart was given another one",
    )


def _add_overview(command: str, parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"{parser.epilog}. docs/kubectl-dra.md explains the columns"
    if command == "free":
        parser.add_argument(
            "device_class",
            nargs="?",
            default="",
            metavar="CLASS",
            help="a DeviceClass (default: all)",
        )
        add_timeout(parser, "stop looking after this time")
    if command == "claims":
        parser.add_argument(
            "claim_names",
            nargs="*",
            metavar="CLAIM",
            help="NAME or claim/NAME: only these claims, uncut (default: all of the namespace)",
        )
    if command == "usage":
        parser.add_argument(
            "--by", choices=BY, default=BY[0], help=f"what to add up (default: {BY[0]})"
        )
    if command in _NAMESPACES:
        parser.add_argument("-n", "--namespace", default="", help=_NAMESPACES[command])
    if command in _NAMESPACES:
        parser.add_argument(
            "-A", "--all-namespaces", action="store_true", help=f"the {command} of all namespaces"
        )
        parser.add_argument(
            "-l",
            "--selector",
            default="",
            metavar="LABELS",
            help=f"{_LABELS[command]} these labels, for example app=train,tier!=test",
        )
    else:
        for flags in (("-n", "--namespace"), ("-A", "--all-namespaces"), ("-l", "--selector")):
            parser.add_argument(
                *flags, action=_HasNone, nargs="?", dest="has_none", help=argparse.SUPPRESS
            )
    parser.add_argument("--node", default="", metavar="NAME", help="only devices of this node")
    parser.add_argument("--driver", default="", metavar="NAME", help="only devices of this driver")
    add_output(parser, wide=_WIDE[command], name=_NAMES[command])
    parser.add_argument("--no-headers", action="store_true", help="leave the first line out")
    parser.add_argument(
        "-w",
        "--watch",
        action="store_true",
        help="look again when something changes, and print each row that is another, until Ctrl-C",
    )
    add_record(parser)
    add_cluster(parser)


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--client", action="store_true", help="the version of this program only; asks no cluster"
    )
    add_output(parser)
    add_record(parser)
    add_cluster(parser)
