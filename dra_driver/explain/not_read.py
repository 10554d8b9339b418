# SPDX-License-Identifier: Apache-2.0
"""Which objects could not be read, and does the answer depend on them?

An unread slice or class may change every answer. An unread claim or taint rule can only make devices unavailable, so "does not fit"
stays true. An unread node can only add devices, so "fits" stays true. Unread pods may use resources that seem to be free on a node.

Of an object with a quantity that cannot be parsed all the rest is known (`readable`, `facts/left_out`). So it leaves open only the
answers for its own nodes, and for requests that may get its devices: anybody can create such an object, and it must not
silence the answers for others. But a share of a device whose size is unknown may change every "fits"; only the scheduler writes shares.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.allocator.state import DeviceID
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.facts.left_out import LeftOut
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.verdict import (
    AllUnsatisfied,
    ChosenDevice,
    CouldNotTell,
    NotEnoughDevices,
    SelectorError,
    Verdict,
)
from dra_driver.explain.verdicts.general import NOT_COUNTED
from dra_driver.explain.verdicts.request import NONE_MATCHES
from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.model.gates import TAINT_RULES

NODE_RESOURCES = "DRANodeAllocatableResources"
_WHOLE_KINDS = ("resourceslices", "deviceclasses", "resourceclaims", "nodes")


class Asked(Struct, frozen=True):
    """What is asked for, and the answer without the objects that could not be read.

    `claims` are the names of the claims that the report is about. `fit`: whether the devices fit on some node. Of `nodes` each alone
    gives this answer: devices fit there and it takes the pod, or if `fatal`, it has an error that stops the pod on all nodes.
    """

    requests: Sequence[RequestExplained]
    claims: Collection[str]
    fit: bool
    nodes: Collection[str]
    fatal: bool = False


def doubts_about_devices(fleet: Fleet, asked: Asked) -> Iterator[CouldNotTell]:
    """Yield the unread objects that may change whether the claims fit.

    The claims that the report is about are passed over: each has its own verdict if it is unread.
    """
    state = fleet.state
    for resource in _WHOLE_KINDS:
        yield from _could_not_tell([gap for gap in state.gaps(resource) if not gap.name])
    yield from _could_not_tell(list(_slices_that_count(fleet, asked)))
    classes = {one.request.body.device_class_name for one in asked.requests}
    needed = {name for name in classes if name not in fleet.classes}
    yield from _could_not_tell(
        [gap for gap in state.gaps("deviceclasses") if gap.name and gap.name in needed]
    )
    anywhere = [gap for gap in state.not_read if gap.only_nodes is None]
    if not asked.fit:
        nodes = [gap for gap in anywhere if gap.resource == "nodes" and gap.name]
        yield from _could_not_tell(nodes)
        return
    others = [gap for gap in anywhere if gap.resource == "resourceclaims"]
    yield from _could_not_tell([gap for gap in others if gap.name not in ("", *asked.claims)])
    if fleet.rules.taints and fleet.is_on(TAINT_RULES):
        yield from _could_not_tell(state.gaps("devicetaintrules"))


def _slices_that_count(fleet: Fleet, asked: Asked) -> Iterator[NotRead]:
    """Yield the gaps of single slices that may change the answer."""
    yield from (gap for gap in fleet.unread_slices if gap.name)
    found = [part for part in fleet.left_out if any(_may_get(one, part) for one in asked.requests)]
    doubted = {part.node for part in found}
    if any(one.request.all_devices for one in asked.requests) and doubted.issuperset(asked.nodes):
        counting = {name for part in found for name in part.slices}
    else:
        counting = {name for part in found if _counts(fleet, part, asked) for name in part.slices}
    yield from (gap for gap in fleet.state.gaps("resourceslices") if gap.name in counting)


def _counts(fleet: Fleet, part: LeftOut, asked: Asked) -> bool:
    """Return whether devices that are left out, and that a request may get, change the answer, which each of the nodes alone gives."""
    if not part.node or all(name == part.node for name in asked.nodes):
        return True
    # Another node gives the answer. So nothing changes it but an error on this node, and if there is one already, nothing does.
    if asked.fatal:
        return False
    if any(_ends_it(one, part) for one in asked.requests):
        return True
    return not _ending_on(fleet, asked.requests).isdisjoint(("", part.node))


def _ends_it(one: RequestExplained, part: LeftOut) -> bool:
    """Return whether these devices may end the search with an error.

    A selector may fail on one; and one may be what a constraint of a request for all devices cannot meet, or of an invalid pool.
    """
    constrained = bool(one.request.claim.spec.devices.constraints)
    ends_all = one.request.all_devices and (constrained or part.invalid)
    return ends_all or None in one.of_left_out(part)


def _ending_on(fleet: Fleet, requests: Sequence[RequestExplained]) -> frozenset[str]:
    """Return the nodes on which the search may end with an error if it takes other devices there than it does now; with "": on all.

    A selector that fails on a device ends it if the search comes to the device, which depends on what it has taken before.
    """
    key = (_ending_on, *(one.asks for one in requests))
    return fleet.shared(key, lambda: frozenset(_failing_on(fleet, requests)))


def _failing_on(fleet: Fleet, requests: Sequence[RequestExplained]) -> Iterator[str]:
    for one in requests:
        for kind in () if one.problems else one.kinds(fleet.all_devices):
            if isinstance(one.first(kind.devices[0]), SelectorError):
                for device in kind.devices:
                    names = fleet.nodes.of(device)
                    yield from ("",) if names is None else names


def doubts_about_left_out(
    state: ClusterState, requests: Sequence[RequestExplained], left_out: Sequence[LeftOut]
) -> Iterator[CouldNotTell]:
    """Yield the first of the slices of a node whose devices one of the requests may get."""
    for part in left_out:
        if any(_may_get(one, part) for one in requests):
            gap = state.gaps("resourceslices", part.slices[0])[0]
            yield CouldNotTell(gap.reason, str(gap))
            return


def still_true(
    reason: Verdict, request: RequestExplained | None, left_out: Sequence[LeftOut]
) -> Verdict | None:
    """Return the reason against a node as it holds with the devices that were left out there; None if these may make it wrong."""
    none_had = isinstance(reason, NotEnoughDevices) and not reason.available
    gets_none = none_had or reason == AllUnsatisfied(NONE_MATCHES)
    if request and gets_none and any(_may_get(request, part) for part in left_out):
        return None
    if isinstance(reason, NotEnoughDevices) and reason.empty:
        return replace(reason, empty=False)
    return reason


def _may_get(request: RequestExplained, part: LeftOut) -> bool:
    return request.of_left_out(part) != {False}


def doubts_about_nodes(state: ClusterState, nodes: Collection[str]) -> tuple[CouldNotTell, ...]:
    """Return a verdict if on each of these nodes an unread object may use resources that seem to be free, or change how much there is."""
    gaps = [
        *state.gaps("pods"),
        *(gap for gap in state.gaps("nodes") if gap.only_nodes is not None),
    ]
    anywhere = [gap for gap in gaps if gap.only_nodes is None]
    there = [gap for gap in gaps if not set(gap.only_nodes or ()).isdisjoint(nodes)]
    is_certain = bool(set(nodes).difference(uncounted_nodes(state)))
    return tuple(_could_not_tell(anywhere or ([] if is_certain else there)))


def uncounted_nodes(state: ClusterState) -> frozenset[str]:
    """Return the nodes of which it is unknown how much they have, or how much their pods use."""
    gaps = chain(state.gaps("pods"), state.gaps("nodes"))
    return frozenset(chain.from_iterable(gap.only_nodes or () for gap in gaps))


def doubts_about_node_resources(
    fleet: Fleet, placements: Iterable[Sequence[ChosenDevice]]
) -> tuple[CouldNotTell, ...]:
    """Return a verdict if in each placement a device takes cpu or memory of the node too: `explain` does not count that."""
    if fleet.state.feature_gates.get(NODE_RESOURCES) is False:
        return ()
    taking: ChosenDevice | None = None
    for devices in placements:
        taking = next((one for one in devices if _takes_of_node(fleet, one)), None)
        if taking is None:
            return ()
    if taking is None:
        return ()
    what = f"device {taking} takes resources of its node too (nodeAllocatableResources, feature gate {NODE_RESOURCES})"
    return (CouldNotTell(NOT_COUNTED, what),)


def _takes_of_node(fleet: Fleet, chosen: ChosenDevice) -> bool:
    found = fleet.devices.get(DeviceID(chosen.driver, chosen.pool, chosen.device))
    return found is not None and bool(found.device.node_allocatable_resources)


def _could_not_tell(gaps: Sequence[NotRead]) -> Iterator[CouldNotTell]:
    """Yield the first unread object as a verdict, with the number of the other ones."""
    if gaps:
        first = gaps[0]
        more = f" (and {len(gaps) - 1:,} more of them)" if len(gaps) > 1 else ""
        yield CouldNotTell(first.reason, f"{first}{more}")
