# SPDX-License-Identifier: Apache-2.0
"""Usage of NVIDIA's devices: units, partitions, and patience with GPUs that hang."""

from collections.abc import Callable

import pytest

from dra_driver.backends.nvidia.facts import Memory, Node, Usage
from dra_driver.backends.nvidia.recorded import RecordedHardware
from dra_driver.backends.nvidia.usage import (
    AGAIN_SECONDS,
    HUNG_AGAIN_SECONDS,
    HUNG_SECONDS,
    REASONS,
    UsageOfGpus,
)
from dra_driver.errors import Permanent, Temporary
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.lease import Hardware
from dra_driver.model.usage import DeviceUsage
from dra_driver.testing.builders import a_device

FULL = Usage(
    gpu_percent=50,
    memory_percent=25,
    memory=Memory(total=80, used=20, reserved=1),
    temperature=61,
    power_milliwatts=350_500,
    power_limit_milliwatts=700_000,
    sm_clock_mhz=1980,
    memory_clock_mhz=2619,
    clock_reasons=0x5,
    ecc_corrected=3,
    ecc_uncorrected=1,
    mig_memory={"MIG-1": Memory(total=10, used=4)},
)
THROTTLED = {name: name == "sw_power_cap" for name in REASONS}


def a_gpu(number: int, *, partition: str = "") -> AllocatableDevice:
    parts = ("memory-slice-0",) if partition else ()
    plain = a_device(f"gpu-{number}{'-mig' if partition else ''}")
    return AllocatableDevice(
        plain.api, partition or f"GPU-{number}", hardware=Hardware(f"GPU-{number}", parts)
    )


class Answers(RecordedHardware):
    """Hardware that answers as the test says."""

    def __init__(self) -> None:
        super().__init__(Node())
        self.now = 0.0
        self.asked: list[str] = []
        self.does: dict[str, Callable[[], Usage]] = {}

    def usage(self, uuid: str) -> Usage:
        self.asked.append(uuid)
        return self.does.get(uuid, lambda: FULL)()

    def hangs(self) -> Usage:
        self.now += HUNG_SECONDS
        raise Temporary("no answer")

    def refuses(self) -> Usage:
        raise Permanent("this GPU cannot")

    def asks(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def hardware() -> Answers:
    return Answers()


@pytest.fixture
def usages(hardware: Answers) -> UsageOfGpus:
    return UsageOfGpus(hardware, clock=lambda: hardware.now)


def test_a_gpu_has_all_values_in_base_units(usages: UsageOfGpus) -> None:
    assert usages.read([a_gpu(0)]) == {
        "gpu-0": DeviceUsage(
            utilization_ratio=0.5,
            memory_utilization_ratio=0.25,
            memory_used_bytes=20,
            memory_total_bytes=80,
            memory_reserved_bytes=1,
            temperature_celsius=61,
            power_watts=350.5,
            power_limit_watts=700.0,
            clocks_hertz={"sm": 1980e6, "memory": 2619e6},
            ecc_errors={"corrected": 3, "uncorrected": 1},
            throttled=THROTTLED,
        )
    }


def test_a_partition_has_its_own_memory_and_what_it_shares_without_being_added_up(
    usages: UsageOfGpus, hardware: Answers
) -> None:
    found = usages.read([a_gpu(0, partition="MIG-1"), a_gpu(0, partition="MIG-2")])
    assert found["gpu-0-mig"] == DeviceUsage(
        temperature_celsius=61,
        clocks_hertz={"sm": 1980e6, "memory": 2619e6},
        throttled=THROTTLED,
    )
    assert hardware.asks() == ["GPU-0"]  # one request for a GPU, whatever its partitions
    assert usages.read([a_gpu(0, partition="MIG-1")])["gpu-0-mig"].memory_used_bytes == 4


def test_what_a_gpu_cannot_say_is_left_out(usages: UsageOfGpus, hardware: Answers) -> None:
    hardware.does["GPU-0"] = Usage
    assert usages.read([a_gpu(0)]) == {"gpu-0": DeviceUsage()}


def test_a_gpu_that_hangs_costs_its_own_values(usages: UsageOfGpus, hardware: Answers) -> None:
    devices = [a_gpu(0), a_gpu(1), a_gpu(2)]
    hardware.does["GPU-1"] = hardware.hangs
    # Nobody knew: the round ends with it, and after a pause the next one asks all others first.
    assert usages.read(devices).keys() == {"gpu-0"}
    hardware.asks()
    assert usages.read(devices) == {}
    assert hardware.asks() == []
    hardware.now += AGAIN_SECONDS[0]
    assert usages.read(devices).keys() == {"gpu-0", "gpu-2"}
    assert hardware.asks() == ["GPU-0", "GPU-2", "GPU-1"]


def test_a_gpu_that_hangs_again_is_left_alone_for_hours(
    usages: UsageOfGpus, hardware: Answers
) -> None:
    devices = [a_gpu(0), a_gpu(1)]
    hardware.does["GPU-0"] = hardware.hangs
    for _ in range(2):
        usages.read(devices)
        hardware.now += AGAIN_SECONDS[0]
    hardware.asks()
    hardware.now += HUNG_AGAIN_SECONDS - AGAIN_SECONDS[0] - 1.0
    usages.read(devices)
    assert hardware.asks() == ["GPU-1"]
    hardware.now += 1.0
    usages.read(devices)
    assert hardware.asks() == ["GPU-1", "GPU-0"]


def test_a_gpu_that_failed_is_asked_last_and_less_and_less_often(
    usages: UsageOfGpus, hardware: Answers
) -> None:
    devices = [a_gpu(0), a_gpu(1)]
    hardware.does["GPU-0"] = hardware.refuses
    usages.read(devices)
    for seconds in (*AGAIN_SECONDS, AGAIN_SECONDS[-1]):
        hardware.asks()
        hardware.now += seconds - 1.0
        usages.read(devices)
        assert hardware.asks() == ["GPU-1"]
        hardware.now += 1.0
        assert usages.read(devices).keys() == {"gpu-1"}
        assert hardware.asks() == ["GPU-1", "GPU-0"]
    hardware.does.clear()
    hardware.now += AGAIN_SECONDS[-1]
    assert usages.read(devices).keys() == {"gpu-0", "gpu-1"}
    hardware.asks()
    usages.read(devices)
    assert hardware.asks() == ["GPU-0", "GPU-1"]  # as if nothing had been


def test_a_gpu_that_refuses_at_once_holds_up_nobody(usages: UsageOfGpus, hardware: Answers) -> None:
    hardware.does["GPU-0"] = hardware.refuses
    assert usages.read([a_gpu(0), a_gpu(1)]).keys() == {"gpu-1"}


def test_a_gpu_that_is_gone_is_forgotten(usages: UsageOfGpus, hardware: Answers) -> None:
    hardware.does["GPU-0"] = hardware.refuses
    usages.read([a_gpu(0)])
    usages.read([])
    hardware.does.clear()
    assert usages.read([a_gpu(0)]).keys() == {"gpu-0"}
