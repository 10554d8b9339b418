# SPDX-License-Identifier: Apache-2.0
"""What could not be read, and does it matter? What a gap may hide decides which answers it leaves open.

A slice or a class may hide anything. A claim or a taint rule can only take devices away, and a node can only offer some: they
leave open one answer and not the other. Pods use up what nodes have.
"""

from collections.abc import Collection, Iterator, Sequence

from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.verdict import CouldNotTell
from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.model.gates import TAINT_RULES

_WHOLE_KINDS = ("resourceslices", "deviceclasses", "resourceclaims", "nodes")


def about_devices(
    fleet: Fleet, classes: Collection[str], claims: Collection[str], *, fit: bool
) -> Iterator[CouldNotTell]:
    """What leaves it open whether claims of these `classes` fit, which seems to be so (`fit`) or not.

    `claims` are those that are asked about: they say themselves that they could not be read.
    """
    state = fleet.state
    for resource in _WHOLE_KINDS:
        yield from _told([gap for gap in state.gaps(resource) if not gap.name])
    yield from _told([gap for gap in state.gaps("resourceslices") if gap.name])
    needed = {name for name in classes if name not in fleet.classes}
    yield from _told(
        [gap for gap in state.gaps("deviceclasses") if gap.name and gap.name in needed]
    )
    if not fit:
        yield from _told([gap for gap in state.gaps("nodes") if gap.name])
        return
    yield from _told([gap for gap in state.gaps("resourceclaims") if gap.name not in ("", *claims)])
    if fleet.rules.taints and fleet.is_on(TAINT_RULES):
        yield from _told(state.gaps("devicetaintrules"))


def about_pods(state: ClusterState) -> tuple[CouldNotTell, ...]:
    """What leaves it open how much of a node is free."""
    return tuple(_told(state.gaps("pods")))


def _told(gaps: Sequence[NotRead]) -> Iterator[CouldNotTell]:
    """The first of them, with the number of the others."""
    if gaps:
        first = gaps[0]
        more = f" (and {len(gaps) - 1:,} more of them)" if len(gaps) > 1 else ""
        yield CouldNotTell(first.reason, f"{first}{more}")
