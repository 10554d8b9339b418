# SPDX-License-Identifier: Apache-2.0
"""The driver's side of the hardware process, with its server in threads. tests/unit/backends/nvidia/test_child.py has real processes."""

import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest

from dra_driver.backends.nvidia import client
from dra_driver.backends.nvidia.client import AGAIN_SECONDS, MOST_HANGS, HardwareProcess
from dra_driver.backends.nvidia.facts import HardwareEvent, Node, Process
from dra_driver.backends.nvidia.hardware import wire
from dra_driver.backends.nvidia.unended import UNENDED_SECONDS
from dra_driver.errors import Permanent, Temporary
from dra_driver.testing.nvml import boards, machine
from tests.support.nvml_link import INSTALLED, ThreadLink
from tests.support.nvml_standin import StandIn

HANG = "nvmlDeviceGetTemperature"


class Bed:
    def __init__(self, node: Node, root: Path) -> None:
        self.nvml = StandIn(node)
        self.link = ThreadLink(self.nvml, root)
        self.now = 1000.0
        self.hardware = HardwareProcess(self.link, clock=lambda: self.now, grace=0.02)

    def problems(self) -> dict[int, str]:
        return {gpu.index: gpu.problem for gpu in self.hardware.look().gpus if gpu.problem}


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    for verb in wire.DEADLINES:
        monkeypatch.setitem(wire.DEADLINES, verb, 2.0)
    made = Bed(machine.node(boards.A100_40, 4, mig={3: "3g.20gb"}), tmp_path)
    yield made
    made.nvml.go.set()
    made.hardware.close()


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wire.DEADLINES, "gpu", 0.5)


def test_a_look_is_the_node(bed: Bed) -> None:
    found = bed.hardware.look()
    node = bed.nvml.node
    assert [gpu.uuid for gpu in found.gpus] == [gpu.uuid for gpu in node.gpus]
    assert found.system == node.system
    assert found.installation == INSTALLED
    assert found.mig_profiles == node.mig_profiles
    assert not bed.problems()


def test_mig_tables_are_read_once_for_a_product_and_driver(bed: Bed) -> None:
    bed.hardware.look()
    tables = bed.nvml.calls["nvmlDeviceGetGpuInstanceProfileInfo"]
    assert tables == 18  # for four GPUs
    bed.hardware.look()
    bed.link.replace(bed.link)
    bed.hardware.look()
    assert bed.nvml.calls["nvmlDeviceGetGpuInstanceProfileInfo"] == tables


def test_mig_tables_are_read_a_second_time_in_mig_mode_and_not_a_third_time(tmp_path: Path) -> None:
    bed = Bed(machine.node(boards.H100), tmp_path)
    off, on = bed.nvml.node, machine.node(boards.H100, mig="1g.10gb")
    counts = []
    for node in (off, off, on, on, off, on):
        bed.nvml.node = node
        bed.hardware.look()
        counts.append(bed.nvml.calls["nvmlDeviceGetGpuInstanceProfileInfo"])
    bed.hardware.close()
    assert counts == [18, 18, 36, 36, 36, 36]


def test_mig_tables_that_fail_are_read_by_the_next_look(bed: Bed) -> None:
    bed.nvml.fail["nvmlDeviceGetGpuInstanceProfileInfo"] = 15
    assert bed.hardware.look().mig_profiles == {}
    bed.nvml.fail.clear()
    assert bed.hardware.look().mig_profiles == bed.nvml.node.mig_profiles


def test_mig_devices_have_no_name_until_their_profiles_are_known(bed: Bed) -> None:
    bed.nvml.fail["nvmlDeviceGetGpuInstanceProfileInfo"] = 999
    gpus = bed.hardware.look().gpus
    assert [bool(gpu.uuid) for gpu in gpus] == [True, True, True, False]
    assert gpus[3].problem.startswith("the profiles of its MIG devices cannot be read: nvmlDevice")
    bed.nvml.fail.clear()
    assert bed.hardware.look().gpus[3].uuid == bed.nvml.node.gpus[3].uuid


def test_a_gpu_that_is_lost_costs_only_itself_and_keeps_its_facts(bed: Bed) -> None:
    before = bed.hardware.look().gpus
    bed.nvml.fail["nvmlDeviceGetMemoryInfo", 1] = 15
    gpus = bed.hardware.look().gpus
    assert "fallen off the bus" in gpus[1].problem
    assert gpus[1].problem_code == 15
    assert gpus[1].uuid == before[1].uuid
    assert gpus[1].memory == before[1].memory
    assert [gpu.problem for gpu in gpus] == ["", gpus[1].problem, "", ""]
    assert bed.link.replaced == 0
    bed.nvml.fail.clear()
    assert bed.hardware.look().gpus == before


def test_a_gpu_that_hangs_costs_only_itself_and_a_process(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bed.hardware.look().gpus
    impatient(monkeypatch)
    bed.nvml.hang = {(HANG, 0)}
    gpus = bed.hardware.look().gpus
    assert "did not answer `gpu 0`" in gpus[0].problem
    assert "dmesg" in gpus[0].problem
    assert gpus[0].problem_code is None
    assert gpus[0].uuid == before[0].uuid
    assert [bool(gpu.problem) for gpu in gpus] == [True, False, False, False]
    assert bed.link.replaced == 1


def test_a_gpu_that_hung_is_asked_less_and_less_often_and_after_the_others(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.hardware.look()
    impatient(monkeypatch)
    bed.nvml.hang = {(HANG, 0)}
    for hangs, seconds in enumerate([*AGAIN_SECONDS, AGAIN_SECONDS[-1]], start=1):
        assert set(bed.problems()) == {0}
        assert bed.link.replaced == hangs
        bed.now += seconds - 1
        assert set(bed.problems()) == {0}
        assert bed.link.replaced == hangs  # not asked
        bed.now += 2
    order: list[int] = []
    asked = bed.hardware._once_more

    def recorded(request: wire.Request, kind: type) -> object:
        order.append(request.index)
        return asked(request, kind)

    monkeypatch.setattr(bed.hardware, "_once_more", recorded)
    bed.nvml.hang.clear()
    assert not bed.problems()
    assert [index for index in order if index >= 0] == [1, 2, 3, 0]
    order.clear()
    bed.problems()
    assert [index for index in order if index >= 0] == [0, 1, 2, 3]


def test_when_several_gpus_hang_the_look_fails_and_the_next_one_asks_the_others(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.hardware.look()
    impatient(monkeypatch)
    bed.nvml.hang = {(HANG, index) for index in range(MOST_HANGS + 1)}
    with pytest.raises(Temporary, match="index 0, 1, 2 did not answer"):
        bed.hardware.look()
    assert set(bed.problems()) == {0, 1, 2}


def test_gpus_that_hang_at_the_first_look_cost_one_attempt_in_each_later_one(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch)
    bed.nvml.hang = {(HANG, index) for index in range(MOST_HANGS + 1)}
    with pytest.raises(Temporary, match="index 0, 1, 2 did not answer"):
        bed.hardware.look()
    assert set(bed.problems()) == {0, 1, 2}
    bed.now += AGAIN_SECONDS[0] + 1
    before = bed.link.replaced
    assert set(bed.problems()) == {0, 1, 2}
    assert bed.link.replaced == before + 1


def test_only_looks_ask_a_gpu_that_hangs(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    uuid = bed.hardware.look().gpus[0].uuid
    impatient(monkeypatch)
    bed.nvml.hang = {(HANG, 0)}
    assert set(bed.problems()) == {0}
    for seconds in (0, AGAIN_SECONDS[0] + 1):
        bed.now += seconds
        with pytest.raises(Temporary, match="the GPU is asked again after 30 s"):
            bed.hardware.set_compute_mode(uuid, 0)
        assert bed.link.replaced == 1
    bed.nvml.hang.clear()
    assert not bed.problems()
    bed.hardware.set_compute_mode(uuid, 0)


def test_a_gpu_whose_process_does_not_end_is_asked_again_after_hours_or_when_it_has_ended(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.hardware.look()
    impatient(monkeypatch)
    bed.nvml.hang = {(HANG, 0)}
    bed.link.held = True
    for hangs, seconds in enumerate(UNENDED_SECONDS, start=1):
        assert "a process that hung in `gpu` does not end" in bed.problems()[0]
        assert bed.link.replaced == hangs
        bed.now += seconds - 1
        assert set(bed.problems()) == {0}
        assert bed.link.replaced == hangs  # not asked
        bed.now += 2
    assert set(bed.problems()) == {0}
    bed.now += AGAIN_SECONDS[-1] + 1
    bed.nvml.hang.clear()
    assert set(bed.problems()) == {0}
    bed.link.finish()
    assert not bed.problems()


def test_a_question_whose_process_does_not_end_is_not_asked_by_another_process(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(wire.DEADLINES, "node", 0.5)
    bed.nvml.hang = {"nvmlInitWithFlags"}
    bed.link.held = True
    with pytest.raises(Temporary, match="did not answer `node`"):
        bed.hardware.look()
    with pytest.raises(Temporary, match="a process that hung in `node` does not end"):
        bed.hardware.look()
    assert bed.link.replaced == 1
    bed.now += UNENDED_SECONDS[0] + 1
    with pytest.raises(Temporary, match="did not answer `node`"):
        bed.hardware.look()
    assert bed.link.replaced == 2
    monkeypatch.setitem(wire.DEADLINES, "node", 2.0)
    bed.nvml.hang.clear()
    bed.now += UNENDED_SECONDS[1] + 1
    assert len(bed.hardware.look().gpus) == 4
    bed.now -= UNENDED_SECONDS[1]
    assert len(bed.hardware.look().gpus) == 4  # an answer ends it, too


def test_a_request_that_waited_for_another_gpu_is_not_held_against_its_own(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = bed.hardware.look().gpus[1].uuid
    monkeypatch.setitem(wire.DEADLINES, "processes", 0.5)
    bed.nvml.hang = {("nvmlDeviceGetComputeRunningProcesses_v3", 1)}
    with pytest.raises(Temporary, match="did not answer `processes"):
        bed.hardware.processes(uuid)
    assert not bed.problems()


def test_a_node_that_does_not_answer_is_tried_again(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(wire.DEADLINES, "node", 0.5)
    bed.nvml.hang = {"nvmlInitWithFlags"}
    with pytest.raises(Temporary, match="did not answer `node` within 0 s; it was replaced"):
        bed.hardware.look()
    bed.nvml.hang.clear()
    bed.nvml.go.set()
    assert len(bed.hardware.look().gpus) == 4


def test_a_gpu_that_vanishes_between_two_calls_is_gone_at_the_next_look(bed: Bed) -> None:
    before = bed.hardware.look()
    one_less = msgspec.structs.replace(bed.nvml.node, gpus=bed.nvml.node.gpus[:3])
    bed.nvml.fail[HANG, 3] = 28
    assert "not there any more" in bed.problems()[3]
    bed.nvml.node = one_less
    assert bed.hardware.look().gpus == before.gpus[:3]


def test_after_a_gpu_has_gone_no_other_one_has_its_facts(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.hardware.look()
    gpus = bed.nvml.node.gpus
    shifted = tuple(msgspec.structs.replace(gpu, index=index) for index, gpu in enumerate(gpus[1:]))
    bed.nvml.node = msgspec.structs.replace(bed.nvml.node, gpus=shifted)
    bed.link.replace(bed.link)
    bed.nvml.fail[HANG, 2] = 15
    found = bed.hardware.look().gpus
    assert [gpu.uuid for gpu in found] == [gpus[1].uuid, gpus[2].uuid, ""]


def test_a_node_without_a_library_says_so_and_lists_what_sysfs_has(bed: Bed) -> None:
    bed.hardware.look()
    bed.nvml.fail["nvmlInitWithFlags"] = 9
    bed.link.replace(bed.link)
    found = bed.hardware.look()
    assert "modprobe nvidia" in found.problem
    assert found.gpus == ()
    bed.nvml.fail.clear()
    assert len(bed.hardware.look().gpus) == 4


def test_a_replaced_library_is_opened_by_the_next_process_within_the_look(bed: Bed) -> None:
    bed.hardware.look()
    newer = msgspec.structs.replace(INSTALLED, kernel_version="590.44")
    bed.link.found = type(bed.link.found)(newer, bed.link.found.library)
    found = bed.hardware.look()
    assert found.installation.kernel_version == "590.44"
    assert len(found.gpus) == 4


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x0c" + b'{"result":1}',
        b"\xff\xff\xff\xff",
        b"\x00\x01\x00\x00" + b"[" * 0x10000,
        b"\x00\x00\x00\x19" + b'{"result":{"count":1025}}',
    ],
)
def test_garbage_costs_the_request_and_the_process(said: bytes, bed: Bed) -> None:
    def speak(theirs: socket.socket) -> None:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        listening.append(theirs.dup())  # else the request fails before the answer is read

    listening: list[socket.socket] = []
    bed.link.speak = speak
    with pytest.raises(Temporary, match="gave no answer to `node`"):
        bed.hardware.look()
    for one in listening:
        one.close()
    assert bed.link.replaced == 2  # it was asked once more
    bed.link.speak = None
    assert len(bed.hardware.look().gpus) == 4


def test_processes_and_modes_are_asked_by_uuid(bed: Bed) -> None:
    uuid = bed.nvml.node.gpus[1].uuid
    process = Process(pid=7, used_memory=5)
    gpus = list(bed.nvml.node.gpus)
    gpus[1] = msgspec.structs.replace(gpus[1], processes=(process,))
    bed.nvml.node = msgspec.structs.replace(bed.nvml.node, gpus=tuple(gpus))
    bed.hardware.look()
    bed.link.replace(bed.link)  # a process that has not looked yet
    assert bed.hardware.processes(uuid) == (process,)
    bed.hardware.set_compute_mode(uuid, 3)
    assert bed.nvml.modes == {uuid: 3}
    mig = gpus[3].mig
    assert mig is not None
    assert bed.hardware.processes(mig.devices[0].uuid) == ()


def test_what_the_hardware_refuses_is_permanent_and_what_can_change_is_temporary(
    bed: Bed,
) -> None:
    uuid = bed.nvml.node.gpus[1].uuid
    bed.hardware.look()
    bed.nvml.fail["nvmlDeviceSetComputeMode"] = 3
    with pytest.raises(Permanent, match="cannot do that"):
        bed.hardware.set_compute_mode(uuid, 3)
    bed.nvml.fail["nvmlDeviceSetComputeMode"] = 15
    with pytest.raises(Temporary, match="fallen off the bus"):
        bed.hardware.set_compute_mode(uuid, 3)
    with pytest.raises(Permanent, match="driver root / has no nvidia-smi"):
        bed.hardware.set_time_slice(uuid, 1)
    with pytest.raises(Temporary, match="no GPU of this node"):
        bed.hardware.processes("GPU-gone")


def test_to_let_go_ends_the_process_and_the_next_look_opens_it_again(bed: Bed) -> None:
    bed.hardware.look()
    bed.hardware.let_go()
    assert bed.link.ended == 1
    assert len(bed.hardware.look().gpus) == 4
    bed.link.ours = False  # in another container, it is asked to end itself
    bed.hardware.let_go()
    assert len(bed.hardware.look().gpus) == 4
    bed.hardware.close()


def collected(bed: Bed, stop: Event, got: list[HardwareEvent | None], wanted: int) -> Thread:
    bed.hardware.look()

    def collect() -> None:
        for event in bed.hardware.events(stop):
            got.append(event)
            if len(got) >= wanted:
                stop.set()

    thread = Thread(target=collect)
    thread.start()
    return thread


def test_events_come_and_a_broken_stream_is_taken_up_with_a_look(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_RETRY_SECONDS", (0.01,))
    monkeypatch.setattr(client, "_STOP_SECONDS", 0.02)
    uuid = bed.nvml.node.gpus[0].uuid
    first, second = (HardwareEvent(uuid=uuid, type=8, data=xid) for xid in (31, 79))
    got: list[HardwareEvent | None] = []
    bed.nvml.happening.put(first)
    stop = Event()
    bed.hardware.look()
    thread = collected(bed, stop, got, 4)
    while first not in got:
        stop.wait(0.01)
    bed.nvml.fail["nvmlEventSetWait_v2"] = 999
    while bed.link.ended == 0:
        stop.wait(0.01)
    bed.nvml.fail.clear()
    bed.hardware.look()
    bed.nvml.happening.put(second)
    thread.join(20)
    assert got == [
        first,
        None,
        None,
        second,
    ]  # at the end of one stream, and at the beginning of the next


def test_events_end_when_they_are_asked_to(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_STOP_SECONDS", 0.02)
    stop = Event()
    bed.hardware.look()
    thread = collected(bed, stop, [], 1)
    bed.nvml.happening.put(HardwareEvent(uuid=bed.nvml.node.gpus[0].uuid, type=8))
    thread.join(20)
    assert not thread.is_alive()


def test_without_a_process_events_wait_and_stop(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Event()

    def connect() -> object:
        stop.set()
        raise Temporary("there is none")

    monkeypatch.setattr(bed.link, "connect", connect)
    assert list(bed.hardware.events(stop)) == []


def test_the_usage_of_a_gpu_is_asked_and_one_that_hangs_is_left_alone(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch)
    uuids = [gpu.uuid for gpu in bed.hardware.look().gpus]
    assert bed.hardware.usage(uuids[0]).gpu_percent == 50
    assert len(bed.hardware.usage(uuids[3]).mig_memory) == 1
    bed.nvml.hang.add((HANG, 1))
    assert set(bed.problems()) == {1}
    asked = bed.nvml.by_gpu[1]
    with pytest.raises(Temporary):
        bed.hardware.usage(uuids[1])
    assert bed.nvml.by_gpu[1] == asked
    assert bed.hardware.usage(uuids[2]).gpu_percent == 50


def test_a_usage_that_hangs_ends_at_its_deadline_and_the_others_go_on(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(wire.DEADLINES, "usage", 0.5)
    uuids = [gpu.uuid for gpu in bed.hardware.look().gpus]
    bed.nvml.hang.add(("nvmlDeviceGetUtilizationRates", 1))
    with pytest.raises(Temporary, match="usage"):
        bed.hardware.usage(uuids[1])
    assert bed.hardware.usage(uuids[0]).gpu_percent == 50
