# SPDX-License-Identifier: Apache-2.0
"""Which arguments does each subcommand take?

Asked for the chosen one only, because the table of settings is slow to import and `--help` needs none of it.
"""

import argparse

from dra_driver.backends.profiles import PROFILES
from dra_driver.config.options import OPTIONS

CLEANUP_FLAGS = {
    "--dry-run": "list what would be removed and what speaks against it; change nothing",
    "--force": "remove it although claims are prepared; says what that breaks. A running driver is never overridden",
    "--keep-slices": "leave the ResourceSlices, and do not ask the API server",
}
EXPLAIN_SECONDS = 60.0
MOST_SECONDS = 86400  # the kernel's timers end where nobody waits any more


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """Give a subcommand's parser its arguments."""
    match command:
        case "run":
            add_settings(parser)
        case "devices":
            add_settings(parser)
            parser.add_argument(
                "--json", action="store_true", help="one JSON document for each device"
            )
        case "release":
            add_settings(parser)
            parser.add_argument(
                "claim", metavar="CLAIM", help="NAMESPACE/NAME or the UID of a claim that is held"
            )
            parser.add_argument(
                "--force",
                action="store_true",
                help="also where a pod that used it still runs: another one gets its devices beside it",
            )
        case "cleanup":
            add_settings(parser)
            for flag, text in CLEANUP_FLAGS.items():
                parser.add_argument(flag, action="store_true", help=text)
        case "demo":
            _add_demo(parser)
        case "explain":
            _add_explain(parser)
        case "record":
            _add_cluster(parser)
            parser.epilog = (
                "exit codes: 0 written, 1 not written, 3 written, but not everything could be read"
            )
            parser.add_argument("file", metavar="FILE", help="where to write it; - for output")
            parser.add_argument("--force", action="store_true", help="overwrite FILE if it exists")
        case _:
            raise ValueError(f"{command!r} is no subcommand")


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


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document for each step")
    parser.add_argument(
        "--profile",
        choices=tuple(PROFILES),
        default="h100x8",
        help="which machine the demo simulates (default: h100x8)",
    )


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "exit codes: 0 it fits, 1 the devices do not fit, 2 could not tell, 3 the devices fit and something else "
        "holds the pod, 64 wrong usage. What the answers mean: docs/pending.md"
    )
    parser.add_argument(
        "subject",
        nargs="*",
        metavar="SUBJECT",
        help="pod/NAME, claim/NAME or template/NAME; `pod NAME` and a bare NAME (a pod) too",
    )
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="manifests to explain as if they were applied, - for input; nothing is applied; may be repeated",
    )
    parser.add_argument(
        "-n", "--namespace", default="", help="namespace (default: the context's, else default)"
    )
    parser.add_argument(
        "--from", dest="record", metavar="FILE", help="a file of `dra-driver record`, no cluster"
    )
    parser.add_argument("--node", default="", metavar="NAME", help="look at this node only")
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="(default: text)"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=EXPLAIN_SECONDS,
        metavar="SECONDS",
        help=f"when to give up searching (default: {EXPLAIN_SECONDS:g})",
    )
    _add_cluster(parser)


def _seconds(text: str) -> float:
    """A time to wait, for argparse."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of seconds between 0 and {MOST_SECONDS} (a day); give for example 60"
        )
    return seconds


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="(default: KUBECONFIG, ~/.kube/config, or the pod's service account)",
    )
    parser.add_argument(
        "--context", default="", help="context of the kubeconfig (default: its current one)"
    )
