# SPDX-License-Identifier: Apache-2.0
"""Does an object of this name exist? If not, the error message names similar objects, or a command that lists the objects."""

import difflib
from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec import Struct

from dra_driver.errors import Permanent
from dra_driver.explain.names import full_name
from dra_driver.explain.subject.subject import NamedSubject
from dra_driver.model.api.core import Namespace, Node, Pod
from dra_driver.model.api.resource_claim import ResourceClaim, ResourceClaimTemplate
from dra_driver.model.cluster import ClusterState

_SHOWN = 4
_VERY_NEAR = 0.8
Found = TypeVar("Found", ResourceClaim, ResourceClaimTemplate, Pod, Namespace)


class Cluster(Struct, frozen=True):
    """The cluster in which a name is searched; `recorded` if its state comes from a file. `unread` are pods that the state lacks because
    of a quantity in them that cannot be parsed.
    """

    state: ClusterState
    recorded: bool
    unread: tuple[Pod, ...] = ()


def named(
    objects: Sequence[Found],
    subject: NamedSubject,
    kind: str,
    where: Cluster,
) -> Found:
    """Return the object that the subject names. Raises Permanent if there is none; the message spells `kind` as kubectl does."""
    found = find(objects, subject.namespace, subject.name)
    name = f"{subject.namespace}/{subject.name}"
    if found is None or where.state.gaps(f"{kind}s", name):
        alike = {one.metadata.namespace for one in objects if one.metadata.name == subject.name}
        if alike:
            shown = listed(sorted(alike))
            raise _not_there(where, kind, name, f"there is one in {shown}: give it with -n")
        if namespace_is_missing(where.state, subject.namespace):
            raise _not_there(where, kind, name, f"there is no namespace {subject.namespace} either")
        look = (
            f"look with `kubectl get {kind}s --all-namespaces`, or give another namespace with -n"
        )
        there = [
            one.metadata.name for one in objects if one.metadata.namespace == subject.namespace
        ]
        if near := meant(subject.name, there):
            look = near
        elif where.recorded:
            look = f"it has {listed([full_name(one.metadata) for one in objects])}"
        raise _not_there(where, kind, name, look)
    return found


def meant(name: str, names: Sequence[str]) -> str:
    """Return the question whether another name was meant; "" if none of `names` is like this one."""
    near = difflib.get_close_matches(name, names, 1, _VERY_NEAR)
    return f"did you mean {near[0]}?" if near else ""


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many there are if not all are shown."""
    more = f", … ({len(names):,})" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "none") + more


def namespace_is_missing(state: ClusterState, namespace: str) -> bool:
    """Return whether the namespace certainly does not exist.

    Every cluster has namespaces. So if the list is empty, the namespaces were not read.
    """
    known = {one.metadata.name for one in state.namespaces}
    return bool(known) and namespace not in known and not state.unread("namespaces", namespace)


def find(objects: Iterable[Found], namespace: str, name: str) -> Found | None:
    """Return the first object of that name; None if there is none."""
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
    """Return the node of that name. Raises Permanent if there is none."""
    for node in state.nodes:
        if node.metadata.name == name:
            return node
    look = "look with `kubectl get nodes`"
    if recorded:
        look = f"it has {listed([one.metadata.name for one in state.nodes])}"
    raise _not_there(Cluster(state, recorded), "node", name, look)
