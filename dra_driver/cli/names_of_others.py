# SPDX-License-Identifier: Apache-2.0
"""How does a report hide who works in other namespaces than the pod's?

Names are hidden where a verdict has them, before it becomes text: what an author wrote may look like a name, and its look must not
tell which namespaces there are. A hidden name is a number between two marks, so that different names stay different until the text is
made; `shown_as_elsewhere` replaces the marks then.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property

from msgspec.structs import replace

from dra_driver.cli.report_verdicts import with_verdicts
from dra_driver.explain.outcome import Report
from dra_driver.explain.verdict import (
    AllUnsatisfied,
    CapacityConsumed,
    CountersUsedUp,
    Ending,
    HeldByClaim,
    Verdict,
)
from dra_driver.model.printable import CUT

ELSEWHERE = "another namespace"
_MARKS = "\ue000{}\ue001"
_HIDDEN = "\ue000[0-9]+\ue001"
_USED = re.compile(rf"({_HIDDEN}) \((?:no pod|[a-z ]+{_HIDDEN})(?=[,)])(?:[^()]|\([^()]*\))*\)")
"""A holder with the pods that use it and the time, as a line has it that names several holders."""
_SEVERAL = re.compile(rf"{_HIDDEN}(?:, {_HIDDEN})*")
_EXAMPLE = re.compile(r"(all .*? cannot be had)(?:, for example)?: ")
_FINALIZERS = re.compile(r"\(([\d,]+) finalizers\)")
_WELL_KNOWN = frozenset(
    {
        "resource.kubernetes.io/delete-protection",
        "batch.kubernetes.io/job-tracking",
        "scheduling.k8s.io/podgroup-protection",
        "foregroundDeletion",
        "orphan",
    }
)
"""Finalizers of Kubernetes itself. Any other one is whatever text the owner of the object likes."""


class _EndingElsewhere(Ending, frozen=True):
    """An object of another namespace that is being deleted. Of its finalizers, those that everybody knows are named, and the others counted."""

    def __str__(self) -> str:
        known = [one for one in self.finalizers if one in _WELL_KNOWN]
        others = _many(self.finalizers) - len(known)
        words = ", ".join(known)
        if words:
            word = "finalizer" if len(self.finalizers) == 1 else "finalizers"
            words = f"{word} {words}" + (f" and {others:,} more" if others else "")
        elif others:
            words = f"{others:,} {'finalizer' if others == 1 else 'finalizers'}"
        kept = f", kept by {words}" if words else ""
        return f"{self.name} is being deleted since {self.since}{kept}"


def _many(finalizers: tuple[str, ...]) -> int:
    """Return how many finalizers there are; the last of those that are shown may say it."""
    more = _FINALIZERS.search(finalizers[-1]) if finalizers and finalizers[-1][:1] == CUT else None
    return int(more[1].replace(",", "")) if more else len(finalizers)


def without_others(report: Report, own: str) -> Report:
    """Return the report without the names of claims and pods of other namespaces than the pod's `own`, and of their finalizers.

    Whoever may read the Events of a namespace need not know who works in another one. The scheduler's messages have no such name either.
    And whoever works in another one is not to write into these Events.
    """
    return _Hiding(own).report(report)


def shown_as_elsewhere(message: str) -> str:
    """Return the message with words in the place of hidden names."""
    return _SEVERAL.sub(ELSEWHERE, _USED.sub(r"\1", message))


class _Hiding:
    def __init__(self, own: str) -> None:
        self._own = own
        self._numbers: dict[str, int] = {}

    def report(self, report: Report) -> Report:
        return with_verdicts(with_verdicts(report, self._verdict), _Examples(report, self._verdict))

    def _verdict(self, one: Verdict) -> Verdict:
        match one:
            case HeldByClaim():
                return replace(
                    one,
                    claim=self._name(one.claim),
                    pods=tuple(map(self._name, one.pods)),
                    ending=tuple(map(self._ending, one.ending)),
                    budgets=tuple(map(self._name, one.budgets)),
                )
            case CapacityConsumed() | CountersUsedUp():
                return replace(
                    one,
                    claims=tuple(map(self._name, one.claims)),
                    ending=tuple(map(self._ending, one.ending)),
                )
            case _:
                return one

    def _name(self, name: str) -> str:
        """Return "namespace/name" hidden, with the kind before it if there is one."""
        kind, _, full = name.rpartition(" ")
        if full.partition("/")[0] == self._own:
            return name
        number = self._numbers.setdefault(full, len(self._numbers))
        return f"{kind} {_MARKS.format(number)}".lstrip()

    def _ending(self, one: Ending) -> Ending:
        name = self._name(one.name)
        return one if name == one.name else _EndingElsewhere(name, one.since, one.finalizers)


class _Examples:
    """Hides names in the text of a verdict about all devices, which ends with a reason against one of them."""

    def __init__(self, report: Report, hidden: Callable[[Verdict], Verdict]) -> None:
        self._report = report
        self._hidden = hidden

    def __call__(self, one: Verdict) -> Verdict:
        found = _EXAMPLE.match(one.detail) if isinstance(one, AllUnsatisfied) else None
        if found is None:
            return one
        example = self._texts.get(found.string[found.end() :])
        return AllUnsatisfied(f"{found[0]}{example}" if example else found[1])

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        requests = (request for claim in self._report.claims for request in claim.requests)
        reasons = (group.verdict for request in requests for group in request.devices)
        return {str(one): str(self._hidden(one)) for one in reasons}
