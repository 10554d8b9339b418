# SPDX-License-Identifier: Apache-2.0
"""Which pods of the cluster wait for a node: those of a workload, or all that ask for devices?

The pods of a workload are those that it owns, directly or through the objects that it makes (a Deployment through ReplicaSets). If
the workloads could not be read, as in a record, the names tell: a ReplicaSet has the name of its Deployment and the hash in the label
of its pods, and a Job the name of its CronJob and a number.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from dra_driver.errors import Permanent
from dra_driver.explain.facts.named_node import named
from dra_driver.explain.facts.pod_requests import asks_for_devices
from dra_driver.explain.names import first_names, full_name
from dra_driver.explain.subject.lookup import Cluster, listed, meant, namespace_is_missing
from dra_driver.explain.subject.subject import ManyPods, PendingSubject, WorkloadSubject
from dra_driver.explain.subject.wanted import Known, of_pod
from dra_driver.model.api.core import OVER, Pod
from dra_driver.model.api.meta import ObjectMeta, OwnerReference
from dra_driver.model.api.workload import BETWEEN, PLURALS, StoredWorkload, with_parts
from dra_driver.model.cluster import ClusterState

HASH_LABEL = "pod-template-hash"


class PodsOf(Struct, frozen=True):
    """The pods that wait for a node, and a sentence about all pods.

    `lacking` says why pods are missing, if they are. It is "" if they come by themselves, which `later` says. `unread` says which pods
    wait of which nothing more is known, if some do.
    """

    waiting: tuple[Pod, ...]
    says: str
    lacking: str = ""
    later: bool = False
    unread: str = ""

    @property
    def settled(self) -> bool:
        """Whether no pod waits and none is missing."""
        return not (self.waiting or self.lacking or self.later)


def pods_of(where: Cluster, subject: ManyPods) -> PodsOf:
    """Return the subject's pods. Raises Permanent if the subject does not exist, or the pods could not be read."""
    gap = where.state.unread("pods")
    if gap is not None and not gap.name and not _some_are_known(where.state, subject):
        raise Permanent(f"cannot find {subject.title}: {gap.message}")
    if isinstance(subject, PendingSubject):
        return _pending(where, subject)
    known = Known(where.state)
    owned = [pod for pod in _owned(where, subject) if not _is_over(pod)]
    waiting = tuple(pod for pod in owned if _waits(pod, known))
    stored, says = _stored(where.state, subject), _counted(owned, waiting)
    if stored and owned and stored.one_by_one and len(owned) < (stored.wanted or 0):
        words = f"it wants {stored.wanted:,}, and makes each when the one before is ready"
        return PodsOf(waiting, f"{says}; {words}", later=True)
    return PodsOf(waiting, says, _lacking(subject, stored, len(owned)))


def _some_are_known(state: ClusterState, subject: ManyPods) -> bool:
    """Return whether pods of the subject's namespace could be read, although those of the whole cluster could not."""
    return any(pod.metadata.namespace == subject.namespace for pod in state.pods)


def _pending(where: Cluster, subject: PendingSubject) -> PodsOf:
    state = where.state
    if subject.namespace and namespace_is_missing(state, subject.namespace):
        place = "the record" if where.recorded else "this cluster"
        raise Permanent(
            f"there is no namespace {subject.namespace} in {place}: give another one with -n, or --all-namespaces"
        )
    known = Known(state)
    everywhere = tuple(
        pod
        for pod in state.pods
        if not _is_over(pod)
        and subject.labels.chooses(pod.metadata.labels)
        and asks_for_devices(pod)
        and _waits(pod, known)
    )
    waiting = tuple(pod for pod in everywhere if subject.namespace in ("", pod.metadata.namespace))
    unread = [
        pod
        for pod in where.unread
        if not (_is_over(pod) or pod.spec.node_name)
        and subject.labels.chooses(pod.metadata.labels)
        and subject.namespace in ("", pod.metadata.namespace)
    ]
    awaited = _awaited(waiting)
    if len(waiting) > 1:
        says = f"{len(waiting):,} pods that ask for devices wait for {awaited}"
        return PodsOf(waiting, says, unread=_unread(unread))
    few = "no pod" if not waiting else "1 pod"
    elsewhere = "" if waiting else _elsewhere(everywhere)
    says = f"{few} that asks for devices waits for {awaited}{elsewhere}"
    return PodsOf(waiting, says, unread=_unread(unread))


def _unread(pods: Sequence[Pod]) -> str:
    """Return that these pods wait too, perhaps for devices; "" for none."""
    if not pods:
        return ""
    names = first_names([full_name(one.metadata) for one in pods])
    return (
        f"what {names} asks for could not be read"
        if len(pods) == 1
        else f"what {names} ask for could not be read"
    )


def _elsewhere(waiting: Sequence[Pod]) -> str:
    """Return how many pods wait in other namespaces, whom the user may have meant; "" if none does."""
    if not waiting:
        return ""
    names = listed(sorted({pod.metadata.namespace for pod in waiting}))
    wait = "1 waits" if len(waiting) == 1 else f"{len(waiting):,} wait"
    return f"; {wait} in {names}: -A (--all-namespaces) shows all namespaces"


def _waits(pod: Pod, known: Known) -> bool:
    """Return whether the pod has no node, or is on one that it named itself, where it waits for devices in vain."""
    if not pod.spec.node_name:
        return True
    return bool(named(of_pod(known.state, pod, live=True, known=known, asks=False)))


def _awaited(waiting: Sequence[Pod]) -> str:
    return "a node or for devices" if any(pod.spec.node_name for pod in waiting) else "a node"


def _is_over(pod: Pod) -> bool:
    return pod.status.phase in OVER or pod.metadata.deletion_timestamp is not None


def _owned(where: Cluster, subject: WorkloadSubject) -> list[Pod]:
    """Return the pods of a workload. Raises Permanent if there is no such workload."""
    state = where.state
    pods = [pod for pod in state.pods if pod.metadata.namespace == subject.namespace]
    gap = next(
        (gap for kind in with_parts([subject.kind]) if (gap := state.unread(PLURALS[kind][1]))),
        None,
    )
    if where.recorded or gap is not None:
        found = [pod for pod in pods if _is_named_after(pod, subject)]
        if not found:
            why = gap.message if gap else _of_the_record(state, subject)
            raise Permanent(f"cannot find pods of {subject.title}: {why}")
        return found
    stored = _stored(state, subject)
    if stored is None:
        raise _not_there(state, subject)
    owners = {stored.metadata.uid}
    owners |= {
        one.metadata.uid
        for one in state.workloads
        if one.kind == BETWEEN.get(subject.kind) and _owner(one.metadata).uid in owners
    }
    return [pod for pod in pods if _owner(pod.metadata).uid in owners]


def _stored(state: ClusterState, subject: WorkloadSubject) -> StoredWorkload | None:
    for one in state.workloads:
        if (one.kind, one.metadata.namespace, one.metadata.name) == (
            subject.kind,
            subject.namespace,
            subject.name,
        ):
            return one
    return None


def _owner(metadata: ObjectMeta) -> OwnerReference:
    """Return the controller of an object; an empty reference if it has none."""
    return next((one for one in metadata.owner_references or () if one.controller), _NOBODY)


_NOBODY = OwnerReference(uid="(nobody)")


def _is_named_after(pod: Pod, subject: WorkloadSubject) -> bool:
    """Return whether the name of the pod's owner says that the pod is the workload's."""
    return (subject.kind, subject.name) in _workloads_by_name(pod)


def _workloads_by_name(pod: Pod) -> Iterator[tuple[str, str]]:
    """Yield kind and name of each workload that the pod's owner says it is of, the outer one first."""
    owner = _owner(pod.metadata)
    template = (pod.metadata.labels or {}).get(HASH_LABEL)
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        yield "Deployment", owner.name.removesuffix(f"-{template}")
    if owner.kind == "Job" and (made := re.fullmatch(r"(.+)-[0-9]{6,}", owner.name)):
        yield "CronJob", made[1]
    if owner.kind in PLURALS:
        yield owner.kind, owner.name


def _of_the_record(state: ClusterState, subject: WorkloadSubject) -> str:
    alike = {pod.metadata.namespace for pod in state.pods if _is_named_after(pod, subject)}
    if alike:
        return f"the record has pods of one in {listed(sorted(alike))}: give it with -n"
    names = (
        f"{kind.lower()} {pod.metadata.namespace}/{name}"
        for pod in state.pods
        for kind, name in list(_workloads_by_name(pod))[:1]
    )
    return f"a record has the pods of workloads, not the workloads; this one has pods of {listed(list(dict.fromkeys(names)))}"


def _not_there(state: ClusterState, subject: WorkloadSubject) -> Permanent:
    if namespace_is_missing(state, subject.namespace):
        look = f"there is no namespace {subject.namespace} either"
    else:
        names = [one.metadata.name for one in state.workloads if one.kind == subject.kind]
        look = meant(subject.name, names)
        if not look:
            there = listed(names)
            look = f"namespace {subject.namespace} has {there}; give another one with -n"
    return Permanent(f"there is no {subject.title} in this cluster: {look}")


def _counted(owned: Sequence[Pod], waiting: Sequence[Pod]) -> str:
    if not owned:
        return "it has no pods now"
    if not waiting:
        return f"all {len(owned):,} pods have a node" if len(owned) > 1 else "its pod has a node"
    return f"{len(waiting):,} of {len(owned):,} pods wait for {_awaited(waiting)}"


def _lacking(subject: WorkloadSubject, stored: StoredWorkload | None, there: int) -> str:
    """Return why the workload has fewer pods than it wants; "" if it has them all, or its number is not known."""
    if stored is None or stored.ended:
        return ""
    plural = PLURALS[subject.kind][1]
    again = f"`kubectl get {plural} {subject.name} -n {subject.namespace} -o yaml | dra-driver explain -f -` says whether its pods would fit"
    if stored.spec.suspend and subject.kind == "Job":
        return f"it is suspended, and makes no pods until it is resumed (a queue such as Kueue does that); {again}"
    if stored.wanted is None or there >= stored.wanted:
        return ""
    return (
        f"it wants {stored.wanted:,} pods and has {there:,}: if that lasts, its events say why the others are not made "
        f"(a quota, an admission policy: `kubectl describe {plural} {subject.name} -n {subject.namespace}`); {again}"
    )
