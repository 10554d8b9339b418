# SPDX-License-Identifier: Apache-2.0
"""Which ordinary resources of a node do pods use? Added up once for each node, however many pods are explained."""

from collections.abc import Iterable, Mapping

from dra_driver.explain.facts.resized_pods import ALL_STATUSES, StatusCounts, used_on_node
from dra_driver.model.api.core import OVER, Pod

_Name = tuple[str, str]


class UsedResources:
    """What these pods use of the nodes on which they are. A pod that is over uses nothing."""

    def __init__(self, pods: Iterable[Pod], counts: StatusCounts = ALL_STATUSES) -> None:
        self._counts = counts
        self._on_node: dict[str, dict[_Name, Pod]] = {}
        for pod in pods:
            if pod.spec.node_name and pod.status.phase not in OVER:
                self._on_node.setdefault(pod.spec.node_name, {})[_name(pod)] = pod
        self._used: dict[str, Mapping[str, int]] = {}

    def without(self, pod: Pod, node: str) -> Mapping[str, int]:
        """Return the amount of each resource, in billionths, that all pods but this one use of the node."""
        there = self._on_node.get(node, {})
        if _name(pod) in there:
            others = [one for name, one in there.items() if name != _name(pod)]
            return used_on_node(others, self._counts)
        if node not in self._used:
            self._used[node] = used_on_node(list(there.values()), self._counts)
        return self._used[node]


def _name(pod: Pod) -> _Name:
    return pod.metadata.namespace, pod.metadata.name
