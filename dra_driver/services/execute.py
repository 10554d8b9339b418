# SPDX-License-Identifier: Apache-2.0
"""Carry out plans: the only executor, for prepare, unprepare and recovery.

A plan has two kinds of steps. *Marks* change the state, inside one transaction for all plans of a call: a prepare call has two
commits, whether it has one claim or 100. *Work* runs outside any transaction, in parallel for all claims: a claim that fails
neither delays nor undoes another claim. The result of the work is an error, or what the backends returned.

If the work takes longer than the kubelet waits, the call returns a Temporary error and the work continues in its thread. The
caller passes a function `late` for this case. `late` takes the claim's lock out of the call, and returns a second function. The
executor calls the second function when the work ends: it writes the result into the state and releases the lock. The executor
keeps no results, because another process may go on with the claim later.

Every step has a failpoint before and after it.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import partial
from itertools import chain, compress, repeat
from threading import Lock, Semaphore
from typing import Protocol, TypeVar, assert_never

from msgspec import Struct, field

from dra_driver.errors import BackendMissing, DriverError, Permanent, Temporary
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid
from dra_driver.model.lease import Lease
from dra_driver.model.plan import (
    ConfigureDevice,
    Forget,
    MarkHeld,
    MarkPrepared,
    MarkStarted,
    MarkStartedAgain,
    Plan,
    RemoveCdiSpec,
    ResetDevice,
    ShowUnused,
    Step,
    WriteCdiSpec,
)
from dra_driver.model.state import Held, Phase, PreparedClaim, Users

CALL_SECONDS = 35  # temporary errors are retried this long; the kubelet gives a call 45 s
QUICK_SECONDS = 0.005  # after this time each waiting plan gets a thread of its own
HERE_LIMIT = 4  # of the kubelet's workers; hardware that hangs must not take all of them
PAUSE_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)

Done = TypeVar("Done")
Mark = MarkStarted | MarkPrepared | MarkStartedAgain | MarkHeld | Forget
Work = ConfigureDevice | WriteCdiSpec | RemoveCdiSpec | ShowUnused | ResetDevice

FAILPOINTS = tuple(
    f"step.{kind.__name__}.{when}"
    for kind in (*Mark.__args__, *Work.__args__)
    for when in ("before", "after")
)


class StillUsed(Permanent):
    """A process may still use the claim's devices. The devices stay held, and the call does not fail."""


class Result(Struct, frozen=True):
    """The end of a plan's work: its error, or None and the answer of the backend for each configured lease, in the order of the steps."""

    error: DriverError | None = None
    edits: tuple[object, ...] = ()


Late = Callable[[Plan], Callable[[Result], None]]


class Marks(Protocol):
    """The methods of a state transaction that steps call."""

    def start(self, claim: PreparedClaim) -> None:
        """Reserve the claim's devices and write its row."""

    def set_phase(self, uid: ClaimUid, phase: Phase) -> None:
        """Change the phase of the row."""

    def set_prepared(self, uid: ClaimUid, cdi_spec: str, metadata: str = "") -> None:
        """Mark the row Prepared, with the texts of the claim's CDI file and metadata files."""

    def hold(self, uid: ClaimUid, held: Held, users: Users) -> None:
        """Mark the row as held: the driver answers no call from the row, and the row keeps its devices."""

    def forget(self, uid: ClaimUid) -> None:
        """Release the claim's devices and remove its row."""


class CdiFiles(Protocol):
    """The methods of the CDI directory that services call."""

    def write(self, uid: ClaimUid, text: str, metadata: str = "") -> None:
        """Write the claim's CDI file, and before it its metadata files."""

    def remove(self, uid: ClaimUid) -> None:
        """Remove the claim's CDI file, then its metadata files."""

    def read(self, uid: ClaimUid) -> str | None:
        """Return the text of the claim's CDI file; None if the file does not exist."""

    def read_metadata(self, uid: ClaimUid) -> str:
        """Return the text of the claim's metadata files; empty if there are none."""

    def with_metadata(self) -> Collection[ClaimUid]:
        """Return the claims that have metadata files."""


class Hands(Struct, frozen=True):
    """The functions that work calls. `configure(lease, until)` sets up a lease and returns the backend's answer; `reset(lease, until)`
    undoes it; `until` is a time of `clock`.

    `still_used` returns why a claim's devices cannot be released, or an empty text.
    """

    cdi: CdiFiles
    configure: Callable[[Lease, float], object]
    reset: Callable[[Lease, float], None]
    still_used: Callable[[PreparedClaim], str]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    point: Callable[[str], None] = field(default=lambda _name: None)


class Executor:
    """Carries out plans; the process has one executor. The caller of `work` has the locks of the plans' claims.

    A crash is harmless only because of the order of a plan's steps (`dra_driver.model.plan`). So only this class carries out steps,
    and in their order.
    """

    def __init__(self, hands: Hands, pool: ThreadPoolExecutor) -> None:
        self._hands = hands
        self._pool = pool
        self._mutex = Lock()
        self._unfinished: dict[_Work, ClaimRef] = {}
        self._here = Semaphore(HERE_LIMIT)

    def mark(self, marks: Marks, steps: Iterable[Step]) -> None:
        """Apply the marks among `steps` to an open transaction."""
        for step in steps:
            if isinstance(step, Mark):
                self._around(step, partial(_apply, step, marks))

    def finish(self, plan: Plan, until: float) -> DriverError | None:
        """Do the work of one plan in this thread: the quick work at the end of a preparation. Returns its error, or None."""
        try:
            self._do(plan, until)
        except Exception as error:  # noqa: BLE001  it fails this claim only
            return _driver_error(plan, error)
        return None

    def work(
        self, plans: Sequence[Plan], *, until: float, late: Late, may_hang: bool = False
    ) -> Mapping[ClaimUid, Result]:
        """Do the work of all plans in parallel. Returns the result for each claim, by `until` (a time of the clock).

        With `may_hang` somebody else answers for this thread if it is not back in time, and no other claim waits for it. Then it
        does the work of a single plan itself, which saves waking another thread and waiting for it; a few calls may do so at a time.

        For work that is not done by `until`, the error is a Temporary, and the work goes on. When such work ends, its thread calls
        the function that `late(plan)` returned, with the result. One thread does all quick work, because
        starting a thread for each plan takes longer than the work. Slow work gets its own thread.
        """
        waiting: _Waiting = deque()
        running = [(plan, self._start(plan, until, waiting)) for plan in plans]
        several = len(waiting) > 1
        if may_hang and not several and self._here.acquire(blocking=False):
            try:
                _do_all(waiting)
            finally:
                self._here.release()
        elif waiting:
            self._submit(waiting)
        if several:
            wait([future for _, future in running], timeout=QUICK_SECONDS)
            for _ in range(len(waiting)):
                with suppress(RuntimeError):  # no more threads: those that run do the rest
                    self._pool.submit(_do_all, waiting)
        return {plan.claim.uid: self._result(plan, future, until, late) for plan, future in running}

    def unfinished(self) -> tuple[ClaimRef, ...]:
        """Return the claims with work in progress, whether or not a call still waits for the work."""
        with self._mutex:
            return tuple(self._unfinished.values())

    def _submit(self, waiting: "_Waiting") -> None:
        try:
            self._pool.submit(_do_all, waiting)
        except RuntimeError as error:  # the process ends, or the system gives it no more threads
            # The pool may have queued the work all the same. Whoever takes it then finds only what this has not taken: the claims'
            # locks are about to be released, and nothing may be done later without them.
            with suppress(IndexError):
                while True:
                    future, _ = waiting.popleft()
                    future.set_exception(
                        Temporary(f"the work was not begun: {error}; the kubelet tries again")
                    )

    def _start(self, plan: Plan, until: float, waiting: "_Waiting") -> "_Work":
        future: _Work = Future()
        with self._mutex:
            self._unfinished[future] = plan.claim
        waiting.append((future, partial(self._do, plan, until)))
        return future

    def _finished(self, future: "_Work") -> None:
        with self._mutex:
            del self._unfinished[future]

    def _result(self, plan: Plan, future: "_Work", until: float, late: Late) -> Result:
        try:
            error = future.exception(timeout=max(0.0, until - self._hands.clock()))
        except FutureTimeoutError:
            future.add_done_callback(partial(self._end, plan, late(plan)))
            return Result(
                Temporary(
                    f"claim {plan.claim}: the work on its devices takes longer than a call may take and goes on; "
                    f"the next try gets the result"
                )
            )
        self._finished(future)
        if error is None or isinstance(error, Exception | SystemExit):
            return _ended(plan, future)
        raise error

    def _end(self, plan: Plan, tell: Callable[[Result], None], future: "_Work") -> None:
        try:
            tell(_ended(plan, future))
        finally:
            self._finished(future)

    def _do(self, plan: Plan, until: float) -> tuple[object, ...]:
        answers = [self._patiently(step, until) for step in plan.steps if isinstance(step, Work)]
        configured = [
            isinstance(step, ConfigureDevice) for step in plan.steps if isinstance(step, Work)
        ]
        return tuple(compress(answers, configured))

    def _patiently(self, step: Work, until: float) -> object:
        return patiently(
            partial(self._around, step, partial(self._perform, step, until)),
            until=until,
            clock=self._hands.clock,
            sleep=self._hands.sleep,
        )

    def _perform(self, step: Work, until: float) -> object:
        hands = self._hands
        match step:
            case ConfigureDevice(lease):
                return hands.configure(lease, until)
            case ShowUnused(claim):
                if reason := hands.still_used(claim):
                    raise StillUsed(reason)
            case ResetDevice(lease, by_admin):
                # An admin has the last word about a device that no backend can reset any more.
                with suppress(*(BackendMissing,) if by_admin else ()):
                    hands.reset(lease, until)
            case WriteCdiSpec(uid, text, metadata):
                hands.cdi.write(uid, text, metadata)
            case RemoveCdiSpec(uid):
                hands.cdi.remove(uid)
            case _:
                assert_never(step)
        return None

    def _around(self, step: Step, act: Callable[[], Done]) -> Done:
        name = type(step).__name__
        self._hands.point(f"step.{name}.before")
        answer = act()
        self._hands.point(f"step.{name}.after")
        return answer


_Work = Future[tuple[object, ...]]
_Waiting = deque[tuple[_Work, Callable[[], tuple[object, ...]]]]


def _do_all(waiting: _Waiting) -> None:
    while True:
        try:
            future, work = waiting.popleft()
        except IndexError:
            return  # other threads took the rest
        _settle(future, work)


def _settle(future: _Work, work: Callable[[], tuple[object, ...]]) -> None:
    try:
        answers = work()
    except BaseException as error:  # noqa: BLE001  raised where somebody waits for the future
        future.set_exception(error)
    else:
        future.set_result(answers)


def _ended(plan: Plan, future: _Work) -> Result:
    error = future.exception()
    return Result(edits=future.result()) if error is None else Result(_driver_error(plan, error))


def patiently(
    act: Callable[[], Done],
    *,
    until: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Done:
    """Call `act` until it succeeds. After a Temporary error, wait, longer each time, and try again if that is before `until`.

    A pause is at least `retry_after_seconds` of the error. Raises the last error.
    """
    pauses = chain(PAUSE_SECONDS, repeat(PAUSE_SECONDS[-1]))
    while True:
        try:
            return act()
        except Temporary as error:
            pause = max(next(pauses), error.retry_after_seconds or 0.0)
            if clock() + pause >= until:
                raise
            sleep(pause)


def _driver_error(plan: Plan, error: BaseException) -> DriverError:
    return error if isinstance(error, DriverError) else _unforeseen(plan, error)


def _unforeseen(plan: Plan, error: BaseException) -> Permanent:
    # A backend is other people's code: its exception fails its own claim only, not the other claims of the call.
    failure = Permanent(
        f"claim {plan.claim}: {type(error).__name__}: {error}; this is a defect of the backend or the driver, report it"
    )
    failure.__cause__ = error
    return failure


def _apply(step: Mark, marks: Marks) -> None:
    match step:
        case MarkStarted(claim):
            marks.start(claim)
        case MarkPrepared(uid, ""):
            marks.set_phase(uid, Phase.PREPARED)
        case MarkPrepared(uid, text, metadata):
            marks.set_prepared(uid, text, metadata)
        case MarkStartedAgain(uid):
            marks.set_phase(uid, Phase.STARTED)
        case MarkHeld(uid, held, users):
            marks.hold(uid, held, users)
        case Forget(uid):
            marks.forget(uid)
        case _:
            assert_never(step)
