# SPDX-License-Identifier: Apache-2.0
"""At the start: units that pods have already, from before a reboot, from before the state was lost, or from another plugin.

The kubelet calls Allocate once for a container and keeps the answer, also over a reboot. So after a reboot the driver sets the devices of a row
up again under the same CDI names, if the kubelet's checkpoint still has them for a pod. Before that the rows that were answered with CDI names get
the names that their devices have in this boot; the others keep theirs. And if the checkpoint has units of ours for a running pod, and no row knows them, the driver reserves them: the
state was lost, or a vendor's plugin gave them out under the same resource.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from uuid import uuid4

import structlog
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.model.claim import PLUGIN_UID_PREFIX
from dra_driver.model.ids import ClaimUid, PodUid, ResourceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import Plan, Refusal, Step
from dra_driver.model.plugin import KubeletCheckpoint, PluginResource, UnitsOfContainer
from dra_driver.model.presence import Gone
from dra_driver.model.state import Phase, PreparedClaim, Unknown, Users
from dra_driver.planning.moved import moved
from dra_driver.planning.plugin.again import (
    by_pod,
    described_units,
    is_nameless,
    plan_again,
    plan_taken_up,
)
from dra_driver.planning.plugin.located import Renamed, plan_renamed
from dra_driver.planning.plugin.rows import units_of
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.execute import CALL_SECONDS
from dra_driver.services.finish import finish, finish_late
from dra_driver.services.parts import NodeParts
from dra_driver.services.plugin.holders import Holders
from dra_driver.services.plugin.witnesses import Witnesses
from dra_driver.services.take_back import undo

NOT_AGAIN = "its pod has not come back after the reboot"
NOBODYS = "its row was lost with an earlier state file, and the kubelet lists no pod with it"

Resources = Mapping[ResourceName, PluginResource]


class TakeUp:
    """Takes up what pods have. `has_looked`: whatever the kubelet knows is reserved, so that nobody else gets it. `is_done`: nothing is left to be
    set up; until then `once` is called again.
    """

    def __init__(
        self,
        parts: NodeParts,
        holders: Holders,
        witnesses: Witnesses,
        *,
        resources: Callable[[], Resources],
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._parts = parts
        self._holders = holders
        self._witnesses = witnesses
        self._resources = resources
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self.has_looked = self.is_done = False

    def once(self) -> bool:
        """Set up again and reserve. Raises DriverError if the state cannot be read."""
        _, checkpoint = self._witnesses.checkpoint()
        if not isinstance(checkpoint, Unknown):
            self.is_done = self._all(checkpoint)
        else:
            # A node on which no plugin has ever been has no checkpoint.
            self.is_done = not self._holders.rows()
        self.has_looked = self.has_looked or self.is_done or not isinstance(checkpoint, Unknown)
        return self.is_done

    def _all(self, checkpoint: KubeletCheckpoint) -> bool:
        done = self._tried(self._rename, "rows of an earlier boot")
        boot_id = self._parts.store.boot_id
        for row in self._holders.rows():
            if self._is_to_set_up(row):
                done &= self._tried(partial(self._again, row.ref.uid, checkpoint), row.ref.word)
        for pod in by_pod(checkpoint.containers):
            done &= self._tried(partial(self._take_up, pod), f"pod {pod.pod}")
        for row in self._holders.rows():
            if is_nameless(row) and row.boot_id == boot_id:
                done &= self._tried(partial(self._suspect, row), row.ref.word)
        return done

    def _tried(self, act: Callable[[], None], what: str) -> bool:
        try:
            act()
        except DriverError as error:
            self._log.warning("units_not_taken_up", what=what, error=str(error))
            return False
        return True

    def _rename(self) -> None:
        """Give the rows of an earlier boot the names that their devices have now, all together: they may own each other's."""
        parts = self._parts
        # Whoever gets a name occupies what the state knows of it.
        parts.learn(parts.inventory())
        if not (uids := self._renamed().uids):
            return
        with ClaimLocks(parts.lock) as locks:
            missed = locks.take(uids, until=parts.clock() + CALL_SECONDS, purpose="renaming")
            for error in missed.values():
                raise error
            renamed = self._renamed()
            if renamed.uids - uids:
                raise Temporary("rows were changed meanwhile; it is tried again")
            self._reserve(renamed.steps)
        for uid, reason in renamed.let_go.items():
            self._log.warning("units_not_taken_up", what=f"row {uid}", error=reason)

    def _renamed(self) -> Renamed:
        parts = self._parts
        rows, boot_id = self._holders.all_rows(), parts.store.boot_id
        return plan_renamed(rows, parts.inventory(), pool=parts.place.pool, boot_id=boot_id)

    def _is_to_set_up(self, row: PreparedClaim) -> bool:
        # Started with a pod: it was begun after the reboot, and has not succeeded yet.
        begun = row.phase is Phase.STARTED and row.users.pods is not None
        return row.held is None and (begun or row.boot_id != self._parts.store.boot_id)

    def _again(self, uid: ClaimUid, checkpoint: KubeletCheckpoint) -> None:
        """Set a row of another boot up again, or release it."""
        parts = self._parts
        until = parts.clock() + CALL_SECONDS
        with ClaimLocks(parts.lock) as locks:
            if missed := locks.take([uid], until=until, purpose="setting up again"):
                raise missed[uid]
            row = parts.row(uid)
            if row is None or not self._is_to_set_up(row):
                return  # who had the lock has released it, and its devices may have another owner
            pods = self._holders.comers(row, checkpoint)
            if not pods:
                error = undo(parts, locks, [row], because=NOT_AGAIN, until=until)[uid]
                if error is not None:
                    raise error
                return
            # A started row without a pod would be one of a call that nobody has answered.
            users = row.users.joined(Users(pods, sole=True))
            others = [one for one in self._holders.all_rows() if one.ref.uid != uid]
            inventory = parts.inventory()
            plan = plan_again(replace(row, users=users), inventory, parts.store.boot_id, others)
            if isinstance(plan, Refusal):
                raise Permanent(plan.reason)
            self._holders.set_up_again(row)
            self._reserve(plan.steps)
            self._tell(plan, inventory)
            if not row.leases:
                return
            late = finish_late(parts, locks, until, "recovered")
            result = parts.executor.work([plan], until=until, late=late)[uid]
            error = result.error
            if locks.holds(uid):
                error = finish(parts, [(plan, result)], until, "recovered")[uid]
            if error is not None:
                raise error

    def _tell(self, plan: Plan, inventory: Inventory) -> None:
        """A container that got device files before the reboot opens another device than its unit's."""
        for device in plan.devices:
            if said := moved(device, inventory, self._parts.place.pool):
                self._log.warning(
                    "unit_on_another_device",
                    unit=device.request_names[0],
                    claim=str(plan.claim),
                    device=device.device,
                    error=f"{said}; the kubelet kept the device file, so the container uses {device.device}, as long as its pod lives",
                )

    def _reserve(self, steps: Iterable[Step]) -> None:
        with self._parts.store.transaction("recovered") as transaction:
            self._parts.executor.mark(transaction, steps)

    def _take_up(self, pod: UnitsOfContainer) -> None:
        """Reserve the units of a running pod that no row knows."""
        resource = self._resources().get(pod.resource)
        rows = self._holders.rows()
        of_rows = [units_of(row) for row in rows if row.ref.name == pod.resource]
        left = pod.units.difference(*of_rows)
        if resource is None or not left or self._has_ended(pod.pod):
            return
        for row in rows:
            # At the start a row was reserved for each CDI file, so for each call of Allocate.
            if is_nameless(row) and (units := described_units(row, pod, resource) & left):
                text = self._parts.cdi.read(row.ref.uid) or ""
                self._reserve_for(replace(pod, units=units), resource, row.ref.uid, text)
                left -= units
        failure: DriverError | None = None
        for unit in sorted(left):
            # A row for each: the state refuses a row whole, and one device may have an owner already.
            uid = ClaimUid(f"{PLUGIN_UID_PREFIX}{uuid4()}")
            try:
                self._reserve_for(replace(pod, units=frozenset({unit})), resource, uid, "")
            except DriverError as error:
                failure = error
        if failure is not None:
            raise failure

    def _has_ended(self, pod: PodUid) -> bool:
        """The kubelet keeps the entries of ended pods. A pod that waits for a volume has a cgroup without a process."""
        presence, pods = self._parts.usage.presence, self._witnesses.pods()
        if presence is None or (not isinstance(pods, Unknown) and pod in pods):
            return False
        return isinstance(presence([pod])[pod], Gone)

    def _reserve_for(
        self, pod: UnitsOfContainer, resource: PluginResource, uid: ClaimUid, text: str
    ) -> None:
        parts = self._parts
        plan = plan_taken_up(
            pod, resource, uid, text, place=parts.place, boot_id=parts.store.boot_id
        )
        if plan is not None:
            with parts.lock([f"claim-{uid}"], parts.clock() + CALL_SECONDS, "taking it up"):
                self._reserve(plan.steps)

    def _suspect(self, row: PreparedClaim) -> None:
        """A CDI file described the row, and the kubelet lists no pod with it: any pod of now may have been deleted by force."""
        pods = self._witnesses.pods()
        if isinstance(pods, Unknown):
            return
        parts = self._parts
        with parts.store.transaction("joined") as transaction:
            transaction.add_users(row.ref.uid, Users(tuple(sorted(pods))))
        with ClaimLocks(parts.lock) as locks:
            until = parts.clock() + CALL_SECONDS
            if not locks.take([row.ref.uid], until=until, purpose="holding"):
                undo(parts, locks, [row], because=NOBODYS, until=until)
