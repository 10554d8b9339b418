# SPDX-License-Identifier: Apache-2.0
"""The extended resources of one pod: the claim that the scheduler would make for them, or why it makes none."""

from collections.abc import Iterator

from dra_driver.explain.facts import extended_resources
from dra_driver.explain.facts.claim_state import full_name
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.subject.subject import WantedClaim
from dra_driver.explain.verdict import Verdict
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.gates import ALLOCATION


class Extended:
    """Those that devices have to provide on some node."""

    def __init__(self, pod: Pod | None, fleet: Fleet, reach: DeviceNodes) -> None:
        self._pod = pod
        self._nodes = tuple(reach.nodes.values())
        self._classes = extended_resources.classes_by_resource(fleet.state.device_classes)
        self._resources: tuple[str, ...] = ()
        self._refused: dict[str, Verdict] = {}
        if pod is not None:
            gates = (ALLOCATION, extended_resources.GATE)
            off = next((gate for gate in gates if not fleet.is_on(gate)), "")
            self._refused = extended_resources.without_devices(
                pod, self._nodes, fleet.state, gate_off=off
            )
            backed = extended_resources.backed_by_devices(pod, self._classes)
            self._resources = () if off else backed

    @property
    def refused(self) -> tuple[Verdict, ...]:
        """Why no devices stand for some of them on any node."""
        return tuple(self._refused.values())

    @property
    def names(self) -> frozenset[str]:
        """Those that nodes need not offer themselves, or that are refused already."""
        return frozenset((*self._resources, *self._refused))

    def wanted(self) -> Iterator[WantedClaim]:
        """The claim for all of them, if any node needs one."""
        resources = self._resources
        if self._nodes:  # where every node offers a resource itself, no device has to
            needed = {one for node in self._nodes for one in self.offered(node)}
            resources = tuple(one for one in resources if one in needed)
        if self._pod is not None and (resources or self._refused):
            claim = extended_resources.claim_for(self._pod, resources, self._classes)
            origin = f"extended resources {', '.join((*resources, *self._refused))}"
            made = claim if resources else None
            yield WantedClaim(full_name(claim), made, origin, verdicts=self.refused)

    def offered(self, node: Node) -> tuple[str, ...]:
        """What the node lacks of them."""
        return extended_resources.on_node(self._resources, node)

    def claim_on(self, node: Node) -> Iterator[ResourceClaim]:
        """The claim for what the node lacks."""
        resources = self.offered(node)
        if self._pod is not None and resources:
            yield extended_resources.claim_for(self._pod, resources, self._classes)
