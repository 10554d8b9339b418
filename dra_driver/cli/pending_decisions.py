# SPDX-License-Identifier: Apache-2.0
"""Which pods wait for devices for too long, what is said of them, and which of it is news? Pure functions for `pending-events`."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import Struct

from dra_driver.cli.explain_lines import device_lines, node_lines
from dra_driver.cli.names_of_others import shown_as_elsewhere
from dra_driver.explain.explanation import CUT
from dra_driver.explain.facts.pod_requests import asks_for_devices
from dra_driver.explain.outcome import Report, RequestReport
from dra_driver.explain.verdict import Fits
from dra_driver.kube.pod_events import Written, event_name, moment
from dra_driver.model.api.core import OVER, Pod
from dra_driver.model.printable import printable

QUIET = timedelta(minutes=5)
"""A pod gets at most one Event in this time, however often the answer changes."""
_COUNTED = re.compile(r" \([\d,]+ looked at\)")
T = TypeVar("T")


class Say(Struct, frozen=True):
    """Something to be said of a pod. `again` is the Event that says so already, if there is one; something else was said since."""

    pod: Pod
    message: str
    again: Written | None = None


class Spent:
    """Whose pods take how long: `at` says of which namespace the pod is that is looked at from now on, "" for none."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds = defaultdict[str, float](float)
        self._clock = clock
        self._at, self._since = "", 0.0

    def at(self, namespace: str) -> None:
        """Count the time until now for the namespace before."""
        now = self._clock()
        if self._at:
            self.seconds[self._at] += now - self._since
        self._at, self._since = namespace, now


def due(pods: Iterable[Pod], after: timedelta, now: datetime) -> list[Pod]:
    """Return the pods without a node that ask for devices and exist for longer than `after`.

    A pod with a scheduling gate waits for whoever set the gate, and one that is being deleted for nothing.
    """
    return [pod for pod in pods if _waits(pod) and _is_old(pod, after, now)]


def _waits(pod: Pod) -> bool:
    over = pod.status.phase in OVER or pod.metadata.deletion_timestamp
    placed = bool(pod.spec.node_name)
    return not (placed or over or pod.spec.scheduling_gates) and asks_for_devices(pod)


def _is_old(pod: Pod, after: timedelta, now: datetime) -> bool:
    made = moment(pod.metadata.creation_timestamp)
    return made is not None and now - made >= after


def message_of(report: Report) -> str:
    """Return what an Event says of a pod whose devices fit nowhere: the summary of `explain`, and its first line about what is in the way.

    Pods of one workload have the same text, so a claim that was made for one of them is not named. The number of nodes is left out: it
    changes with every node that comes or goes. If the time was over before all reasons were found, no line is certain enough. Names that
    `without_others` has hidden are words.
    """
    words = _COUNTED.sub("", report.summary)
    nearest = "" if CUT in report.verdicts else next(_in_the_way(report), "")
    if nearest and nearest not in words:
        words = f"{words}; {nearest}"
    for claim in report.claims:
        if claim.origin:
            words = words.replace(f"claim {claim.name} ", "its claim ")
    return printable(" ".join(shown_as_elsewhere(words).split()))


def _in_the_way(report: Report) -> Iterator[str]:
    for claim in report.claims:
        for request in claim.requests:
            several = len(claim.requests) > 1 or len(report.claims) > 1
            yield from _of_request(request, f"request {request.name}: " if several else "")
    yield from node_lines(report.nodes, 1)


def _of_request(request: RequestReport, name: str) -> Iterator[str]:
    can_be_had = any(isinstance(one.verdict, Fits) for one in request.devices)
    if request.verdicts or not can_be_had:
        lines = (*map(str, request.verdicts), *device_lines(request))
        yield from (f"{name}{line}" for line in lines[:1])


def by_pod(events: Iterable[Written]) -> Mapping[str, Sequence[Written]]:
    """Return the Events by the UIDs of their pods."""
    found: dict[str, list[Written]] = {}
    for one in events:
        found.setdefault(one.pod_uid, []).append(one)
    return found


def news(pod: Pod, message: str, said: Sequence[Written], now: datetime) -> Say | None:
    """Return what is to be said of the pod; None if it was said last, or something was said a short time ago."""
    name = event_name(pod.metadata, message)
    # A time so far ahead is not this controller's, or its clock was wrong: nobody is to be silent until then.
    past = (one for one in said if one.at - now < QUIET)
    last = max(past, key=lambda one: one.at, default=None)
    if last is not None and (last.name == name or now - last.at < QUIET):
        return None
    return Say(pod, message, next((one for one in said if one.name == name), None))


def fairly(pods: Sequence[Pod], looked_at: Callable[[str], int]) -> list[Pod]:
    """Return the pods in the order in which they are explained: namespaces take turns, so that none waits for all pods of another.

    `looked_at` returns the number of the last look, by UID. The longest ago comes first, of the namespaces and of the pods of each.
    """
    last: dict[str, int] = {}
    for pod in pods:
        name, look = pod.metadata.namespace, looked_at(pod.metadata.uid)
        last[name] = max(last.get(name, 0), look)
    waited = sorted(
        pods, key=lambda pod: (last[pod.metadata.namespace], looked_at(pod.metadata.uid))
    )
    return in_turns(waited, lambda pod: pod.metadata.namespace)


def in_turns(ones: Sequence[T], namespace: Callable[[T], str]) -> list[T]:
    """Return the first of each namespace, then the second of each, and so on; otherwise the order stays."""
    before: Counter[str] = Counter()
    turns: list[tuple[int, T]] = []
    for one in ones:
        turns.append((before[namespace(one)], one))
        before[namespace(one)] += 1
    return [one for _, one in sorted(turns, key=lambda turn: turn[0])]
