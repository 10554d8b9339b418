# SPDX-License-Identifier: Apache-2.0
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from dra_driver.backends.nvidia.facts import DeviceFile, HardwareEvent, Memory, Process
from dra_driver.backends.nvidia.hardware import commands, verbs
from dra_driver.backends.nvidia.hardware.nvml import Failed, Found, Library, Replaced
from dra_driver.backends.nvidia.hardware.verbs import LET_GO, LOST, Verbs
from dra_driver.backends.nvidia.hardware.wire import DEADLINES, Happened, Request
from dra_driver.testing.nvml import boards, machine
from tests.support.nvml_link import INSTALLED, ThreadLink
from tests.support.nvml_standin import StandIn


class Asked:
    def __init__(self, library: StandIn, root: Path) -> None:
        self.nvml = library
        self.link = ThreadLink(library, root)
        opened = Library(library, lambda: self.link.found, load=lambda _: None)
        self.verbs = Verbs(library, opened, host_root=str(root))
        self.uuids = [gpu.uuid for gpu in library.node.gpus]

    def look(self) -> None:
        """Read each GPU that answers."""
        for index in range(len(self.uuids)):
            with suppress(Failed):
                self.verbs.gpu(index)


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(StandIn(machine.node(boards.A100_40, 2, mig={1: "3g.20gb 2g.10gb"})), tmp_path)


def test_every_verb_has_a_deadline(asked: Asked) -> None:
    assert {*asked.verbs.table(), "events"} == set(DEADLINES)


def test_the_node_is_told_without_opening_any_gpu(asked: Asked) -> None:
    listing = asked.verbs.node()
    assert listing.count == 2
    assert listing.system == asked.nvml.node.system
    assert listing.installation == INSTALLED
    assert not asked.nvml.by_gpu


def test_a_ping_does_not_look_at_the_hardware(asked: Asked) -> None:
    assert asked.verbs.table()["ping"](Request("ping")) is None
    assert not asked.nvml.calls


def test_a_library_that_does_not_open_is_the_problem_of_the_node(asked: Asked) -> None:
    asked.nvml.fail["nvmlInitWithFlags"] = 18
    listing = asked.verbs.node()
    assert listing.count == 0
    assert "different versions" in listing.problem
    assert asked.verbs.ends is None  # the next look tries again in this process


@pytest.mark.parametrize("code", [1, 9, 18, 999])
def test_a_library_that_has_lost_its_driver_ends_the_process(code: int, asked: Asked) -> None:
    asked.verbs.node()
    asked.nvml.fail["nvmlDeviceGetCount"] = code
    assert f"error {code}" in asked.verbs.node().problem
    assert asked.verbs.ends == LOST


def test_a_gpu_that_fails_does_not_end_the_process(asked: Asked) -> None:
    asked.nvml.fail["nvmlDeviceGetUUID", 0] = 999
    with pytest.raises(Failed):
        asked.verbs.gpu(0)
    assert asked.verbs.ends is None
    assert asked.verbs.gpu(1).uuid == asked.uuids[1]


def test_a_replaced_library_is_not_answered(asked: Asked) -> None:
    asked.verbs.node()
    newer = msgspec.structs.replace(INSTALLED, kernel_version="590.44")
    asked.link.found = type(asked.link.found)(newer, asked.link.found.library)
    with pytest.raises(Replaced):
        asked.verbs.node()


def with_processes(asked: Asked, *processes: Process) -> None:
    gpus = tuple(msgspec.structs.replace(gpu, processes=processes) for gpu in asked.nvml.node.gpus)
    asked.nvml.node = msgspec.structs.replace(asked.nvml.node, gpus=gpus)


def test_the_processes_of_a_gpu_are_told_before_any_look(asked: Asked) -> None:
    first, second = Process(pid=7, used_memory=5), Process(pid=9, kind="graphics")
    with_processes(asked, second, first)
    request = Request("processes", index=0, uuid=asked.uuids[0])
    assert asked.verbs.processes(request) == (first, second)


def test_the_processes_of_a_mig_device_are_only_its_own(asked: Asked) -> None:
    mig = asked.nvml.node.gpus[1].mig
    assert mig is not None
    device = mig.devices[0]
    own = Process(pid=7, gpu_instance=device.gpu_instance, compute_instance=0)
    with_processes(asked, own, Process(pid=8, gpu_instance=device.gpu_instance + 1))
    request = Request("processes", index=1, uuid=device.uuid)
    assert asked.verbs.processes(request) == (own,)


def a_process_of_the_host(asked: Asked, root: Path, pid: int, *minors: int) -> None:
    """/dev/null and its neighbours stand for device files: major 1, minor 3, 5 and 7."""
    manager = DeviceFile(path="/dev/nvidia-uvm", major=1, minor=7)
    installation = msgspec.structs.replace(INSTALLED, device_files=(manager,), gpu_major=1)
    asked.link.found = Found(installation, asked.link.found.library)
    folder = root / "proc" / str(pid) / "fd"
    folder.mkdir(parents=True)
    names = {3: "null", 5: "zero", 7: "full"}
    for minor in (*minors, 7):
        (folder / str(minor)).symlink_to(f"/dev/{names[minor]}")


def files_and_memory(asked: Asked, used: int) -> None:
    """The GPUs have device files of their own, and use so much memory."""
    gpus = tuple(
        msgspec.structs.replace(gpu, minor=minor, memory=Memory(total=2**35, used=used))
        for gpu, minor in zip(asked.nvml.node.gpus, (3, 5), strict=True)
    )
    asked.nvml.node = msgspec.structs.replace(asked.nvml.node, gpus=gpus)


def test_a_process_that_has_all_gpus_open_is_on_none_whose_memory_is_not_used(
    asked: Asked, tmp_path: Path
) -> None:
    files_and_memory(asked, 2**22)
    a_process_of_the_host(asked, tmp_path, 4711, 3, 5)
    assert asked.verbs.processes(Request("processes", index=0, uuid=asked.uuids[0])) == ()


def test_a_process_of_another_pid_namespace_is_told_by_its_open_files(
    asked: Asked, tmp_path: Path
) -> None:
    files_and_memory(asked, 2**30)
    a_process_of_the_host(asked, tmp_path, 4711, 3)
    with_processes(asked, Process(pid=9, kind="graphics"))
    first, second = (
        Request("processes", index=index, uuid=uuid) for index, uuid in enumerate(asked.uuids)
    )
    assert asked.verbs.processes(first) == (Process(pid=9, kind="graphics"), Process(pid=4711))
    assert asked.verbs.processes(second) == (Process(pid=9, kind="graphics"),)


def test_without_the_list_of_compute_processes_nothing_is_said(asked: Asked) -> None:
    request = Request("processes", index=0, uuid=asked.uuids[0])
    asked.nvml.missing = {"nvmlDeviceGetMPSComputeRunningProcesses_v3"}
    assert asked.verbs.processes(request) == ()
    asked.nvml.missing = {"nvmlDeviceGetComputeRunningProcesses_v3"}
    with pytest.raises(Failed, match="too old"):
        asked.verbs.processes(request)


def test_a_compute_mode_is_set_and_shown(asked: Asked) -> None:
    asked.verbs.gpu(0)
    asked.verbs.set_compute_mode(Request("set_compute_mode", index=0, uuid=asked.uuids[0], value=3))
    assert asked.nvml.modes == {asked.uuids[0]: 3}
    assert asked.verbs.gpu(0).compute_mode == 3


def test_the_compute_mode_of_a_mig_device_is_its_own(asked: Asked) -> None:
    mig = asked.nvml.node.gpus[1].mig
    assert mig is not None
    request = Request("set_compute_mode", index=1, uuid=mig.devices[1].uuid, value=3)
    asked.verbs.set_compute_mode(request)
    assert asked.nvml.modes == {mig.devices[1].uuid: 3}
    assert asked.verbs.gpu(1).compute_mode == 0


@pytest.mark.parametrize("value", [-1, 4, 2**31])
def test_a_number_out_of_range_is_refused(value: int, asked: Asked) -> None:
    request = Request("any", index=0, uuid=asked.uuids[0], value=value)
    with pytest.raises(Failed, match="from 0 to 3"):
        asked.verbs.set_compute_mode(request)
    with pytest.raises(Failed, match="from 0 to 3"):
        asked.verbs.set_time_slice(request)
    assert not asked.nvml.modes


@pytest.mark.parametrize("uuid", ["", "0", "-i", "GPU-1; reboot", "--help", "GPU-" + "1" * 200])
def test_a_text_that_is_no_uuid_reaches_neither_library_nor_program(
    uuid: str, asked: Asked
) -> None:
    with pytest.raises(Failed, match="begins with GPU- or MIG-"):
        asked.verbs.set_time_slice(Request("set_time_slice", uuid=uuid, value=1))
    with pytest.raises(Failed, match="begins with GPU- or MIG-"):
        asked.verbs.set_compute_mode(Request("set_compute_mode", uuid=uuid, value=1))
    with pytest.raises(Failed, match="begins with GPU- or MIG-"):
        asked.verbs.processes(Request("processes", uuid=uuid))


def test_a_gpu_that_is_not_there_is_said_and_tried_again(asked: Asked) -> None:
    with pytest.raises(Failed, match="no GPU of this node has the UUID GPU-0") as caught:
        asked.verbs.processes(Request("processes", index=9, uuid="GPU-0"))
    assert caught.value.failure.retry


def test_a_gpu_is_found_although_its_index_is_another_one_now(asked: Asked) -> None:
    asked.verbs.gpu(0)
    asked.verbs.gpu(1)
    request = Request("set_compute_mode", index=0, uuid=asked.uuids[1], value=3)
    asked.verbs.set_compute_mode(request)
    assert asked.nvml.modes == {asked.uuids[1]: 3}


def test_a_time_slice_is_set_by_the_program(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(commands, "set_time_slice", lambda *arguments: seen.append(arguments[2:]))
    asked.verbs.set_time_slice(Request("set_time_slice", index=0, uuid=asked.uuids[0], value=2))
    assert seen == [(asked.uuids[0], 2)]


def test_events_of_all_gpus_are_told(asked: Asked) -> None:
    happened = HardwareEvent(uuid=asked.uuids[1], type=8, data=79)
    of_instance = HardwareEvent(
        uuid=asked.uuids[1], type=8, data=43, gpu_instance=3, compute_instance=0
    )
    asked.nvml.happening.put(happened)
    asked.nvml.happening.put(of_instance)
    asked.look()
    stream = asked.verbs.events()
    assert next(stream) is None  # it has begun
    assert [next(stream), next(stream)] == [Happened(happened), Happened(of_instance)]
    assert next(stream) is None  # nothing for a while
    assert asked.nvml.registered == dict.fromkeys(asked.uuids, 0x2 | 0x8 | 0x100)
    stream.close()
    assert not asked.nvml.registered


def test_a_gpu_without_events_is_left_out(asked: Asked) -> None:
    asked.nvml.fail["nvmlDeviceRegisterEvents", 0] = 3
    asked.look()
    stream = asked.verbs.events()
    next(stream)
    assert set(asked.nvml.registered) == {asked.uuids[1]}
    stream.close()


def test_a_lost_gpu_does_not_keep_the_events_of_others_back(asked: Asked) -> None:
    asked.nvml.fail["nvmlDeviceGetMemoryInfo", 0] = 15
    asked.look()
    stream = asked.verbs.events()
    next(stream)
    assert set(asked.nvml.registered) == {asked.uuids[1]}
    stream.close()


def test_only_gpus_that_a_look_has_read_are_opened_and_later_ones_join(asked: Asked) -> None:
    asked.verbs.gpu(1)
    asked.nvml.calls.clear()
    stream = asked.verbs.events()
    next(stream)
    assert set(asked.nvml.registered) == {asked.uuids[1]}
    assert not asked.nvml.calls[
        "nvmlDeviceGetHandleByIndex"
    ]  # of a GPU that hangs it would not return
    asked.verbs.gpu(0)
    next(stream)
    assert set(asked.nvml.registered) == set(asked.uuids)
    stream.close()


def test_without_a_look_the_stream_does_not_begin(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "FIRST_LOOK_SECONDS", 0.1)
    with pytest.raises(Failed, match="no GPU has been read yet") as caught:
        next(asked.verbs.events())
    assert caught.value.failure.retry
    assert not asked.nvml.calls


def test_without_any_events_the_stream_does_not_begin(asked: Asked) -> None:
    asked.nvml.event_types = 0
    asked.look()
    with pytest.raises(Failed, match="no GPU of this node has events"):
        next(asked.verbs.events())


def test_a_change_of_mig_makes_the_next_look_read_the_devices(asked: Asked, tmp_path: Path) -> None:
    for folder in ("gi1/ci0", "gi2/ci0"):
        (tmp_path / "proc/driver/nvidia/capabilities/gpu1/mig" / folder).mkdir(parents=True)
    mig = asked.verbs.gpu(1).mig
    assert mig is not None
    less = msgspec.structs.replace(mig, devices=mig.devices[:1])
    gpus = asked.nvml.node.gpus
    changed = (gpus[0], msgspec.structs.replace(gpus[1], mig=less))
    asked.nvml.node = msgspec.structs.replace(asked.nvml.node, gpus=changed)
    assert asked.verbs.gpu(1).mig == mig
    asked.nvml.happening.put(HardwareEvent(uuid=asked.uuids[1], type=0x100))
    asked.look()
    stream = asked.verbs.events()
    next(stream)
    next(stream)
    stream.close()
    assert asked.verbs.gpu(1).mig == less


@pytest.mark.parametrize(("code", "ends"), [(15, False), (1, True), (999, True)])
def test_a_stream_that_fails_ends_and_only_a_lost_driver_ends_the_process(
    code: int, ends: bool, asked: Asked
) -> None:
    asked.look()
    stream = asked.verbs.events()
    next(stream)
    asked.nvml.fail["nvmlEventSetWait_v2"] = code
    with pytest.raises(Failed):
        next(stream)
    assert (asked.verbs.ends is not None) is ends


def test_to_let_go_ends_the_process(asked: Asked) -> None:
    asked.verbs.let_go()
    assert asked.verbs.ends == LET_GO


def test_a_library_that_was_let_go_stays_closed_for_a_while(asked: Asked, tmp_path: Path) -> None:
    opened = Library(asked.nvml, lambda: asked.link.found, load=lambda _: None)
    until = time.monotonic() + 30
    closed = Verbs(asked.nvml, opened, host_root=str(tmp_path), closed_until=until)
    listing = closed.node()
    assert "stays closed for" in listing.problem
    assert listing.installation == INSTALLED
    with pytest.raises(Failed, match="stays closed for") as caught:
        closed.gpu(0)
    assert caught.value.failure.retry
    assert not asked.nvml.calls
