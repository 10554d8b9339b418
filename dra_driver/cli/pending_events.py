# SPDX-License-Identifier: Apache-2.0
"""`dra-driver pending-events`: write a Warning Event on each pod that waits for devices longer than a while, with what is in the way.

Each look reads the pods without a node. Only if some of them wait for too long, the whole cluster is read, once for all of them, and
they are explained: pods that ask for the same, once. What was said is read from the Events, so a restart repeats nothing, and two of
these controllers say nothing twice. A pod is told only what is certain: that its devices fit nowhere.
"""

import argparse
import signal
import socket
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event, Thread

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from dra_driver import __version__
from dra_driver.cli import cluster
from dra_driver.cli.limits import TookTooLong, at_most, uncollected
from dra_driver.cli.names_of_others import without_others
from dra_driver.cli.pending_decisions import (
    Say,
    Spent,
    by_pod,
    due,
    fairly,
    in_turns,
    message_of,
    news,
)
from dra_driver.cli.pending_metrics import PendingMetrics
from dra_driver.daemon.http_endpoint import HttpEndpoint
from dra_driver.daemon.logs import make_logger
from dra_driver.errors import DriverError, Permanent
from dra_driver.explain.outcome import Outcome, Report
from dra_driver.explain.readable import readable
from dra_driver.explain.several import explain_pods
from dra_driver.explain.turns import Time
from dra_driver.kube.pod_events import PodEvents, short
from dra_driver.model.api.core import Pod
from dra_driver.model.cluster import ClusterState
from dra_driver.model.exit_codes import DONE

EVERY_SECONDS = 30.0
REST = 9
"""The rest after a look, in times of the look's own duration: it uses at most a tenth of a core, and as little of the API server.

For what slow pods took, only their namespaces rest. The others are looked at again as if there were no slow pods.
"""
SEARCH_SECONDS = 60.0
"""For all pods of one look, shared out by `explain.turns`. The next look begins with the pods that were left."""
GRACE_SECONDS = 30.0
"""The search looks at the time between devices. So much later it is ended, wherever it is."""
COMPARING_SECONDS = 1.0
"""The pods of a namespace may take so long to be compared with each other, before any has a turn. What takes longer is slow."""
MOST_EVENTS = 100
"""In one look, in which namespaces take turns; the next one writes the others."""
MOST_FAILURES = 3
"""Of the API server in one look, when it writes Events."""
REMEMBERED = 1000
"""Of so many namespaces and kinds it is remembered what was logged."""
STUCK_SECONDS = 900.0
"""No look takes so long; only a restart helps then. The rest after a look may take longer."""


class _Found(Struct, frozen=True):
    """What was found out about a pod, and what is to be said of it; "" for nothing."""

    outcome: Outcome
    pod: Pod
    message: str


class Clocks(Struct, frozen=True):
    """The time of day, and seconds that only grow."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic


class Watch:
    """The controller. `after`: for so long a pod may wait before anything is said of it. `names_of_others`: whether an Event may name
    objects of other namespaces than the pod's.
    """

    def __init__(  # noqa: PLR0913  all but three by name
        self,
        target: cluster.Target,
        events: PodEvents,
        after: timedelta,
        *,
        log: FilteringBoundLogger,
        metrics: PendingMetrics,
        clocks: Clocks,
        names_of_others: bool = False,
    ) -> None:
        self._target = target
        self._events = events
        self._after = after
        self._names_of_others = names_of_others
        self._log = log
        self._metrics = metrics
        self._clocks = clocks
        self._looks = 0
        self._looked_at: dict[str, int] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._rests_until: dict[str, float] = {}
        """Until when a namespace rests that had slow pods."""
        self._slow_seconds = 0.0
        """Of the last look: what slow pods took."""
        self._told: dict[str, str] = {}
        self._begun: float | None = clocks.monotonic()
        """When the look began that has not ended yet; None between two looks."""
        self._problem = "no look has ended yet"

    def stuck(self) -> tuple[str, ...]:
        """Return why only a restart helps; empty if it does not."""
        begun = self._begun
        seconds = 0.0 if begun is None else self._clocks.monotonic() - begun
        return (f"the last look began {seconds:.0f} s ago",) if seconds > STUCK_SECONDS else ()

    def problems(self) -> tuple[str, ...]:
        """Return what keeps it from its work; empty if nothing does."""
        return (self._problem,) if self._problem else ()

    def run(self, stop: Event) -> None:
        """Look again and again, until `stop` is set."""
        while not stop.is_set():
            stop.wait(max(EVERY_SECONDS, REST * self.look()))

    def look(self) -> float:
        """Look once, and return how many seconds it took without slow pods. A failure is told, and the next look tries again."""
        begun = self._begun = self._clocks.monotonic()
        self._slow_seconds = 0.0
        try:
            self._look()
        except DriverError as error:
            self._fails(str(error))
        except TookTooLong:
            self._fails(f"one pod's search did not end in {SEARCH_SECONDS + GRACE_SECONDS:g} s")
        else:
            self._problem = ""
            self._metrics.looked()
        self._begun = None
        return self._clocks.monotonic() - begun - self._slow_seconds

    def _fails(self, why: str) -> None:
        if why != self._problem:
            self._log.warning("look_failed", error=why)
        self._problem = why
        self._metrics.failed()

    def _look(self) -> None:
        now = self._clocks.now()
        waiting = due(self._events.pods_without_node(), self._after, now)
        uids = {pod.metadata.uid for pod in waiting}
        self._looked_at = {uid: self._looked_at.get(uid, 0) for uid in uids}
        self._outcomes = {uid: self._outcomes.get(uid, "could not tell") for uid in uids}
        hangs = False
        if self._awake(waiting):
            state = readable(cluster.read(self._target, waiting_pods=True))
            self._tell_gaps(state)
            there = due(state.pods, self._after, now)
            said = by_pod(self._events.written(pod.metadata for pod in there))
            explained: list[_Found] = []
            hangs = self._explain(state, now, explained)
            found: list[Say] = []
            for one in explained:
                uid = one.pod.metadata.uid
                self._outcomes[uid] = one.outcome
                say = one.message and news(one.pod, one.message, said.get(uid, ()), now)
                if say:
                    found.append(say)
            self._write(found, now)
        self._metrics.waiting(Counter(self._outcomes.values()))
        if hangs:
            raise TookTooLong

    def _awake(self, pods: list[Pod]) -> list[Pod]:
        """Return the pods of namespaces that do not rest."""
        now = self._clocks.monotonic()
        self._rests_until = {name: end for name, end in self._rests_until.items() if end > now}
        return [pod for pod in pods if pod.metadata.namespace not in self._rests_until]

    @uncollected()
    def _explain(self, state: ClusterState, now: datetime, found: list[_Found]) -> bool:
        """Add what is found out about each pod that waits too long. Returns whether a search had to be ended."""
        waiting = self._awake(due(state.pods, self._after, now))
        pods = fairly(waiting, lambda uid: self._looked_at.get(uid, 0))
        clock, slow = self._clocks.monotonic, defaultdict[str, float](float)
        turn: list[tuple[str, float]] = []
        compared = Spent(clock)

        def begins(of: Sequence[Pod]) -> None:
            compared.at("")
            turn[:] = [(of[0].metadata.namespace, clock())]

        self._looks += 1
        try:
            with at_most(SEARCH_SECONDS + GRACE_SECONDS):
                time_left = Time(clock, clock() + SEARCH_SECONDS)
                explained = explain_pods(
                    state,
                    pods,
                    time=time_left,
                    begins=begins,
                    compares=lambda pod: compared.at(pod.metadata.namespace),
                    bug=self._tell_bug,
                )
                for one in explained:
                    own = one.pods[0].metadata.namespace
                    message = self._message(one.report, own)
                    found += [_Found(one.report.outcome, pod, message) for pod in one.pods]
                    slow[own] += one.told.slow_seconds
                    if one.told.had_turn:
                        self._had_turn(one.pods)
        except TookTooLong:
            for own, begun in turn:
                slow[own] += clock() - begun
                self._had_turn([pod for pod in pods if pod.metadata.namespace == own])
            return True
        finally:
            compared.at("")
            for own, seconds in compared.seconds.items():
                slow[own] += seconds if seconds > COMPARING_SECONDS else 0.0
            self._let_rest(slow)
        return False

    def _had_turn(self, pods: Sequence[Pod]) -> None:
        self._looked_at.update((pod.metadata.uid, self._looks) for pod in pods)

    def _let_rest(self, slow: Mapping[str, float]) -> None:
        """Let the namespaces with slow pods rest: each for what all of them took, so that together they too use at most a tenth of a core."""
        self._slow_seconds = sum(slow.values())
        end = self._clocks.monotonic() + REST * self._slow_seconds
        self._rests_until |= {name: end for name, seconds in slow.items() if seconds}

    def _message(self, report: Report, own: str) -> str:
        if report.outcome != "devices do not fit":
            return ""
        try:
            shown = report if self._names_of_others else without_others(report, own)
            return short(message_of(shown))
        except Exception as error:  # noqa: BLE001  the other pods get their Events all the same
            self._tell_bug(report.subject, error)
            return ""

    def _write(self, found: list[Say], now: datetime) -> None:
        failed = 0
        for one in in_turns(found, lambda one: one.pod.metadata.namespace)[:MOST_EVENTS]:
            pod = one.pod.metadata
            try:
                if one.again is None:
                    self._events.create(pod, one.message, now)
                else:
                    self._events.repeat(pod, one.again, now)
            except DriverError as error:
                # The pod or its namespace is going, the right is missing there, or a webhook fails for it: the others go on. A server that
                # fails for all is left alone.
                failed += not isinstance(error, Permanent)
                if failed == MOST_FAILURES:
                    raise
                self._metrics.not_written()
                self._tell(f"event in {pod.namespace}", "event_not_written", str(error))
            else:
                self._metrics.written()
                self._log.info("event_written", pod=f"{pod.namespace}/{pod.name}", said=one.message)

    def _tell_gaps(self, state: ClusterState) -> None:
        """Log what could not be read, once. `explain` says of such pods that it could not tell, so no Event is written."""
        whole = {gap.resource: gap.message for gap in state.not_read if not gap.name}
        self._metrics.not_read(len(whole))
        for resource, why in whole.items():
            self._tell(resource, "not_read", why)

    def _tell_bug(self, title: str, error: Exception) -> None:
        """Log that something could not be explained because of a bug, with where it is; in the same words, once."""
        where = "".join(traceback.format_exception(error))
        why = f"a bug in dra-driver, please report it: {title} could not be explained\n{where}"
        self._tell(f"bug about {title}", "bug", why)

    def _tell(self, what: str, event: str, why: str) -> None:
        """Log why something does not work, unless it was the last that was logged of it."""
        if self._told.get(what) != why:
            if len(self._told) >= REMEMBERED:
                self._told.clear()
            self._told[what] = why
            self._log.warning(event, error=why)


def run(chosen: argparse.Namespace) -> int:
    """Watch until a signal comes. Returns the exit code."""
    target = cluster.target(chosen)
    events = PodEvents(target.connection, instance=socket.gethostname())
    log = make_logger(level=chosen.log_level, form=chosen.log_format)
    metrics = PendingMetrics()
    after = timedelta(seconds=chosen.after)
    watch = Watch(
        target,
        events,
        after,
        log=log,
        metrics=metrics,
        clocks=Clocks(),
        names_of_others=chosen.names_of_others,
    )
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with _served(chosen.http_address, metrics, watch):
        log.info("watching", server=target.connection.shown_server, version=__version__)
        watch.run(stop)
    events.close()
    return DONE


@contextmanager
def _served(
    address: tuple[str, int] | None, metrics: PendingMetrics, watch: Watch
) -> Iterator[None]:
    if address is None:
        yield
        return
    checks = {"/livez": watch.stuck, "/readyz": watch.problems}
    endpoint = HttpEndpoint(address, metrics.registry, checks)
    Thread(target=endpoint.serve, name="http", daemon=True).start()
    try:
        yield
    finally:
        endpoint.close()
