# SPDX-License-Identifier: Apache-2.0
"""What this process remembers of the rows of the device plugin API, from look to look.

Only what cannot be lost is in the row itself: what the node showed when the call began (`CallBegun`). A process that did not answer the call
starts from that, and counts all times from when it saw the row first, so it waits longer and never shorter.
"""

from collections.abc import Callable, Iterable
from threading import Lock

from msgspec import Struct

from dra_driver.model.ids import ClaimUid, PodUid
from dra_driver.model.plugin import UnitsOfContainer
from dra_driver.model.state import CallBegun, PreparedClaim


class Remembered(Struct):
    """What this process remembers of a row. `since`: when the last call with its units was answered, or when the row was first seen.

    A checkpoint of another version than `begun` will name the pod of the last call; `read` is the last version that named one. A
    moment after the answer, each checkpoint that the kubelet writes has the row's units, unless their pod is gone: `settled` is the version at
    that time. `before` are the pods that had a cgroup when the call began; None if that is not known. `in_call`: the call is not
    answered yet; `unanswered`: it was answered with an error. `rebooted`: it was set up again after a reboot, and the kubelet may not have heard of
    its pods yet. `seen` are the pods of the row that had processes. `witnessed`: this process set the units up, so of no pod that ran since is it
    unknown. `entries` are those of the checkpoint when the call began: none of them is for the call.
    """

    since: float
    begun: str | None = None
    read: str | None = None
    settled: str | None = None
    before: frozenset[PodUid] | None = None
    in_call: bool = False
    unanswered: bool = False
    rebooted: bool = False
    seen: frozenset[PodUid] = frozenset()
    witnessed: bool = False
    entries: frozenset[UnitsOfContainer] = frozenset()


class Memory:
    """Has a `Remembered` for each row. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._mutex = Lock()
        self._rows: dict[ClaimUid, Remembered] = {}

    def begin(
        self,
        uid: ClaimUid,
        checkpoint: str,
        begun: CallBegun | None,
        entries: Iterable[UnitsOfContainer] = (),
    ) -> None:
        """A call begins, which may get a row, or is planned once more."""
        entry = Remembered(
            self._clock(),
            begun=checkpoint,
            before=None if begun is None else begun.pods,
            in_call=True,
            witnessed=True,
            entries=frozenset(entries),
        )
        with self._mutex:
            self._rows[uid] = entry

    def of(self, row: PreparedClaim) -> Remembered:
        """Return what is remembered of a row."""
        call = row.users.call
        with self._mutex:
            if (found := self._rows.get(row.ref.uid)) is None:
                found = Remembered(self._clock())
                if call is not None:
                    found.begun, found.before = call.checkpoint, call.pods
                self._rows[row.ref.uid] = found
            return found

    def answered(self, uid: ClaimUid) -> None:
        """The kubelet gets the units."""
        with self._mutex:
            if (found := self._rows.get(uid)) is not None:
                found.since, found.in_call = self._clock(), False

    def keep(self, rows: Iterable[PreparedClaim]) -> None:
        """Forget all but these rows, and calls that have no row yet."""
        uids = {row.ref.uid for row in rows}
        with self._mutex:
            self._rows = {uid: one for uid, one in self._rows.items() if uid in uids or one.in_call}
