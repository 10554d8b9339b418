# SPDX-License-Identifier: Apache-2.0
"""What must be true in the random walk (`tests.faults.walk`) after each step, and which disturbance excuses a refusal."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from dra_driver.model.ids import ClaimUid
from dra_driver.testing.stage import wait_for
from tests.faults.bed import PLACE, is_for_people
from tests.faults.departures import end_forgotten
from tests.faults.machines import device_of, devices_of, given_in, share_of
from tests.faults.newer import bind_all
from tests.faults.walk_tables import ALSO_UNPREPARE, EXCUSES
from tests.support.hardware import Use
from tests.support.invariants import Picture, Rule, Running, Violation, violations
from tests.support.physical import gpu_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra_driver.model.state import PreparedClaim
    from tests.faults.walk import Pod

HUNG = re.compile("cannot be put back now|is asked again after|takes longer than a call may take")
CALM_SECONDS = 30.0  # a deadline, ten times what a background thread takes


class Promises:
    """The walk's methods that look whether every promise holds."""

    __slots__ = ()

    def _settle(self) -> None:
        """Everything is whole again: then every promise holds, and every pod gets its devices."""
        if "down" in self.unsettled:
            self._api_up()
        self.bed.api.faults.clear()
        self.bed.vanish()
        bind_all(self)
        # Whose claim the API server forgot, or allocates elsewhere, the kubelet ends; what nobody knows, goes.
        forgotten = [
            pod for pod in self.pods.values() if not self.bed.is_allocated(pod.claim, pod.devices)
        ]
        while self.terminating:
            self.release_in_api(self.terminating.pop())
        self.idle = []
        self._free_orphans()
        broken = self.tampered | self.lost | self.vanished | self.missed | self.unsettled
        if broken or self.chance.random() < 0.5:
            self._end_process()
            self._start()
        # While a GPU is gone, nobody knows that a row from a lost state is a part of it.
        forgotten_gpus = {gpu_of(use.device) for use in self.leftover}
        self.stuck |= forgotten_gpus & set(map(gpu_of, self.vanished))
        self.vanished.clear()
        self.strays.clear()
        self.missed &= self.running.keys()
        if "state" in self.unsettled:
            end_forgotten(self)
        self.unsettled &= {"state"}
        self._vouch()
        self._wait_for_sweep()
        self.unsettled.clear()
        for pod in forgotten:
            self.end(pod)
        self.missed.clear()
        self._vouch()
        for pod in list(self.pods.values()):
            self.end(pod) if pod.ending else self.try_to_start(pod)
        self._free_orphans()
        wait_for(lambda: not self._unanswered(self.bed.claims()), "the GPU that hung")
        wait_for(lambda: not self._wrong(slices=True), "the slices")
        self._settings_are_owned()

    def _vouch(self) -> None:
        """What a lost state and an absent API server made nobody's, an admin gives back."""
        for uid, row in self.bed.claims().items():
            if is_for_people(row) and uid not in self.running:
                self.bed.vouch(row)

    def _settings_are_owned(self) -> None:
        """What the hardware is set up for belongs to a claim of the state, but what a lost state has forgotten."""
        owned = {
            Use(key.device, uid, key.share)
            for uid, row in self.bed.claims().items()
            for key in row.owned
        }
        seen = self.witness.look()
        forgotten = seen.unowned(owned) - self.leftover
        if forgotten:
            raise AssertionError(f"nobody owns {', '.join(map(str, sorted(forgotten)))} any more")
        lacking = [f"{use} lacks the mode" for use in sorted(seen.without_mode() - self.leftover)]
        if wrong := [*seen.wrong_modes(self.stuck), *lacking]:
            raise AssertionError("\n".join(wrong))
        self.stuck &= seen.modes

    def _free_orphans(self) -> None:
        used = {pod.claim.uid for pod in self.pods.values()}
        for found in self.bed.api.objects("resourceclaims"):
            if found["metadata"]["uid"] not in used:
                self.bed.api.remove("resourceclaims", found["metadata"]["name"])

    def _check(self) -> None:
        """Nobody has two owners at any moment; the rest may take a background thread of the driver a moment."""
        seen = self.witness.look()
        over = [str(one) for one in seen.overridden if one.before not in self.leftover]
        if misuse := [*seen.misuse, *over]:
            raise AssertionError("\n".join(misuse))
        end = time.monotonic() + CALM_SECONDS
        while wrong := self._wrong(slices=False):
            if time.monotonic() > end or any(one.rule is Rule.ONE_OWNER for one in wrong):
                raise AssertionError("\n".join(map(str, wrong)))
            time.sleep(0.02)

    def _wrong(self, *, slices: bool, without: set[str] = frozenset()) -> list[Violation]:  # type: ignore[assignment]
        unsettled = self.unsettled - without
        picture = self.bed.picture(
            slices=slices, running=self._running(), living=self._living(unsettled), ill=self.ill
        )
        found = list(violations(picture))
        if self.tampered | self.lost | self.strays:
            found = [one for one in found if not self._is_tampered(one)]
        if "state" in unsettled:
            # The sweep is still to come, or cannot ask; what running pods need on the disk is there all the same.
            found = [
                one
                for one in found
                if one.rule is Rule.ONE_OWNER
                or ("CDI file" in one.found and one.rule is Rule.KEEPS_DEVICE)
            ]
        if unsettled & {"sockets", "half"}:
            found = [one for one in found if not one.subject.startswith("socket")]
        if "half" in unsettled:
            # One of two processes was killed; what it was writing stays until the next start.
            found = [one for one in found if not one.subject.endswith((".tmp", ".lock"))]
        return found

    def _running(self) -> dict[ClaimUid, Running]:
        """Of a claim that the kubelet has forgotten, or all its pods, only the devices stay its own."""
        used = {pod.claim.uid for pod in self.pods.values() if pod.runs}
        known = (used & self.bed.kubelet.claims.keys()) - self.missed
        return {
            uid: replace(running, forgotten=uid not in known)
            for uid, running in self.running.items()
        }

    def _living(self, unsettled: set[str]) -> frozenset[ClaimUid]:
        """Claims whose rows may stand: a named one that is held stays so while the API server cannot be asked who used it."""
        known = {*self.bed.kubelet.claims, *self.running, *self.missed}
        known |= {pod.claim.uid for pod in self.pods.values()}
        unasked = unsettled & {"api", "down", "restored"}
        rows = self.bed.claims()
        nobodys = {uid for uid, row in rows.items() if unasked or is_for_people(row)}
        return frozenset(known | nobodys | self._unanswered(rows))

    @staticmethod
    def _unanswered(rows: Mapping[ClaimUid, PreparedClaim]) -> set[ClaimUid]:
        """Claims that are held because a GPU hung. The driver asks it again after a minute or more, also when it answers again."""
        return {uid for uid, row in rows.items() if row.held and HUNG.search(row.held.reason)}

    def _is_tampered(self, violation: Violation) -> bool:
        if "CDI file" not in str(violation):
            return False
        touched = self.tampered | self.lost | self.strays
        uids = {name.partition("_")[2].removesuffix(".json") for name in touched}
        return any(uid in violation.subject for uid in uids)

    def _file(self, uid: ClaimUid) -> str:
        return Picture(PLACE, "", {}, {}, {}).file_name(uid)

    def refused(self, text: str, pod: Pod, *, unprepare: bool = False) -> None:
        excuse = self._excuse(text, pod, unprepare=unprepare)
        if not excuse:
            raise AssertionError(f"{pod.name} was refused for no reason: {text}")
        self.excuses[excuse] += 1
        self.note(f"({excuse})")

    def _excuse(self, text: str, pod: Pod, *, unprepare: bool) -> str:
        """Which disturbance explains the answer; nothing when none does."""
        return next(
            (
                name
                for name, pattern in EXCUSES.items()
                if re.search(pattern, text)
                and (not unprepare or name in ALSO_UNPREPARE)
                and self._applies(name, text, pod)
            ),
            "",
        )

    def _applies(self, name: str, text: str, pod: Pod) -> bool:
        known = {found["metadata"]["uid"] for found in self.bed.api.objects("resourceclaims")}
        owner = re.search(EXCUSES["conflict"], text)
        short = self.bed.kubelet.call_seconds < self.call_seconds
        applies = {
            "crash": "armed" in self.unsettled and not self.bed.control.exists(),
            "sockets": "sockets" in self.unsettled,
            "disk": "disk" in self.unsettled,
            "api": "api" in self.unsettled,
            "ending": any(
                other.ending for other in self.pods.values() if other.claim.uid == pod.claim.uid
            ),
            "gone": pod.claim.uid not in known,
            "vanished": bool(self.vanished & devices_of(pod.devices)),
            # The sweep is at it: a row that was lost and came back. Or a release asks for pods longer than a short call lasts.
            "releasing": "state" in self.unsettled or short,
            "held": bool(self.lingers(pod.devices) or self._is_nobodys(owner)),
            "unreserved": "restored" in self.unsettled,
            "hardware": self.bed.troubled or "disk" in self.unsettled,
            "slow": self.bed.hangs and short,
            "crowded": self._is_crowded(pod),
            "conflict": bool(
                owner
                and ({ClaimUid(owner[1])} & {*self.bed.kubelet.claims, *self.missed, *self.running})
            ),
        }
        return applies[name]

    def _is_crowded(self, pod: Pod) -> bool:
        """Whether a share of one of the pod's devices is held of which the scheduler does not know any more."""
        allocated = {
            (found["metadata"]["uid"], given_in(one))
            for found in self.bed.api.objects("resourceclaims")
            for one in found["status"].get("allocation", {}).get("devices", {}).get("results", ())
        }
        known = {(uid, device_of(given), share_of(given)) for uid, given in allocated}
        return any(
            key.share and (uid, key.device, key.share) not in known
            for uid, row in self.bed.claims().items()
            for key in row.owned
            if key.device in devices_of(pod.devices)
        )

    def _is_nobodys(self, owner: re.Match[str] | None) -> bool:
        """Whether the claim in the way is one of which a loss left no pods to ask about."""
        row = self.bed.claims().get(ClaimUid(owner[1])) if owner else None
        return row is None or is_for_people(row) or (row.held is not None and row.held.unasked)
