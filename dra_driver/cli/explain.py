# SPDX-License-Identifier: Apache-2.0
"""`dra-driver explain`: why does this pod, claim or manifest get no devices, or which devices does it get?"""

import argparse
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn, TypeVar

from dra_driver.cli import cluster, inputs, render, render_explain
from dra_driver.cli.limits import TookTooLong, at_most, uncollected
from dra_driver.errors import DriverError, Permanent
from dra_driver.explain.outcome import Report
from dra_driver.explain.report import (
    ClaimSubject,
    ManifestSubject,
    NewNode,
    PodSubject,
    Subject,
    TemplateSubject,
    explain,
)
from dra_driver.explain.verdict import CouldNotTell
from dra_driver.model.cluster import ClusterState
from dra_driver.model.exit_codes import COULD_NOT_TELL, WRONG_USAGE

WIDEST = 120
SEARCHING = 0.9
"""The part of --timeout that the search may use. The rest of the time is for writing the answer."""
_Result = TypeVar("_Result")
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


class GaveUp(Permanent):
    """The time of --timeout is over."""


def run(chosen: argparse.Namespace) -> int:
    """Explain the subject. Returns the exit code."""
    named = _named(chosen)
    try:
        report = _only_driver_errors(lambda: _report(chosen, named))
    except DriverError as error:
        render.error(str(error))
        if chosen.output != "json":
            return COULD_NOT_TELL
        report = _no_answer(chosen, named, error)
    try:
        _only_driver_errors(lambda: _show(report, chosen.output))
    except DriverError as error:
        render.error(str(error))
        return COULD_NOT_TELL
    return report.exit_code


def _only_driver_errors(work: Callable[[], _Result]) -> _Result:
    """Run `work` and return its result. Every failure is raised as DriverError.

    An uncaught exception would end Python with exit code 1, and 1 means here that the devices do not fit.
    """
    try:
        return work()
    except DriverError:
        raise
    except Exception as error:
        render.error("".join(traceback.format_exception(error)))
        raise Permanent(
            f"this is a bug in dra-driver ({type(error).__name__}), and says nothing about the devices; "
            f"report it with the lines above and, if you can, with a file of `dra-driver record`"
        ) from error


def _report(chosen: argparse.Namespace, named: tuple[str, str] | None) -> Report:
    """Read the manifests and then the cluster, and make the report. Raises DriverError.

    Manifests are read first, so that an error in them is found before the cluster is read.
    """
    left = float(chosen.timeout)
    begun = time.monotonic()
    documents = _in_time(left, chosen.timeout, lambda: inputs.manifests(chosen.filename))
    left -= time.monotonic() - begun
    state, namespace = _state(chosen, left)
    subject: Subject = ManifestSubject(documents, namespace, ", ".join(chosen.filename))
    if named is not None:
        subject = KINDS[named[0]](namespace, named[1])
    added = _added(chosen.add_node)
    deadline = time.monotonic() + SEARCHING * left
    return _in_time(
        left,
        chosen.timeout,
        lambda: uncollected()(explain)(
            state,
            subject,
            node=chosen.node,
            cancelled=lambda: time.monotonic() > deadline,
            recorded=bool(chosen.record),
            added=added,
        ),
    )


def _added(profile: str) -> NewNode | None:
    if not profile:
        return None
    from dra_driver.cli.added_node import new_node  # noqa: PLC0415  imports the backends, which only this option needs

    return new_node(profile)


def _in_time(seconds: float, timeout: float, work: Callable[[], _Result]) -> _Result:
    """Run `work` and return its result. Raises GaveUp when it takes longer than `seconds`.

    The search itself checks the time between devices. This limit also ends a single CEL expression that runs too long.
    """
    try:
        with at_most(seconds):
            return work()
    except TookTooLong as error:
        raise GaveUp(
            f"gave up after {timeout:g} s (--timeout): give more time, or ask about one node with --node"
        ) from error


def _no_answer(
    chosen: argparse.Namespace, named: tuple[str, str] | None, error: DriverError
) -> Report:
    """Return the report for `-o json` if the cluster or the manifests could not be read."""
    cause = "timeout" if isinstance(error, GaveUp) else "failed"
    full = [part for part in (chosen.namespace, named and named[1]) if part]
    return Report(
        subject=f"{named[0]} {'/'.join(full)}" if named else ", ".join(chosen.filename),
        outcome="could not tell",
        exit_code=COULD_NOT_TELL,
        summary=str(error),
        verdicts=(CouldNotTell(cause, str(error)),),
    )


def _show(report: Report, output: str) -> None:
    """Print the report as text or JSON. Raises Permanent if standard output cannot be written."""
    if output == "json":
        render.document(report)
        return
    width = min(WIDEST, shutil.get_terminal_size((100, 24)).columns)
    for line in render_explain.text(report, width=width, color=render.colored()):
        render.line(line)


def _named(chosen: argparse.Namespace) -> tuple[str, str] | None:
    """Return the kind and name from the command line; None if manifests are given with -f."""
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
        _wrong_usage(
            f"{kind!r} is no kind that can be explained; these kinds can: {', '.join(KINDS)}"
        )
    if not name:
        _wrong_usage(f"the name of the {kind} is missing")
    return kind.lower().partition(".")[0], name


def _wrong_usage(message: str) -> NoReturn:
    render.error(f"explain: {message}")
    sys.exit(WRONG_USAGE)


def _state(chosen: argparse.Namespace, left: float) -> tuple[ClusterState, str]:
    """Read the state of the cluster, and return it with the namespace of the subject. Raises DriverError."""
    if chosen.record:
        state = _in_time(left, chosen.timeout, lambda: inputs.record(chosen.record))
        return state, chosen.namespace or cluster.DEFAULT_NAMESPACE
    try:
        found = cluster.target(chosen)
    except cluster.NoneKnown as error:
        raise Permanent(f"{error}, or --from with a file of `dra-driver record`") from error
    return cluster.read(found), chosen.namespace or found.namespace
