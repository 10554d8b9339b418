# SPDX-License-Identifier: Apache-2.0
"""What keeps a pod off a node, beside the devices of its claims?

This module checks the simple filters of the scheduler: the node's name, cordon, taints, node selector and affinity, and ordinary
resources, of which other pods use a part. It does not check pod affinity, topology spread, volumes and ports. If one of these
keeps the pod off, the report quotes the scheduler's message from the conditions of the pod.
Source: k8s.io/kubernetes pkg/scheduler/framework/plugins/{nodename,nodeunschedulable,tainttoleration,nodeaffinity,noderesources}.
"""

from collections.abc import Iterable, Iterator

from dra_driver.allocator.amounts import amount
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.nodes import selector_matches
from dra_driver.allocator.taints import EFFECTIVE
from dra_driver.explain.facts.pod_requests import pod_requests
from dra_driver.explain.facts.used_resources import UsedResources
from dra_driver.explain.verdict import (
    CouldNotTell,
    NodeResources,
    NodeSelectorMismatch,
    NodeTainted,
    NodeUnschedulable,
    Verdict,
)
from dra_driver.model.api.core import Node, Pod, Taint, Toleration
from dra_driver.model.quantity import Quantity
from dra_driver.model.resource_names import may_be_devices

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_BINARY = ("memory", "ephemeral-storage")


class PodFilters:
    """The scheduler's checks of nodes for one pod.

    `used` is what pods use of the nodes, and `by_devices` are the resources that devices provide.
    """

    def __init__(
        self, pod: Pod, used: UsedResources, by_devices: frozenset[str] = frozenset()
    ) -> None:
        self._pod = pod
        self._asked = {**pod_requests(pod), "pods": 10**9}
        self._devices = any(map(may_be_devices, self._asked))
        self._by_devices = by_devices
        self._used = used

    def reasons(self, node: Node) -> tuple[Verdict, ...]:
        """Return why the pod cannot go to the node; () if it can. The scheduler would find one after the other."""
        return (*self._repelled(node), *self._not_wanted(node), *self._too_small(node))

    def lacking(self, node: Node) -> tuple[NodeResources, ...]:
        """Return of which devices the node has too few, where a device plugin provides them."""
        if not self._devices:
            return ()
        return tuple(one for one in self._too_small(node) if may_be_devices(one.resource))

    def others(self, node: Node) -> tuple[Verdict, ...]:
        """Return the reasons that are not about devices."""
        small = (one for one in self._too_small(node) if not may_be_devices(one.resource))
        return (*self._repelled(node), *self._not_wanted(node), *small)

    def _repelled(self, node: Node) -> Iterator[Verdict]:
        tolerations = self._pod.spec.tolerations or ()
        cordon = Taint(key=UNSCHEDULABLE, effect="NoSchedule")
        if node.spec.unschedulable and not _tolerated(cordon, tolerations):
            yield NodeUnschedulable()
        for taint in node.spec.taints or ():
            doubled = taint.key == UNSCHEDULABLE and node.spec.unschedulable
            if taint.effect in EFFECTIVE and not doubled and not _tolerated(taint, tolerations):
                value = f"={taint.value}" if taint.value else ""
                yield NodeTainted(f"{taint.key}{value}:{taint.effect}")

    def _not_wanted(self, node: Node) -> Iterator[Verdict]:
        spec = self._pod.spec
        if spec.node_name and spec.node_name != node.metadata.name:
            yield NodeSelectorMismatch(f"nodeName {spec.node_name}")
        labels = node.metadata.labels or {}
        for key, value in (spec.node_selector or {}).items():
            if labels.get(key) != value:
                yield NodeSelectorMismatch(f"nodeSelector {key}={value}")
        affinity = spec.affinity.node_affinity if spec.affinity else None
        required = affinity and affinity.required_during_scheduling_ignored_during_execution
        if required:
            try:
                wanted = selector_matches(node, required)
            except AllocationError as error:
                yield CouldNotTell("malformed", f"the pod's node affinity: {error}")
                return
            if not wanted:
                yield NodeSelectorMismatch("node affinity")

    def _too_small(self, node: Node) -> Iterator[NodeResources]:
        offered = node.status.allocatable or {}
        used = self._used.without(self._pod, node.metadata.name)
        for name, nanos in self._asked.items():
            if not nanos or (name in self._by_devices and not amount(offered.get(name, "0")).nanos):
                continue
            free = amount(offered.get(name, "0")).nanos - used.get(name, 0)
            if nanos > free:
                yield NodeResources(name, _shown(name, nanos), _shown(name, max(free, 0)))


def _shown(name: str, nanos: int) -> str:
    return str(Quantity(nanos, "BinarySI" if name in _BINARY else "DecimalSI"))


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
