# SPDX-License-Identifier: Apache-2.0
"""`kubectl dra devices`, `claims`, `free` and `usage`: read the cluster as `explain` does, and print one row for each thing."""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NoReturn

from msgspec.structs import replace

from dra_driver.cli import cluster, inputs, render
from dra_driver.cli.follow import Waits, rest_after
from dra_driver.cli.limits import TookTooLong, at_most
from dra_driver.cli.question import SEARCHING, GaveUp, only_driver_errors
from dra_driver.cli.render_overview import MARKS, Look, Row, Sheet, names, sentence, sheet
from dra_driver.cli.subjects import kind_of
from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.explain.subject.labels import BadSelector, LabelSelector, parse_selector
from dra_driver.explain.subject.lookup import namespace_is_missing
from dra_driver.kube.changes import Changes, deciding
from dra_driver.kube.discovery import HOW_TO_SERVE
from dra_driver.model.cluster import ClusterState
from dra_driver.model.exit_codes import COULD_NOT_TELL, DONE, INTERRUPTED, WITH_RESERVATION
from dra_driver.overview.claims import claims_of
from dra_driver.overview.cluster import Overview
from dra_driver.overview.devices import Chosen, devices_of
from dra_driver.overview.free import FreeDevices, free_of, took_too_long
from dra_driver.overview.part import Gap
from dra_driver.overview.rights import (
    CLAIMS,
    USAGE,
    USAGE_OF_NODES,
    forbidden,
    gaps_of,
    needed,
    not_whole,
    nothing_served,
)
from dra_driver.overview.steady import Document, steady
from dra_driver.overview.usage import usage_of

NAME = "name"
CLAIM = "ResourceClaim"
_NO_NAMES = {
    "devices": "a device is no object that kubectl can get: `-o json` has its driver, pool and name, and `kubectl dra claims --node NAME -o name` the claims that have devices",
    "product": "a product is no object that kubectl can get: give --by namespace, class or node",
    "driver": "a driver is no object that kubectl can get: give --by namespace, class or node",
}
"""What is said instead of names, for a command or for `usage` by a property."""


def run(chosen: argparse.Namespace) -> int:
    """Print what the cluster has. Returns the exit code."""
    if chosen.watch and chosen.record:
        _refuse(chosen.parser, "a record does not change: give either --watch or --from")
    _refuse_wrong_names(chosen)
    asked = Asked(chosen, _labels(chosen))
    try:
        return follow(asked) if chosen.watch else _once(asked)
    except KeyboardInterrupt:
        return INTERRUPTED
    except DriverError as error:
        render.error(str(error))
        if chosen.output in render.DOCUMENTS:
            render.document(asked.no_answer(error), chosen.output)
        return COULD_NOT_TELL


def _labels(chosen: argparse.Namespace) -> LabelSelector:
    try:
        return parse_selector(getattr(chosen, "selector", ""))
    except BadSelector as error:
        _refuse(chosen.parser, str(error))


def _refuse_wrong_names(chosen: argparse.Namespace) -> None:
    """End the process if names are asked for that would name nothing, or claims are named that could be any."""
    named = getattr(chosen, "claim_names", ())
    for word in named:
        kind, slash, name = word.rpartition("/")
        if not name or (slash and kind_of(kind) != CLAIM):
            _refuse(chosen.parser, f"{word!r} names no claim: give NAME or claim/NAME")
    everywhere = getattr(chosen, "all_namespaces", False)
    if named and (everywhere or chosen.selector):
        other = "--all-namespaces" if everywhere else "-l"
        _refuse(
            chosen.parser, f"a claim is named in one namespace: give it with -n, without {other}"
        )
    if chosen.output != NAME:
        return
    if everywhere and chosen.command == CLAIMS:
        _refuse(
            chosen.parser,
            "names of all namespaces do not say where the claims are: give -n, or -o json",
        )
    for what in (chosen.command, getattr(chosen, "by", "")):
        if what in _NO_NAMES:
            _refuse(chosen.parser, _NO_NAMES[what])


def _refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    parser.error(message)


@dataclass(slots=True)
class Asked:
    """What the command line asks about, and in which cluster or record."""

    chosen: argparse.Namespace
    labels: LabelSelector
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    target: cluster.Target | None = field(default=None, init=False)
    served: tuple[str, ...] = field(default=(), init=False)
    names: frozenset[str] = field(default=frozenset(), init=False)
    """The versions of resource.k8s.io, once the cluster was read."""
    unread: frozenset[str] = field(default=frozenset(), init=False)
    """The resources of which the user may read nothing."""
    lacking: frozenset[tuple[str, str]] = field(default=frozenset(), init=False)
    """The resources that could not be read as a whole, each with the namespace whose objects were read, or ""."""

    def __post_init__(self) -> None:
        """Read the names of claims."""
        named = getattr(self.chosen, "claim_names", ())
        self.names = frozenset(word.rpartition("/")[2] for word in named)

    def look(self) -> Document:
        """Read the cluster and return the answer. Raises DriverError, whatever fails."""
        return only_driver_errors(self._look)

    def _look(self) -> Document:
        state = self._read()
        first, self.served = not self.served, state.served
        self.unread, self.lacking = forbidden(state), not_whole(state)
        overview = Overview(state)
        namespace = self._namespace()
        if (gap := nothing_served(state)) is not None:
            step = f"; {HOW_TO_SERVE}" if gap.reason == "not_served" else ""
            raise Permanent(
                f"this cluster (Kubernetes {state.kubernetes_version}) shows no devices and no claims: {gap.message}{step}"
            )
        gaps = gaps_of(overview.state, self.topic, namespace=namespace)
        self._check(overview, namespace)
        limits = Chosen(self.chosen.node, self.chosen.driver, namespace, self.labels, self.names)
        if first and not any(gap.resource == "resourceclaims" for gap in gaps):
            self._check_names(overview, namespace)
        return self._answer(overview, limits, gaps)

    def _check_names(self, overview: Overview, namespace: str) -> None:
        """Raise Permanent if a claim is named that does not exist. One that is deleted later is just gone."""
        claims = (one.metadata for one in overview.state.resource_claims)
        there = {one.name for one in claims if one.namespace == namespace}
        for name in sorted(self.names - there):
            raise Permanent(
                f"there is no claim {namespace}/{name}; `kubectl dra claims -n {namespace}` lists those of the namespace"
            )

    def _read(self) -> ClusterState:
        if self.chosen.record:
            return inputs.record(self.chosen.record)
        if self.target is None:
            try:
                self.target = cluster.target(self.chosen)
            except cluster.NoneKnown as error:
                raise Permanent(f"{error}, or --from with a file of `dra-driver record`") from error
        return cluster.read(self.target, namespace=self.own_namespace)

    @property
    def own_namespace(self) -> str:
        """The namespace whose objects are shown to somebody who may not list those of the whole cluster."""
        of_context = self.target.namespace if self.target else ""
        return str(getattr(self.chosen, "namespace", "") or of_context)

    @property
    def topic(self) -> str:
        """What the answer is about, for the rights that it needs."""
        of_nodes = self.chosen.node or getattr(self.chosen, "by", "") == "node"
        command = str(self.chosen.command)
        return USAGE_OF_NODES if command == USAGE and of_nodes else command

    def _namespace(self) -> str:
        """Return the namespace that is asked about, "" for all. Only `claims` has one without -n: that of the context."""
        given = str(getattr(self.chosen, "namespace", ""))
        if given or self.chosen.command != CLAIMS or self.chosen.all_namespaces:
            return "" if getattr(self.chosen, "all_namespaces", False) else given
        return self.target.namespace if self.target else cluster.DEFAULT_NAMESPACE

    def _check(self, overview: Overview, namespace: str) -> None:
        """Raise Permanent if a node, driver, class or namespace is asked about that the cluster does not have. What is unread may exist."""
        state = overview.state
        if namespace and namespace_is_missing(state, namespace):
            raise Permanent(
                f"there is no namespace {namespace}; give one that `kubectl get namespaces` lists with -n, or -A for all"
            )
        node, driver = self.chosen.node, self.chosen.driver
        nodes = {one.metadata.name for one in state.nodes}
        if node and node not in nodes and not state.gaps("nodes"):
            raise Permanent(
                f"there is no node {node}; `kubectl get nodes` lists them, or leave --node out"
            )
        drivers = sorted(overview.fleet.drivers)
        if driver and driver not in drivers and not state.gaps("resourceslices"):
            there = ", ".join(drivers) or "none at all"
            raise Permanent(
                f"no driver {driver} publishes ResourceSlices in this cluster; those that do: {there}"
            )
        wanted = getattr(self.chosen, "device_class", "")
        classes = sorted(overview.fleet.classes)
        if wanted and wanted not in classes and not state.gaps("deviceclasses"):
            there = ", ".join(classes) or "none at all"
            raise Permanent(f"there is no DeviceClass {wanted}; there are: {there}")

    def _answer(self, overview: Overview, limits: Chosen, gaps: tuple[Gap, ...]) -> Document:
        match self.chosen.command:
            case "devices":
                return devices_of(overview, limits, gaps)
            case "claims":
                return claims_of(overview, limits, gaps)
            case "usage":
                return usage_of(overview, limits, self.chosen.by, now=self.now(), not_read=gaps)
            case _:
                return self._free(overview, limits, gaps)

    def no_answer(self, error: DriverError) -> Document:
        """Return the document for `-o json` if nothing could be told: that of an empty cluster, with the problem."""
        nothing = self._answer(Overview(ClusterState()), Chosen(), ())
        return replace(nothing, problem=str(error))

    def _free(self, overview: Overview, limits: Chosen, gaps: tuple[Gap, ...]) -> Document:
        """Evaluate the selectors of classes within --timeout, as `explain` does."""
        most = float(self.chosen.timeout)
        deadline = time.monotonic() + SEARCHING * most
        wanted = self.chosen.device_class
        try:
            with at_most(most):
                return free_of(
                    overview,
                    limits,
                    wanted,
                    not_read=gaps,
                    cancelled=lambda: time.monotonic() > deadline,
                )
        except TookTooLong as error:
            raise GaveUp(
                f"gave up after {most:g} s (--timeout): give more time, or ask about one class or --node"
            ) from error

    @property
    def columns(self) -> Look:
        """How the answer is shown."""
        everywhere = bool(getattr(self.chosen, "all_namespaces", False))
        wide, uncut = self.chosen.output == render.WIDE, bool(self.names)
        return Look(
            self.now(),
            wide=wide,
            namespaces=everywhere,
            uncut=uncut,
            namespace=self._namespace(),
        )


class Printed:
    """What was printed so far. `show` prints what is new in an answer, and returns the exit code."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._last: Document | None = None
        self._lacking: frozenset[tuple[str, str]] = frozenset()
        self._rows: dict[tuple[str, ...], Row] = {}
        self._said: set[str] = set()
        self._table: render.Table | None = None
        self._problem = ""
        self.failures = 0
        """So many readings have failed since the last answer."""

    def show(self, document: Document) -> int:
        """Print the answer; after the first one only the rows that are others.

        Raises Temporary if something could not be read now that the last answer has: its rows would look as if they were gone.
        """
        if self._last is not None and (lost := self._lost(document)):
            raise Temporary(lost)
        if self.failures:
            render.error("the cluster can be read again")
        self._problem, self.failures = "", 0
        output = self._asked.chosen.output
        if self._last is None or steady(document) != steady(self._last):
            if output in render.DOCUMENTS:
                render.document(document, output)
            else:
                found = sheet(document, self._asked.columns)
                self._show(names(found, document) if output == NAME else found)
        self._last, self._lacking = document, self._asked.lacking
        for gap in document.not_read:
            self.tell(sentence(gap))
        if isinstance(document, FreeDevices) and any(map(took_too_long, document.classes)):
            return COULD_NOT_TELL
        return WITH_RESERVATION if document.not_read else DONE

    def _show(self, found: Sheet) -> None:
        chosen = self._asked.chosen
        there = {row.key: row for row in found.rows}
        new = [row.cells for key, row in there.items() if _differs(row, self._rows.get(key))]
        if new:
            headers = self._table is None and not (chosen.no_headers or chosen.output == NAME)
            self._table = self._table or render.Table(found.headers, MARKS)
            self._table.show(new, headers=headers)
        gone = self._rows.keys() - there.keys() if chosen.output != NAME else ()
        for key in sorted(gone):
            render.line(render.plain(f"{'/'.join(key)} is gone"))
        self._rows = there
        for note in found.notes if there else filter(None, (found.empty,)):
            self.tell(note)

    def _lost(self, document: Document) -> str:
        """Return what could not be read now, and was read before; "" if there is nothing. One object that cannot be read is no such thing.

        What could not be read before may matter only now: it is no loss.
        """
        new = {resource for resource, _ in self._asked.lacking - self._lacking}
        lost = (gap for gap in document.not_read if not gap.name and gap.resource in new)
        return next(map(sentence, lost), "")

    def failed(self, error: DriverError) -> None:
        """Say that there is no new answer and why, if this was not said before."""
        self.failures += 1
        if str(error) != self._problem:
            self._problem = str(error)
            render.error(f"{error}; what is shown may be old; trying again")

    def tell(self, text: str) -> None:
        """Print a sentence on standard error, once."""
        if text not in self._said:
            self._said.add(text)
            render.error(text)


def _differs(row: Row, before: Row | None) -> bool:
    return before is None or row.said != before.said


def _once(asked: Asked) -> int:
    return Printed(asked).show(asked.look())


def watched(asked: Asked) -> Waits:
    """Return what tells about changes in the cluster."""
    if asked.target is None:
        raise ValueError("a record does not change")
    wanted = needed(asked.topic) - asked.unread
    resources = [one for one in deciding(asked.served) if one[0] in wanted]
    return Changes(
        asked.target.connection, resources, tell=render.error, namespace=asked.own_namespace
    )


def follow(
    asked: Asked,
    *,
    watch: Callable[[Asked], Waits] = watched,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Print the answer, and each row that is another later, until Ctrl-C or until nobody reads. Returns the exit code of the last answer."""
    printed = Printed(asked)
    code = printed.show(asked.look())
    try:
        with watch(asked) as waits:
            # Between the first reading and the watches something may have changed: so it looks again at once.
            while render.is_read():
                begun = clock()
                try:
                    code = printed.show(asked.look())
                except DriverError as error:
                    printed.failed(error)
                    waits.assume_change()
                waits.wait(rest=rest_after(clock() - begun, printed.failures))
    except KeyboardInterrupt:
        pass
    return code
