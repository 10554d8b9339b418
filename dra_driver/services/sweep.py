# SPDX-License-Identifier: Apache-2.0
"""After a start: do the part of recovery that needs the API server and the kubelet.

* If an allocated claim of this node has no row (the state was lost), but a pod or a CDI file, the driver adopts the claim. It does
  not configure the devices, because they may be in use. If the API server does not have the claim or does not answer, the driver
  adopts a claim of a pod from its CDI file and the kubelet's answer.
* If a CDI file has no row, its claim is gone and no pod has the claim, the driver removes the file. It holds the devices, because
  the kubelet and the API server forget a pod whose containers still run.
* If metadata files have neither a row nor a CDI file, the driver removes them: no container can mount them.
* If a row has no pods (another version of the driver wrote it), the driver adds the pods in the claim's status.reservedFor.
* If a claim with a row is not needed any more (`dra_driver.services.release`), the driver releases the devices that no process
  uses, and holds the others.

If no such case exists, the sweep sends no request to the API server. Cases that stay open are tried again by the next sweep.
"""

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet

from dra_driver.errors import DriverError
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import Recovered
from dra_driver.model.ids import ClaimUid
from dra_driver.model.state import PodDevice, PreparedClaim, Unknown
from dra_driver.planning.allocation import is_allocation_of
from dra_driver.planning.prepare import users_of
from dra_driver.services.adopt import (
    hold_described,
    is_nameless,
    lacks_document,
    lacks_requests,
    name_requests,
    not_taken_up,
    take_up_allocated,
    take_up_pod_claims,
)
from dra_driver.services.execute import CALL_SECONDS, StillUsed
from dra_driver.services.parts import NodeParts
from dra_driver.services.recover import Documents, WholeStore
from dra_driver.services.release import STILL_EXISTS, Silence, is_of
from dra_driver.services.take_back import release_if_unneeded

AllocatedClaims = Callable[[], tuple[Claim, ...]]


class Sweep:
    """Makes the state, the CDI files, the API server and the kubelet agree. `once` may be called at any time."""

    def __init__(
        self,
        parts: NodeParts,
        store: WholeStore,
        documents: Documents,
        allocated_claims: AllocatedClaims,
    ) -> None:
        self._parts = parts
        self._store = store
        self._documents = documents
        self._allocated_claims = allocated_claims

    def once(self) -> tuple[str, ...]:
        """Do one sweep. Returns a sentence for each case that stays open. Raises DriverError if the claims cannot be listed."""
        pod_devices = self._parts.releasable.pod_devices()
        # First, and without the API server: reserve the devices of running pods.
        failures = take_up_pod_claims(
            self._parts, self._store, self._documents, lambda: pod_devices
        )
        # List files before rows: a row is committed before its file is written, so a new file is never without a row here.
        # What the device plugin API has given out, its own services look after: the API server knows nothing of it.
        files = {uid for uid in self._documents() if not ClaimRef("", "", uid).of_plugin}
        described = self._parts.cdi.with_metadata()
        with self._store.reading() as state:
            claims = {row.ref.uid: row for row in state.all_claims() if not row.ref.of_plugin}
        orphans = files - claims.keys()
        left = self._remove_metadata(set(described) - files - claims.keys())
        unresolved, removed = self._unknown_claims(claims, orphans, pod_devices, failures)
        kept, released = self._forgotten_claims(claims.values(), pod_devices)
        if released or removed:
            self._parts.observe(Recovered(rewritten=0, released=released, removed_files=removed))
        return (*left, *unresolved, *kept)

    def _remove_metadata(self, uids: AbstractSet[ClaimUid]) -> list[str]:
        """Remove metadata files that no CDI file mounts and no row names. Returns a sentence for each failure."""
        parts = self._parts
        failures: list[str] = []
        for uid in sorted(uids):
            until = parts.clock() + CALL_SECONDS
            try:
                with parts.lock([f"claim-{uid}"], until, "removing its metadata files"):
                    if parts.row(uid) is None and parts.cdi.read(uid) is None:
                        parts.cdi.remove(uid)
            except DriverError as error:
                failures.append(f"metadata files of claim uid {uid} are nobody's: {error}")
        return failures

    def _unknown_claims(
        self,
        claims: Mapping[ClaimUid, PreparedClaim],
        orphans: AbstractSet[ClaimUid],
        pod_devices: frozenset[PodDevice] | Unknown,
        failures: Mapping[ClaimUid, str],
    ) -> tuple[list[str], int]:
        nameless = {uid for uid, claim in claims.items() if lacks_requests(claim)}
        unknown_users = {uid for uid, claim in claims.items() if self._lacks_users(claim)}
        reserved = {uid for uid, claim in claims.items() if self._is_only_reserved(claim)}
        strange = self._is_any_unknown(claims, pod_devices)
        if not (orphans or nameless or unknown_users or reserved or strange):
            return [], 0
        allocated = {claim.ref.uid: claim for claim in self._allocated_claims()}
        unresolved: list[str] = []
        for uid, claim in allocated.items():
            if uid in orphans | reserved or (
                uid not in claims and self._is_in_pod(claim.ref, pod_devices)
            ):
                unresolved += self._adopt(claim)
            elif uid in nameless:
                name_requests(self._parts, claim)
            elif uid in unknown_users:
                self._name_users(claims[uid], claim)
        removed = 0
        nobodys = orphans | {uid for uid, claim in claims.items() if is_nameless(claim)}
        for uid in sorted(nobodys - allocated.keys()):
            if isinstance(pod_devices, Unknown):
                unresolved.append(
                    f"CDI file of claim uid {uid}: the claim is gone, but a pod may use it; the file stays"
                )
            elif uid in failures:
                unresolved.append(failures[uid])
            elif not self._is_in_pod(ClaimRef("", "", uid), pod_devices):
                removed += hold_described(self._parts, uid)
        return unresolved, removed

    def _is_any_unknown(
        self, claims: Mapping[ClaimUid, PreparedClaim], pod_devices: Collection[PodDevice] | Unknown
    ) -> bool:
        if isinstance(pod_devices, Unknown):
            return False
        driver = self._parts.place.driver
        ours = [device for device in pod_devices if device.driver == driver]
        return any(
            not any(is_of(device, claim.ref, driver) for claim in claims.values())
            for device in ours
        )

    def _is_in_pod(self, ref: ClaimRef, pod_devices: Collection[PodDevice] | Unknown) -> bool:
        if isinstance(pod_devices, Unknown):
            return False
        return any(is_of(device, ref, self._parts.place.driver) for device in pod_devices)

    def _lacks_users(self, row: PreparedClaim) -> bool:
        return row.users.pods is None and row.held is None and row.boot_id == self._store.boot_id

    def _is_only_reserved(self, row: PreparedClaim) -> bool:
        return lacks_document(row) and row.held is None

    def _name_users(self, row: PreparedClaim, claim: Claim) -> None:
        place = self._parts.place
        if is_allocation_of(row, claim, place.driver, place.cdi_kind):
            with self._parts.store.transaction("joined") as transaction:
                transaction.add_users(row.ref.uid, users_of(claim))

    def _adopt(self, claim: Claim) -> list[str]:
        try:
            reason = take_up_allocated(self._parts, claim, self._parts.releasable.pod_devices)
        except DriverError as error:
            reason = str(error)
        return [not_taken_up(claim.ref, reason)] if reason else []

    def _forgotten_claims(
        self, claims: Collection[PreparedClaim], pod_devices: Collection[PodDevice] | Unknown
    ) -> tuple[list[str], int]:
        if isinstance(pod_devices, Unknown):
            return [f"whether pods use claims is not known: {pod_devices.reason}"], 0
        unresolved: list[str] = []
        released = 0
        for claim in claims:
            if (
                claim.held is not None
                or is_nameless(claim)
                or self._is_in_pod(claim.ref, pod_devices)
            ):
                continue
            try:
                # First ask without the claim's lock. The answer may take seconds, and the kubelet's calls need the lock.
                reason = self._parts.releasable.why_not(claim)
                if not reason:
                    until = self._parts.clock() + CALL_SECONDS
                    reason = release_if_unneeded(
                        self._parts, claim.ref, lock_until=until, until=until
                    )
            except StillUsed:
                continue  # the claim is held now; `dra_driver.services.held` tries again to release it
            except DriverError as error:
                unresolved.append(f"claim {claim.ref} is gone and could not be released: {error}")
                continue
            if reason in ("", STILL_EXISTS):
                released += not reason
            else:
                unresolved.append(f"claim {claim.ref} cannot be checked: {reason}")
                if isinstance(reason, Silence):
                    break
        return unresolved, released
