# SPDX-License-Identifier: Apache-2.0
"""Which devices does the cluster have: where, what they are, how they are, who has them, and how much of them is free?"""

from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.state import DeviceID
from dra_driver.allocator.taints import EFFECTIVE
from dra_driver.explain.facts.device_nodes import where_usable
from dra_driver.explain.names import full_name
from dra_driver.explain.subject.labels import EVERYTHING, LabelSelector
from dra_driver.explain.verdict import CountersUsedUp
from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult, ResourceClaim
from dra_driver.model.names import (
    CLUSTER_DEVICES_KIND,
    DOCUMENT_VERSION,
    HELD_BY_TAINT,
    HELD_TAINT,
    NOT_CLEAN_TAINT,
    OCCUPIED_TAINT,
    READY_CONDITION,
)
from dra_driver.overview.cluster import Overview
from dra_driver.overview.part import Gap, Part
from dra_driver.overview.values import attribute_texts, capacity_texts, memory_of, product

OK, WARNING, UNHEALTHY = "ok", "warning", "unhealthy"
_ABOUT_USE = frozenset({HELD_TAINT, NOT_CLEAN_TAINT, OCCUPIED_TAINT, HELD_BY_TAINT})
"""Taints of this driver that say that somebody uses the device. They say nothing about its health."""


class TaintOfDevice(Part, frozen=True, kw_only=True):
    """A taint; `rule` is the DeviceTaintRule that adds it, "" if the driver publishes it. `timeAdded` is "" if it is not known."""

    key: str
    value: str
    effect: str
    time_added: str
    rule: str


class HolderOfDevice(Part, frozen=True, kw_only=True):
    """A claim that has the device. `share` is the ID of its share, and `consumed` what the share takes; both empty for the whole device.

    `adminAccess`: the claim only looks at the device, and keeps no other claim from it.
    """

    namespace: str
    claim: str
    pods: tuple[str, ...]
    share: str
    consumed: dict[str, str]
    admin_access: bool


class ClusterDevice(Part, frozen=True, kw_only=True):
    """One device.

    `allNodes`, or the `nodes` that can use it; `where` says the same in words, also if nodes could not be read. `health` is "ok",
    "warning" or "unhealthy", with the reason. `free` is "free", "partly free", "not known", or what keeps new claims away, which
    `reason` says in a sentence; `usedUpBy` are the claims on other parts of the same hardware, if they are in the way. `freeShare` is the largest share that is left, of a device that can be shared.
    """

    driver: str
    pool: str
    name: str
    all_nodes: bool
    nodes: tuple[str, ...]
    where: str
    product: str
    memory: str
    health: str
    health_reason: str
    taints: tuple[TaintOfDevice, ...]
    holders: tuple[HolderOfDevice, ...]
    shared: bool
    free: str
    reason: str
    used_up_by: tuple[str, ...]
    free_share: dict[str, str]
    attributes: dict[str, str]
    capacity: dict[str, str]


class ClusterDevices(Part, frozen=True, kw_only=True):
    """The answer of `kubectl dra devices -o json`. `readAt` is the time of the reading. `problem` says why there is none; it is "" otherwise."""

    api_version: str = DOCUMENT_VERSION
    kind: str = CLUSTER_DEVICES_KIND
    read_at: str
    devices: tuple[ClusterDevice, ...]
    not_read: tuple[Gap, ...]
    problem: str = ""


class Chosen(Struct, frozen=True):
    """Which devices are asked about; "" stands for all. `namespace`, `labels` and `names` are those of claims; without names all."""

    node: str = ""
    driver: str = ""
    namespace: str = ""
    labels: LabelSelector = EVERYTHING
    names: frozenset[str] = frozenset()

    def has(self, claim: ResourceClaim) -> bool:
        """Return whether the claim is one of those that are asked about, as far as its metadata say."""
        metadata = claim.metadata
        named = not self.names or metadata.name in self.names
        there = self.namespace in ("", metadata.namespace)
        return named and there and self.labels.chooses(metadata.labels)


def devices_of(
    overview: Overview, chosen: Chosen, not_read: tuple[Gap, ...] = ()
) -> ClusterDevices:
    """Return the devices that are asked about, sorted by node, driver, pool and name."""
    rows = _Rows(overview)
    found = (
        rows.row(one)
        for one in overview.devices
        if overview.is_on(one, chosen.node) and chosen.driver in ("", one.id.driver)
    )
    if chosen.namespace or chosen.labels.text:
        claims = filter(chosen.has, overview.state.resource_claims)
        names = {(one.metadata.namespace, one.metadata.name) for one in claims}
        found = (
            row for row in found if any((one.namespace, one.claim) in names for one in row.holders)
        )
    kept = tuple(found)
    return ClusterDevices(read_at=overview.state.recorded_at, devices=kept, not_read=not_read)


class _Rows:
    def __init__(self, overview: Overview) -> None:
        self._overview = overview

    def row(self, device: SliceDevice) -> ClusterDevice:
        overview = self._overview
        nodes = overview.nodes_of(device)
        health, why = self._health(device)
        memory, reason = memory_of(device.capacity), overview.against(device)
        shared = overview.is_shared(device)
        share = overview.largest_share(device) if shared else {}
        return ClusterDevice(
            driver=device.id.driver,
            pool=device.id.pool,
            name=device.id.device,
            all_nodes=nodes is None,
            nodes=nodes or (),
            where=where_usable(device),
            product=product(device.device),
            memory=str(memory) if memory else "",
            health=health,
            health_reason=why,
            taints=tuple(self._taints(device)),
            holders=tuple(self._holders.get(device.id, ())),
            shared=shared,
            free=overview.state_of(device),
            reason=str(reason) if reason else "",
            used_up_by=reason.claims if isinstance(reason, CountersUsedUp) else (),
            free_share={name: str(one) for name, one in share.items()},
            attributes=attribute_texts(device.device),
            capacity=capacity_texts(device),
        )

    def _taints(self, device: SliceDevice) -> Iterator[TaintOfDevice]:
        rules = self._overview.fleet.rule_names
        for place, one in enumerate(device.device.taints or ()):
            rule, since = rules.get((device.id, place), ""), one.time_added or ""
            yield TaintOfDevice(
                key=one.key, value=one.value, effect=one.effect, time_added=since, rule=rule
            )

    def _health(self, device: SliceDevice) -> tuple[str, str]:
        """Return what the driver says with taints and conditions. An admin's DeviceTaintRule says nothing about the health."""
        if device.id in self._not_ready:
            return UNHEALTHY, self._not_ready[device.id]
        told = [one for one in self._taints(device) if not one.rule and one.key not in _ABOUT_USE]
        told.sort(key=lambda one: one.effect not in EFFECTIVE)
        for one in told:
            words = f"{one.key}={one.value}" if one.value else one.key
            return UNHEALTHY if one.effect in EFFECTIVE else WARNING, words
        return OK, ""

    @cached_property
    def _holders(self) -> dict[DeviceID, list[HolderOfDevice]]:
        found: dict[DeviceID, list[HolderOfDevice]] = {}
        claims = sorted(
            self._overview.state.resource_claims, key=lambda one: full_name(one.metadata)
        )
        for claim in claims:
            allocation = claim.status.allocation
            pods = self._overview.pods_of(claim)
            for result in (allocation.devices.results or ()) if allocation else ():
                holder = HolderOfDevice(
                    namespace=claim.metadata.namespace,
                    claim=claim.metadata.name,
                    pods=pods,
                    share=result.share_id or "",
                    consumed={
                        name: str(one)
                        for name, one in sorted((result.consumed_capacity or {}).items())
                    },
                    admin_access=bool(result.admin_access),
                )
                found.setdefault(device_of(result), []).append(holder)
        return found

    @cached_property
    def _not_ready(self) -> dict[DeviceID, str]:
        """The devices that their driver reports as not ready in the status of a claim, each with the reason."""
        return {
            DeviceID(device.driver, device.pool, device.device): one.reason or "not ready"
            for claim in self._overview.state.resource_claims
            for device in claim.status.devices or ()
            for one in device.conditions or ()
            if one.type == READY_CONDITION and one.status == "False"
        }


def device_of(result: DeviceRequestAllocationResult) -> DeviceID:
    """Return the device of an allocation."""
    return DeviceID(result.driver, result.pool, result.device)
