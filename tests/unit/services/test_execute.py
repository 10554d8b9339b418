# SPDX-License-Identifier: Apache-2.0
"""How plans are walked: which errors are tried again, and what becomes of work that outlives its call."""

from collections.abc import Callable
from threading import Barrier, Event, Thread

import pytest

from dra_driver.errors import Permanent, Temporary
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.ids import DeviceName
from dra_driver.model.plan import (
    ConfigureDevice,
    MarkPrepared,
    Plan,
    RemoveCdiSpec,
    ResetDevice,
    WriteCdiSpec,
)
from dra_driver.services.execute import FAILPOINTS
from dra_driver.testing.builders import a_device, a_ref
from dra_driver.testing.local_node import LocalNode, ManualClock

DEADLINE = 300  # seconds, against hanging only
NewNode = Callable[..., LocalNode]
A_REF = a_ref()
SET_UP = Plan(A_REF, (ConfigureDevice(a_device(), DeviceConfig()),))
RESET = Plan(A_REF, (ResetDevice(DeviceName("gpu-0")),))


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
        "step.Forget.before",
        "step.Forget.after",
        "step.ConfigureDevice.before",
        "step.ConfigureDevice.after",
        "step.WriteCdiSpec.before",
        "step.WriteCdiSpec.after",
        "step.RemoveCdiSpec.before",
        "step.RemoveCdiSpec.after",
        "step.ResetDevice.before",
        "step.ResetDevice.after",
    )


def test_work_skips_the_marks(node: LocalNode) -> None:
    steps = (WriteCdiSpec(A_REF.uid, "text"), MarkPrepared(A_REF.uid), RemoveCdiSpec(A_REF.uid))
    assert node.parts.executor.work([Plan(A_REF, steps)], until=1e9) == {A_REF.uid: None}
    assert node.disk().claims == node.disk().files == {}


def test_a_temporary_error_is_tried_again_inside_the_call(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    errors = [Temporary("busy"), Temporary("busy", retry_after_seconds=4.0), Temporary("busy")]

    def configure(device, config) -> None:
        if errors:
            raise errors.pop(0)

    node.configure = configure
    assert node.parts.executor.work([SET_UP], until=clock() + 35) == {A_REF.uid: None}
    assert clock.pauses == [0.05, 4.0, 0.25]


def test_a_temporary_error_is_answered_when_the_time_is_up(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    error = Temporary("busy")
    begun = clock()

    def configure(device, config) -> None:
        raise error

    node.configure = configure
    assert node.parts.executor.work([SET_UP], until=begun + 35) == {A_REF.uid: error}
    assert clock.pauses[:7] == [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 2.0]
    assert begun + 32 < clock() < begun + 35


def test_an_error_that_asks_for_more_time_than_there_is_ends_the_call(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)

    def configure(device, config) -> None:
        raise Temporary("resetting", retry_after_seconds=60)

    node.configure = configure
    (error,) = node.parts.executor.work([SET_UP], until=clock() + 35).values()
    assert (str(error), clock.pauses) == ("resetting", [])


def test_a_permanent_error_is_not_tried_again(node: LocalNode) -> None:
    tries: list[str] = []

    def configure(device, config) -> None:
        tries.append(device.name)
        raise Permanent("no")

    node.configure = configure
    (error,) = node.parts.executor.work([SET_UP], until=1e9).values()
    assert (str(error), tries) == ("no", ["gpu-0"])


def test_a_foreign_error_is_permanent_and_keeps_its_cause(node: LocalNode) -> None:
    cause = KeyError("x")

    def configure(device, config) -> None:
        raise cause

    node.configure = configure
    (error,) = node.parts.executor.work([SET_UP], until=1e9).values()
    assert isinstance(error, Permanent)
    assert error.__cause__ is cause


def test_an_exit_of_the_process_is_not_an_error_of_a_claim(node: LocalNode) -> None:
    def configure(device, config) -> None:
        raise Unfriendly

    node.configure = configure
    with pytest.raises(Unfriendly):
        node.parts.executor.work([SET_UP], until=1e9)


def test_a_failed_piece_of_work_is_done_again_by_the_next_call(node: LocalNode) -> None:
    errors = [Permanent("no")]

    def configure(device, config) -> None:
        if errors:
            raise errors.pop()

    node.configure = configure
    assert node.parts.executor.work([SET_UP], until=1e9) != {A_REF.uid: None}
    assert node.parts.executor.work([SET_UP], until=1e9) == {A_REF.uid: None}


def test_a_slow_plan_does_not_hold_up_the_others_of_its_call(node: LocalNode) -> None:
    """Each waits for all of them to be at work, the first one in the list too."""
    together = Barrier(4)

    def configure(device, config) -> None:
        together.wait(DEADLINE)

    node.configure = configure
    plans = [
        Plan(
            a_ref(f"claim-{number}"), (ConfigureDevice(a_device(f"gpu-{number}"), DeviceConfig()),)
        )
        for number in range(4)
    ]
    assert node.parts.executor.work(plans, until=node.parts.clock() + DEADLINE) == {
        plan.claim.uid: None for plan in plans
    }


def test_the_device_is_locked_while_the_backend_works_on_it(new_node: NewNode) -> None:
    node = new_node(clock=ManualClock())
    with node.lock(["device-gpu-0"], 0.0, "setting up for another claim"):
        errors = node.parts.executor.work([SET_UP], until=1035.0)
        resets = node.parts.executor.work([RESET], until=1070.0)
    for error in (errors[A_REF.uid], resets[A_REF.uid]):
        assert isinstance(error, Temporary)
        assert str(error).startswith("device-gpu-0 is locked by process ")


def test_another_plan_for_the_claim_waits_until_the_earlier_work_has_ended(node: LocalNode) -> None:
    begun, go_on = Event(), Event()
    order: list[str] = []

    def configure(device, config) -> None:
        begun.set()
        assert go_on.wait(DEADLINE)
        order.append("configured")

    node.configure = configure
    node.reset = lambda device: order.append("reset")
    (late,) = node.parts.executor.work([SET_UP], until=0.0).values()
    assert isinstance(late, Temporary)
    assert begun.wait(DEADLINE)
    answers: list[object] = []
    clock = node.parts.clock
    second = Thread(
        target=lambda: answers.append(node.parts.executor.work([RESET], until=clock() + DEADLINE))
    )
    second.start()
    go_on.set()
    second.join(DEADLINE)
    assert order == ["configured", "reset"]
    assert answers == [{A_REF.uid: None}]


def test_another_plan_gives_up_when_the_earlier_work_does_not_end(node: LocalNode) -> None:
    begun, go_on, ended = Event(), Event(), Event()

    def configure(device, config) -> None:
        begun.set()
        assert go_on.wait(DEADLINE)
        ended.set()

    node.configure = configure
    executor, clock = node.parts.executor, node.parts.clock
    removal = Plan(A_REF, (RemoveCdiSpec(A_REF.uid),))
    executor.work([SET_UP], until=0.0)
    assert begun.wait(DEADLINE)
    for _ in range(
        2
    ):  # the second try finds the first work still there, not only the one that gave up
        (error,) = executor.work([removal], until=0.0).values()
        assert isinstance(error, Temporary)
        assert not ended.is_set()
    go_on.set()
    # A fresh plan waits for everything that still runs.
    assert executor.work([RESET], until=clock() + DEADLINE) == {A_REF.uid: None}
    assert ended.is_set()


def test_work_that_gave_up_waiting_says_what_it_waited_for(node: LocalNode) -> None:
    begun, go_on = Event(), Event()

    def configure(device, config) -> None:
        begun.set()
        assert go_on.wait(DEADLINE)

    node.configure = configure
    executor = node.parts.executor
    executor.work([SET_UP], until=0.0)
    assert begun.wait(DEADLINE)
    (error,) = executor.work([RESET], until=0.0).values()
    if "takes longer" in str(
        error
    ):  # the call ended before its work did: the next one fetches the result
        (error,) = executor.work([RESET], until=node.parts.clock() + DEADLINE).values()
    go_on.set()
    assert str(error) == (
        "claim default/claim (uid uid-claim): work of an earlier call on its devices still goes on; the kubelet tries again"
    )
