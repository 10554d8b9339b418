# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to a GPU, in whatever order: its severity falls by proof only, its taints do not flap, and it becomes healthy."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.backends.nvidia.facts import (
    Fabric,
    Gpu,
    HardwareEvent,
    Memory,
    Mig,
    MigDevice,
    Node,
    RemappedRows,
)
from dra_driver.backends.nvidia.findings import answers
from dra_driver.backends.nvidia.health import MAX_HOLD_SECONDS, HealthBook, Verdict
from dra_driver.backends.nvidia.options import HealthOptions

OPTIONS = HealthOptions()
HOLD = float(OPTIONS.recovery_seconds)
PARTS = (MigDevice(uuid="MIG-1", gpu_instance=1, compute_instance=0, profile=19),)
EVENTS = st.builds(
    HardwareEvent,
    uuid=st.sampled_from(["GPU-0", "MIG-1", "GPU-of-another-time", ""]),
    type=st.sampled_from([1, 2, 8, 256]),
    data=st.sampled_from([0, 13, 31, 43, 45, 48, 63, 79, 92, 94, 109, 154, 4711]),
    gpu_instance=st.sampled_from([None, 1, 5]),
)
FABRICS = st.builds(
    Fabric,
    state=st.integers(0, 4),
    health_mask=st.one_of(st.none(), st.integers(0, 0xFFF)),
    health_summary=st.one_of(st.none(), st.integers(0, 5)),
)
GPUS = st.builds(
    Gpu,
    index=st.just(0),
    uuid=st.just("GPU-0"),
    memory=st.sampled_from([None, Memory(total=80)]),
    mig=st.sampled_from([None, Mig(enabled=True, devices=PARTS)]),
    temperature=st.sampled_from([None, 40, 87, 95]),
    recovery_action=st.sampled_from([None, 0, 0, 0, 1, 2, 4, 6]),
    ecc_uncorrected=st.sampled_from([None, 0, 0, 1, 5]),
    remapped_rows=st.one_of(
        st.none(), st.builds(RemappedRows, pending=st.booleans(), failed=st.booleans())
    ),
    fabric=st.one_of(st.none(), FABRICS),
    problem=st.sampled_from(["", "", "", "it fell off the bus"]),
    errors=st.dictionaries(
        st.sampled_from(["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetFieldValues"]),
        st.sampled_from([3, 13, 15, 16, 999]),
        max_size=1,
    ),
)
WELL = Gpu(
    index=0,
    uuid="GPU-0",
    memory=Memory(total=80),
    mig=Mig(enabled=True, devices=PARTS),
    recovery_action=0,
    temperature=40,
)
STEPS = st.lists(
    st.tuples(
        st.floats(0.0, 2 * MAX_HOLD_SECONDS),
        st.lists(EVENTS, max_size=2),
        st.one_of(GPUS, st.none()),
    ),
    max_size=12,
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def severity(verdict: Verdict) -> int:
    """0 healthy, 1 watched, 2 unhealthy: what a reader of the slice sees."""
    return max((2 if one.effect == "NoSchedule" else 1 for one in verdict.taints), default=0)


@given(STEPS)
def test_severity_never_falls_at_a_look_that_proves_nothing_nor_before_the_hold_time(steps):
    clock = Clock()
    book = HealthBook(OPTIONS, clock=clock)
    before, bad_at = Verdict(), -HOLD
    for seconds, events, gpu in steps:
        clock.now += seconds
        for event in events:
            book.note(event)
        now = book.judge(Node(gpus=() if gpu is None else (gpu,))).get("GPU-0")
        if gpu is None or now is None:
            bad_at = clock.now
            continue
        if severity(now) < severity(before):
            assert answers(gpu)
            assert clock.now - bad_at >= HOLD
        if not answers(gpu):
            bad_at = clock.now
        before = now


@given(STEPS)
def test_a_gpu_that_is_well_for_long_enough_becomes_healthy(steps):
    clock = Clock()
    book = HealthBook(OPTIONS, clock=clock)
    for seconds, events, gpu in steps:
        clock.now += seconds
        for event in events:
            book.note(event)
        book.judge(Node(gpus=() if gpu is None else (gpu,)))
    book.judge(Node(gpus=(WELL,)))
    clock.now += 1.0
    book.judge(Node(gpus=(WELL,)))
    clock.now += MAX_HOLD_SECONDS
    verdicts = book.judge(Node(gpus=(WELL,)))
    assert {uuid: (one.health.status.name, one.taints) for uuid, one in verdicts.items()} == {
        "GPU-0": ("HEALTHY", ()),
        "MIG-1": ("HEALTHY", ()),
    }


def ill(**changes: object) -> Gpu:
    return msgspec.structs.replace(WELL, **changes)


LOST = ill(problem="it fell off the bus")
FAULTS = st.sampled_from(
    [
        LOST,
        ill(recovery_action=1),
        ill(recovery_action=4),
        ill(temperature=95),
        ill(remapped_rows=RemappedRows(failed=True)),
        ill(fabric=Fabric(state=3, health_summary=2)),
        ill(memory=None, errors={"nvmlDeviceGetMemoryInfo": 999}),
        HardwareEvent(uuid="GPU-0", type=8, data=48),
        HardwareEvent(uuid="GPU-0", type=2),
    ]
)


@given(st.lists(st.tuples(FAULTS, st.lists(st.floats(0.1, HOLD / 4), max_size=3)), max_size=30))
def test_faults_that_come_faster_than_the_hold_time_are_one_taint_without_a_gap(steps):
    clock = Clock()
    book = HealthBook(OPTIONS, clock=clock)
    for fault, pauses in steps:
        gpu = fault if isinstance(fault, Gpu) else WELL
        if isinstance(fault, HardwareEvent):
            book.note(fault)
        assert severity(book.judge(Node(gpus=(gpu,)))["GPU-0"]) == 2
        for pause in pauses:
            clock.now += pause
            assert severity(book.judge(Node(gpus=(WELL,)))["GPU-0"]) == 2


@given(st.lists(st.floats(1.0, 4 * HOLD), min_size=1, max_size=60))
def test_a_flapping_gpu_recovers_ever_more_seldom(pauses):
    """Each recovery takes twice as long as the one before, so their number does not grow with that of the faults."""
    clock = Clock()
    book = HealthBook(OPTIONS, clock=clock)
    hold = HOLD
    for pause in pauses:
        assert severity(book.judge(Node(gpus=(LOST,)))["GPU-0"]) == 2
        was_ill, until = True, clock.now + pause
        while clock.now < until:
            clock.now += 5.0
            is_ill = bool(severity(book.judge(Node(gpus=(WELL,)))["GPU-0"]))
            if was_ill and not is_ill:
                assert pause + 5.0 >= hold
                hold *= 2
            assert was_ill or not is_ill
            was_ill = is_ill
    assert (
        hold <= 8 * HOLD
    )  # the third recovery needs four times the hold time, and no pause is longer
