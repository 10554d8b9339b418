# SPDX-License-Identifier: Apache-2.0
"""How many calls a look costs, and what each failing call costs. The counts are the limits of docs/nvidia.md."""

from pathlib import Path

import msgspec
import pytest

from dra_driver.backends.nvidia.facts import Fabric, Gpu, Memory, Node
from dra_driver.backends.nvidia.hardware import migs
from dra_driver.backends.nvidia.hardware.nvml import Failed
from dra_driver.backends.nvidia.hardware.scan import Scanner
from dra_driver.testing.nvml import boards, machine
from dra_driver.testing.nvml.boards import Board
from tests.support.nvml_standin import StandIn

MOST_AT_FIRST = 45
MOST_OF_A_REFRESH = 5
BOARDS = [
    *(boards.V100_16, boards.T4, boards.A30, boards.A100_40, boards.L4, boards.H100, boards.H200),
    *(boards.B200, boards.GB200, boards.RTX_PRO_6000, boards.GB10),
]
# What the library does not know: sysfs and the lists of processes.
ELSEWHERE = ("numa_node", "pci_path", "drm", "processes")


def of_library(gpu: Gpu) -> Gpu:
    return msgspec.structs.replace(gpu, numa_node=None, pci_path=(), drm=(), processes=None)


def scanner(library: StandIn, root: Path) -> Scanner:
    return Scanner(library, sysfs=root / "sys", proc=root / "proc")


def changed(library: StandIn, index: int, **values: object) -> None:
    gpus = list(library.node.gpus)
    gpus[index] = msgspec.structs.replace(gpus[index], **values)
    library.node = msgspec.structs.replace(library.node, gpus=tuple(gpus))


def instances(root: Path, *folders: str) -> None:
    for folder in folders:
        (root / "proc/driver/nvidia/capabilities/gpu0/mig" / folder).mkdir(parents=True)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_the_facts_of_each_board_are_read_completely(board: Board, tmp_path: Path) -> None:
    node = machine.node(board, 2)
    found = scanner(StandIn(node), tmp_path)
    assert [found.gpu(0), found.gpu(1)] == [of_library(gpu) for gpu in node.gpus]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_first_look_needs_at_most_45_calls_and_two_for_each_active_link(
    board: Board, tmp_path: Path
) -> None:
    library = StandIn(machine.node(board, 2))
    scanner(library, tmp_path).gpu(0)
    links = len(library.node.gpus[0].nvlinks)
    assert library.by_gpu[0] <= MOST_AT_FIRST + 2 * links
    assert library.by_gpu[1] == 0


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_refresh_needs_at_most_five_calls(board: Board, tmp_path: Path) -> None:
    library = StandIn(machine.node(board))
    found = scanner(library, tmp_path)
    first = found.gpu(0)
    library.by_gpu.clear()
    assert found.gpu(0) == first
    assert library.by_gpu[0] <= MOST_OF_A_REFRESH


@pytest.mark.parametrize("count", [True, False])
def test_a_driver_without_the_fields_of_links_is_asked_link_by_link_within_the_limit(
    count: bool, tmp_path: Path
) -> None:
    library = StandIn(machine.node(boards.H100, 2))
    library.link_field, library.link_count = False, count
    gpu = scanner(library, tmp_path).gpu(0)
    assert gpu.nvlinks == library.node.gpus[0].nvlinks
    assert library.by_gpu[0] <= MOST_AT_FIRST + 2 * len(gpu.nvlinks)


@pytest.mark.parametrize("board", [boards.A100_40, boards.H100], ids=lambda board: board.name)
def test_links_that_come_up_after_the_first_look_cost_two_calls_each_once(
    board: Board, tmp_path: Path
) -> None:
    library = StandIn(machine.node(board, 2))
    links = library.node.gpus[0].nvlinks
    library.down = {(0, one.link) for one in links}
    found = scanner(library, tmp_path)
    assert found.gpu(0).nvlinks == ()
    library.by_gpu.clear()
    assert found.gpu(0).nvlinks == ()
    assert library.by_gpu[0] <= MOST_OF_A_REFRESH
    at_rest = library.by_gpu[0]
    library.down.clear()
    library.by_gpu.clear()
    assert found.gpu(0).nvlinks == links
    assert library.by_gpu[0] == at_rest + 2 * len(links)
    library.by_gpu.clear()
    assert found.gpu(0).nvlinks == links
    assert library.by_gpu[0] == at_rest


def test_a_link_that_goes_down_is_left_out_and_costs_no_call(tmp_path: Path) -> None:
    library = StandIn(machine.node(boards.H100, 2))
    links = library.node.gpus[0].nvlinks
    found = scanner(library, tmp_path)
    assert found.gpu(0).nvlinks == links
    library.down = {(0, 3), (1, 5)}
    library.by_gpu.clear()
    assert found.gpu(0).nvlinks == (*links[:3], *links[4:])
    assert library.by_gpu[0] <= MOST_OF_A_REFRESH
    library.fail["nvmlDeviceGetFieldValues"] = 999
    library.down.clear()
    assert found.gpu(0).nvlinks == (*links[:3], *links[4:])  # nothing was told
    library.fail.clear()
    assert found.gpu(0).nvlinks == links


@pytest.mark.parametrize("board", [boards.V100_16, boards.A100_40], ids=lambda board: board.name)
def test_links_that_are_asked_one_in_each_second_look_are_followed_within_the_limit(
    board: Board, tmp_path: Path
) -> None:
    library = StandIn(machine.node(board, 2))
    library.link_field = False
    changed(library, 0, fabric=None)
    links = library.node.gpus[0].nvlinks
    library.down = {(0, one.link) for one in links}
    found = scanner(library, tmp_path)
    assert found.gpu(0).nvlinks == ()

    def looks(count: int) -> Gpu:
        for _ in range(count):
            library.by_gpu.clear()
            gpu = found.gpu(0)
            assert library.by_gpu[0] <= MOST_OF_A_REFRESH
        return gpu

    assert looks(4 * len(links)).nvlinks == ()
    library.down.clear()
    for _ in range(2):
        found.gpu(0)  # one of them finds a link that is up, and asks all
    assert looks(2).nvlinks == links
    library.down = {(0, links[2].link)}
    library.modes[library.node.gpus[0].uuid] = 3
    assert looks(2).compute_mode == 3
    for _ in range(2 * len(links)):
        found.gpu(0)
    assert looks(1).nvlinks == (*links[:2], *links[3:])


def test_what_changes_is_read_anew(tmp_path: Path) -> None:
    library = StandIn(machine.node(boards.H100))
    found = scanner(library, tmp_path)
    found.gpu(0)
    fabric = Fabric(
        state=3,
        cluster_uuid="01020304-0506-0708-090a-0b0c0d0e0f10",
        clique_id=7,
        health_mask=2,
        health_summary=2,
    )
    memory = Memory(total=80, free=8, used=70, reserved=2)
    changed(library, 0, temperature=91, recovery_action=2, memory=memory, fabric=fabric)
    gpu = found.gpu(0)
    assert (gpu.temperature, gpu.recovery_action, gpu.memory) == (91, 2, memory)
    assert gpu.fabric == fabric


def test_drm_devices_are_found_that_the_kernel_makes_after_the_first_look(tmp_path: Path) -> None:
    library = StandIn(machine.node(boards.L4))
    found = scanner(library, tmp_path)
    assert found.gpu(0).drm == ()
    address = found.gpu(0).pci_bus_id[4:].lower()
    (tmp_path / "sys/bus/pci/devices" / address / "drm/card1").mkdir(parents=True)
    assert found.gpu(0).drm == ("card1",)


def test_a_board_without_fabric_has_its_compute_mode_read_anew(tmp_path: Path) -> None:
    library = StandIn(machine.node(boards.L4))
    found = scanner(library, tmp_path)
    assert found.gpu(0).compute_mode == 0
    library.modes[library.node.gpus[0].uuid] = 3
    assert found.gpu(0).compute_mode == 3


def test_one_failing_call_costs_one_fact_and_comes_back(tmp_path: Path) -> None:
    library = StandIn(machine.node(boards.H100))
    found = scanner(library, tmp_path)
    library.fail["nvmlDeviceGetTemperature"] = 999
    gpu = found.gpu(0)
    assert gpu.temperature is None
    assert gpu.errors["nvmlDeviceGetTemperature"] == 999
    assert gpu.memory == library.node.gpus[0].memory
    library.fail.clear()
    assert found.gpu(0) == of_library(library.node.gpus[0])


def test_a_fact_that_does_not_change_is_read_again_if_its_call_failed_and_not_for_ever(
    tmp_path: Path,
) -> None:
    library = StandIn(mig_node())
    instances(tmp_path, "gi1/ci0", "gi3/ci0", "gi9/ci0")
    found = scanner(library, tmp_path)
    library.fail["nvmlDeviceGetMinorNumber"] = 999
    assert found.gpu(0).minor is None
    library.fail.clear()
    again = found.gpu(0)
    assert (again.minor, again.mig) == (library.node.gpus[0].minor, library.node.gpus[0].mig)
    assert "nvmlDeviceGetMinorNumber" not in again.errors
    library.fail["nvmlDeviceGetSerial"] = 999
    library.calls.clear()
    other = scanner(library, tmp_path)
    for _ in range(9):
        other.gpu(0)
    assert library.calls["nvmlDeviceGetName"] == 3


def test_an_old_library_without_a_symbol_costs_the_facts_of_that_symbol(tmp_path: Path) -> None:
    library = StandIn(machine.node(boards.A100_40))
    library.missing = {"nvmlDeviceGetModuleId", "nvmlDeviceGetFieldValues"}
    gpu = scanner(library, tmp_path).gpu(0)
    assert gpu.module_id is None
    assert gpu.recovery_action is None
    assert gpu.errors["nvmlDeviceGetModuleId"] == 13
    assert gpu.errors["nvmlDeviceGetFieldValues"] == 13
    assert gpu.uuid == library.node.gpus[0].uuid


def test_a_library_without_the_second_version_of_memory_and_fabric_is_asked_the_older_one(
    tmp_path: Path,
) -> None:
    node = machine.node(boards.H100)
    library = StandIn(node)
    changed(
        library,
        0,
        memory=Memory(total=80, free=80),
        fabric=Fabric(state=3, cluster_uuid=machine.NOWHERE, health_mask=2),
    )
    found = scanner(library, tmp_path)
    assert found.gpu(0).memory == Memory(total=80, free=80)
    assert found.gpu(0).fabric == library.node.gpus[0].fabric
    library.by_gpu.clear()
    found.gpu(0)
    assert library.by_gpu[0] <= MOST_OF_A_REFRESH


@pytest.mark.parametrize("code", [15, 28, 1, 9, 18])
def test_a_gpu_that_is_lost_is_no_facts_but_an_error_with_a_next_step(
    code: int, tmp_path: Path
) -> None:
    library = StandIn(machine.node(boards.H100, 2))
    found = scanner(library, tmp_path)
    found.gpu(0)
    library.fail["nvmlDeviceGetMemoryInfo", 0] = code
    with pytest.raises(Failed) as caught:
        found.gpu(0)
    assert caught.value.failure.code == code
    assert f"NVML error {code}: " in str(caught.value)
    assert "; " in str(caught.value)
    assert found.gpu(1).uuid == library.node.gpus[1].uuid


def mig_node() -> Node:
    return machine.node(boards.A100_40, mig="3g.20gb 2g.10gb 1g.5gb")


def test_mig_devices_cost_seven_calls_each_and_are_read_again_only_when_the_kernel_shows_others(
    tmp_path: Path,
) -> None:
    library = StandIn(mig_node())
    instances(tmp_path, "gi1/ci0", "gi3/ci0", "gi9/ci0")
    found = scanner(library, tmp_path)
    gpu = found.gpu(0)
    assert gpu.mig == library.node.gpus[0].mig
    extra = 2 * len(gpu.nvlinks) + 7 * 3
    assert library.by_gpu[0] <= MOST_AT_FIRST + extra
    library.by_gpu.clear()
    assert found.gpu(0).mig == gpu.mig
    assert library.by_gpu[0] <= MOST_OF_A_REFRESH
    assert gpu.mig is not None
    less = msgspec.structs.replace(gpu.mig, devices=gpu.mig.devices[:2])
    changed(library, 0, mig=less)
    assert found.gpu(0).mig == gpu.mig  # nothing says yet that it changed
    (tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi9/ci0").rmdir()
    assert found.gpu(0).mig == less


def test_mig_devices_are_read_at_each_look_where_the_kernel_shows_nothing(tmp_path: Path) -> None:
    library = StandIn(mig_node())
    found = scanner(library, tmp_path)
    mig = found.gpu(0).mig
    assert mig is not None
    less = msgspec.structs.replace(mig, devices=mig.devices[:1])
    changed(library, 0, mig=less)
    assert found.gpu(0).mig == less


def test_mig_devices_are_read_again_while_the_kernel_shows_more_than_the_library(
    tmp_path: Path,
) -> None:
    library = StandIn(mig_node())
    instances(tmp_path, "gi1/ci0", "gi3/ci0", "gi9/ci0")
    found = scanner(library, tmp_path)
    library.fail["nvmlDeviceGetAttributes_v2"] = 999
    first = found.gpu(0).mig
    assert first is not None
    assert first.devices == ()
    library.fail.clear()
    assert found.gpu(0).mig == library.node.gpus[0].mig


def test_an_instance_that_was_made_anew_under_the_same_path_is_another_one(tmp_path: Path) -> None:
    instances(tmp_path, "gi1/ci0")
    ours = tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0"
    before = migs.instances(tmp_path / "proc", 0)
    ours.chmod(0o700)  # changes its time, as a new inode of the same number has another one
    assert migs.instances(tmp_path / "proc", 0) != before


def test_mig_devices_are_read_again_after_an_event(tmp_path: Path) -> None:
    library = StandIn(mig_node())
    instances(tmp_path, "gi1/ci0", "gi3/ci0", "gi9/ci0")
    found = scanner(library, tmp_path)
    mig = found.gpu(0).mig
    assert mig is not None
    less = msgspec.structs.replace(mig, devices=mig.devices[:1])
    changed(library, 0, mig=less)
    assert found.gpu(0).mig == mig
    found.forget_migs()
    assert found.gpu(0).mig == less


def test_mig_mode_that_is_switched_on_and_off_is_followed(tmp_path: Path) -> None:
    library = StandIn(machine.node(boards.H100))
    instances(tmp_path, "gi1/ci0")
    found = scanner(library, tmp_path)
    off = found.gpu(0).mig
    changed(library, 0, mig=machine.node(boards.H100, mig="1g.10gb").gpus[0].mig)
    assert found.gpu(0).mig == library.node.gpus[0].mig
    changed(library, 0, mig=off)
    assert found.gpu(0).mig == off


def test_a_gpu_whose_mig_mode_cannot_be_read_has_the_one_of_before(tmp_path: Path) -> None:
    library = StandIn(mig_node())
    found = scanner(library, tmp_path)
    mig = found.gpu(0).mig
    assert mig is not None
    library.fail["nvmlDeviceGetMigMode"] = 999
    gpu = found.gpu(0)
    assert (gpu.mig, gpu.errors["nvmlDeviceGetMigMode"]) == (mig, 999)


def test_a_mig_device_that_goes_away_meanwhile_is_left_out(tmp_path: Path) -> None:
    library = StandIn(mig_node())
    library.fail["nvmlDeviceGetAttributes_v2"] = 6
    gpu = scanner(library, tmp_path).gpu(0)
    assert gpu.mig is not None
    assert gpu.mig.enabled
    assert gpu.mig.devices == ()
    assert "nvmlDeviceGetAttributes_v2" not in gpu.errors


@pytest.mark.parametrize("board", [boards.A30, boards.A100_80, boards.H200, boards.RTX_PRO_6000])
def test_the_profiles_of_a_board_are_all_read(board: Board, tmp_path: Path) -> None:
    library = StandIn(machine.node(board, mig="empty"))
    assert scanner(library, tmp_path).mig_profiles(0) == board.profiles


def test_a_board_that_tells_its_profiles_only_in_mig_mode_has_none_before(tmp_path: Path) -> None:
    assert scanner(StandIn(machine.node(boards.A100_40)), tmp_path).mig_profiles(0) == ()


def test_the_system_is_read_once_and_confidential_computing_again_where_it_is_on(
    tmp_path: Path,
) -> None:
    library = StandIn(machine.node(boards.H100, cc=True))
    found = scanner(library, tmp_path)
    assert found.system() == library.node.system
    changed_system = msgspec.structs.replace(library.node.system, cc_ready=0)
    library.node = msgspec.structs.replace(library.node, system=changed_system)
    library.calls.clear()
    assert found.system().cc_ready == 0
    assert sum(library.calls.values()) == 1
    plain = StandIn(machine.node(boards.T4))
    found = scanner(plain, tmp_path)
    assert found.system() == plain.node.system
    plain.calls.clear()
    found.system()
    assert not plain.calls


def test_the_memory_of_the_node_is_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       123 kB\nMemFree: 1 kB\n")
    assert scanner(StandIn(machine.node(boards.GB10)), tmp_path).system().memory_total == 123 * 1024
    (tmp_path / "proc/meminfo").write_text("nothing\n")
    assert scanner(StandIn(machine.node(boards.GB10)), tmp_path).system().memory_total is None


def test_a_text_that_is_none_costs_only_itself(tmp_path: Path) -> None:
    library = StandIn(machine.node(boards.T4))

    def broken(_: object) -> str:
        return b"\xff".decode()

    library.nvmlDeviceGetName = broken  # type: ignore[attr-defined]
    gpu = scanner(library, tmp_path).gpu(0)
    assert gpu.name == ""
    assert gpu.errors["nvmlDeviceGetName"] == 999


def test_after_a_gpu_has_gone_an_index_is_the_next_gpu(tmp_path: Path) -> None:
    library = StandIn(machine.node(boards.H100, 3))
    found = scanner(library, tmp_path)
    first, _, last = (found.gpu(index).uuid for index in range(found.count()))
    gpus = library.node.gpus
    library.node = msgspec.structs.replace(library.node, gpus=(gpus[0], gpus[2]))
    assert [found.gpu(index).uuid for index in range(found.count())] == [first, last]
