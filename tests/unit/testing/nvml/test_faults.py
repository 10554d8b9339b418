# SPDX-License-Identifier: Apache-2.0
"""Each fault does what it says, in a library that is in use. Needs a C compiler."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.backends.nvidia.facts import Process
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import Control
from tests.support.nvml_process import NvmlProcess

pytestmark = pytest.mark.real

NODE = machine.node(boards.H100, 4, mig={3: "3g.40gb 1g.10gb"})
TEMPERATURE = "nvmlDeviceGetTemperature({}, 0)"


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return Control(tmp_path / "control")


@pytest.fixture
def nvml(control: Control) -> Iterator[NvmlProcess]:
    with NvmlProcess(build.library(NODE), control.environment()) as process:
        process("gpus = [nvmlDeviceGetHandleByIndex(number) for number in range(4)]")
        yield process


def temperature(nvml: NvmlProcess, gpu: int = 0) -> int:
    return nvml.code(TEMPERATURE.format(f"gpus[{gpu}]"))


def test_a_function_fails_with_the_code_of_the_rule_on_that_gpu_only(
    control: Control, nvml: NvmlProcess
) -> None:
    control.fail("nvmlDeviceGetTemperature", 1, error=999)
    assert temperature(nvml, 1) == 999
    assert temperature(nvml, 0) == 0
    assert nvml.code("nvmlDeviceGetName(gpus[1])") == 0
    control.restore("fail", 1)
    assert temperature(nvml, 1) == 0


def test_a_rule_can_wait_for_calls_and_end_after_calls(control: Control, nvml: NvmlProcess) -> None:
    control.fail("nvmlDeviceGetTemp*", error=999, after_calls=2, calls=1)
    assert [temperature(nvml) for _ in range(5)] == [0, 0, 999, 0, 0]


def test_a_delay_takes_so_long_and_does_not_delay_other_threads(
    control: Control, nvml: NvmlProcess
) -> None:
    control.fail("nvmlDeviceGetTemperature", delay_ms=300)
    nvml("threading.Thread(target=nvmlDeviceGetTemperature, args=(gpus[0], 0)).start()")
    begin = time.monotonic()
    assert nvml.code("nvmlDeviceGetName(gpus[0])") == 0
    assert time.monotonic() - begin < 0.25
    begin = time.monotonic()
    temperature(nvml)
    assert time.monotonic() - begin >= 0.3


def test_a_hang_stops_each_call_of_the_process_until_it_is_taken_back(
    control: Control, nvml: NvmlProcess
) -> None:
    control.hang("nvmlDeviceGetMemoryInfo*", 2)
    nvml("threading.Thread(target=nvmlDeviceGetMemoryInfo, args=(gpus[2],), daemon=True).start()")
    nvml("import time; time.sleep(0.2)")
    nvml.send(TEMPERATURE.format("gpus[0]"))
    assert not nvml.answers_within(0.5)
    with NvmlProcess(build.library(NODE), control.environment()) as other:
        assert other("nvmlDeviceGetCount()") == 4  # another process does not hang
    control.restore("fail")
    assert nvml.receive() == 33


def test_a_lost_gpu_answers_nothing_but_its_handle(control: Control, nvml: NvmlProcess) -> None:
    control.lost(0, after_calls=2)
    assert [temperature(nvml) for _ in range(3)] == [0, 0, 15]
    assert nvml("nvmlDeviceGetCount()") == 4
    assert nvml.code("nvmlDeviceGetHandleByIndex(0)") == 0
    assert temperature(nvml, 1) == 0
    control.restore("lost", 0)
    assert temperature(nvml) == 0


def test_a_gpu_that_fell_off_the_bus_has_no_handle_and_an_xid(
    control: Control, nvml: NvmlProcess
) -> None:
    nvml("events = nvmlEventSetCreate()")
    nvml("[nvmlDeviceRegisterEvents(gpu, 8, events) for gpu in gpus]")
    control.fallen_off_bus(1)
    assert nvml.code("nvmlDeviceGetHandleByIndex(1)") == 15
    assert temperature(nvml, 1) == 15
    event = nvml("nvmlEventSetWait_v2(events, 1000)")
    assert (event["eventType"], event["eventData"]) == (8, 79)
    assert nvml.code("nvmlEventSetWait_v2(events, 1000)") == 15  # at once, each time


def test_a_vanished_gpu_is_not_counted_and_the_others_move_up(
    control: Control, nvml: NvmlProcess
) -> None:
    control.vanished(1)
    assert nvml("nvmlDeviceGetCount()") == 3
    assert nvml.code(f"nvmlDeviceGetHandleByUUID(b'{NODE.gpus[1].uuid}')") == 6
    assert nvml("nvmlDeviceGetUUID(nvmlDeviceGetHandleByIndex(1))") == NODE.gpus[2].uuid
    assert nvml("nvmlDeviceGetIndex(gpus[3])") == 2
    assert temperature(nvml, 1) == 15


def test_an_event_reaches_each_process_once_and_only_after_it_registered(
    control: Control, nvml: NvmlProcess
) -> None:
    control.xid(0, 31)
    with NvmlProcess(build.library(NODE), control.environment()) as other:
        for process in (nvml, other):
            process("events = nvmlEventSetCreate()")
            process("nvmlDeviceRegisterEvents(nvmlDeviceGetHandleByIndex(0), 8 | 2, events)")
            assert process.code("nvmlEventSetWait_v2(events, 0)") == 10
        control.xid(0, 48)
        control.xid(1, 13)  # nobody has registered that GPU
        control.xid(0, 95, mig=None)
        for process in (nvml, other):
            found = [process("nvmlEventSetWait_v2(events, 1000)")["eventData"] for _ in range(2)]
            assert found == [48, 95]
            assert process.code("nvmlEventSetWait_v2(events, 0)") == 10


def test_a_waiting_process_wakes_up_at_the_event(control: Control, nvml: NvmlProcess) -> None:
    nvml("events = nvmlEventSetCreate(); nvmlDeviceRegisterEvents(gpus[3], 8, events)")
    nvml.send("nvmlEventSetWait_v2(events, 60000)")
    assert not nvml.answers_within(0.3)
    mig = NODE.gpus[3].mig
    assert mig
    control.xid(3, 43, mig=mig.devices[0])
    assert nvml.answers_within(5)
    event = nvml.receive()
    assert (event["eventData"], event["gpuInstanceId"], event["computeInstanceId"]) == (43, 1, 0)


def test_only_supported_events_can_be_registered() -> None:
    with NvmlProcess(build.library(machine.node(boards.RTX_4090))) as nvml:
        nvml("events = nvmlEventSetCreate(); gpu = nvmlDeviceGetHandleByIndex(0)")
        assert nvml("nvmlDeviceGetSupportedEventTypes(gpu)") == 4 | 8 | 16
        assert nvml.code("nvmlDeviceRegisterEvents(gpu, 8 | 2, events)") == 3
        nvml("nvmlEventSetFree(events)")
        assert nvml.code("nvmlEventSetWait_v2(events, 0)") == 2


def test_values_change_while_the_library_is_in_use(control: Control, nvml: NvmlProcess) -> None:
    control.set(0, temperature=95, memory_used=1 << 30, rows_pending=1)
    control.recovery_action(0, 2)
    control.ecc_uncorrectable(0, 7)
    assert nvml("nvmlDeviceGetTemperature(gpus[0], 0)") == 95
    memory = nvml("nvmlDeviceGetMemoryInfo(gpus[0], nvmlMemory_v2)")
    assert memory["used"] == 1 << 30
    assert memory["free"] == memory["total"] - memory["reserved"] - (1 << 30)
    assert nvml("nvmlDeviceGetRemappedRows(gpus[0])") == [0, 0, 1, 0]
    assert nvml("nvmlDeviceGetFieldValues(gpus[0], [230])[0].value.uiVal") == 2
    assert nvml("nvmlDeviceGetTotalEccErrors(gpus[0], 1, 0)") == 7
    control.clear()
    assert nvml("nvmlDeviceGetTemperature(gpus[0], 0)") == 33


def test_processes_come_and_go_with_their_memory(control: Control, nvml: NvmlProcess) -> None:
    control.add_process(0, Process(pid=4711, used_memory=3 << 30))
    control.add_process(
        3, Process(pid=471, used_memory=5 << 20, gpu_instance=1, compute_instance=0)
    )
    (process,) = nvml("nvmlDeviceGetComputeRunningProcesses(gpus[0])")
    assert (process["pid"], process["usedGpuMemory"]) == (4711, 3 << 30)
    assert nvml("nvmlDeviceGetMemoryInfo(gpus[0], nvmlMemory_v2).used") == 3 << 30
    nvml("mig, other = [nvmlDeviceGetMigDeviceHandleByIndex(gpus[3], n) for n in range(2)]")
    assert [p["pid"] for p in nvml("nvmlDeviceGetComputeRunningProcesses(mig)")] == [471]
    assert nvml("nvmlDeviceGetComputeRunningProcesses(other)") == []
    assert nvml("nvmlDeviceGetMemoryInfo(mig).used") == 5 << 20
    control.remove_process(471)
    assert nvml("nvmlDeviceGetComputeRunningProcesses(mig)") == []
    assert len(nvml("nvmlDeviceGetComputeRunningProcesses(gpus[0])")) == 1


def test_links_and_the_fabric_fall_ill(control: Control, nvml: NvmlProcess) -> None:
    control.nvlink_down(0, 3)
    control.fabric(0, mask=0x1A9, summary=2, clique=7, cluster=NODE.gpus[0].uuid[4:])
    assert [nvml(f"nvmlDeviceGetNvLinkState(gpus[0], {link})") for link in (2, 3)] == [1, 0]
    assert nvml.code("nvmlDeviceGetNvLinkRemotePciInfo(gpus[0], 3)") == 2
    nvml("fabric = c_nvmlGpuFabricInfo_v3_t(); nvmlDeviceGetGpuFabricInfoV(gpus[0], byref(fabric))")
    fabric = nvml("fabric")
    assert (fabric["healthMask"], fabric["healthSummary"], fabric["cliqueId"]) == (0x1A9, 2, 7)
    assert bytes(fabric["clusterUuid"]).hex() == NODE.gpus[0].uuid[4:].replace("-", "")


def test_mig_devices_disappear_and_appear(control: Control, nvml: NvmlProcess) -> None:
    mig = NODE.gpus[3].mig
    assert mig
    nvml("mig = nvmlDeviceGetMigDeviceHandleByIndex(gpus[3], 1)")
    control.hide_mig(3, mig.devices[1].uuid)
    assert nvml.code("nvmlDeviceGetMigDeviceHandleByIndex(gpus[3], 1)") == 6
    assert nvml.code("nvmlDeviceGetUUID(mig)") == 6
    assert nvml.code("nvmlDeviceGetMigDeviceHandleByIndex(gpus[3], 0)") == 0
    control.set(0, mig_enabled=1, mig_pending=1)
    control.add_mig(0, mig.devices[0], NODE.gpus[0], NODE.mig_profiles[NODE.gpus[0].name])
    nvml("mig = nvmlDeviceGetMigDeviceHandleByIndex(gpus[0], 0)")
    assert nvml("nvmlDeviceGetAttributes(mig).memorySizeMB") == mig.devices[0].memory_mib
    assert nvml("nvmlDeviceGetName(mig)").endswith("MIG 3g.40gb")


@pytest.mark.parametrize(
    ("fault", "start", "later"),
    [("unloaded", 9, 999), ("mismatch", 18, 18), ("no_permission", 4, 4)],
)
def test_the_driver_under_the_library_is_gone(
    control: Control, nvml: NvmlProcess, fault: str, start: int, later: int
) -> None:
    getattr(control, fault)()
    assert temperature(nvml) == later
    assert nvml.code("nvmlInit()") == start
    assert nvml.code("nvmlShutdown()") == 0
    control.restore(fault)
    nvml("nvmlInit()")
    assert temperature(nvml) == 0


def test_processes_share_modes_and_a_journal(control: Control, nvml: NvmlProcess) -> None:
    uuid = NODE.gpus[1].uuid
    nvml("nvmlDeviceSetComputeMode(gpus[1], 3)")
    with NvmlProcess(build.library(NODE), control.environment()) as other:
        assert other("nvmlDeviceGetComputeMode(nvmlDeviceGetHandleByIndex(1))") == 3
        other("nvmlDeviceSetComputeMode(nvmlDeviceGetHandleByIndex(1), 0)")
    assert nvml("nvmlDeviceGetComputeMode(gpus[1])") == 0
    assert control.compute_mode(uuid) == 0
    assert control.compute_mode(NODE.gpus[0].uuid) is None
    assert control.journal() == [f"compute-mode {uuid} 3", f"compute-mode {uuid} 0"]


def test_calls_are_counted_by_function_process_and_gpu(control: Control, nvml: NvmlProcess) -> None:
    control.count_calls()
    temperature(nvml)
    temperature(nvml, 1)
    nvml("nvmlDeviceGetCount()")
    with NvmlProcess(build.library(NODE), control.environment()) as other:
        other("nvmlDeviceGetCount()")
        assert control.calls(other.pid) == {"nvmlInitWithFlags": 1, "nvmlDeviceGetCount_v2": 1}
    assert control.calls(nvml.pid)["nvmlDeviceGetTemperature"] == 2
    assert control.calls(gpu=1) == {"nvmlDeviceGetTemperature": 1}
    control.forget_calls()
    assert not control.calls()


def test_without_a_folder_the_library_still_answers() -> None:
    with NvmlProcess(build.library(NODE)) as nvml:
        nvml("gpu = nvmlDeviceGetHandleByIndex(0); nvmlDeviceSetComputeMode(gpu, 3)")
        assert nvml("nvmlDeviceGetComputeMode(gpu)") == 0
        nvml("events = nvmlEventSetCreate(); nvmlDeviceRegisterEvents(gpu, 8, events)")
        assert nvml.code("nvmlEventSetWait_v2(events, 20)") == 10


def test_a_long_life_with_many_faults_costs_no_memory(control: Control, nvml: NvmlProcess) -> None:
    def resident() -> int:
        pages = Path(f"/proc/{nvml.pid}/statm").read_text().split()[1]
        return int(pages) * 4096

    def change(times: int) -> None:
        for number in range(times):
            control.lost(number % 4, after_calls=1)
            assert temperature(nvml, number % 4) == 0
            assert temperature(nvml, number % 4) == 15
            control.restore("lost")

    change(50)
    before = resident()
    change(400)  # more rules than the library counts at once
    assert resident() - before < 2 << 20
