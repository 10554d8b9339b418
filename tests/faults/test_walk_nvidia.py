# SPDX-License-Identifier: Apache-2.0
"""A short random walk over a mock of NVIDIA's library, which is built with the system's compiler: part of `make e2e`."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.model.claim import ClaimRef
from dra_driver.testing.stage import DRIVER, wait_for
from tests.faults.departures import SHORT_CALL_SECONDS
from tests.faults.nvidia_machine import FACTS, Nvidia, NvidiaBed, heal_hardware, interval
from tests.faults.walk import Walk, walk
from tests.support.nvidia_names import uuids

pytestmark = pytest.mark.real
STEPS = 100
GPU = uuids(FACTS)["gpu-0"]


@pytest.fixture
def fresh() -> Iterator[tuple[Walk, NvidiaBed]]:
    """A walk that has taken no step yet, and its bed."""
    with tempfile.TemporaryDirectory(prefix="walk-", dir="/tmp") as root:
        found = Walk(Path(root), 1, Nvidia())
        assert isinstance(found.bed, NvidiaBed)
        found.bed.start_registered()
        found.bed.wait_for(found.bed.published, "the slices")
        found.steps.append("by hand")
        yield found, found.bed
        found.bed.close()


def test_every_promise_holds_after_each_step_of_a_walk() -> None:
    assert walk(STEPS, 1, machine="nvidia").taken.total() == STEPS


def test_the_hardware_process_ends_with_its_driver(fresh: tuple[Walk, NvidiaBed]) -> None:
    _, bed = fresh
    assert len(bed.hardware_processes()) == 1
    bed.kill()
    wait_for(lambda: not bed.hardware_processes(), "the end of the hardware process")


def test_a_dead_hardware_process_is_replaced_within_the_call(
    fresh: tuple[Walk, NvidiaBed],
) -> None:
    walked, bed = fresh
    claim = _asks_for_long(bed)
    walked.place(claim, ("gpu-0",))
    [pid] = bed.hardware_processes()
    os.kill(pid, signal.SIGKILL)
    (pod,) = walked.pods.values()
    walked.try_to_start(pod)
    assert pod.runs
    assert bed.mock.time_slice(GPU) == 3
    assert [pid] != bed.hardware_processes()
    walked._check()
    walked.end(pod)
    walked._check()
    assert bed.mock.time_slice(GPU) == 0


def test_the_walk_notices_a_setting_that_is_not_put_back(fresh: tuple[Walk, NvidiaBed]) -> None:
    walked, bed = fresh
    claim = _asks_for_long(bed)
    walked.place(claim, ("gpu-0",))
    (pod,) = walked.pods.values()
    walked.try_to_start(pod)
    walked.end(pod)
    with (bed.mock.state / "journal").open("a") as journal:
        journal.write(f"4711 time-slice {GPU} 3\n")
    with pytest.raises(AssertionError, match="nobody owns gpu-0"):
        walked._settings_are_owned()


def test_a_gpu_that_has_gone_takes_its_setting_with_it(fresh: tuple[Walk, NvidiaBed]) -> None:
    walked, bed = fresh
    walked.place(_asks_for_long(bed), ("gpu-0",))
    (pod,) = walked.pods.values()
    walked.try_to_start(pod)
    assert bed.mock.time_slice(GPU) == 3
    bed.vanish("gpu-0")
    walked.vanished.add("gpu-0")
    walked.end(pod)
    wait_for(lambda: not bed.claims(), "the end of the claim")
    bed.vanish()
    walked._settings_are_owned()
    assert bed.mock.time_slice(GPU) is None


def test_an_end_is_answered_while_gpus_hang_and_the_setting_is_put_back_later(
    fresh: tuple[Walk, NvidiaBed],
) -> None:
    walked, bed = fresh
    walked.place(_asks_for_long(bed), ("gpu-0",))
    (pod,) = walked.pods.values()
    walked.try_to_start(pod)
    for index in (3, 4):
        bed.mock.hang("nvmlDeviceGetMemoryInfo*", index)
    bed.kill()
    bed.start_registered()
    bed.kubelet.call_seconds = SHORT_CALL_SECONDS
    walked.end(pod)
    assert not walked.pods
    assert bed.mock.time_slice(GPU) != 0
    (row,) = bed.claims().values()
    assert row.held is not None
    wait_for(lambda: bed.mock.time_slice(GPU) == 0, "the time slice")
    wait_for(lambda: not bed.claims(), "the end of the claim")


def test_a_row_and_a_file_that_are_both_lost_are_made_anew_when_the_hardware_answers(
    fresh: tuple[Walk, NvidiaBed],
) -> None:
    walked, bed = fresh
    walked.place(bed.new_claim("c", ["gpu-0"], pod=None), ("gpu-0",))
    (pod,) = walked.pods.values()
    bed.kubelet.prepare(DRIVER, [pod.claim], pod=f"default/{pod.name}", uid=pod.uid)
    bed.kubelet.cgroups.end(pod.uid)  # it has the answer, and has started nothing yet
    bed.kill()
    file = bed.cdi_dir / walked._file(pod.claim.uid)
    file.write_bytes(b"")
    walked.tampered.add(file.name)
    for path in bed.state_files():
        path.unlink()
    walked.unsettled.add("state")
    for index in (3, 4):
        bed.mock.hang("nvmlDeviceGetMemoryInfo*", index)
    bed.hangs = True
    walked._start()
    walked._wait_for_sweep()
    walked.try_to_start(pod)
    assert not pod.runs
    heal_hardware(walked)
    wait_for(lambda: walked.try_to_start(pod) or pod.runs, "the claim's file")
    walked._check()


def _asks_for_long(bed: NvidiaBed) -> ClaimRef:
    """A claim whose UID makes it ask for long time slices of whole GPUs."""
    while True:
        claim = bed.new_claim(f"c{len(bed.api.objects('resourceclaims'))}", ["gpu-0"], pod=None)
        if interval(claim.uid, ["gpu-0"]) == "Long":
            return claim
        bed.deallocate(claim)
