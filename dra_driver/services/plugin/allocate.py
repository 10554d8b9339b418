# SPDX-License-Identifier: Apache-2.0
"""Answer Allocate: the kubelet has chosen units of a resource for a container.

The call names no pod. It makes a row of its own in the state, with the devices as owners and their leases, before anything is set up. If a
device has an owner already, `dra_driver.services.plugin.holders` finds out what that means. The kubelet admits one pod at a time, so a call
waits only shortly for a device that a container is about to leave.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from uuid import uuid4

from msgspec import Struct, field
from msgspec.structs import replace

from dra_driver.errors import DriverError, Temporary
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.claim import PLUGIN_UID_PREFIX, Claim, ClaimRef
from dra_driver.model.events import UnitsAllocated
from dra_driver.model.ids import ClaimUid, ResourceName, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import Decision, MarkStarted, OwnerConflict, Plan, Refusal
from dra_driver.model.plugin import PLUGIN_NAMESPACE, ContainerAnswer, PluginResource
from dra_driver.model.state import PreparedClaim, PreparedDevice
from dra_driver.planning.finish import started_row
from dra_driver.planning.plugin.allocate import (
    AllocateCall,
    claim_of,
    plan_allocate,
    told_its_share,
)
from dra_driver.planning.plugin.rows import edits_of, units_of
from dra_driver.planning.prepare import own_keys
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.conflicts import Conflicts
from dra_driver.services.execute import patiently
from dra_driver.services.finish import finish, finish_late
from dra_driver.services.parts import NodeParts
from dra_driver.services.plugin.giving import Again
from dra_driver.services.plugin.holders import Holders

CALL_SECONDS = 20.0  # the kubelet admits no other pod meanwhile
WAIT_SECONDS = 3.0  # for a device whose last container ends
LOOK_SECONDS = 0.1


class Answers(Struct, frozen=True):
    """How a container gets its devices: `make` turns container edits and CDI names of a call into the kubelet's answer. Without `hooks` it can
    pass on none, because the answer has device files in the place of CDI names.
    """

    make: Callable[[Sequence[ContainerEdits], Sequence[str], ClaimUid], ContainerAnswer]
    hooks: bool = True


class _Call(Struct):
    """An Allocate call: what it asks for, what it has found, and its times. `left` are the units that it does not have yet, `again` the rows
    whose units it gets once more."""

    ref: ClaimRef
    resource: PluginResource
    left: list[UnitId]
    hooks: bool
    patience: float
    until: float
    edits: list[ContainerEdits] = field(default_factory=list)
    cdi_ids: list[str] = field(default_factory=list)
    again: list[PreparedClaim] = field(default_factory=list)

    def take(self, devices: Sequence[PreparedDevice], edits: Sequence[object]) -> None:
        """Add what containers with these devices get."""
        self.edits += [one for one in edits if isinstance(one, ContainerEdits)]
        self.cdi_ids += [cdi_id for device in devices for cdi_id in device.cdi_ids]
        units = {name for device in devices for name in device.request_names}
        self.left = [one for one in self.left if one not in units]


class AllocateUnits:
    """Allocates units when called. Safe to call from several threads. `resources` returns a resource as it is offered now, or None."""

    def __init__(
        self,
        parts: NodeParts,
        holders: Holders,
        *,
        resources: Callable[[ResourceName], PluginResource | None],
        answers: Callable[[], Answers],
    ) -> None:
        self._parts = parts
        self._holders = holders
        self._resources = resources
        self._answers = answers
        self._conflicts = Conflicts(parts)

    def __call__(self, name: ResourceName, ids: Sequence[UnitId]) -> ContainerAnswer | Refusal:
        """Return what the container needs, or why it cannot have the units: a sentence for the pod's status."""
        parts = self._parts
        begun = parts.clock()
        ref = ClaimRef(PLUGIN_NAMESPACE, name, ClaimUid(f"{PLUGIN_UID_PREFIX}{uuid4()}"))
        try:
            found = self._allocate(ref, ids, begun)
        except DriverError as error:
            found = Refusal(f"resource {name}: {error}")
        reason = found.reason if isinstance(found, Refusal) else ""
        parts.observe(UnitsAllocated(ref, tuple(ids), parts.clock() - begun, reason))
        return found

    def _allocate(
        self, ref: ClaimRef, ids: Sequence[UnitId], begun: float
    ) -> ContainerAnswer | Refusal:
        resource = self._resources(ResourceName(ref.name))
        if resource is None:
            return Refusal(
                f"resource {ref.name} is not offered (any more) by {self._parts.place.driver} on this node; its log says why, and which "
                f"resources are"
            )
        answers = self._answers()
        times = begun + WAIT_SECONDS, begun + CALL_SECONDS
        call = _Call(ref, resource, list(ids), answers.hooks, *times)
        with ClaimLocks(self._parts.lock) as locks:
            if missed := locks.take([ref.uid], until=call.until, purpose="allocating"):
                raise missed[ref.uid]
            try:
                refused = self._fill(call, locks)
            except DriverError:
                self._holders.not_given(call.again)
                raise
        if refused:
            self._holders.not_given(call.again)
        return refused or told_its_share(
            resource, ids, answers.make(call.edits, call.cdi_ids, ref.uid)
        )

    def _fill(self, call: _Call, locks: ClaimLocks) -> Refusal | None:
        """Get all units of the call. Returns why that is not possible."""
        uid = call.ref.uid
        plan = None
        try:
            plan = self._planned(call, locks)
        finally:
            if not isinstance(plan, Plan):
                # No row comes of this call, so nothing of it need be known.
                self._holders.answered(uid)
        if not isinstance(plan, Plan):
            return plan
        try:
            edits = self._set_up(plan, call.until, locks)
        except Exception:
            self._holders.give_up(started_row(plan), locks)
            raise
        self._holders.answered(uid)
        call.take(plan.devices, edits)
        return None

    def _set_up(self, plan: Plan, until: float, locks: ClaimLocks) -> Sequence[object]:
        """Set up what is reserved, and write that down. Returns the edits of the backends. Raises DriverError."""
        parts, uid = self._parts, plan.claim.uid
        late = finish_late(parts, locks, until)
        result = parts.executor.work([plan], until=until, late=late)[uid]
        error = result.error
        if locks.holds(uid):
            error = finish(parts, [(plan, result)], until)[uid]
        if error is not None:
            raise error
        return result.edits

    def _planned(self, call: _Call, locks: ClaimLocks) -> Plan | Refusal | None:
        """Plan and reserve. None if no unit is left that this call has to set up."""
        parts = self._parts
        inventory = patiently(
            partial(_scanned, parts), until=call.patience, clock=parts.clock, sleep=parts.sleep
        )
        while True:
            claim = claim_of(call.resource, call.left, call.ref.uid, parts.place)
            if isinstance(claim, Refusal):
                return claim
            decision = self._decide(call, claim, inventory)
            if not isinstance(decision, OwnerConflict):
                return decision
            if refused := self._resolve(call, decision, locks):
                return refused
            if not call.left:
                return None

    def _resolve(self, call: _Call, conflict: OwnerConflict, locks: ClaimLocks) -> Refusal | None:
        """Find out what the owner of a device means. Returns a refusal, or None if the call is to be planned again."""
        parts = self._parts
        if not conflict.owner.of_plugin:
            uid = call.ref.uid
            return self._conflicts.resolve({uid: conflict}, locks, call.patience).get(uid)
        while True:
            found = self._holders.for_another(
                conflict.owner, call.resource.name, frozenset(call.left), until=call.until
            )
            if isinstance(found, Again):
                self._take_again(call, found.row)
                return None
            if not found:
                return None
            if parts.clock() + LOOK_SECONDS >= call.patience:
                return Refusal(
                    f"resource {call.resource.name}: device {conflict.device} may still be used by the container that had it before: "
                    f"{found}; {self._outlook(conflict.owner)}"
                )
            parts.sleep(LOOK_SECONDS)

    def _outlook(self, owner: ClaimRef) -> str:
        row = self._parts.row(owner.uid)
        if row is not None and row.held is not None:
            return (
                "it is listed as unhealthy until that has ended, so the next pod gets another one"
            )
        return "a pod that is made later may get it: make it again if no controller does"

    def _take_again(self, call: _Call, row: PreparedClaim) -> None:
        call.again.append(row)
        if not (call.hooks or row.is_fixed):
            self._note_device_files(row)
        shared = units_of(row) & set(call.left)
        devices = [device for device in row.devices if shared & set(device.request_names)]
        call.take(devices, edits_of(row.cdi_spec, devices))

    def _note_device_files(self, row: PreparedClaim) -> None:
        """The first container of the pod got CDI names, and this one gets device files: the kubelet passes on other things than before."""
        with self._parts.store.transaction("started") as transaction:
            found = transaction.read(uids=[row.ref.uid]).claims.get(row.ref.uid, row)
            devices = tuple(dataclasses.replace(one, by_name=False) for one in found.devices)
            step = MarkStarted(replace(found, devices=devices))
            self._parts.executor.mark(transaction, [step])

    def _decide(self, call: _Call, claim: Claim, inventory: Inventory) -> Decision:
        parts = self._parts
        parts.learn(inventory)
        begun = self._holders.expect(claim.ref.uid)
        with parts.store.transaction("started") as transaction:
            state = transaction.read(keys=own_keys(claim, parts.place))
            asked = AllocateCall(call.resource, claim, call.hooks, begun)
            decision = plan_allocate(asked, place=parts.place, inventory=inventory, state=state)
            if isinstance(decision, Plan):
                parts.executor.mark(transaction, decision.steps[:1])
        return decision


def _scanned(parts: NodeParts) -> Inventory:
    inventory = parts.inventory()
    if not inventory.scanned:
        raise Temporary(
            "the hardware of this node has not been read yet; the driver's log says what it waits for"
        )
    return inventory
