# SPDX-License-Identifier: Apache-2.0
"""A driver that is full is alive; one whose workers hang beyond every deadline, or that answers nobody, is dead."""

from threading import Event

import pytest

from dra_driver.daemon.liveness import (
    CHECK_SECONDS,
    DEAD_SECONDS,
    NOT_YET,
    STALE_SECONDS,
    Liveness,
    SelfCheck,
    current_problems,
    stuck_calls,
)
from dra_driver.kubelet.calls import LONGEST_CALL_SECONDS, CallCounts
from dra_driver.kubelet.server import _PROBE_SECONDS

NOW = 10_000.0
LONG_AGO = NOW - DEAD_SECONDS - 1


def counts(*, working: int, waiting: int, moved_at: float = LONG_AGO) -> CallCounts:
    return CallCounts("prepare", 4, working, waiting, moved_at)


@pytest.mark.parametrize(
    ("working", "waiting", "moved_at"),
    [
        (0, 0, 0.0),  # nobody called for hours
        (3, 0, LONG_AGO),  # some hang, and there is a worker for whoever comes
        (4, 100, NOW - LONGEST_CALL_SECONDS),  # full: the oldest end just now
        (4, 100, NOW - DEAD_SECONDS),
    ],
)
def test_who_can_still_do_a_call_or_may_be_about_to_is_alive(
    working: int, waiting: int, moved_at: float
) -> None:
    assert stuck_calls(counts(working=working, waiting=waiting, moved_at=moved_at), NOW) == ""


@pytest.mark.parametrize(("working", "waiting"), [(4, 7), (4, 0), (0, 1)])
def test_who_moved_no_call_beyond_every_deadline_is_dead(working: int, waiting: int) -> None:
    assert stuck_calls(counts(working=working, waiting=waiting), NOW) == (
        f"no prepare call began or ended for 91 s, though each ends within 45 s: "
        f"{working} of 4 workers hang and {waiting} calls wait"
    )


def test_the_limit_is_beyond_every_deadline() -> None:
    assert DEAD_SECONDS > LONGEST_CALL_SECONDS


def test_a_look_is_old_only_when_the_one_after_it_hangs() -> None:
    assert CHECK_SECONDS + 2 * _PROBE_SECONDS < STALE_SECONDS


@pytest.mark.parametrize(
    ("last", "problems"),
    [
        (None, (NOT_YET,)),
        (SelfCheck(NOW - STALE_SECONDS, ()), ()),
        (SelfCheck(NOW - 1, ("socket x does not answer",)), ("socket x does not answer",)),
        (SelfCheck(NOW - 61, ()), ("the driver's own check of its sockets hangs for 61 s",)),
    ],
)
def test_the_verdict_is_the_last_looks_unless_that_is_too_old(
    last: SelfCheck | None, problems: tuple[str, ...]
) -> None:
    assert current_problems(last, NOW) == problems


def test_it_looks_at_once_and_then_every_few_seconds_and_who_asks_reads_the_last_look() -> None:
    now, socket, pauses, answers = [NOW], [()], [], []
    calls = [counts(working=0, waiting=0)]

    def wait(_stop: Event, seconds: float) -> bool:
        pauses.append(seconds)
        answers.append(liveness.problems())
        socket[0] = ("socket x does not answer",)
        calls[:] = [counts(working=4, waiting=2), counts(working=0, waiting=0)]
        return len(pauses) == 2

    liveness = Liveness(lambda: socket[0], lambda: calls, clock=lambda: now[0], wait=wait)
    assert liveness.problems() == (NOT_YET,)
    liveness.run(Event())
    assert pauses == [10.0] * 2
    assert answers == [
        (),
        ("socket x does not answer", stuck_calls(counts(working=4, waiting=2), NOW)),
    ]
    now[0] += STALE_SECONDS + 1  # the thread hangs
    assert liveness.problems()[0].startswith("the driver's own check of its sockets hangs")
