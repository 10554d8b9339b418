# SPDX-License-Identifier: Apache-2.0
"""The mock library measures what the control file says. Needs a C compiler."""

from pathlib import Path

import pynvml
import pytest

from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import Control
from tests.support.nvml_process import NvmlProcess

pytestmark = pytest.mark.real
CALLS = {
    "utilization": "nvmlDeviceGetUtilizationRates(gpu).gpu",
    "memory_utilization": "nvmlDeviceGetUtilizationRates(gpu).memory",
    "power_mw": "nvmlDeviceGetPowerUsage(gpu)",
    "power_limit_mw": "nvmlDeviceGetEnforcedPowerLimit(gpu)",
    "sm_clock_mhz": f"nvmlDeviceGetClockInfo(gpu, {pynvml.NVML_CLOCK_SM})",
    "memory_clock_mhz": f"nvmlDeviceGetClockInfo(gpu, {pynvml.NVML_CLOCK_MEM})",
    "clock_reasons": "nvmlDeviceGetCurrentClocksEventReasons(gpu)",
    "ecc_corrected": "nvmlDeviceGetTotalEccErrors(gpu, 0, 0)",
}


def test_an_idle_gpu_and_one_with_load(tmp_path: Path) -> None:
    control = Control(tmp_path)
    library = build.library(machine.node(boards.H100, 2))
    with NvmlProcess(library, control.environment()) as nvml:
        nvml("gpu = nvmlDeviceGetHandleByIndex(1)")
        idle = {name: nvml(call) for name, call in CALLS.items()}
        assert (idle["utilization"], idle["clock_reasons"], idle["ecc_corrected"]) == (0, 1, 0)
        assert 0 < idle["power_mw"] < idle["power_limit_mw"]
        values = {name: 40 + number for number, name in enumerate(CALLS)}
        control.set(1, **values)
        assert {name: nvml(call) for name, call in CALLS.items()} == values
        assert nvml("nvmlDeviceGetCurrentClocksThrottleReasons(gpu)") == values["clock_reasons"]
        assert nvml("nvmlDeviceGetTotalEccErrors(gpu, 1, 0)") == 0


def test_a_divided_gpu_has_no_load_and_its_parts_have_memory_only() -> None:
    with NvmlProcess(build.library(machine.node(boards.A100_40, 1, mig="3g.20gb"))) as nvml:
        nvml("gpu = nvmlDeviceGetHandleByIndex(0)")
        nvml("mig = nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)")
        assert nvml.code("nvmlDeviceGetUtilizationRates(gpu)") == 3
        assert nvml.code("nvmlDeviceGetPowerUsage(mig)") == 2
        assert nvml("nvmlDeviceGetMemoryInfo(mig).total") > 0
        assert nvml.code("nvmlDeviceGetClockInfo(gpu, 4)") == 2
