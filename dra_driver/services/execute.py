# SPDX-License-Identifier: Apache-2.0
"""Walk plans: the one executor behind prepare, unprepare and recovery.

A plan's steps are of two kinds. *Marks* change the state and belong to a transaction, which several plans of one call
share: two commits for a prepare call however many claims it has. *Work* happens outside any transaction, claim by
claim and in parallel: a claim that fails neither delays nor undoes another.

Work that takes longer than the kubelet waits goes on; the next call for that claim gets its result. While a backend
sets a device up or resets it, the device's lock is held, against a second driver process too.

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
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.device import Device
from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.model.plan import (
    ConfigureDevice,
    Forget,
    MarkPrepared,
    MarkStarted,
    MarkStartedAgain,
    Plan,
    RemoveCdiSpec,
    ResetDevice,
    Step,
    WriteCdiSpec,
)
from dra_driver.model.state import Phase, PreparedClaim

CALL_SECONDS = 35  # temporary errors are retried this long; the kubelet gives a call 45 s
QUICK_SECONDS = 0.005  # work that takes longer does not hold up the other plans of its call
PAUSE_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)

Done = TypeVar("Done")
Mark = MarkStarted | MarkPrepared | MarkStartedAgain | Forget
Work = ConfigureDevice | WriteCdiSpec | RemoveCdiSpec | ResetDevice

FAILPOINTS = tuple(
    f"step.{kind.__name__}.{when}"
    for kind in (*Mark.__args__, *Work.__args__)
    for when in ("before", "after")
)


class Marks(Protocol):
    """The part of a state transaction that steps need."""

    def start(self, claim: PreparedClaim) -> None:
        """Reserve and remember."""

    def set_phase(self, uid: ClaimUid, phase: Phase) -> None:
        """Move on."""

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
    """What work is done with. `lock(names, until, purpose)` holds locks; times are those of `clock`."""

    cdi: CdiFiles
    configure: Callable[[Device, DeviceConfig], None]
    reset: Callable[[DeviceName], None]
    lock: Callable[[Iterable[str], float, str], AbstractContextManager[None]]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    point: Callable[[str], None] = field(default=lambda _name: None)


class Executor:
    """Carries out plans. One for the process: it remembers work that outlived its call."""

    def __init__(self, hands: Hands, pool: ThreadPoolExecutor) -> None:
        self._hands = hands
        self._pool = pool
        self._mutex = Lock()
        # By claim, oldest first: what runs, and results that no call has fetched yet.
        self._unfinished: dict[ClaimUid, list[tuple[Plan, Future[None]]]] = {}

    def mark(self, marks: Marks, steps: Iterable[Step]) -> None:
        """Apply the marks among `steps` to an open transaction."""
        for step in steps:
            if isinstance(step, Mark):
                self._around(step, partial(_apply, step, marks))

    def work(self, plans: Sequence[Plan], *, until: float) -> Mapping[ClaimUid, DriverError | None]:
        """Do the work of each plan, side by side, and answer what went wrong with each by `until` (a time of the clock).

        Quick work is done by one other thread, for waking one for each plan costs more than that; what takes longer gets its own.
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
        return {plan.claim.uid: self._result(plan, future, until) for plan, future in running}

    def remembers(self, uid: ClaimUid) -> bool:
        """Whether work for the claim outlived its call and no later one fetched its result."""
        with self._mutex:
            return uid in self._unfinished

    def _start(self, plan: Plan, until: float, waiting: deque[Callable[[], None]]) -> Future[None]:
        with self._mutex:
            known = self._unfinished.get(plan.claim.uid, [])
            if known and known[-1][0] == plan:
                return known[-1][1]
            running = [(other, future) for other, future in known if not future.done()]
            earlier = [future for _, future in running]
            future: Future[None] = Future()
            waiting.append(partial(_settle, future, partial(self._do, plan, until, earlier)))
            self._unfinished[plan.claim.uid] = [*running, (plan, future)]
            return future

    def _fetched(self, plan: Plan, future: Future[None]) -> None:
        uid = plan.claim.uid
        with self._mutex:
            left = [entry for entry in self._unfinished.pop(uid, []) if entry[1] is not future]
            if left:
                self._unfinished[uid] = left

    def _result(self, plan: Plan, future: Future[None], until: float) -> DriverError | None:
        try:
            error = future.exception(timeout=max(0.0, until - self._hands.clock()))
        except FutureTimeoutError:
            return Temporary(
                f"claim {plan.claim}: setting up its devices takes longer than {CALL_SECONDS} s and goes on; "
                f"the kubelet's next try gets the result"
            )
        self._fetched(plan, future)
        if error is None or isinstance(error, DriverError):
            return error
        if isinstance(error, Exception):
            return _unforeseen(plan, error)
        raise error

    def _do(self, plan: Plan, until: float, earlier: Sequence[Future[None]]) -> None:
        if wait(earlier, timeout=max(0.0, until - self._hands.clock())).not_done:
            raise Temporary(
                f"claim {plan.claim}: work of an earlier call on its devices still goes on; the kubelet tries again"
            )
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
            case ConfigureDevice(device, config):
                with hands.lock(
                    [f"device-{device.name}"], until, f"setting up for claim {plan.claim}"
                ):
                    hands.configure(device, config)
            case ResetDevice(device_name):
                with hands.lock(
                    [f"device-{device_name}"], until, f"resetting after claim {plan.claim}"
                ):
                    hands.reset(device_name)
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


def _unforeseen(plan: Plan, error: Exception) -> Permanent:
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
        case Forget(uid):
            marks.forget(uid)
        case _:
            assert_never(step)
