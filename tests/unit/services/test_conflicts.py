# SPDX-License-Identifier: Apache-2.0
"""Claims of one call that meet owners, and whose locks the call still holds."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from threading import Event

from dra_driver.model.claim import ClaimRef
from dra_driver.model.plan import Plan, Refusal
from dra_driver.model.presence import Alive
from dra_driver.services.conflicts import WAITING_CALLS
from dra_driver.services.execute import Late, Result
from dra_driver.testing.builders import a_claim, a_pod, a_result
from tests.support.local_node import LocalNode, ManualClock

NewNode = Callable[..., LocalNode]


def test_a_claim_whose_lock_went_with_late_work_is_left_alone_by_its_call(
    new_node: NewNode,
) -> None:
    """Two claims of one call: the first's earlier allocation takes long to reset, the second's owner goes meanwhile."""
    clock = ManualClock()
    node = new_node(clock=clock)
    first, owner = a_claim("first"), a_claim("owner", results=[a_result("gpu-1")])
    second = a_claim("second", results=[a_result("gpu-1")])
    first_ref, owner_ref, second_ref = node.add(first, owner, second)
    node.prepare(first_ref, owner_ref)
    node.add(a_claim("first", results=[a_result("gpu-2")]))  # allocated anew
    # Its row says Started, as after a crash: the call meets its own earlier allocation.
    with closing(sqlite3.connect(node.directory / "state.db")) as db, db:
        db.execute("UPDATE claims SET phase = 'Started' WHERE uid = ?", (first_ref.uid,))
    done, begun = Event(), Event()

    def reset(lease) -> None:
        if lease.device == "gpu-0":
            node.delete(owner_ref)
            clock.now += 100  # longer than a call takes
            with node.store.transaction("released") as transaction:
                transaction.forget(owner_ref.uid)  # unprepared by another call meanwhile
            node.cdi.remove(owner_ref.uid)
            begun.set()
            done.wait(20)

    node.reset = reset
    wait = node.parts.executor._result
    worked: list[ClaimRef] = []

    def result(plan: Plan, future: Future[tuple[object, ...]], until: float, late: Late) -> Result:
        worked.append(plan.claim)
        if plan.claim == first_ref:
            begun.wait(20)  # the manual clock passes on the other thread
        return wait(plan, future, until, late)

    node.parts.executor._result = result  # type: ignore[method-assign]
    try:
        answers = node.prepare(first_ref, second_ref)
        assert isinstance(answers[first_ref.uid], Refusal)
        assert worked == [first_ref, second_ref]  # each once
    finally:
        done.set()
        node.workers.shutdown(wait=True)


def test_a_claim_waits_while_another_thread_asks_who_used_its_device(new_node: NewNode) -> None:
    """The owner is gone. Whoever releases it has its lock, and waits for the API server before it marks the row as held."""
    clock = ManualClock()
    node = new_node(clock=clock)
    owner, waiting = node.add(a_claim("owner"), a_claim("waiting"))
    node.prepare(owner)
    node.delete(owner)
    releasing = node.lock([f"claim-{owner.uid}"], clock(), "releasing")
    releasing.__enter__()
    pause = clock.sleep

    def sleep(seconds: float) -> None:
        pause(seconds)
        if len(clock.pauses) == 3:
            releasing.__exit__(None, None, None)

    clock.sleep = sleep  # type: ignore[method-assign]
    node.restart()
    assert isinstance(node.prepare(waiting)[waiting.uid], tuple)
    assert len(clock.pauses) >= 3


def test_who_has_waited_leaves_a_seat_for_the_next_call(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    owner, *others = node.add(
        a_claim("owner"), *(a_claim(f"waiting-{number}") for number in range(WAITING_CALLS + 1))
    )
    node.prepare(owner)
    node.presences[a_pod("owner")] = Alive("3 processes")
    assert node.unprepare(owner) == {owner.uid: None}
    for ref in others:
        begun = len(clock.pauses)
        assert isinstance(node.prepare(ref)[ref.uid], Refusal)
        assert len(clock.pauses) > begun + 1, f"{ref} did not wait"
