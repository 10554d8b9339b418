# SPDX-License-Identifier: Apache-2.0
"""What is left on a GPU that no claim has, and what is no sign of anybody."""

import pytest
from msgspec.structs import replace

from dra_driver.backends.nvidia.clean import computing, left_on, over_floor
from dra_driver.backends.nvidia.facts import Gpu, Memory, Process
from tests.support.watched_nvidia import DIVIDED, GIB, PARTS, WHOLE

FLOOR = 64 * 2**20
COMPUTE = Process(pid=4711, used_memory=3 * GIB)
DESKTOP = Process(pid=800, kind="graphics")
DAEMON = Process(pid=900, kind="mps")


def using(amount: int, gpu: Gpu = WHOLE) -> Gpu:
    return replace(gpu, memory=Memory(total=80 * GIB, used=amount, reserved=0))


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ((COMPUTE,), "process 4711 uses it"),
        ((COMPUTE, replace(COMPUTE, used_memory=None)), "process 4711 uses it"),
        ((DAEMON, DESKTOP, COMPUTE), "processes 900, 4711 use it"),
        (tuple(Process(pid=number) for number in range(5)), "processes 0, 1, 2 and 2 more use it"),
        ((DESKTOP,), ""),
    ],
)
def test_processes_that_compute_are_named(processes: tuple[Process, ...], expected: str) -> None:
    assert left_on(using(3 * GIB), processes, FLOOR) == expected


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (FLOOR, ""),
        (FLOOR + 1, "less than 1 GiB of its memory are used, and no process is seen that does"),
        (3 * GIB + 5, "about 3 GiB of its memory are used, and no process is seen that does"),
    ],
)
def test_memory_that_nobody_admits_to_is_told_in_whole_gib(amount: int, expected: str) -> None:
    assert left_on(using(amount), (), FLOOR) == expected
    assert over_floor(using(amount), FLOOR) is (amount > FLOOR)


def test_memory_alone_says_nothing_where_the_kernel_or_other_devices_use_it() -> None:
    shared = replace(using(3 * GIB), addressing_mode=2)
    assert left_on(shared, (), FLOOR) == ""
    assert left_on(shared, (COMPUTE,), FLOOR) == "process 4711 uses it"
    assert left_on(using(3 * GIB, DIVIDED), (), FLOOR, PARTS[0]) == ""
    none = replace(WHOLE, memory=None)
    assert left_on(none, (), FLOOR) == ""
    assert not over_floor(none, FLOOR)


def test_used_memory_is_no_sign_where_the_library_counts_what_the_kernel_driver_keeps_as_used() -> (
    None
):
    old = replace(WHOLE, memory=Memory(total=80 * GIB, used=GIB))
    assert left_on(old, (), FLOOR) == ""
    assert left_on(old, (COMPUTE,), FLOOR) == "process 4711 uses it"


def test_a_process_is_on_one_mig_device() -> None:
    one = replace(COMPUTE, gpu_instance=7, compute_instance=0)
    instance = replace(COMPUTE, gpu_instance=8)
    other = replace(COMPUTE, gpu_instance=7, compute_instance=3)
    everything = (one, instance, other, COMPUTE)
    assert computing(everything, PARTS[0]) == (one,)
    assert computing(everything, PARTS[1]) == (instance,)
    assert computing(everything) == everything
