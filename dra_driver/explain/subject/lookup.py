# SPDX-License-Identifier: Apache-2.0
"""Is there an object of that name? If not, what is there instead, and where can one look?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dra_driver.errors import Permanent
from dra_driver.explain.names import full_name
from dra_driver.explain.subject.subject import ClaimSubject, PodSubject, TemplateSubject
from dra_driver.model.api.core import Namespace, Node, Pod
from dra_driver.model.api.resource_claim import ResourceClaim, ResourceClaimTemplate
from dra_driver.model.cluster import ClusterState

_SHOWN = 4
Found = TypeVar("Found", ResourceClaim, ResourceClaimTemplate, Pod, Namespace)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a name is looked for: a cluster, or the record of one."""

    state: ClusterState
    recorded: bool


def named(
    objects: Sequence[Found],
    subject: PodSubject | ClaimSubject | TemplateSubject,
    kind: str,
    where: Cluster,
) -> Found:
    """The object that the subject names; `kind` is for messages, as kubectl spells it. Raises Permanent."""
    found = find(objects, subject.namespace, subject.name)
    if found is None:
        name = f"{subject.namespace}/{subject.name}"
        alike = {one.metadata.namespace for one in objects if one.metadata.name == subject.name}
        if alike:
            shown = ", ".join(sorted(alike)[:_SHOWN])
            raise _not_there(where, kind, name, f"there is one in {shown}: give it with -n")
        if namespace_is_missing(where.state, subject.namespace):
            raise _not_there(where, kind, name, f"there is no namespace {subject.namespace} either")
        look = (
            f"look with `kubectl get {kind}s --all-namespaces`, or give another namespace with -n"
        )
        if where.recorded:
            look = f"it has {_listed([full_name(one.metadata) for one in objects])}"
        raise _not_there(where, kind, name, look)
    return found


def _listed(names: Sequence[str]) -> str:
    more = f", … ({len(names):,})" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "none") + more


def namespace_is_missing(state: ClusterState, namespace: str) -> bool:
    """Whether the namespace certainly does not exist. Every cluster has namespaces: an empty list means that none were read."""
    known = {one.metadata.name for one in state.namespaces}
    return bool(known) and namespace not in known and not state.unread("namespaces", namespace)


def find(objects: Iterable[Found], namespace: str, name: str) -> Found | None:
    """The first object of that name."""
    wanted = namespace, name
    found = (one for one in objects if (one.metadata.namespace, one.metadata.name) == wanted)
    return next(found, None)


def _not_there(where: Cluster, kind: str, name: str, look: str) -> Permanent:
    gap = where.state.unread(f"{kind}s", name)
    if gap is not None:
        return Permanent(f"cannot {'read' if gap.name else 'find'} {kind} {name}: {gap.message}")
    place = "the record" if where.recorded else "this cluster"
    return Permanent(f"there is no {kind} {name} in {place}: {look}")


def node_named(state: ClusterState, name: str, *, recorded: bool = False) -> Node:
    """The node of that name. Raises Permanent."""
    for node in state.nodes:
        if node.metadata.name == name:
            return node
    look = "look with `kubectl get nodes`"
    if recorded:
        look = f"it has {_listed([one.metadata.name for one in state.nodes])}"
    raise _not_there(Cluster(state, recorded), "node", name, look)
