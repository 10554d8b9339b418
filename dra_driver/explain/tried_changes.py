# SPDX-License-Identifier: Apache-2.0
"""Which changes make everything fit? Candidates, each tried by running the allocator on the changed claims and classes.

The candidates are tried in the order of what they cost the user (`costs`). The report has the cheapest that helps, and the cheapest
of another kind.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

import msgspec
from msgspec.structs import replace

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.similar import likely
from dra_driver.explain.change_places import Place, not_taking, taking
from dra_driver.explain.combined_changes import combined_changes, everything_ended
from dra_driver.explain.conflict import attributes_of
from dra_driver.explain.constraint_changes import (
    constraint_texts,
    of_constraints,
    unconstrained,
    with_ends,
)
from dra_driver.explain.costs import COSTS, Kind, cost_of
from dra_driver.explain.facts.facts import Facts
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.freed_nodes import FreedNodes
from dra_driver.explain.misses import Miss, nearest, room, roomiest
from dra_driver.explain.mistyped import mistyped
from dra_driver.explain.names import first_names, full_name
from dra_driver.explain.nodes import NodesExplained
from dra_driver.explain.outcome import Change
from dra_driver.explain.proposals import (
    Candidate,
    Proposal,
    fewer,
    from_errors,
    from_miss,
    from_mistyped,
    other_class,
)
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.requests import RequestsExplained
from dra_driver.explain.subject.subject import NewNode
from dra_driver.explain.trial import TrialResult, try_on
from dra_driver.explain.verdict import (
    AllUnsatisfied,
    ClassMissing,
    HeldByClaim,
    NotEnoughDevices,
)
from dra_driver.model.api.core import Node

MOST_CHANGES = 2
MOST_TRIALS = 24
"""The largest number of nodes on which one change is tried."""
MOST_ENDED = 8
"""Of more claims than this that would have to end, `explain` does not search for a smaller set."""


class TriedChanges:
    """The changes that help one pod or claim."""

    def __init__(
        self,
        facts: Facts,
        nodes: NodesExplained,
        requests: RequestsExplained,
        added: NewNode | None = None,
        where: Sequence[Place] | None = None,
    ) -> None:
        self._facts = facts
        self._fleet = facts.fleet
        self._nodes = nodes
        self._requests = requests
        self._added = added
        self._excluded = ""
        self._in_doubt: Sequence[Place] = ()
        if where is None:
            places = taking(nodes.tried, nodes.uncounted)
            where = [one for one in places if not one.uncounted] or places
            self._in_doubt = [one for one in places if one not in where]
        self._where = where
        self._freed = FreedNodes(facts, nodes, requests.requests, self._where)

    def changes(self) -> tuple[Change, ...]:
        """Return up to MOST_CHANGES changes of different kinds, of which each makes everything fit, the cheapest first."""
        found = self.cheapest()
        for others in (self._on_uncounted, self._with_tolerations):
            if not any(COSTS[one] <= COSTS["tolerate"] for one in found):
                found = {**others(), **found}
        most = {one: found[one] for one in _by_cost(found)[:MOST_CHANGES]}
        added = self._with_node()
        if added is not None:
            most["add node"] = added
        return tuple(most[kind] for kind in _by_cost(most))

    def cheapest(self) -> dict[Kind, Change]:
        """Return the cheapest changes of up to MOST_CHANGES kinds that help on these nodes."""
        found = self._helping(self._candidates())
        if not any(one.ends for one in found.values()):
            found = {**self._helping(self._all_ended()), **found}
        return found

    def _helping(self, candidates: Iterable[Candidate]) -> dict[Kind, Change]:
        found: dict[Kind, Change] = {}
        helping: set[Kind] = set()
        excluded: list[Candidate] = []
        for candidate in sorted(candidates, key=self._cost):
            kind = self._kind(candidate)
            mixed = bool(candidate.what and candidate.ended)
            if kind in helping or (mixed and helping):
                continue  # to change a request and to end claims is no second way, beside one that costs less
            there = self._fits_on(candidate)
            if not there and not helping and candidate.ended and not candidate.what:
                excluded.append(candidate)
            if there:
                helping.add(kind)
                fewer_ended = self._with_fewer_ended(candidate)
                if fewer_ended is not candidate:
                    there = self._fits_on(fewer_ended) or there
                change = self._change(fewer_ended, *there)
                found.setdefault(there[0].kind(kind), change)
                if len(helping) == MOST_CHANGES:
                    break
        useless = self._useless_because_of_constraints(excluded)
        if useless and not found:
            besides = with_ends(useless, self._facts.claims, [*self._of_constraints()])
            return self._helping(besides)
        return found

    def _useless_because_of_constraints(self, excluded: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return these ends of claims, from the first on that would be enough without the constraints: the user would expect it to help."""
        if not self._constraints:
            return []
        free = unconstrained(self._facts.claims)
        for number, candidate in enumerate(excluded):
            if self._fits_on(replace(candidate, claims=free)):
                words = "; ".join(ending_words(self._holders(candidate)))
                because = ", ".join(self._constraints)
                self._excluded = f"{words}: not enough, because of {because}"
                return excluded[number:]
        return []

    @cached_property
    def _constraints(self) -> Sequence[str]:
        return constraint_texts(self._facts.claims)

    def _on_uncounted(self) -> dict[Kind, Change]:
        return self._only_on(self._in_doubt)

    def _only_on(self, places: Sequence[Place]) -> dict[Kind, Change]:
        """Return the cheapest changes that help on these other nodes."""
        if not places:
            return {}
        return TriedChanges(self._facts, self._nodes, self._requests, where=places).cheapest()

    def _with_tolerations(self) -> dict[Kind, Change]:
        """Return the changes that help on nodes that do not take the pod, each with what lets the pod go there."""
        places = not_taking(self._facts, self._nodes)
        if any(one.tried.fits for one in places):
            return {}  # where the devices fit, the report says already what keeps the pod off
        return self._only_on(places)

    def no_help(self) -> str:
        """Return what does not help, although the user may expect it, after `changes` was called; "" if there is nothing.

        That are claims whose end is not enough because of a constraint, and the node that the user asked about.
        """
        return "; ".join(one for one in (self._excluded, self._useless_node()) if one)

    def _useless_node(self) -> str:
        added, tried = self._added, self._on_added
        if added is None or (tried is not None and tried.fits):
            return ""
        if tried is not None and tried.cancelled:
            return f"whether a node like {added.profile} would help was not found out in time: give more with --timeout"
        useless = f"a node like {added.profile} would not help"
        drivers = {one.spec.driver for one in added.slices}
        here = {one.spec.driver for one in self._fleet.state.resource_slices}
        if not here or drivers & here:
            return useless
        names = first_names(sorted(drivers))
        return f"{useless} (its devices would be of the driver {names}, which publishes none here; PROFILE:DRIVER names another)"

    @cached_property
    def _on_added(self) -> TrialResult | None:
        """The answer of the node that the user asked about; None if there is none, or if nothing can help."""
        added, state = self._added, self._fleet.state
        if added is None or self._nodes.fatal:
            return None  # an error of a selector stops the pod with one more node, too
        slices = (*state.resource_slices, *added.slices)
        fleet = Fleet(msgspec.structs.replace(state, resource_slices=slices))
        return try_on(fleet.allocator, added.node, self._facts.claims, self._facts.stop)

    def _with_node(self) -> Change | None:
        """Return the node that the user asked about, if everything fits there. It is told whatever else helps.

        Its labels and taints are for the user to choose: what the pod asks of them is said.
        """
        if self._added is None or self._on_added is None or not self._on_added.fits:
            return None
        pod = self._facts.subject.pod
        spec = pod.spec if pod else None
        chooses = spec is not None and (
            spec.node_selector or (spec.affinity and spec.affinity.node_affinity)
        )
        labels = ", with the labels that the pod asks for" if chooses else ""
        return Change(what=f"add a node like {self._added.profile}{labels}", kind="add node")

    def _candidates(self) -> list[Candidate]:
        """Return every change to try, each text once."""
        single = (
            Candidate("", {}).and_also(one) for one in self._proposals() if one.what or one.ended
        )
        requests = self._requests.requests
        together = [*combined_changes(requests, self._freed.nearest), *self._freed.candidates()]
        if self._constraints:
            together += everything_ended(requests, self._freed.nearest)
        return self._each_once([*single, *together])

    def _all_ended(self) -> list[Candidate]:
        """Return what is tried if no estimate helped, as none looks at counters: that all claims of a node end, if they are few."""
        if self._constraints:
            return []  # it was tried
        every = everything_ended(self._requests.requests, self._freed.nearest)
        return [one for one in self._each_once(every) if len(one.ended) <= MOST_ENDED]

    def _each_once(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        seen: dict[object, Candidate] = {}
        for candidate in (one.sparing(self._facts.own_allocated) for one in candidates):
            key = (candidate.what, frozenset(candidate.ended))
            if key not in seen or candidate.cost < seen[key].cost:
                seen[key] = candidate
        return [one for one in seen.values() if one.what or one.ended]

    def _holders(self, candidate: Candidate) -> list[HeldByClaim]:
        return [self._fleet.holders.named(name) for name in candidate.ended]

    def _cost(self, candidate: Candidate) -> int:
        return candidate.cost + sum(map(cost_of, self._holders(candidate)))

    def _kind(self, candidate: Candidate) -> Kind:
        if candidate.kind is not None:
            return candidate.kind
        return "wait" if all(one.ends for one in self._holders(candidate)) else "end"

    def _change(self, candidate: Candidate, place: Place, node: Node) -> Change:
        words = [candidate.what] if candidate.what else []
        words += [*ending_words(self._holders(candidate)), *place.words]
        kind = place.kind(self._kind(candidate))
        return Change("; ".join(words), node.metadata.name, kind, candidate.ended)

    def _with_fewer_ended(self, candidate: Candidate) -> Candidate:
        """Return the candidate without those claims that need not end: a counter may have more users than are in the way."""
        if not 1 < len(candidate.ended) <= MOST_ENDED:
            return candidate
        for name in sorted(
            candidate.ended, key=lambda one: -cost_of(self._fleet.holders.named(one))
        ):
            less = replace(candidate, ended=tuple(one for one in candidate.ended if one != name))
            if (less.ended or less.what) and self._fits_on(less):
                candidate = less
        return candidate

    def _proposals(self) -> Iterator[Proposal]:
        for explained in self._requests.requests:
            if explained.problems:
                yield from self._other_classes(explained)
            else:
                yield from self._of_request(explained)
        yield from self._of_constraints()

    def _other_classes(self, explained: RequestExplained) -> Iterator[Proposal]:
        for problem in explained.problems:
            if isinstance(problem, ClassMissing):
                near = likely(problem.device_class, list(self._fleet.classes))
                if near:
                    yield other_class(explained.request, near)

    def _of_request(self, explained: RequestExplained) -> Iterator[Proposal]:
        request = explained.request
        for verdict in self._requests.verdicts(explained):
            if isinstance(verdict, NotEnoughDevices) and verdict.available and self._all_take:
                yield fewer(request, verdict.available)
            elif isinstance(verdict, AllUnsatisfied | NotEnoughDevices):
                yield from (fewer(request, most) for most in self._most_free(explained))
        # An error on any device of the cluster can stop the search, not only on the devices in the report.
        miss = self._miss(explained)
        yield from from_errors(explained, miss, self._devices)
        roomy = self._roomiest(explained)
        if roomy is not None:
            yield from from_miss(explained, request, roomy)
        if miss is not None:
            yield from from_miss(explained, request, miss)
            right = mistyped(explained, self._devices, miss)
            if right is not None:
                yield from from_mistyped(explained, right)
        # If the nearest device is in use, one that is free may be an answer too, for who can use another type.
        free = nearest(explained, self._devices, free=True)
        if free is not None:
            yield from from_miss(explained, request, free)

    def _most_free(self, explained: RequestExplained) -> list[int]:
        """Return the largest number of free devices on one node, as a list of one number; [] if no node has a free device."""
        counts = [
            sum(not explained.reasons(device) for device in place.tried.group.devices)
            for place in self._where
        ]
        return [max(counts)] if any(counts) else []

    def _roomiest(self, explained: RequestExplained) -> Miss | None:
        """Return the device with the largest rest, among the nodes, that enough devices of one node have: free ones, or else held ones."""
        there: list[Miss] = []
        for held in (False, True) if explained.request.body.capacity else (False,):
            found = (
                roomiest(explained, self._nodes.devices_on(place.tried, place.nodes[0]), held=held)
                for place in self._where
            )
            there = there or [one for one in found if one is not None]
        return max(there, key=lambda one: room(explained, one), default=None)

    def _of_constraints(self) -> Iterator[Proposal]:
        claims = {
            full_name(one.request.claim.metadata): one.request.claim
            for one in self._requests.requests
        }
        return of_constraints(claims, self._attributes, self._facts.stop)

    @cached_property
    def _attributes(self) -> Collection[str]:
        """The attributes that a constraint may mean."""
        devices, fleet = self._requests.devices, self._fleet
        if devices is not fleet.all_devices:
            return attributes_of(devices)
        return fleet.shared(attributes_of, lambda: attributes_of(devices))

    def _fits_on(self, candidate: Candidate) -> tuple[Place, Node] | None:
        """Return nodes, and one of them, where everything fits with the change; None if there are none."""
        ended = candidate.ended
        allocator = self._fleet.allocator_without(ended, candidate.classes)
        nodes = [(place, place.nodes[0]) for place in self._where]
        if ended:
            nodes = list(self._freed.with_devices_of(ended))
        nodes.sort(key=lambda one: (one[0].cost, one[0].tried is not candidate.first))
        found: tuple[Place, Node] | None = None
        failing: list[Place] = []
        # A change does not help if an error still stops the pod. So the nodes with an error come first, whatever the change is about.
        for place, node in (*self._with_error, *nodes[:MOST_TRIALS]):
            tried = place.tried
            claims_there = [
                candidate.claims.get(full_name(one.metadata), one) for one in tried.claims
            ]
            result = try_on(allocator, node, claims_there, self._facts.stop)
            if result.fatal and not place.against:
                return None
            if result.fatal:
                failing.append(place)
            if result.fits and not tried.ruled_out:
                found = found or (place, node)
        # What lets the pod go to one node lets it go to each node that keeps it off for no other reasons.
        if found and any(set(one.against) <= set(found[0].against) for one in failing):
            return None
        return found

    @cached_property
    def _with_error(self) -> Sequence[tuple[Place, Node]]:
        """One node of each place with an error that stops the pod if it can go there, also of those that the report is not about."""
        anywhere = taking(self._nodes.stopping_anywhere)
        others = (one for one in self._where if one.against and one.tried.result.fatal)
        return [(place, place.nodes[0]) for place in (*anywhere, *others)]

    # Where a change can help.

    @cached_property
    def _all_take(self) -> bool:
        return sum(len(one.nodes) for one in self._where) == self._nodes.count

    @cached_property
    def _devices(self) -> Sequence[SliceDevice]:
        """The devices that one of these nodes can use."""
        if self._all_take:
            return self._requests.devices
        found = (
            device
            for place in self._where
            for node in place.nodes
            for device in self._nodes.devices_on(place.tried, node)
        )
        return list(dict.fromkeys(found))

    def _miss(self, explained: RequestExplained) -> Miss | None:
        if self._all_take:
            return self._requests.miss(explained)
        return nearest(explained, self._devices)


def _by_cost(kinds: Iterable[Kind]) -> list[Kind]:
    return sorted(kinds, key=COSTS.__getitem__)


def ending_words(holders: Sequence[HeldByClaim]) -> list[str]:
    """Return which claims have to be waited for, because they end by themselves, and which have to be ended."""
    waiting = " and ".join(
        one.awaited for holder in holders if holder.ends for one in holder.ending
    )
    ended = [one for one in holders if not one.ends]
    words = [f"wait until {waiting} is gone"] if waiting else []
    if ended:
        pods = tuple(dict.fromkeys(pod for one in ended for pod in one.pods))
        used = f", used by {first_names(pods)}" if pods else ""
        forbidding = tuple(dict.fromkeys(name for one in ended for name in one.budgets))
        if forbidding:
            used += f" (PodDisruptionBudget {first_names(forbidding)} allows no eviction now)"
        many = "claim" if len(ended) == 1 else "claims"
        words.append(f"end {many} {', '.join(one.claim for one in ended)}{used}")
    return words
