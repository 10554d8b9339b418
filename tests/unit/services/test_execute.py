# SPDX-License-Identifier: Apache-2.0
"""How plans are walked: which errors are tried again, and what becomes of work that outlives its call."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, Event, Semaphore, Thread, current_thread

import pytest
from msgspec.structs import replace

from dra_driver.errors import Permanent, Temporary
from dra_driver.model.ids import DeviceName
from dra_driver.model.lease import Lease
from dra_driver.model.plan import (
    ConfigureDevice,
    MarkPrepared,
    Plan,
    Refusal,
    RemoveCdiSpec,
    ResetDevice,
    ShowUnused,
    WriteCdiSpec,
)
from dra_driver.model.presence import Alive
from dra_driver.services.execute import FAILPOINTS, HERE_LIMIT, Executor, Result, StillUsed
from dra_driver.services.prepare import PrepareClaims
from dra_driver.testing.builders import a_claim, a_pod, a_ref, a_result, an_edit
from tests.support.local_node import LocalNode, ManualClock

DEADLINE = 300  # seconds, against hanging only
NewNode = Callable[..., LocalNode]
A_REF = a_ref()
A_LEASE = Lease(A_REF.uid, "gpu", DeviceName("gpu-0"), parent="uuid-gpu-0")
SET_UP = Plan(A_REF, (ConfigureDevice(A_LEASE),))
RESET = Plan(A_REF, (ResetDevice(A_LEASE),))
DONE = Result(edits=(an_edit(A_LEASE),))


def on_device(name: str) -> Plan:
    ref = a_ref(name)
    return Plan(ref, (ConfigureDevice(Lease(ref.uid, "gpu", DeviceName(name), parent=name)),))


def never_late(plan: Plan):
    raise AssertionError(f"{plan} took too long")


class Unfriendly(BaseException):
    """What no part of the driver may swallow."""


def test_the_registry_names_every_step_before_and_after() -> None:
    assert FAILPOINTS == (
        "step.MarkStarted.before",
        "step.MarkStarted.after",
        "step.MarkPrepared.before",
        "step.MarkPrepared.after",
        "step.MarkStartedAgain.before",
        "step.MarkStartedAgain.after",
        "step.MarkHeld.before",
        "step.MarkHeld.after",
        "step.Forget.before",
        "step.Forget.after",
        "step.ConfigureDevice.before",
        "step.ConfigureDevice.after",
        "step.WriteCdiSpec.before",
        "step.WriteCdiSpec.after",
        "step.RemoveCdiSpec.before",
        "step.RemoveCdiSpec.after",
        "step.ShowUnused.before",
        "step.ShowUnused.after",
        "step.ResetDevice.before",
        "step.ResetDevice.after",
    )


def test_work_skips_the_marks(node: LocalNode) -> None:
    steps = (WriteCdiSpec(A_REF.uid, "text"), MarkPrepared(A_REF.uid), RemoveCdiSpec(A_REF.uid))
    assert node.parts.executor.work([Plan(A_REF, steps)], until=1e9, late=never_late) == {
        A_REF.uid: Result()
    }
    assert node.disk().claims == node.disk().files == {}


def test_a_temporary_error_is_tried_again_inside_the_call(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    errors = [Temporary("busy"), Temporary("busy", retry_after_seconds=4.0), Temporary("busy")]

    def configure(lease: Lease) -> None:
        if errors:
            raise errors.pop(0)

    node.configure = configure
    assert node.parts.executor.work([SET_UP], until=clock() + 35, late=never_late) == {
        A_REF.uid: DONE
    }
    assert clock.pauses == [0.05, 4.0, 0.25]


def test_a_temporary_error_is_answered_when_the_time_is_up(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    error = Temporary("busy")
    begun = clock()

    def configure(lease: Lease) -> None:
        raise error

    node.configure = configure
    assert node.parts.executor.work([SET_UP], until=begun + 35, late=never_late) == {
        A_REF.uid: Result(error)
    }
    assert clock.pauses[:7] == [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 2.0]
    assert begun + 32 < clock() < begun + 35


def test_an_error_that_asks_for_more_time_than_there_is_ends_the_call(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)

    def configure(lease: Lease) -> None:
        raise Temporary("resetting", retry_after_seconds=60)

    node.configure = configure
    (result,) = node.parts.executor.work([SET_UP], until=clock() + 35, late=never_late).values()
    assert (str(result.error), clock.pauses) == ("resetting", [])


def test_a_permanent_error_is_not_tried_again(node: LocalNode) -> None:
    tries: list[str] = []

    def configure(lease: Lease) -> None:
        tries.append(lease.device)
        raise Permanent("no")

    node.configure = configure
    (result,) = node.parts.executor.work([SET_UP], until=1e9, late=never_late).values()
    assert (str(result.error), tries) == ("no", ["gpu-0"])


@pytest.mark.parametrize("cause", [KeyError("x"), SystemExit("what a tool's main() does")])
def test_a_foreign_error_is_permanent_and_keeps_its_cause(
    node: LocalNode, cause: BaseException
) -> None:

    def configure(lease: Lease) -> None:
        raise cause

    node.configure = configure
    (result,) = node.parts.executor.work([SET_UP], until=1e9, late=never_late).values()
    assert isinstance(result.error, Permanent)
    assert result.error.__cause__ is cause


def test_an_exit_of_the_process_is_not_an_error_of_a_claim(node: LocalNode) -> None:
    def configure(lease: Lease) -> None:
        raise Unfriendly

    node.configure = configure
    with pytest.raises(Unfriendly):
        node.parts.executor.work([SET_UP], until=1e9, late=never_late)


def test_a_failed_piece_of_work_is_done_again_by_the_next_call(node: LocalNode) -> None:
    errors = [Permanent("no")]

    def configure(lease: Lease) -> None:
        if errors:
            raise errors.pop()

    node.configure = configure
    assert node.parts.executor.work([SET_UP], until=1e9, late=never_late) != {A_REF.uid: DONE}
    assert node.parts.executor.work([SET_UP], until=1e9, late=never_late) == {A_REF.uid: DONE}


def test_a_slow_plan_does_not_hold_up_the_others_of_its_call(node: LocalNode) -> None:
    """Each waits for all of them to be at work, the first one in the list too."""
    together = Barrier(4)

    def configure(lease: Lease) -> None:
        together.wait(DEADLINE)

    node.configure = configure
    leases = [
        dataclasses.replace(
            A_LEASE, device=DeviceName(f"gpu-{number}"), parent=f"uuid-gpu-{number}"
        )
        for number in range(4)
    ]
    plans = [
        Plan(
            a_ref(f"claim-{number}"),
            (ConfigureDevice(leases[number]),),
        )
        for number in range(4)
    ]
    assert node.parts.executor.work(
        plans, until=node.parts.clock() + DEADLINE, late=never_late
    ) == {
        plan.claim.uid: Result(edits=(an_edit(lease),))
        for plan, lease in zip(plans, leases, strict=True)
    }


def test_the_device_is_locked_while_the_backend_works_on_it(new_node: NewNode) -> None:
    node = new_node(clock=ManualClock())
    with node.lock(["device-gpu-0"], 0.0, "setting up for another claim"):
        errors = node.parts.executor.work([SET_UP], until=1035.0, late=never_late)
        resets = node.parts.executor.work([RESET], until=1070.0, late=never_late)
    for error in (errors[A_REF.uid].error, resets[A_REF.uid].error):
        assert isinstance(error, Temporary)
        assert str(error).startswith("device-gpu-0 is locked by process ")


def test_work_that_is_not_done_in_time_goes_on_and_tells_how_it_ended(node: LocalNode) -> None:
    begun, go_on, ended = Event(), Event(), Event()
    told: list[tuple[Plan, Result]] = []
    errors = [None, Permanent("no"), KeyError("x")]

    def configure(lease: Lease) -> None:
        begun.set()
        assert go_on.wait(DEADLINE)
        if (error := errors.pop(0)) is not None:
            raise error

    def late(plan: Plan):
        def end(result: Result) -> None:
            told.append((plan, result))
            ended.set()

        return end

    node.configure = configure
    executor = node.parts.executor
    for _ in range(3):
        for event in (begun, go_on, ended):
            event.clear()
        (result,) = executor.work([SET_UP], until=0.0, late=late).values()
        assert isinstance(result.error, Temporary)
        assert str(result.error).startswith(
            "claim default/claim (uid uid-claim): the work on its devices"
        )
        assert begun.wait(DEADLINE)
        assert executor.unfinished() == (A_REF,)
        go_on.set()
        assert ended.wait(DEADLINE)
    plans, results = zip(*told, strict=True)
    assert plans == (SET_UP,) * 3
    assert results[0] == DONE
    assert [str(result.error) for result in results[1:]] == [
        "no",
        "claim default/claim (uid uid-claim): KeyError: 'x'; this is a defect of the backend or the driver, report it",
    ]


def test_a_thread_that_may_hang_does_the_work_of_one_plan_itself(node: LocalNode) -> None:
    """But not of several, and not if as many others hang already as may."""
    threads: list[str] = []
    go_on, hanging = Event(), Semaphore(0)

    def configure(_lease: Lease) -> None:
        threads.append(current_thread().name)
        hanging.release()
        assert go_on.wait(DEADLINE)

    node.configure = configure
    executor = node.parts.executor

    def work(*devices: str) -> Thread:
        # Each on a device of its own, because work on one device waits for its lock.
        plans = [on_device(name) for name in devices]
        arguments = {"until": 1e9, "late": never_late, "may_hang": True}
        thread = Thread(target=executor.work, args=(plans,), kwargs=arguments, daemon=True)
        thread.start()
        for _ in plans:
            assert hanging.acquire(timeout=DEADLINE)
        return thread

    own = [work(f"gpu-{number}") for number in range(HERE_LIMIT)]
    assert threads == [thread.name for thread in own]
    assert len(executor.unfinished()) == HERE_LIMIT
    one_more = work("one-more")
    go_on.set()
    for thread in (*own, one_more):
        thread.join(DEADLINE)
    several = work("gpu-0", "gpu-1")
    several.join(DEADLINE)
    assert not {one_more.name, several.name} & set(threads)
    again = work("gpu-0")
    again.join(DEADLINE)
    assert threads[-1] == again.name
    assert executor.unfinished() == ()


def test_a_thread_that_may_hang_gets_the_error_of_its_work(node: LocalNode) -> None:
    def configure(_lease: Lease) -> None:
        raise KeyError("x")

    node.configure = configure
    (result,) = node.parts.executor.work(
        [SET_UP], until=1e9, late=never_late, may_hang=True
    ).values()
    assert "KeyError: 'x'" in str(result.error)
    assert node.parts.executor.work([], until=1e9, late=never_late, may_hang=True) == {}


def test_work_that_ends_in_time_is_not_late_and_is_not_remembered(node: LocalNode) -> None:
    assert node.parts.executor.work([SET_UP], until=1e9, late=never_late) == {A_REF.uid: DONE}
    assert node.parts.executor.unfinished() == ()


def test_a_plan_ends_where_it_cannot_be_shown_that_nothing_uses_the_devices(
    node: LocalNode,
) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    row = node.parts.row(ref.uid)
    assert row is not None
    node.presences[a_pod("claim")] = Alive("one process")
    plan = Plan(ref, (ShowUnused(row), ResetDevice(A_LEASE)))
    (result,) = node.parts.executor.work([plan], until=1e9, late=never_late).values()
    assert isinstance(result.error, StillUsed)
    assert str(result.error) == "pod pod-claim still runs: one process"
    assert [call[0] for call in node.backend_calls] == ["configure"]


class FewThreads(ThreadPoolExecutor):
    """Queues what it is given, and then has no thread for it, as Python does at a limit of threads."""

    def submit(self, *work: object) -> Future:  # type: ignore[override]
        super().submit(*work)
        raise RuntimeError("can't start new thread")


def test_work_that_got_no_thread_is_not_done_later(node: LocalNode) -> None:
    """Its claim has no lock by then."""
    done: list[DeviceName] = []
    gate = Event()
    with FewThreads(1) as pool:
        with suppress(RuntimeError):
            pool.submit(gate.wait, DEADLINE)
        executor = Executor(
            replace(
                node.parts.executor._hands,
                configure=lambda lease, _until: done.append(lease.device),
            ),
            pool,
        )
        plans = [on_device("gpu-0"), on_device("gpu-1")]
        results = executor.work(plans, until=1e9, late=never_late)
        assert executor.unfinished() == ()
        gate.set()
    assert done == []
    for result in results.values():
        assert isinstance(result.error, Temporary)
        assert "can't start new thread" in str(result.error)


def test_only_a_call_with_one_claim_does_the_work_itself(new_node: NewNode) -> None:
    """A hang would keep the other claims of the call locked too, even those that are Prepared already."""
    threads: list[str] = []
    node = new_node()
    node.configure = lambda _lease: threads.append(current_thread().name)
    one, two = node.add(a_claim("one"), a_claim("two", results=[a_result("gpu-1")]))
    prepare = PrepareClaims(node.parts, node._fetch, node.workers, may_hang=True)
    assert not isinstance(prepare((one,))[one.uid], Refusal)
    assert threads == [current_thread().name]
    assert not isinstance(prepare((one, two))[two.uid], Refusal)
    assert threads[1] != current_thread().name
