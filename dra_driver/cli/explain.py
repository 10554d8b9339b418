# SPDX-License-Identifier: Apache-2.0
"""`dra-driver explain`: why does this pod, claim or manifest get no devices, or which ones does it get?

Exit codes: 0 it fits, 1 the devices do not fit, 2 could not tell, 3 the devices fit and something else holds the pod,
64 wrong usage.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import yaml

from dra_driver.cli import cluster, render, render_explain
from dra_driver.cli.main import WRONG_USAGE_OF
from dra_driver.errors import DriverError, Permanent
from dra_driver.model.cluster import ClusterState, decode
from dra_driver.model.report import Report
from dra_driver.model.verdict import CouldNotTell
from dra_driver.services.explain import (
    ClaimSubject,
    ManifestSubject,
    PodSubject,
    Subject,
    TemplateSubject,
    explain,
)

COULD_NOT_TELL = 2
STANDARD_INPUT = "-"
WIDEST = 120
KINDS: dict[str, Callable[[str, str], Subject]] = {
    "pod": PodSubject,
    "pods": PodSubject,
    "po": PodSubject,
    "claim": ClaimSubject,
    "resourceclaim": ClaimSubject,
    "resourceclaims": ClaimSubject,
    "template": TemplateSubject,
    "resourceclaimtemplate": TemplateSubject,
    "resourceclaimtemplates": TemplateSubject,
}


def run(chosen: argparse.Namespace) -> int:
    """Explain it; answers the exit code."""
    named = _named(chosen)
    try:
        report = _report(chosen, named)
    except DriverError as error:
        render.error(str(error))
        if chosen.output != "json":
            return COULD_NOT_TELL
        report = _no_answer(chosen, named, str(error))
    try:
        _show(report, chosen.output)
    except DriverError as error:
        render.error(str(error))
        return COULD_NOT_TELL
    return report.exit_code


def _report(chosen: argparse.Namespace, named: tuple[str, str] | None) -> Report:
    """The answer. Raises DriverError."""
    state, namespace = _state(chosen)
    subject = _subject(chosen, named, namespace)
    deadline = time.monotonic() + chosen.timeout
    return explain(state, subject, node=chosen.node, cancelled=lambda: time.monotonic() > deadline)


def _no_answer(chosen: argparse.Namespace, named: tuple[str, str] | None, message: str) -> Report:
    """What programs read where nothing could be looked at."""
    full = [part for part in (chosen.namespace, named and named[1]) if part]
    return Report(
        subject=f"{named[0]} {'/'.join(full)}" if named else ", ".join(chosen.filename),
        outcome="could not tell",
        exit_code=COULD_NOT_TELL,
        summary=message,
        verdicts=(CouldNotTell("failed", message),),
    )


def _show(report: Report, output: str) -> None:
    """Print it. Raises Permanent where it cannot be written."""
    if output == "json":
        render.line(json.dumps(render_explain.document(report), indent=2))
        return
    width = min(WIDEST, shutil.get_terminal_size((100, 24)).columns)
    for line in render_explain.text(report, width=width, color=render.colored()):
        render.line(line)


def _named(chosen: argparse.Namespace) -> tuple[str, str] | None:
    """Kind and name that the command line gives, None with -f alone."""
    match chosen.subject, bool(chosen.filename):
        case [], True:
            return None
        case [str(text)], False:
            kind, slash, name = text.partition("/")
            kind, name = (kind, name) if slash else ("pod", text)
        case [str(kind), str(name)], False:
            pass
        case _:
            _wrong_usage("give one of pod/NAME, claim/NAME, template/NAME, or manifests with -f")
    if kind.lower().partition(".")[0] not in KINDS:
        _wrong_usage(f"{kind!r} is nothing that can be explained; it explains {', '.join(KINDS)}")
    if not name:
        _wrong_usage(f"the name of the {kind} is missing")
    return kind.lower().partition(".")[0], name


def _wrong_usage(message: str) -> NoReturn:
    render.error(f"explain: {message}")
    sys.exit(WRONG_USAGE_OF["explain"])


def _state(chosen: argparse.Namespace) -> tuple[ClusterState, str]:
    """The cluster, and the namespace to look in. Raises DriverError."""
    if chosen.record:
        path = Path(chosen.record)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise Permanent(
                f"cannot read the record {path}: {error}; write one with `dra-driver record {path}`"
            ) from error
        return decode(content, source=str(path)), chosen.namespace or cluster.DEFAULT_NAMESPACE
    found = cluster.target(chosen)
    return cluster.read(found), chosen.namespace or found.namespace


def _subject(chosen: argparse.Namespace, named: tuple[str, str] | None, namespace: str) -> Subject:
    if named is not None:
        kind, name = named
        return KINDS[kind](namespace, name)
    documents: list[object] = []
    for filename in chosen.filename:
        documents += _manifests(filename)
    return ManifestSubject(tuple(documents), namespace, ", ".join(chosen.filename))


def _manifests(filename: str) -> Sequence[object]:
    """The documents of one YAML or JSON file. Raises Permanent."""
    try:
        content = (
            sys.stdin.buffer.read() if filename == STANDARD_INPUT else Path(filename).read_bytes()
        )
        return [document for document in yaml.safe_load_all(content) if document is not None]
    except (OSError, yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        found = " ".join(str(error).split())
        raise Permanent(
            f"cannot read the manifest {filename}: {found}; try kubectl apply --dry-run=client -f {filename}"
        ) from error
