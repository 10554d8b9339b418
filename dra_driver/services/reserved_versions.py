# SPDX-License-Identifier: Apache-2.0
"""The versions of claims that prepare calls have read, until a watch of the claim goes on from there.

A watch begins some time after the call, and until then pods may come and go. A claim that ended before that needs no watch: without its
version being forgotten, a node where pods come and go quickly would keep each of them for REMEMBERED_SECONDS.
"""

from collections.abc import Callable, Collection, Mapping
from threading import Lock

from dra_driver.model.ids import ClaimUid

# API servers forget changes that are older (--etcd-compaction-interval). A standby process begins no watches and only keeps versions.
REMEMBERED_SECONDS = 300.0
MANY = 256


class ReservedVersions:
    """Calls note and end claims; the follower's thread looks. All of them may do so at the same time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._mutex = Lock()
        # Versions, and when they were read: in the order of these times.
        self._noted: dict[ClaimUid, tuple[str, float]] = {}
        self._ended: dict[ClaimUid, object] = {}

    def __len__(self) -> int:
        return len(self._noted)

    def of(self, uid: ClaimUid) -> str:
        """Return the version of a claim; "" if none is kept."""
        return self._noted.get(uid, ("", 0.0))[0]

    @property
    def many_ended(self) -> bool:
        """Whether so many claims have ended that it is time to look."""
        return len(self._ended) >= MANY

    def note(self, uid: ClaimUid, version: str) -> None:
        """A call has read the claim. Of two calls without a watch in between the first one counts: its pods may run."""
        now = self._clock()
        with self._mutex:
            while self._noted:
                oldest, (_, at) = next(iter(self._noted.items()))
                if now - at <= REMEMBERED_SECONDS:
                    break
                del self._noted[oldest]
            self._ended.pop(uid, None)
            self._noted.setdefault(uid, (version, now))

    def ended(self, uid: ClaimUid) -> None:
        """The claim was unprepared. Its row may be held."""
        with self._mutex:
            if uid in self._noted:
                self._ended[uid] = object()

    def begin_look(self) -> Mapping[ClaimUid, object]:
        """Return what has ended before the rows are read, for `end_look`."""
        with self._mutex:
            return dict(self._ended)

    def end_look(
        self,
        ended: Mapping[ClaimUid, object],
        *,
        watched: Collection[ClaimUid],
        there: Collection[ClaimUid],
    ) -> None:
        """Forget the claims that have a watch now, and those that ended and have no row. The others stay: a call may be about to write
        the row of a claim without one.
        """
        with self._mutex:
            for uid in watched:
                self._noted.pop(uid, None)
            for uid, token in ended.items():
                if self._ended.get(uid) is not token:
                    continue  # it was prepared again in the meantime
                del self._ended[uid]
                if uid not in there:
                    self._noted.pop(uid, None)
