# SPDX-License-Identifier: Apache-2.0
"""`explain --watch`: the answer, and each later one that is another, until nothing is left to wait for.

Watches only tell that something changed. Then the whole cluster is read again, but not more often than the API server and this
machine bear: after each reading there is a rest of some times its duration.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol, Self

from dra_driver.cli import render
from dra_driver.cli.question import Answer, Question
from dra_driver.errors import DriverError
from dra_driver.kube.changes import Changes, deciding
from dra_driver.model.exit_codes import INTERRUPTED

LEAST_REST_SECONDS, LONGEST_REST_SECONDS, _DOUBLINGS = 1.0, 30.0, 5
REST = 4
"""The rest after a reading, in times of the reading's own duration."""


def rest_after(seconds: float, failures: int = 0) -> float:
    """Return how long to rest after a reading of so many seconds, and longer after each that failed."""
    least = min(LEAST_REST_SECONDS * 2.0 ** min(failures, _DOUBLINGS), LONGEST_REST_SECONDS)
    return max(least, REST * seconds)


class Output(Protocol):
    """Prints answers; each method returns the exit code."""

    def shown(self, answer: Answer) -> int:
        """Print the answer."""

    def failed(self, error: DriverError) -> int:
        """Print that there is no answer."""


class Waits(Protocol):
    """Knows whether the cluster has changed, as long as its block lasts."""

    def __enter__(self) -> Self:
        """Begin to watch."""

    def __exit__(self, *_: object) -> None:
        """End it."""

    def wait(self, *, rest: float) -> None:
        """Wait so many seconds, and then until something has changed since the last call."""

    def assume_change(self) -> None:
        """Let the next wait end after its rest: a reading failed, so nobody knows what has changed."""


def watched(question: Question, served: Sequence[str]) -> Waits:
    """Return what tells about changes in the cluster of the question. `served` are its versions of resource.k8s.io."""
    if question.target is None:
        raise ValueError("a record does not change")
    resources = deciding(served, question.asked.workloads, question.namespace)
    # As at the reading: who asks about all namespaces is not content with one.
    namespace = "" if question.asked.all_namespaces else question.namespace
    return Changes(question.target.connection, resources, tell=render.error, namespace=namespace)


def follow(
    question: Question,
    output: Output,
    *,
    watch: Callable[[Question, Sequence[str]], Waits] = watched,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now().astimezone(),
) -> int:
    """Print the first answer and the later ones. Returns the exit code of the last one; Ctrl-C is a normal end."""
    told = _Told(question, output, now)
    try:
        if not told.look():
            return told.code
        with watch(question, told.served) as waits:
            # Between the first reading and the watches something may have changed: so it looks again at once.
            begun = clock()
            while told.look():
                if told.failures:
                    waits.assume_change()
                waits.wait(rest=rest_after(clock() - begun, told.failures))
                begun = clock()
    except KeyboardInterrupt:
        pass
    return told.code


class _Told:
    """What was printed so far. `code` is the exit code of the last answer, `failures` how many readings have failed since then."""

    def __init__(self, question: Question, output: Output, now: Callable[[], datetime]) -> None:
        self._question = question
        self._output = output
        self._now = now
        self._last: Answer | None = None
        self._problem = ""
        self.code = INTERRUPTED
        self.failures = 0
        self.served: tuple[str, ...] = ()

    def look(self) -> bool:
        """Read the cluster, and print the answer if it is another. Returns whether there is something left to wait for."""
        try:
            state, answer = self._question.look()
        except DriverError as error:
            return self._failed(error)
        self._problem, self.failures = "", 0
        self.served = state.served
        if answer != self._last:
            if self._last is not None and self._question.output not in render.DOCUMENTS:
                render.line(f"\n--- {self._now():%H:%M:%S} ---")
            self.code, self._last = self._output.shown(answer), answer
        return not self._question.is_settled(answer) and render.is_read()

    def _failed(self, error: DriverError) -> bool:
        """Print that there is no answer. Only the first reading must succeed; a later one is tried again."""
        if self._last is None:
            self.code = self._output.failed(error)
            return False
        if self._question.is_settled(None):
            render.error(str(error))
            return False
        self.failures += 1
        if str(error) != self._problem:
            self._problem = str(error)
            render.error(f"{error}; trying again")
        return True
