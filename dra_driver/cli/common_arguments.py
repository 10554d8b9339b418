# SPDX-License-Identifier: Apache-2.0
"""The arguments that several subcommands have."""

import argparse

LINES = "lines"  # the output of --json
EXPLAIN_SECONDS = 60.0
MOST_SECONDS = 86400  # a limit far below the overflow of the kernel's timers


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name the cluster."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="(default: KUBECONFIG, ~/.kube/config, or the pod's service account)",
    )
    add_context(parser)


def add_context(parser: argparse.ArgumentParser) -> None:
    """Add --context."""
    parser.add_argument(
        "--context", default="", help="context of the kubeconfig (default: its current context)"
    )


def add_record(parser: argparse.ArgumentParser) -> None:
    """Add --from."""
    parser.add_argument(
        "--from",
        dest="record",
        metavar="FILE",
        help="read a file of `dra-driver record` instead of a cluster",
    )


def add_output(
    parser: argparse.ArgumentParser,
    *,
    lines: str = "",
    wide: str = "",
    sarif: str = "",
    name: str = "",
) -> None:
    """Add -o. `lines` describes --json, for a command that can also print its parts one after the other; the others describe these values."""
    parser.add_argument(
        "-o",
        "--output",
        choices=(
            "text",
            *(("wide",) if wide else ()),
            "json",
            "yaml",
            *(("sarif",) if sarif else ()),
            *(("name",) if name else ()),
        ),
        default="text",
        help=f"text, {f'wide ({wide}), ' if wide else ''}{f'sarif ({sarif}), ' if sarif else ''}{f'name ({name}), ' if name else ''}or one document for programs (docs/reference/documents.md) (default: text)",
    )
    if lines:
        parser.add_argument("--json", dest="output", action="store_const", const=LINES, help=lines)


def add_timeout(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --timeout; `what` says what happens then."""
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=EXPLAIN_SECONDS,
        metavar="SECONDS",
        help=f"{what} (default: {EXPLAIN_SECONDS:g})",
    )


def seconds(text: str) -> float:
    """Parse the value of --timeout. Raises the error that argparse shows."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds between 0 and {MOST_SECONDS} (one day); give for example 60"
        )
    return found
