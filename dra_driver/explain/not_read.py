# SPDX-License-Identifier: Apache-2.0
"""Which objects could not be read, and does the answer depend on them?

An unread slice or class may change every answer. An unread claim or taint rule can only make devices unavailable, so "does not fit"
stays true. An unread node can only add devices, so "fits" stays true. Unread pods may use resources that seem to be free on a node.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from dra_driver.allocator.state import DeviceID
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.verdict import ChosenDevice, CouldNotTell
from dra_driver.explain.verdicts.general import NOT_COUNTED
from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.model.gates import TAINT_RULES

NODE_RESOURCES = "DRANodeAllocatableResources"
_WHOLE_KINDS = ("resourceslices", "deviceclasses", "resourceclaims", "nodes")


def doubts_about_devices(
    fleet: Fleet, classes: Collection[str], claims: Collection[str], *, fit: bool
) -> Iterator[CouldNotTell]:
    """Yield the unread objects that may change whether claims of these `classes` fit; `fit` is the answer without these objects.

    `claims` are the names of the claims that the report is about. They are left out: each has its own verdict if it is unread.
    """
    state = fleet.state
    for resource in _WHOLE_KINDS:
        yield from _could_not_tell([gap for gap in state.gaps(resource) if not gap.name])
    yield from _could_not_tell([gap for gap in state.gaps("resourceslices") if gap.name])
    needed = {name for name in classes if name not in fleet.classes}
    yield from _could_not_tell(
        [gap for gap in state.gaps("deviceclasses") if gap.name and gap.name in needed]
    )
    if not fit:
        yield from _could_not_tell([gap for gap in state.gaps("nodes") if gap.name])
        return
    yield from _could_not_tell(
        [gap for gap in state.gaps("resourceclaims") if gap.name not in ("", *claims)]
    )
    if fleet.rules.taints and fleet.is_on(TAINT_RULES):
        yield from _could_not_tell(state.gaps("devicetaintrules"))


def doubts_about_pods(state: ClusterState) -> tuple[CouldNotTell, ...]:
    """Return a verdict for unread pods, if there are any: they may use resources that seem to be free on a node."""
    return tuple(_could_not_tell(state.gaps("pods")))


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
