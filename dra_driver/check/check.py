# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the objects of some files? The entry point of the package: each question has a module of its own."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from dra_driver.check.admin_access import admin_findings, labels_of_namespaces
from dra_driver.check.api import api_findings
from dra_driver.check.cluster_objects import is_bare_config, label_findings, object_findings
from dra_driver.check.configs import capacity_findings, config_findings, constraint_findings
from dra_driver.check.derived import derived_findings
from dra_driver.check.devices import DevicesOfCluster
from dra_driver.check.finding import Finding, sorted_findings
from dra_driver.check.given import Given, Known
from dra_driver.check.memory import capacity_unit_findings
from dra_driver.check.names import names_of
from dra_driver.check.older_forms import older_findings
from dra_driver.check.pods import offered_resources, pod_findings
from dra_driver.check.references import objects, reference_findings
from dra_driver.check.selectors import environment, selector_findings, unguarded_findings
from dra_driver.check.unknown_kinds import is_foreign, unknown_findings
from dra_driver.model.yaml_documents import NOWHERE, Path, Places

_WHY_IT_FAILS = ("cel-name", "cel-type", "cel-value")
"""What says what to write, where `cel-fails` can only say that the expression fails."""


def objects_of(
    content: object, file: str = "-", document: int = 1, places: Places = NOWHERE
) -> Iterator[Given]:
    """Yield the objects of a document: those of a List one by one. What is no object becomes an empty one, and is told."""
    yield from _flat(content, Given({}, file, document, (), places))


def _flat(content: object, like: Given) -> Iterator[Given]:
    if not isinstance(content, dict):
        yield _at(like, {}, like.base)
        return
    if content.get("kind") == "List" and isinstance(content.get("items"), list):
        # A List in a List that repeats itself by an alias cannot be built: the reader counts aliases.
        for index, item in enumerate(content["items"]):
            yield from _flat(item, _at(like, {}, (*like.base, "items", index)))
        return
    yield _at(like, content, like.base)


def _at(like: Given, content: dict[str, object], base: Path) -> Given:
    return Given(content, like.file, like.document, base, like.places)


def check(given: Sequence[Given], known: Known) -> list[Finding]:
    """Return everything that is wrong, in the order of the files."""
    each = chain.from_iterable(map(finder(given, known), given))
    return sorted_findings([*each, *of_all(given, known)], [one.file for one in given])


def of_all(given: Sequence[Given], known: Known) -> Iterator[Finding]:
    """Yield what is told once for several objects."""
    yield from label_findings(given, known)
    yield from unknown_findings(given)


def finder(given: Sequence[Given], known: Known) -> Callable[[Given], list[Finding]]:
    """Return what finds all that is wrong with one of these objects. Whoever runs out of time has the answers for others."""
    of = _Objects(given, known)
    return lambda one: list(of.findings(one))


class _Objects:
    """What decides about each object: the others, and what is known besides."""

    def __init__(self, given: Sequence[Given], known: Known) -> None:
        self._known = known
        self._served = known.state.served if known.state else ()
        self._names = names_of(known)
        self._there = objects(given, known)
        self._offered = frozenset(offered_resources(given, known))
        self._devices = DevicesOfCluster(known, given)
        self._namespaces = labels_of_namespaces(given, known)

    def findings(self, one: Given) -> Iterator[Finding]:
        known = self._known
        if not (is_bare_config(one.content) or is_foreign(one)):
            yield from api_findings(one, self._served)
        older = list(older_findings(one, known.driver, self._served))
        yield from older
        # An expression that is rewritten as a whole needs no second opinion.
        rewritten = {finding.path for finding in older if finding.rule == "old-memory"}
        told = list(selector_findings(one, known, self._names))
        asked = self._devices.findings(one) if known.state else unguarded_findings(one, known)
        explained = {finding.path for finding in told if finding.rule in _WHY_IT_FAILS}
        for finding in (*told, *asked):
            is_again = finding.rule == "cel-fails" and finding.path in explained
            if finding.path not in rewritten and not is_again:
                yield finding
        yield from derived_findings(one, environment(known))
        yield from reference_findings(one, self._there)
        minor = known.state.minor if known.state else None
        yield from admin_findings(one, self._namespaces, minor)
        yield from config_findings(one, known)
        yield from capacity_findings(one, self._names, known)
        yield from capacity_unit_findings(one)
        yield from constraint_findings(one, self._names)
        yield from self._devices.too_many(one)
        yield from pod_findings(one, self._offered)
        yield from object_findings(one, known)


def fixable(given: Sequence[Given], known: Known) -> Iterator[Finding]:
    """Yield only the findings that may have edits, without the rest of the work."""
    served = known.state.served if known.state else ()
    for one in given:
        yield from older_findings(one, known.driver, served)
        yield from object_findings(one, known)
