# SPDX-License-Identifier: Apache-2.0
import msgspec
import pytest

from dra_driver.backends.nvidia.facts import Node
from dra_driver.testing.nvml import boards, machine
from dra_driver.testing.nvml.layouts import mig_devices, profile_name

NAMES = {
    "a30": "1g.6gb 2g.12gb 4g.24gb 1g.6gb+me 2g.12gb+me",
    "a100-40": "1g.5gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb 1g.5gb+me 1g.10gb",
    "a100-80": "1g.10gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb 1g.10gb+me 1g.20gb",
    "h100": "1g.10gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb 1g.10gb+me 1g.20gb",
    "h100-nvl": "1g.12gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb 1g.12gb+me 1g.24gb",
    "h100-pcie": "1g.10gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb 1g.10gb+me 1g.20gb",
    "gh200-96": "1g.12gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb 1g.12gb+me 1g.24gb",
    "gh200-144": "1g.18gb 2g.36gb 3g.72gb 4g.72gb 7g.144gb 1g.18gb+me 1g.36gb",
    "gb300": "1g.35gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb 1g.35gb+me 1g.70gb",
    "h200": "1g.18gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb 1g.18gb+me 1g.35gb",
    "b200": "1g.23gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb 1g.23gb+me 1g.45gb",
    "gb200": "1g.23gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb 1g.23gb+me 1g.47gb",
    "b300": "1g.34gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb 1g.34gb+me 1g.67gb",
    "rtx-pro-6000": "1g.24gb 2g.48gb 4g.96gb 1g.24gb+me 1g.24gb+gfx 1g.24gb+me.all",
}


NAMES |= {
    "a100-40-20b1": NAMES["a100-40"],
    "a100-40-20f6": NAMES["a100-40"],
    "a100-80-20f3": NAMES["a100-80"],
    "a100-80-20f5": NAMES["a100-80"],
    "h800-2322": NAMES["h100"],
    "h800-2324": NAMES["h100"],
    "h800-nvl": NAMES["h100-nvl"],
    "h100-96": NAMES["gh200-96"],
}


@pytest.mark.parametrize("board", NAMES)
def test_profiles_have_the_names_that_nvidia_smi_prints(board: str) -> None:
    product = boards.BOARDS[board]
    names = [profile_name(profile, product.memory_mib or 0) for profile in product.profiles]
    assert names == NAMES[board].split()


def test_a_board_of_which_only_the_id_is_known_claims_nothing_else() -> None:
    found = {name: boards.BOARDS[name] for name in (*list(NAMES)[-8:], "h20")}
    assert {name: board.device >> 16 for name, board in found.items()} == {
        "a100-40-20b1": 0x20B1,
        "a100-40-20f6": 0x20F6,
        "a100-80-20f3": 0x20F3,
        "a100-80-20f5": 0x20F5,
        "h800-2322": 0x2322,
        "h800-2324": 0x2324,
        "h800-nvl": 0x233A,
        "h100-96": 0x233D,
        "h20": 0x2329,
    }
    for board in found.values():
        (gpu,) = machine.node(board).gpus
        assert (gpu.pci_subsystem_id, gpu.nvlinks, gpu.fabric, gpu.module_id) == (
            *(0x10DE, (), None, None),
        )
    assert machine.node(boards.H20).gpus[0].mig is None


@pytest.mark.parametrize("board", boards.BOARDS.values(), ids=boards.BOARDS)
def test_a_board_becomes_a_node_that_survives_a_file(board: boards.Board) -> None:
    node = machine.node(board, 8)
    assert msgspec.json.decode(msgspec.json.encode(node), type=Node) == node
    assert len({gpu.uuid for gpu in node.gpus}) == 8
    assert len({gpu.pci_bus_id for gpu in node.gpus}) == 8
    assert [entry.address for entry in node.pci] == [gpu.pci_path[-1] for gpu in node.gpus]
    for gpu in node.gpus:
        assert (
            gpu.memory is None or gpu.memory.free + (gpu.memory.reserved or 0) == gpu.memory.total
        )


def test_a_value_is_missing_exactly_where_an_error_says_why() -> None:
    by_function = {
        "nvmlDeviceGetAddressingMode": "addressing_mode",
        "nvmlDeviceGetModuleId": "module_id",
        "nvmlDeviceGetMemoryInfo": "memory",
        "nvmlDeviceGetMigMode": "mig",
        "nvmlDeviceGetGpuFabricInfo": "fabric",
        "nvmlDeviceGetFieldValues": "recovery_action",
        "nvmlDeviceGetTotalEccErrors": "ecc_uncorrected",
        "nvmlDeviceGetRemappedRows": "remapped_rows",
    }
    for board in boards.BOARDS.values():
        for driver in (machine.R470, machine.R580):
            (gpu,) = machine.node(board, driver=driver).gpus
            missing = {name for name, field in by_function.items() if getattr(gpu, field) is None}
            assert missing == set(gpu.errors) - {"nvmlDeviceGetSerial"}


def test_a_layout_places_its_devices_as_a_gpu_does() -> None:
    devices = mig_devices(boards.A100_40.profiles, "3g.20gb 2g.10gb 1g.5gb 1g.5gb", "GPU-x", 40960)
    assert [(one.gpu_instance, one.start, one.size, one.memory_mib) for one in devices] == [
        (1, 4, 4, 19968),
        (3, 0, 2, 9856),
        (9, 2, 1, 4864),
        (10, 3, 1, 4864),
    ]


def test_a_gpu_instance_can_have_several_compute_instances() -> None:
    devices = mig_devices(boards.A100_40.profiles, "3g.20gb:1c+2c 1g.5gb@2", "GPU-x", 40960)
    assert [(one.gpu_instance, one.compute_instance, one.compute_slices) for one in devices] == [
        (1, 0, 1),
        (1, 1, 2),
        (9, 0, 1),
    ]
    assert [one.multiprocessors for one in devices] == [14, 28, 14]
    assert len({one.uuid for one in devices}) == 3


@pytest.mark.parametrize(
    "layout", ["7g.40gb 1g.5gb", "4g.20gb 4g.20gb", "3g.20gb 1g.5gb@5", "1g.6gb"]
)
def test_a_layout_that_does_not_fit_is_refused(layout: str) -> None:
    with pytest.raises(ValueError, match="no p"):
        mig_devices(boards.A100_40.profiles, layout, "GPU-x", 40960)


def test_a_board_with_four_slices_numbers_its_instances_from_halves() -> None:
    devices = mig_devices(boards.A30.profiles, "2g.12gb 1g.6gb 1g.6gb", "GPU-x", 24576)
    assert [one.gpu_instance for one in devices] == [2, 5, 6]


def test_links_are_shared_between_the_other_gpus() -> None:
    node = machine.node(boards.A100_40, 4, links="mesh")
    ends = [link.remote_pci_bus_id for link in node.gpus[0].nvlinks]
    assert {end: ends.count(end) for end in ends} == {gpu.pci_bus_id: 4 for gpu in node.gpus[1:]}
    pairs = machine.node(boards.H100_NVL, 4)
    assert {link.remote_pci_bus_id for link in pairs.gpus[2].nvlinks} == {pairs.gpus[3].pci_bus_id}
    switched = machine.node(boards.H100)
    assert {link.remote_type for link in switched.gpus[0].nvlinks} == {2}
    assert len(switched.gpus[0].nvlinks) == 18


def test_ampere_tells_its_profiles_only_in_mig_mode_and_hopper_always() -> None:
    assert not machine.node(boards.A100_40).mig_profiles
    assert machine.node(boards.A100_40, mig={0: "empty"}).mig_profiles
    assert machine.node(boards.H100).mig_profiles


def test_nodes_of_several_products_have_one_numbering() -> None:
    node = machine.joined(machine.node(boards.T4, 2), machine.node(boards.L4, 2))
    assert [gpu.minor for gpu in node.gpus] == [0, 1, 2, 3]
    assert len({gpu.pci_bus_id for gpu in node.gpus}) == 4
    assert [entry.device for entry in node.pci] == [0x1EB8, 0x1EB8, 0x27B8, 0x27B8]
