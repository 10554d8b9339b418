# SPDX-License-Identifier: Apache-2.0
"""After a start: what only others can answer.

* Claims that a pod holds or whose CDI file exists, but that the state does not know (it was lost): if they are still
  allocated from this node they are taken up as they stand, and nothing is configured, for their devices may be in use. Where the API
  server does not know the claim or does not answer, a claim that a pod holds is taken up as its CDI file and the kubelet
  describe it. A file whose claim is gone and that no pod holds is removed, and its devices are held: kubelet and API server
  forget a pod whose containers still run.
* Claims whose pods the state does not know, because another version of the driver wrote the row: the claim names them.
* Claims that the state knows and nobody needs any more: released by the one rule of `dra_driver.services.release`, as soon as it
  is shown that nothing uses their devices.

No request is made when there is nothing to ask. What cannot be answered now is left as it is and asked again later.
"""

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet

from dra_driver.errors import DriverError
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import Recovered
from dra_driver.model.ids import ClaimUid
from dra_driver.model.state import HeldDevice, PreparedClaim, Unknown
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
    take_up_held,
)
from dra_driver.services.execute import CALL_SECONDS, StillUsed
from dra_driver.services.parts import NodeParts
from dra_driver.services.recover import Documents, WholeStore
from dra_driver.services.release import STILL_EXISTS, Silence, is_of
from dra_driver.services.take_back import release_if_unneeded

AllocatedClaims = Callable[[], tuple[Claim, ...]]


class Sweep:
    """Brings the state, the CDI files, the API server and the kubelet to agree. `once` may be called at any time."""

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
        """Do what can be done; answers what is still open, one sentence each. Raises DriverError if nobody can be asked."""
        held = self._parts.releasable.held()
        # First of all, and without the API server: running pods keep their devices.
        failures = take_up_held(self._parts, self._store, self._documents, lambda: held)
        # Files before rows: whoever writes a file has committed its row before.
        files = self._documents()
        with self._store.reading() as state:
            claims = {claim.ref.uid: claim for claim in state.all_claims()}
        orphans = files.keys() - claims.keys()
        unresolved, removed = self._unknown_claims(claims, orphans, held, failures)
        kept, released = self._forgotten_claims(claims.values(), held)
        if released or removed:
            self._parts.observe(Recovered(rewritten=0, released=released, removed_files=removed))
        return (*unresolved, *kept)

    def _unknown_claims(
        self,
        claims: Mapping[ClaimUid, PreparedClaim],
        orphans: AbstractSet[ClaimUid],
        held: frozenset[HeldDevice] | Unknown,
        failures: Mapping[ClaimUid, str],
    ) -> tuple[list[str], int]:
        nameless = {uid for uid, claim in claims.items() if lacks_requests(claim)}
        unknown_users = {uid for uid, claim in claims.items() if self._lacks_users(claim)}
        reserved = {uid for uid, claim in claims.items() if self._is_only_reserved(claim)}
        strange = self._held_unknown(claims, held)
        if not (orphans or nameless or unknown_users or reserved or strange):
            return [], 0
        allocated = {claim.ref.uid: claim for claim in self._allocated_claims()}
        unresolved: list[str] = []
        for uid, claim in allocated.items():
            if uid in orphans | reserved or (uid not in claims and self._is_held(claim.ref, held)):
                unresolved += self._adopt(claim)
            elif uid in nameless:
                name_requests(self._parts, claim)
            elif uid in unknown_users:
                self._name_users(claims[uid], claim)
        removed = 0
        nobodys = orphans | {uid for uid, claim in claims.items() if is_nameless(claim)}
        for uid in sorted(nobodys - allocated.keys()):
            if isinstance(held, Unknown):
                unresolved.append(
                    f"CDI file of claim uid {uid}: the claim is gone, but a pod may hold it; the file stays"
                )
            elif uid in failures:
                unresolved.append(failures[uid])
            elif not self._is_held(ClaimRef("", "", uid), held):
                removed += hold_described(self._parts, uid)
        return unresolved, removed

    def _held_unknown(
        self, claims: Mapping[ClaimUid, PreparedClaim], held: Collection[HeldDevice] | Unknown
    ) -> bool:
        if isinstance(held, Unknown):
            return False
        driver = self._parts.place.driver
        ours = [device for device in held if device.driver == driver]
        return any(
            not any(is_of(device, claim.ref, driver) for claim in claims.values())
            for device in ours
        )

    def _is_held(self, ref: ClaimRef, held: Collection[HeldDevice] | Unknown) -> bool:
        if isinstance(held, Unknown):
            return False
        return any(is_of(device, ref, self._parts.place.driver) for device in held)

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
            reason = take_up_allocated(self._parts, claim, self._parts.releasable.held)
        except DriverError as error:
            reason = str(error)
        return [not_taken_up(claim.ref, reason)] if reason else []

    def _forgotten_claims(
        self, claims: Collection[PreparedClaim], held: Collection[HeldDevice] | Unknown
    ) -> tuple[list[str], int]:
        if isinstance(held, Unknown):
            return [f"whether pods hold claims cannot be checked: {held.reason}"], 0
        unresolved: list[str] = []
        released = 0
        for claim in claims:
            if claim.held is not None or is_nameless(claim) or self._is_held(claim.ref, held):
                continue
            try:
                # First without its lock: an API server that is away answers after seconds, and the kubelet may ask for it.
                reason = self._parts.releasable.why_not(claim)
                if not reason:
                    until = self._parts.clock() + CALL_SECONDS
                    reason = release_if_unneeded(
                        self._parts, claim.ref, lock_until=until, until=until
                    )
            except StillUsed:
                continue  # held from now on, and looked at again by `dra_driver.services.held`
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
