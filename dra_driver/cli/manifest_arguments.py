# SPDX-License-Identifier: Apache-2.0
"""The arguments of the subcommands that read manifests: `check` and `convert`."""

import argparse

from dra_driver.cli.common_arguments import add_cluster, add_output, add_timeout
from dra_driver.config.options import DEFAULT_DRIVER_NAME


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        nargs="*",
        metavar="FILE",
        help="file or directory with manifests, - for standard input",
    )
    parser.add_argument(
        *("-f", "--filename"),
        action="append",
        default=[],
        metavar="FILE",
        help="the same, as for kubectl",
    )
    parser.add_argument(
        "-R", "--recursive", action="store_true", help="the subdirectories of directories too"
    )


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `check`."""
    parser.epilog = f"{parser.epilog}. docs/check.md has all rules"
    _add_files(parser)
    parser.add_argument(
        "--fix",
        action="store_true",
        help="correct what can be corrected exactly, and leave everything else of the files as it is; standard input goes to standard output",
    )
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    parser.add_argument(
        "--from",
        dest="record",
        metavar="FILE",
        help="check also against a file of `dra-driver record`",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="check also against the cluster of the kubeconfig; --kubeconfig and --context imply it",
    )
    _add_driver_name(parser)
    add_output(parser, sarif="SARIF 2.1.0")
    add_timeout(
        parser,
        "stop after this time of work, and show what was found until then; what other processes of a busy machine take does not count",
    )
    add_cluster(parser)


def add_convert(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `convert`."""
    parser.epilog = f"{parser.epilog}. docs/check.md has what becomes of each form"
    _add_files(parser)
    parser.add_argument(
        "--class",
        dest="device_class",
        default="",
        metavar="NAME",
        help="the DeviceClass for all requests (default: the usual one for each resource)",
    )
    parser.add_argument(
        "--driver-name",
        default="",
        metavar="NAME",
        help="the driver whose devices the selectors read (default: the one of the usual class)",
    )
    parser.add_argument(
        "--profile",
        default="",
        metavar="NAME",
        help="say also whether this machine has what the pods ask for (docs/reference/profiles.md has all)",
    )
    parser.add_argument(
        "--output-dir",
        default="",
        metavar="FOLDER",
        help="write a file for each file there, instead of standard output",
    )
    parser.add_argument("--force", action="store_true", help="overwrite files in FOLDER")
    add_timeout(
        parser,
        "stop after this time of work; what other processes of a busy machine take does not count",
    )


def _add_driver_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--driver-name",
        default=str(DEFAULT_DRIVER_NAME),
        metavar="NAME",
        help=f"the name under which the driver runs (default: {DEFAULT_DRIVER_NAME})",
    )
