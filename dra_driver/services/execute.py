# SPDX-License-Identifier: Apache-2.0
"""Walk plans: the one executor behind prepare, unprepare and recovery.

A plan's steps are of two kinds. *Marks* change the state and belong to a transaction, which several plans of one call
share: two commits for a prepare call however many claims it has. *Work* happens outside any transaction, claim by
claim and in parallel: a claim that fails neither delays nor undoes another.

Work that takes longer than the kubelet waits goes on. Whoever asked for it hands over what the claim's lock holds off, and what
is to be said in the state when the work ends; nothing is remembered here, for another process may have gone on with the claim
since. While a backend sets a device up or resets it, the device's lock is held, against a second driver process too.

A failpoint stands before and after every step.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from threading import Lock
from typing import Protocol, TypeVar, assert_never

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.model.claim import ClaimRef, DeviceConfig
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import ClaimUid, DeviceName, ShareId
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
QUICK_SECONDS = 0.005  # work that takes longer does not hold up the other plans of its call
PAUSE_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)

Done = TypeVar("Done")
Mark = MarkStarted | MarkPrepared | MarkStartedAgain | MarkHeld | Forget
Work = ConfigureDevice | WriteCdiSpec | RemoveCdiSpec | ShowUnused | ResetDevice
Late = Callable[[Plan], Callable[[DriverError | None], None]]

FAILPOINTS = tuple(
    f"step.{kind.__name__}.{when}"
    for kind in (*Mark.__args__, *Work.__args__)
    for when in ("before", "after")
)


class StillUsed(Permanent):
    """It could not be shown that nothing uses a claim's devices any more: they stay held, and nothing failed."""


class Configure(Protocol):
    """How a backend sets a device, or a share of it, up for a claim."""

    def __call__(
        self,
        device: AllocatableDevice,
        config: DeviceConfig,
        /,
        *,
        claim_uid: ClaimUid,
        share_id: ShareId,
    ) -> None:
        """Raises DriverError."""


class Reset(Protocol):
    """How a backend undoes it."""

    def __call__(self, device: DeviceName, /, *, claim_uid: ClaimUid, share_id: ShareId) -> None:
        """Raises DriverError."""


class Marks(Protocol):
    """The part of a state transaction that steps need."""

    def start(self, claim: PreparedClaim) -> None:
        """Reserve and remember."""

    def set_phase(self, uid: ClaimUid, phase: Phase) -> None:
        """Move on."""

    def hold(self, uid: ClaimUid, held: Held, users: Users) -> None:
        """Nobody needs it; keep its devices."""

    def forget(self, uid: ClaimUid) -> None:
        """Release."""


class CdiFiles(Protocol):
    """The part of the CDI directory that steps need."""

    def write(self, uid: ClaimUid, text: str) -> None:
        """Put a document in place."""

    def remove(self, uid: ClaimUid) -> None:
        """Take a document away."""

    def read(self, uid: ClaimUid) -> str | None:
        """The document that stands there, if any."""


@dataclass(frozen=True, slots=True)
class Hands:
    """What work is done with. `lock(names, until, purpose)` holds locks; times are those of `clock`.

    `still_used` answers why a claim's devices cannot be given to others, or nothing.
    """

    cdi: CdiFiles
    configure: Configure
    reset: Reset
    still_used: Callable[[PreparedClaim], str]
    lock: Callable[[Iterable[str], float, str], AbstractContextManager[None]]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    point: Callable[[str], None] = field(default=lambda _name: None)


class Executor:
    """Carries out plans. One for the process. Whoever calls `work` holds the locks of the plans' claims."""

    def __init__(self, hands: Hands, pool: ThreadPoolExecutor) -> None:
        self._hands = hands
        self._pool = pool
        self._mutex = Lock()
        self._unfinished: dict[Future[None], ClaimRef] = {}

    def mark(self, marks: Marks, steps: Iterable[Step]) -> None:
        """Apply the marks among `steps` to an open transaction."""
        for step in steps:
            if isinstance(step, Mark):
                self._around(step, partial(_apply, step, marks))

    def work(
        self, plans: Sequence[Plan], *, until: float, late: Late
    ) -> Mapping[ClaimUid, DriverError | None]:
        """Do the work of each plan, side by side, and answer what went wrong with each by `until` (a time of the clock).

        What goes on then is answered as Temporary, and `late(plan)` is told with how it ended, on the thread that did it. Quick work
        is done by one other thread, for waking one for each plan costs more than that; what takes longer gets its own.
        """
        waiting: deque[Callable[[], None]] = deque()
        running = [(plan, self._start(plan, until, waiting)) for plan in plans]
        several = len(waiting) > 1
        if waiting:
            self._pool.submit(_do_all, waiting)
        if several:
            wait([future for _, future in running], timeout=QUICK_SECONDS)
            for _ in range(len(waiting)):
                self._pool.submit(_do_all, waiting)
        return {plan.claim.uid: self._result(plan, future, until, late) for plan, future in running}

    def unfinished(self) -> tuple[ClaimRef, ...]:
        """The claims that this process is at work on, whether or not a call still waits for it."""
        with self._mutex:
            return tuple(self._unfinished.values())

    def _start(self, plan: Plan, until: float, waiting: deque[Callable[[], None]]) -> Future[None]:
        future: Future[None] = Future()
        with self._mutex:
            self._unfinished[future] = plan.claim
        waiting.append(partial(_settle, future, partial(self._do, plan, until)))
        return future

    def _finished(self, future: Future[None]) -> None:
        with self._mutex:
            del self._unfinished[future]

    def _result(
        self, plan: Plan, future: Future[None], until: float, late: Late
    ) -> DriverError | None:
        try:
            error = future.exception(timeout=max(0.0, until - self._hands.clock()))
        except FutureTimeoutError:
            future.add_done_callback(partial(self._end, plan, late(plan)))
            return Temporary(
                f"claim {plan.claim}: the work on its devices takes longer than a call may take and goes on; "
                f"the kubelet tries again and gets what has become of it"
            )
        self._finished(future)
        if error is None or isinstance(error, Exception):
            return _driver_error(plan, error)
        raise error

    def _end(
        self, plan: Plan, tell: Callable[[DriverError | None], None], future: Future[None]
    ) -> None:
        try:
            tell(_driver_error(plan, future.exception()))
        finally:
            self._finished(future)

    def _do(self, plan: Plan, until: float) -> None:
        for step in plan.steps:
            if isinstance(step, Work):
                self._patiently(step, plan, until)

    def _patiently(self, step: Work, plan: Plan, until: float) -> None:
        patiently(
            partial(self._around, step, partial(self._perform, step, plan, until)),
            until=until,
            clock=self._hands.clock,
            sleep=self._hands.sleep,
        )

    def _perform(self, step: Work, plan: Plan, until: float) -> None:
        hands = self._hands
        match step:
            case ConfigureDevice(device, config, share):
                with hands.lock(
                    [f"device-{device.name}"], until, f"setting up for claim {plan.claim}"
                ):
                    hands.configure(device, config, claim_uid=plan.claim.uid, share_id=share)
            case ShowUnused(claim):
                if reason := hands.still_used(claim):
                    raise StillUsed(reason)
            case ResetDevice(device_name, share):
                with hands.lock(
                    [f"device-{device_name}"], until, f"resetting after claim {plan.claim}"
                ):
                    hands.reset(device_name, claim_uid=plan.claim.uid, share_id=share)
            case WriteCdiSpec(uid, text):
                hands.cdi.write(uid, text)
            case RemoveCdiSpec(uid):
                hands.cdi.remove(uid)
            case _:
                assert_never(step)

    def _around(self, step: Step, act: Callable[[], None]) -> None:
        name = type(step).__name__
        self._hands.point(f"step.{name}.before")
        act()
        self._hands.point(f"step.{name}.after")


def _do_all(waiting: deque[Callable[[], None]]) -> None:
    while True:
        try:
            do = waiting.popleft()
        except IndexError:
            return  # others took the rest
        do()


def _settle(future: Future[None], work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException as error:  # noqa: BLE001  whoever waits for the future raises it
        future.set_exception(error)
    else:
        future.set_result(None)


def patiently(
    act: Callable[[], Done],
    *,
    until: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Done:
    """Act, and again after a growing pause while that fails temporarily and a next try would begin before `until`.

    No sooner than the error asks for. Raises the last error.
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


def _driver_error(plan: Plan, error: BaseException | None) -> DriverError | None:
    return error if error is None or isinstance(error, DriverError) else _unforeseen(plan, error)


def _unforeseen(plan: Plan, error: BaseException) -> Permanent:
    # A backend may be anybody's code: what it throws costs its claim, not the other claims of the call.
    failure = Permanent(
        f"claim {plan.claim}: {type(error).__name__}: {error}; this is a defect of the backend or the driver, report it"
    )
    failure.__cause__ = error
    return failure


def _apply(step: Mark, marks: Marks) -> None:
    match step:
        case MarkStarted(claim):
            marks.start(claim)
        case MarkPrepared(uid):
            marks.set_phase(uid, Phase.PREPARED)
        case MarkStartedAgain(uid):
            marks.set_phase(uid, Phase.STARTED)
        case MarkHeld(uid, held, users):
            marks.hold(uid, held, users)
        case Forget(uid):
            marks.forget(uid)
        case _:
            assert_never(step)
