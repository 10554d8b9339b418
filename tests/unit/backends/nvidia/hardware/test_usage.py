# SPDX-License-Identifier: Apache-2.0
"""What the hardware process measures, with as few calls as possible."""

from pathlib import Path

import pytest

from dra_driver.backends.nvidia.facts import Memory, Usage
from dra_driver.backends.nvidia.hardware.nvml import Failed, Library
from dra_driver.backends.nvidia.hardware.verbs import Verbs
from dra_driver.backends.nvidia.hardware.wire import Request
from dra_driver.testing.nvml import boards, machine
from tests.support.nvml_link import ThreadLink
from tests.support.nvml_standin import StandIn

MIB = 1 << 20
CLOCKS_BEFORE_535 = "nvmlDeviceGetCurrentClocksThrottleReasons"


class Asked:
    def __init__(self, library: StandIn, root: Path) -> None:
        self.nvml = library
        link = ThreadLink(library, root)
        opened = Library(library, lambda: link.found, load=lambda _: None)
        self.verbs = Verbs(library, opened, host_root=str(root))
        self.uuids = [gpu.uuid for gpu in library.node.gpus]

    def usage(self, index: int = 0) -> Usage:
        found = self.verbs.table()["usage"](Request("usage", index=index, uuid=self.uuids[index]))
        assert isinstance(found, Usage)
        return found


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(StandIn(machine.node(boards.A100_40, 2, mig={1: "3g.20gb 2g.10gb"})), tmp_path)


def test_all_values_of_a_gpu_are_read(asked: Asked) -> None:
    gpu = asked.nvml.node.gpus[0]
    assert gpu.memory is not None
    assert gpu.memory.reserved
    assert asked.usage() == Usage(
        gpu_percent=50,
        memory_percent=25,
        memory=gpu.memory,
        temperature=gpu.temperature,
        power_milliwatts=350_500,
        power_limit_milliwatts=400_000,
        sm_clock_mhz=1410,
        memory_clock_mhz=1215,
        clock_reasons=4,
        ecc_corrected=3,
        ecc_uncorrected=1,
    )


def test_the_memory_of_mig_devices_is_read_by_uuid(asked: Asked) -> None:
    mig = asked.nvml.node.gpus[1].mig
    assert mig is not None
    assert asked.usage(1).mig_memory == {
        one.uuid: Memory(total=one.memory_mib * MIB, used=1 << 30) for one in mig.devices
    }


def test_a_mig_device_that_is_gone_has_no_memory(asked: Asked) -> None:
    asked.usage(1)
    asked.nvml.fail["nvmlDeviceGetHandleByUUID"] = 6
    assert asked.usage(1).mig_memory == {}


@pytest.mark.parametrize("code", [2, 3, 13, 25])
def test_what_a_gpu_does_not_have_is_asked_once(code: int, asked: Asked) -> None:
    function = "nvmlDeviceGetPowerUsage"
    asked.nvml.fail[function, 0] = code
    for _ in range(3):
        assert asked.usage().power_milliwatts is None
    assert asked.nvml.calls[function] == 1
    assert asked.usage(1).power_milliwatts == 350_500


def test_a_gpu_that_is_divided_in_another_way_is_asked_again(asked: Asked) -> None:
    function = "nvmlDeviceGetUtilizationRates"
    asked.nvml.fail[function, 1] = 3  # a GPU in MIG mode has none
    for _ in range(2):
        assert asked.usage(1).gpu_percent is None
    assert asked.nvml.calls[function] == 1
    del asked.nvml.fail[function, 1]
    asked.nvml.node = machine.node(boards.A100_40, 2)
    asked.verbs.gpu(1)  # a look
    found = asked.usage(1)
    assert (found.gpu_percent, found.mig_memory) == (50, {})


def test_what_fails_otherwise_is_asked_again(asked: Asked) -> None:
    asked.nvml.fail["nvmlDeviceGetUtilizationRates"] = 999
    found = asked.usage()
    assert (found.gpu_percent, found.memory_percent) == (None, None)
    asked.nvml.fail.clear()
    assert asked.usage().gpu_percent == 50


def test_an_old_library_has_another_name_for_the_reasons(asked: Asked) -> None:
    asked.nvml.missing.add("nvmlDeviceGetCurrentClocksEventReasons")
    assert asked.usage().clock_reasons == 8
    assert asked.usage().clock_reasons == 8
    assert asked.nvml.calls["nvmlDeviceGetCurrentClocksEventReasons"] == 1
    assert asked.nvml.calls[CLOCKS_BEFORE_535] == 2


def test_a_library_without_the_second_version_of_memory_has_the_first(asked: Asked) -> None:
    gpus = machine.node(boards.A100_40, 1, driver=machine.R470).gpus
    asked.nvml.node = machine.node(boards.A100_40, 1, driver=machine.R470)
    asked.uuids = [gpu.uuid for gpu in gpus]
    assert gpus[0].memory is not None
    assert asked.usage().memory == gpus[0].memory
    assert gpus[0].memory.reserved is None


def test_a_gpu_that_is_lost_is_told(asked: Asked) -> None:
    asked.usage()
    asked.nvml.fail["nvmlDeviceGetUtilizationRates"] = 15
    with pytest.raises(Failed):
        asked.usage()


def test_a_gpu_that_is_not_there_is_told(asked: Asked) -> None:
    with pytest.raises(Failed, match="no GPU of this node"):
        asked.verbs.usage(Request("usage", uuid="GPU-none"))
