# SPDX-License-Identifier: Apache-2.0
"""Pods of one file fit each alone: do they fit together?

They are served one after the other, as the scheduler would. Where one is left out, it is served first in the next round.
That finds a way for most; where it finds none, nobody has proved that there is none.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_claim import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from dra_driver.model.cluster import ClusterState
from dra_driver.model.report import Report
from dra_driver.services.subject import Resolved, after

MOST_ROUNDS = 4
Placed = Sequence[tuple[ResourceClaim, AllocationResult]]


class Explained(Protocol):
    """A pod before a cluster."""

    def report(self) -> Report:
        """The answer."""

    def place(self, node: Node) -> Placed:
        """What the claims that it still needs get on a node where it fits."""


Explain = Callable[[Resolved], Explained]


def together(pods: Sequence[Resolved], alone: Sequence[Report], explain: Explain) -> Report:
    """The report of the first pod where all are served; else of one that is left out."""
    order = list(pods)
    left: Report | None = None
    for _ in pods[:MOST_ROUNDS]:
        out, report = _serve(order, explain)
        if out is None or report is None:
            return _told(alone[0], f"all {len(pods)} pods of the file fit together, this is one")
        left = left or report
        order.remove(out)
        order.insert(0, out)
    names = ", ".join(one.title.removeprefix("pod ") for one in pods)
    found = _told(
        left or alone[0],
        f"each of the pods {names} fits alone, but no order was found in which all of them do",
    )
    return msgspec.structs.replace(found, outcome="could not tell", exit_code=2, changes=())


def one_of(report: Report, place: int, count: int) -> Report:
    """The report of one of several subjects, with how many there are."""
    return _told(report, f"this is number {place} of {count} in the file")


def _told(report: Report, words: str) -> Report:
    return msgspec.structs.replace(report, summary=f"{words}: {report.summary}")


def _serve(order: Sequence[Resolved], explain: Explain) -> tuple[Resolved | None, Report | None]:
    """The first pod that is left out when all are served in this order, with why."""
    state = order[0].state
    for one in order:
        explained = explain(after(one, state))
        report = explained.report()
        if report.exit_code:
            return one, report
        for node in _chosen(state, report):
            state = _served(state, one, node, explained.place(node))
    return None, None


def _chosen(state: ClusterState, report: Report) -> Iterator[Node]:
    """The node that the report shows as the first where the pod fits."""
    names = {group.nodes[0] for group in report.nodes[:1]}
    return (node for node in state.nodes if node.metadata.name in names)


def _served(state: ClusterState, one: Resolved, node: Node, placed: Placed) -> ClusterState:
    """The cluster when the pod runs on the node."""
    user = one.pod.metadata.name if one.pod else ""
    allocated = {_key(claim.metadata): _with(claim, result, user) for claim, result in placed}
    claims = [allocated.pop(_key(claim.metadata), claim) for claim in state.resource_claims]
    claims += allocated.values()
    return msgspec.structs.replace(
        state, pods=tuple(_running(state, one.pod, node)), resource_claims=tuple(claims)
    )


def _running(state: ClusterState, pod: Pod | None, node: Node) -> Iterator[Pod]:
    if pod is not None:
        yield from (one for one in state.pods if _key(one.metadata) != _key(pod.metadata))
        spec = msgspec.structs.replace(pod.spec, node_name=node.metadata.name)
        yield msgspec.structs.replace(pod, spec=spec)


def _key(metadata: ObjectMeta) -> tuple[str, str, str]:
    return metadata.namespace, metadata.name, metadata.uid


def _with(claim: ResourceClaim, result: AllocationResult, user: str) -> ResourceClaim:
    users = [ResourceClaimConsumerReference(resource="pods", name=user)]
    status = msgspec.structs.replace(claim.status, allocation=result, reserved_for=users)
    return msgspec.structs.replace(claim, status=status)
