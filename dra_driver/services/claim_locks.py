# SPDX-License-Identifier: Apache-2.0
"""The locks of the claims of one call, which belong to the work and not to the call.

Work on a claim can outlive the call that asked for it. It takes the claim's lock along: no other call, no other process and no
recovery touches the claim until the work has ended and said so in the state.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Self

from dra_driver.errors import DriverError
from dra_driver.model.ids import ClaimUid

Lock = Callable[[Sequence[str], float, str], AbstractContextManager[None]]


class ClaimLocks:
    """The locks of the claims of one call. The end of the `with` block releases those that are left."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._held: dict[ClaimUid, ExitStack] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for held in reversed(self._held.values()):
            held.close()

    def take(
        self, uids: Iterable[ClaimUid], *, until: float, purpose: str
    ) -> dict[ClaimUid, DriverError]:
        """Take the claims' locks, in order of UID so that two callers never wait for each other; answers those that were not free."""
        missed: dict[ClaimUid, DriverError] = {}
        for uid in sorted(set(uids)):
            with ExitStack() as taken:
                try:
                    taken.enter_context(self._lock([f"claim-{uid}"], until, purpose))
                except DriverError as error:
                    missed[uid] = error
                else:
                    self._held[uid] = taken.pop_all()
        return missed

    def holds(self, uid: ClaimUid) -> bool:
        """Whether the claim's lock is still this call's."""
        return uid in self._held

    def hand_over(self, uid: ClaimUid) -> Callable[[], None]:
        """The claim's lock is no longer this call's; answers how to let it go."""
        return self._held.pop(uid).close
