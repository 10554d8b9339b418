# SPDX-License-Identifier: Apache-2.0
"""One question of `explain`: what is asked, in which cluster or record, and within which time."""

import argparse
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

from dra_driver.cli import cluster, inputs, render
from dra_driver.cli.limits import TookTooLong, at_most, uncollected
from dra_driver.cli.rights import lacking_rights
from dra_driver.cli.subjects import Asked
from dra_driver.errors import DriverError, Permanent
from dra_driver.explain.outcome import Report, ReportList
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.explain.several import explain_several, settled
from dra_driver.explain.subject.applied import nothing_to_explain
from dra_driver.explain.subject.subject import NamedSubject, NewNode
from dra_driver.explain.turns import Time
from dra_driver.explain.verdict import CouldNotTell
from dra_driver.model.cluster import ClusterState
from dra_driver.model.exit_codes import COULD_NOT_TELL, DONE

SEARCHING = 0.9
"""The part of --timeout that the search may use. The rest of the time is for writing the answer."""
WRITING_SECONDS = 4.0
"""So much time the rest has at least, or half of --timeout if that is less: one step of a search may take some seconds."""
Answer = Report | ReportList
_Result = TypeVar("_Result")


class GaveUp(Permanent):
    """The time of --timeout is over."""


class Question:
    """The arguments of the command line, and what they ask about."""

    def __init__(self, chosen: argparse.Namespace, asked: Asked) -> None:
        self.chosen = chosen
        self.asked = asked
        self._documents: tuple[tuple[str, object], ...] | None = None
        self._added: NewNode | None = None
        """The node of --add-node."""
        self._target: cluster.Target | None = None
        self._state: ClusterState | None = None
        """The cluster as it was read last; None if it could not be read."""
        self._left = 0.0
        """The time that is left of --timeout, in seconds."""

    @property
    def output(self) -> str:
        """The value of -o."""
        return str(self.chosen.output)

    @property
    def target(self) -> cluster.Target | None:
        """The cluster, once it is known; None for a record."""
        return self._target

    def look(self) -> tuple[ClusterState, Answer]:
        """Read the manifests and then the cluster; return its state and the answer. Raises DriverError, whatever fails.

        Manifests are read first, so that an error in them is found before the cluster is read.
        """
        return only_driver_errors(self._look)

    def _look(self) -> tuple[ClusterState, Answer]:
        self._prepare()
        self._state = None
        self._state = self._read()
        return self._state, self._answer(self._state)

    def _prepare(self) -> None:
        """Read the manifests, make the node of --add-node, and find out which cluster is meant. Each is done once, however often the cluster is read."""
        self._left = float(self.chosen.timeout)
        if self._documents is None:
            begun = time.monotonic()
            names, recursive = self.chosen.filename, self.chosen.recursive
            self._documents = self._in_time(lambda: inputs.manifests(names, recursive=recursive))
            self._left -= time.monotonic() - begun
            if names and not self._documents:
                raise nothing_to_explain(", ".join(names))
            self._added = _new_node(self.chosen.add_node)
        if not self.chosen.record and self._target is None:
            try:
                self._target = cluster.target(self.chosen)
            except cluster.NoneKnown as error:
                raise Permanent(f"{error}, or --from with a file of `dra-driver record`") from error

    def _read(self) -> ClusterState:
        if self._target is None:
            return self._in_time(lambda: inputs.record(self.chosen.record))
        namespace = "" if self.asked.all_namespaces else self.namespace
        return cluster.read(self._target, namespace=namespace, workloads=self.asked.workloads)

    @property
    def lacks_rights(self) -> bool:
        """Whether the user may not read something that decides, in the cluster as it was read last."""
        return self._state is not None and bool(lacking_rights(self._state))

    @property
    def namespace(self) -> str:
        """The namespace of the subjects: from -n, or from the context."""
        found = self._target.namespace if self._target else cluster.DEFAULT_NAMESPACE
        return str(self.chosen.namespace or found)

    def _answer(self, state: ClusterState) -> Answer:
        found = Time(time.monotonic, time.monotonic() + searching(self._left))
        return self._in_time(lambda: self._explained(state, found))

    @uncollected()
    def _explained(self, state: ClusterState, given: Time) -> Answer:
        node, recorded = self.chosen.node, bool(self.chosen.record)
        added, cancelled = self._added, given.is_over
        if self.asked.from_files:
            source = ", ".join(self.chosen.filename)
            read = self._documents or ()
            manifests = ManifestSubject(
                tuple(content for _, content in read),
                self.namespace,
                source,
                tuple(name for name, _ in read),
            )
            return explain(
                state, manifests, node=node, cancelled=cancelled, recorded=recorded, added=added
            )
        subjects = self.asked.subjects(self.namespace)
        one = subjects[0]
        if self.asked.is_one and isinstance(one, NamedSubject):
            return explain(
                state, one, node=node, cancelled=cancelled, recorded=recorded, added=added
            )
        return explain_several(
            state,
            subjects,
            node=node,
            time=given,
            recorded=recorded,
            added=added,
            bug=_tell_bug,
        )

    def is_settled(self, answer: Answer | None) -> bool:
        """Return whether nothing is left to wait for: see `explain.several.settled`. Manifests are settled when they fit.

        `answer` is None if there is none. A subject that is gone has no answer, and is settled.
        """
        if self.asked.from_files:
            return answer is not None and answer.exit_code == DONE
        return self._state is not None and settled(self._state, self.asked.subjects(self.namespace))

    def no_answer(self, error: DriverError) -> Answer:
        """Return the document for `-o json` if the cluster or the manifests could not be read."""
        cause = "timeout" if isinstance(error, GaveUp) else "failed"
        title = self.asked.title(self.chosen.namespace)
        if self.asked.from_files:
            title = ", ".join(self.chosen.filename)
        if not self.asked.is_one:
            return ReportList(
                subject=title,
                outcome="could not tell",
                exit_code=COULD_NOT_TELL,
                summary=str(error),
            )
        return Report(
            subject=title,
            outcome="could not tell",
            exit_code=COULD_NOT_TELL,
            summary=str(error),
            verdicts=(CouldNotTell(cause, str(error)),),
        )

    def _in_time(self, work: Callable[[], _Result]) -> _Result:
        """Run `work` and return its result. Raises GaveUp when it takes longer than what is left of --timeout.

        The search itself checks the time between devices. This limit also ends a single CEL expression that runs too long.
        """
        try:
            with at_most(self._left):
                return work()
        except TookTooLong as error:
            raise GaveUp(
                f"gave up after {self.chosen.timeout:g} s (--timeout): give more time, or ask about one node with --node"
            ) from error


def searching(left: float) -> float:
    """Return how many of the seconds that are left the search may use."""
    return min(SEARCHING * left, max(left / 2, left - WRITING_SECONDS))


def _new_node(profile: str) -> NewNode | None:
    if not profile:
        return None
    from dra_driver.cli.added_node import new_node  # noqa: PLC0415  imports the backends, which only this option needs

    return new_node(profile)


def only_driver_errors(work: Callable[[], _Result]) -> _Result:
    """Run `work` and return its result. Every failure is raised as DriverError.

    An uncaught exception would end Python with exit code 1, and 1 means here that the devices do not fit.
    """
    try:
        return work()
    except DriverError:
        raise
    except Exception as error:
        raise Permanent(_bug(error)) from error


def _tell_bug(title: str, error: Exception) -> None:
    """Say on standard error that one of several subjects could not be explained. The others are."""
    render.error(f"{title}: {_bug(error)}")


def _bug(error: Exception) -> str:
    """Write where the error comes from to standard error, and return what a user is to do."""
    render.error(*"".join(traceback.format_exception(error)).splitlines())
    return (
        f"this is a bug in dra-driver ({type(error).__name__}), and says nothing about the devices; "
        f"report it with the lines above and, if you can, with a file of `dra-driver record`"
    )
