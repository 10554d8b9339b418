# SPDX-License-Identifier: Apache-2.0
"""The locks of the claims of one call.

Work on a claim can take longer than the call that started it. Then the work keeps the claim's lock: no other call, no other
process and no recovery changes the claim until the work has ended and has written its result into the state.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Self

from dra_driver.errors import DriverError
from dra_driver.model.ids import ClaimUid

Lock = Callable[[Sequence[str], float, str], AbstractContextManager[None]]


class ClaimLocks:
    """The claim locks that one call has. The end of its `with` block releases them, except locks that `hand_over` took out."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._taken: dict[ClaimUid, ExitStack] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for lock in reversed(self._taken.values()):
            lock.close()

    def take(
        self, uids: Iterable[ClaimUid], *, until: float, purpose: str
    ) -> dict[ClaimUid, DriverError]:
        """Take the locks of the claims. Returns an error for each lock that was not free by `until`.

        Locks are taken in the order of the UIDs, so two callers never wait for each other.
        """
        missed: dict[ClaimUid, DriverError] = {}
        for uid in sorted(set(uids)):
            with ExitStack() as taken:
                try:
                    taken.enter_context(self._lock([f"claim-{uid}"], until, purpose))
                except DriverError as error:
                    missed[uid] = error
                else:
                    self._taken[uid] = taken.pop_all()
        return missed

    def __len__(self) -> int:
        return len(self._taken)

    def holds(self, uid: ClaimUid) -> bool:
        """Whether this call still has the lock of the claim."""
        return uid in self._taken

    def hand_over(self, uid: ClaimUid) -> Callable[[], None]:
        """Take the claim's lock out of this call. Returns a function that releases it."""
        return self._taken.pop(uid).close
