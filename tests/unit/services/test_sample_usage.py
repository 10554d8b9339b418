# SPDX-License-Identifier: Apache-2.0
"""Samples for the metrics: hardware that hangs costs its own values, and the kubelet is asked only when it matters."""

from collections.abc import Mapping
from threading import Event, Thread

import pytest
from msgspec.structs import replace

from dra_driver.errors import Temporary
from dra_driver.model.events import ClaimPrepared, ClaimUnprepared, Published
from dra_driver.model.ids import ClaimUid, DeviceName, PodUid
from dra_driver.model.inventory import Inventory
from dra_driver.model.state import PreparedClaim, Unknown, Users
from dra_driver.model.usage import ContainerUse, DeviceUsage, NodeUsage, UsageSample
from dra_driver.planning.claim_totals import device_seconds
from dra_driver.services.sample_usage import (
    ASK_AGAIN_SECONDS,
    SAMPLE_SECONDS,
    SETTLE_SECONDS,
    SHARED_SECONDS,
    Sources,
    UsageSampler,
)
from dra_driver.testing.builders import a_device, a_ref
from tests.support.local_node import ManualClock
from tests.support.usage_rows import a_row, a_use

GPU_0, GPU_1 = DeviceName("gpu-0"), DeviceName("gpu-1")
HALF = DeviceUsage(utilization_ratio=0.5)
FULL = DeviceUsage(utilization_ratio=1.0)


class Node:
    """Everything outside, as the test wants it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.usage: Mapping[DeviceName, DeviceUsage] | BaseException = {}
        self.devices = (a_device("gpu-0"), a_device("gpu-1"))
        self.rows: tuple[PreparedClaim, ...] | Exception = ()
        self.containers: tuple[ContainerUse, ...] | Unknown = ()
        self.asked = 0
        self.size: int | OSError = 4096
        self.wait = Event.wait
        self.sampler = self.made()

    def made(self, **others: object) -> UsageSampler:
        def usage() -> Mapping[DeviceName, DeviceUsage]:
            return raised(self.usage)

        def ask() -> tuple[ContainerUse, ...] | Unknown:
            self.asked += 1
            return self.containers

        sources = Sources(
            usages={"acme": usage, **others},
            inventory=lambda: Inventory(self.devices),
            rows=lambda: raised(self.rows),
            state_bytes=lambda: raised(self.size),
            containers=ask,
        )
        return UsageSampler(sources, clock=self.clock, wait=self.waits)

    def waits(self, stop: Event, seconds: float) -> bool:
        return self.wait(stop, seconds)


def raised(answer):
    if isinstance(answer, BaseException):
        raise answer
    return answer


@pytest.fixture
def node() -> Node:
    return Node()


def test_nothing_is_known_before_the_first_sample(node: Node) -> None:
    assert node.sampler.current() == NodeUsage()


def test_a_sample_has_the_time_at_which_it_was_begun(node: Node) -> None:
    node.usage = {GPU_0: HALF}
    node.sampler.sample("acme")
    assert node.sampler.current().samples == {GPU_0: UsageSample(HALF, 1000.0)}


def test_a_device_that_gives_no_value_keeps_its_last_one(node: Node) -> None:
    node.usage = {GPU_0: HALF, GPU_1: HALF}
    node.sampler.sample("acme")
    node.clock.now += 15.0
    node.usage = {GPU_1: FULL}
    node.sampler.sample("acme")
    assert node.sampler.current().samples == {
        GPU_0: UsageSample(HALF, 1000.0),
        GPU_1: UsageSample(FULL, 1015.0),
    }


def test_it_is_noted_when_a_device_that_a_backend_measures_was_found(node: Node) -> None:
    """Hardware that hangs from the start gives no first sample; a backend that measures nothing gives none either."""
    node.devices = (
        replace(a_device("gpu-0"), backend="acme"),
        replace(a_device("gpu-1"), backend="another"),
    )
    node.sampler.look()
    node.clock.now += 500.0
    node.sampler.look()
    assert node.sampler.current().found == {GPU_0: 1000.0}
    both, node.devices = node.devices, ()
    node.sampler.look()
    node.devices = both
    node.sampler.look()
    assert node.sampler.current().found == {GPU_0: 1500.0}


@pytest.mark.parametrize(
    "error", [Temporary("no answer"), ValueError("a fault of the backend"), SystemExit("a main()")]
)
def test_a_backend_that_fails_keeps_all_and_is_told_once(node: Node, capsys, error) -> None:
    node.usage = {GPU_0: HALF}
    node.sampler.sample("acme")
    node.usage = error
    node.sampler.sample("acme")
    node.sampler.sample("acme")
    assert node.sampler.current().samples == {GPU_0: UsageSample(HALF, 1000.0)}
    assert capsys.readouterr().out.count("usage_not_sampled") == 1
    node.usage = {}
    node.sampler.sample("acme")
    node.usage = error
    node.sampler.sample("acme")
    assert capsys.readouterr().out.count("usage_not_sampled") == 1


def test_hardware_that_hangs_holds_up_neither_a_scrape_nor_another_backend(node: Node) -> None:
    go, reached = Event(), Event()

    def hanging() -> Mapping[DeviceName, DeviceUsage]:
        reached.set()
        go.wait()
        return {GPU_1: FULL}

    sampler = node.made(hung=hanging)
    thread = Thread(target=sampler.sample, args=("hung",))
    thread.start()
    assert reached.wait(10)
    node.usage = {GPU_0: HALF}
    sampler.sample("acme")
    sampler.look()
    assert sampler.current().samples == {GPU_0: UsageSample(HALF, 1000.0)}
    go.set()
    thread.join(10)
    assert sampler.current().samples.keys() == {GPU_0, GPU_1}


def test_a_look_reads_devices_rows_containers_and_the_size(node: Node) -> None:
    node.rows, node.containers = (a_row(),), (a_use(),)
    node.sampler.look()
    kept = node.sampler.current()
    assert replace(kept, totals={}) == NodeUsage(node.devices, {}, (a_row(),), (a_use(),), {}, 4096)
    assert [one.since for one in kept.totals.values()] == [1000.0]


def test_the_sample_of_a_device_that_is_gone_goes(node: Node) -> None:
    node.usage = {GPU_0: HALF, GPU_1: HALF}
    node.sampler.sample("acme")
    node.devices = node.devices[:1]
    node.sampler.look()
    assert node.sampler.current().samples.keys() == {GPU_0}


def test_what_cannot_be_read_stays_as_it_was(node: Node, capsys) -> None:
    node.rows = (a_row(),)
    node.sampler.look()
    before = node.sampler.current()
    node.rows = Temporary("the state file is locked")
    node.sampler.look()
    node.sampler.look()
    assert node.sampler.current() == before
    assert capsys.readouterr().out.count("usage_not_sampled") == 1
    node.rows, node.size = (), OSError("gone")
    node.sampler.look()
    assert node.sampler.current().state_bytes == 4096


def test_the_kubelet_is_asked_when_claims_or_pods_are_new(node: Node) -> None:
    node.sampler.look()
    assert node.asked == 0
    node.rows, node.containers = (a_row(),), (a_use(),)
    node.sampler.look()
    node.clock.now += 10 * ASK_AGAIN_SECONDS
    node.sampler.look()
    assert node.asked == 1
    node.rows = (a_row(users=Users((PodUid("another"),))),)
    node.sampler.look()
    assert node.asked == 2
    node.rows = ()
    node.sampler.look()
    assert node.asked == 2


def test_a_kubelet_that_does_not_list_a_claim_is_asked_again_later(node: Node) -> None:
    node.rows = (a_row(),)
    node.sampler.look()
    node.sampler.look()
    assert node.asked == 1
    node.clock.now += ASK_AGAIN_SECONDS
    node.containers = (a_use(),)
    node.sampler.look()
    assert node.sampler.current().uses == (a_use(),)
    node.clock.now += ASK_AGAIN_SECONDS
    node.sampler.look()
    assert node.asked == 2


def test_without_an_answer_the_last_containers_stay(node: Node) -> None:
    node.rows, node.containers = (a_row(),), (a_use(),)
    node.sampler.look()
    node.rows, node.containers = (a_row(), a_row("other")), Unknown("no socket")
    node.sampler.look()
    assert node.sampler.current().uses == (a_use(),)


def test_without_an_answer_nobody_is_called_by_the_name_of_who_was_before(node: Node) -> None:
    node.rows, node.containers = (a_row(),), (a_use(),)
    node.sampler.look()
    node.rows = (replace(a_row(), ref=replace(a_row().ref, uid=ClaimUid("made-anew"))),)
    node.containers = Unknown("no socket")
    node.sampler.look()
    assert node.sampler.current().uses == ()


def test_nor_while_nobody_is_asked_because_the_kubelet_was_silent(node: Node) -> None:
    node.rows, node.containers = (a_row(),), (a_use(),)
    node.sampler.look()
    node.rows, node.containers = (a_row(), a_row("other")), Unknown("no socket")
    node.sampler.look()
    assert node.sampler.current().uses == (a_use(),)
    asked = node.asked
    anew = replace(a_row(), ref=replace(a_row().ref, uid=ClaimUid("made-anew")))
    node.rows = (anew, a_row("other"))
    node.sampler.look()
    assert (node.asked, node.sampler.current().uses) == (asked, ())


def test_a_kubelet_that_is_silent_is_asked_less_and_less_often(node: Node) -> None:
    node.rows, node.containers = (a_row(),), Unknown("no socket")
    node.sampler.look()
    for pause in (60.0, 120.0, 240.0, 480.0, 960.0, 1800.0, 1800.0):
        asked = node.asked
        node.clock.now += pause - 1.0
        node.rows = (*node.rows, a_row(f"new-{pause}"))
        node.sampler.look()
        assert node.asked == asked
        node.clock.now += 1.0
        node.sampler.look()
        assert node.asked == asked + 1


def test_a_claim_that_several_pods_use_is_asked_about_every_few_minutes(node: Node) -> None:
    both = Users((PodUid("a"), PodUid("b")))
    node.rows, node.containers = (a_row(users=both),), (a_use(),)
    node.sampler.look()
    node.clock.now += SHARED_SECONDS - 1.0
    node.sampler.look()
    assert node.asked == 1
    node.clock.now += 1.0
    node.sampler.look()
    assert node.asked == 2


def test_a_claim_counts_from_the_moment_when_it_was_prepared(node: Node) -> None:
    node.sampler(ClaimPrepared(a_ref("train"), 0.1))
    node.sampler(ClaimPrepared(a_ref("failed"), 0.1, "no such device"))
    node.sampler(Published(1, 1))
    node.clock.now += 7.0
    node.sampler(ClaimPrepared(a_ref("train"), 0.1))
    node.rows = (a_row("train"), a_row("failed"))
    node.sampler.look()
    since = {one.claim: one.since for one in node.sampler.current().totals.values()}
    assert since == {"train": 1000.0, "failed": 1007.0}


def test_the_time_of_a_claim_goes_on_while_its_device_is_gone_and_the_memory_does_not(
    node: Node,
) -> None:
    node.rows, node.usage = (a_row(),), {GPU_0: DeviceUsage(memory_used_bytes=10)}
    node.sampler.look()
    (key,) = node.sampler.current().totals

    def after(seconds: float) -> tuple[float, float | None, float | None]:
        node.sampler.sample("acme")
        node.clock.now += seconds
        node.sampler.look()
        totals = node.sampler.current().totals[key]
        return device_seconds(totals, node.clock.now), totals.memory_byte_seconds, totals.ended

    assert after(20.0) == (20.0, 200.0, None)
    node.devices = (a_device("gpu-1"),)
    assert after(600.0) == (620.0, 200.0, None)  # it keeps the device from all others
    node.rows = ()
    assert after(10.0) == (630.0, 200.0, 1630.0)
    assert after(50.0) == (630.0, 200.0, 1630.0)


class Passes:
    """Instead of waiting, time passes; after so many pauses the loop stops. `then` is called at each pause."""

    def __init__(self, node: Node, pauses: int) -> None:
        self.node, self.left = node, pauses
        self.seconds: list[float] = []
        self.then = lambda _pause: None

    def __call__(self, _stop: Event, seconds: float) -> bool:
        self.seconds.append(seconds)
        self.node.clock.now += seconds
        self.then(len(self.seconds))
        return len(self.seconds) == self.left


def test_a_backend_is_asked_again_and_again(node: Node) -> None:
    node.wait = passes = Passes(node, 2)
    node.usage = {GPU_0: HALF}
    node.sampler.loops()["usage-acme"](Event())
    assert passes.seconds == [SAMPLE_SECONDS, SAMPLE_SECONDS]
    assert node.sampler.current().samples == {GPU_0: UsageSample(HALF, 1000.0 + SAMPLE_SECONDS)}


def test_the_state_is_read_after_a_change_and_otherwise_with_each_sample(node: Node) -> None:
    looked: list[float] = []
    node.wait = passes = Passes(node, 20)

    def rows() -> tuple[PreparedClaim, ...]:
        looked.append(node.clock.now - 1000.0)
        return ()

    node.sampler = UsageSampler(
        replace(node.sampler._sources, rows=rows),
        clock=node.clock,
        wait=node.waits,
    )

    def changes(pause: int) -> None:
        if pause == 3:
            node.sampler(ClaimUnprepared(a_ref(), 0.1))

    passes.then = changes
    node.sampler.loops()["usage-of-claims"](Event())
    assert set(passes.seconds) == {SETTLE_SECONDS}
    assert looked == [0.0, 3.0, 18.0]


def test_there_is_a_thread_for_each_backend_and_one_for_claims(node: Node) -> None:
    assert list(node.made(other=dict).loops()) == ["usage-acme", "usage-other", "usage-of-claims"]
