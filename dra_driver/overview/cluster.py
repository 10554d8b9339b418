# SPDX-License-Identifier: Apache-2.0
"""Which devices does a cluster have, from which nodes are they used, and could a new claim get them?

Whether a device is free is answered by the checks of `explain`, for a request that asks for one device and tolerates no taint. So a
device that is free here is one that the scheduler would take.
"""

from collections.abc import Mapping
from functools import cached_property

from dra_driver.allocator.amounts import ZERO, Amount
from dra_driver.allocator.capacity import permitted
from dra_driver.allocator.devices import SliceDevice
from dra_driver.explain.claim_request import ClaimRequest
from dra_driver.explain.device_state import DeviceState
from dra_driver.explain.facts.device_nodes import DeviceNodes, choice
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.facts.pod_groups import members_by_group, reserved_pods
from dra_driver.explain.names import full_name
from dra_driver.explain.readable import readable
from dra_driver.explain.verdict import (
    CapacityConsumed,
    CountersUsedUp,
    FeatureOff,
    HeldByClaim,
    NodeNotSelected,
    PoolIncomplete,
    PoolInvalid,
    Tainted,
    Verdict,
)
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.resource_claim import (
    CapacityRequirements,
    ExactDeviceRequest,
    ResourceClaim,
)
from dra_driver.model.cluster import ClusterState
from dra_driver.overview.together import Together

FREE, PARTLY_FREE, NOT_KNOWN, NOT_USABLE = "free", "partly free", "not known", "not usable"
NODE_CLOSED = "node closed"
_STATES: Mapping[type, str] = {
    HeldByClaim: "in use",
    CapacityConsumed: "in use",
    Tainted: "tainted",
    CountersUsedUp: "used up",
    PoolIncomplete: "pool incomplete",
    PoolInvalid: "pool invalid",
    NodeNotSelected: "no node",
    FeatureOff: "feature off",
}
"""What keeps new claims from a device, in the word of the column FREE."""
_CLOSED = frozenset(
    f"node.kubernetes.io/{name}" for name in ("not-ready", "unreachable", "unschedulable")
)
"""Taints of nodes that take no new pod, whatever they ask for. Other taints are for pods that ask for no devices."""
_LEAST = "1"
ONE_DEVICE = ExactDeviceRequest(allocation_mode="ExactCount", count=1)


class Overview:
    """A cluster, prepared once for all rows."""

    def __init__(self, state: ClusterState) -> None:
        self.state = readable(state)
        self.fleet = Fleet(self.state)
        self._nodes = DeviceNodes(self.state.nodes)
        self._against: dict[SliceDevice, Verdict | None] = {}
        self._any_request = DeviceState(self.fleet, _request(ONE_DEVICE), self._nodes)

    @cached_property
    def devices(self) -> tuple[SliceDevice, ...]:
        """All devices of the newest generation of each pool, sorted by node, driver, pool and name."""
        found = self.fleet.all_devices
        return tuple(sorted(found, key=lambda one: (self.nodes_of(one) or (), one.id)))

    def nodes_of(self, device: SliceDevice) -> tuple[str, ...] | None:
        """Return the names of the nodes that can use the device, sorted; None means all. The node of the slice counts also if nodes are unread."""
        name = choice(device)[0]
        if name:
            return (name,)
        found = self._nodes.of(device)
        return None if found is None else tuple(sorted(found))

    def is_on(self, device: SliceDevice, node: str) -> bool:
        """Return whether the node can use the device; "" stands for any node."""
        nodes = self.nodes_of(device)
        return not node or nodes is None or node in nodes

    def against(self, device: SliceDevice) -> Verdict | None:
        """Return the first reason why no new claim gets the device or a share of it, whatever its class; None if one could."""
        if device not in self._against:
            self._against[device] = next(self._state_of(device).reasons(device), None)
        return self._against[device]

    def state_of(self, device: SliceDevice) -> str:
        """Return the word of the column FREE."""
        reason = self.against(device)
        if reason is not None:
            return _STATES.get(type(reason), NOT_USABLE)
        if not self.knows_holders:
            return NOT_KNOWN
        if not self.is_open(device):
            return NODE_CLOSED
        return PARTLY_FREE if self.fleet.held.shares.get(device.id) else FREE

    @cached_property
    def together(self) -> Together:
        """Counts devices that can be had at the same time."""
        return Together(self.fleet)

    @cached_property
    def knows_holders(self) -> bool:
        """Whether the claims of the whole cluster were read."""
        return all(gap.name for gap in self.state.gaps("resourceclaims"))

    def is_shared(self, device: SliceDevice) -> bool:
        """Return whether several claims can have shares of the device in this cluster."""
        return (
            bool(device.device.allow_multiple_allocations) and self.fleet.rules.consumable_capacity
        )

    def largest_share(self, device: SliceDevice) -> dict[str, Amount]:
        """Return the largest amount of each capacity that one more share could have. A capacity of which there is none left is zero."""
        taken = self.fleet.held.consumed(device.id)
        whole = device.id in self.fleet.held.devices
        found = {}
        for name, offered in sorted((device.device.capacity or {}).items()):
            has = device.capacity[name]
            left = 0 if whole else max(has.nanos - taken.get(name, 0), 0)
            rest = has if left == has.nanos else Amount(left, has.format)
            found[name] = permitted(offered, rest) or ZERO
        return found

    def _state_of(self, device: SliceDevice) -> DeviceState:
        if not self.is_shared(device):
            return self._any_request
        # Without an amount a request takes the default of the driver's policy, or all. A smaller share may be left. Where none is left,
        # the request asks for the least, which the policy rounds up, so that the reason says what is missing.
        asked = {
            name: str(one) if one.nanos else _LEAST
            for name, one in self.largest_share(device).items()
            if device.capacity[name].nanos > 0
        }
        capacity = CapacityRequirements(requests={**asked}) if asked else None
        body = ExactDeviceRequest(allocation_mode="ExactCount", count=1, capacity=capacity)
        return DeviceState(self.fleet, _request(body), self._nodes)

    def is_open(self, device: SliceDevice) -> bool:
        """Return whether a node that can use the device takes new pods. Unread nodes count as such."""
        nodes = self.nodes_of(device)
        names = self._nodes.nodes if nodes is None else nodes
        return not self.state.nodes or any(name not in self.closed for name in names)

    @cached_property
    def closed(self) -> frozenset[str]:
        """The nodes that take no new pods: cordoned, or not ready."""
        return frozenset(one.metadata.name for one in self.state.nodes if _is_closed(one))

    @cached_property
    def pods(self) -> Mapping[str, Pod]:
        """The pods by "namespace/name"."""
        return {full_name(one.metadata): one for one in self.state.pods}

    def pods_of(self, claim: ResourceClaim) -> tuple[str, ...]:
        """Return the names of the pods that use the claim: it is reserved for them, or for the pod group they are of."""
        return tuple(dict.fromkeys(reserved_pods(claim, self._members)))

    @cached_property
    def _members(self) -> Mapping[tuple[str, str], list[Pod]]:
        return members_by_group(self.state.pods)


def _is_closed(node: Node) -> bool:
    return node.spec.unschedulable or any(
        taint.key in _CLOSED and taint.effect in ("NoSchedule", "NoExecute")
        for taint in node.spec.taints or ()
    )


def _request(body: ExactDeviceRequest) -> ClaimRequest:
    return ClaimRequest(ResourceClaim(), "one", body, (0, None))
