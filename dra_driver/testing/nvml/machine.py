# SPDX-License-Identifier: Apache-2.0
"""Nodes made of boards: `node(boards.A100_40, count=8, mig={0: "3g.20gb 2g.10gb 1g.5gb"})` is a `facts.Node`.

Everything is the same in each run: UUIDs are made from product, index and `seed`. The GPUs have the PCI addresses of a usual server;
a node of several products joins `gpus` of each of them with `joined`.
"""

import itertools
import uuid
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from dra_driver.backends.nvidia.facts import (
    Fabric,
    Gpu,
    Memory,
    Mig,
    MigProfile,
    Node,
    NvLink,
    PciGpu,
    RemappedRows,
    System,
)
from dra_driver.testing.nvml.boards import AMPERE, ATS, HOPPER, Board
from dra_driver.testing.nvml.layouts import mig_devices

MIB = 1024 * 1024
NOT_SUPPORTED, FUNCTION_NOT_FOUND = 3, 13
NOWHERE = "00000000-0000-0000-0000-000000000000"
HEALTHY_FABRIC = (
    0x1AA  # no degraded bandwidth, no route in recovery or ill, no timeouts, configured correctly
)

# PCIe root and bus of each GPU; half of them belong to each NUMA node.
_SLOTS = (
    *("15:1a", "15:1b", "45:4a", "45:4b", "85:8a", "85:8b", "b5:ba", "b5:bb"),
    *("25:2a", "25:2b", "55:5a", "55:5b", "95:9a", "95:9b", "c5:ca", "c5:cb"),
)


class Driver(Struct, frozen=True):
    """A release of the driver. Functions and fields that came later are missing in older ones."""

    version: str
    cuda: int

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


R470 = Driver("470.256.02", 11040)
R550 = Driver("550.54.15", 12040)
R570 = Driver("570.133.20", 12080)
R580 = Driver("580.126.20", 13000)


def node(  # noqa: PLR0913 - each is a property of a machine, and has a default
    board: Board,
    count: int = 1,
    *,
    mig: Mapping[int, str] | str = "",
    driver: Driver = R580,
    links: str | None = None,
    fabric: Fabric | None = None,
    cc: bool = False,
    seed: str = "",
) -> Node:
    """Return a node with `count` boards of one product.

    `mig` is the layout of each GPU by its index, or one layout for all: names of profiles in the order of their creation
    ("3g.20gb 2g.10gb 1g.5gb"), "empty" for MIG mode without devices, "" for no MIG mode. `links` is "switch", "mesh" (all GPUs directly),
    "pairs" or "" instead of the board's own. `cc` turns confidential computing on.
    """
    layouts = dict.fromkeys(range(count), mig) if isinstance(mig, str) else mig
    gpus = tuple(
        _gpu(board, index, driver=driver, layout=layouts.get(index, ""), seed=seed)
        for index in range(count)
    )
    gpus = _linked(board, gpus, board.links if links is None else links)
    gpus = tuple(
        msgspec.structs.replace(gpu, fabric=fabric or _fabric(board, driver)) for gpu in gpus
    )
    return Node(
        system=_system(board, driver, cc=cc),
        gpus=gpus,
        pci=tuple(_pci(gpu, board) for gpu in gpus),
        mig_profiles=_profiles(board, gpus),
    )


def joined(*nodes: Node) -> Node:
    """Return one node with the GPUs of all: numbered anew, each at a PCI address of its own."""
    gpus: list[Gpu] = []
    pci: list[PciGpu] = []
    for gpu, entry in itertools.chain.from_iterable(
        zip(one.gpus, one.pci, strict=True) for one in nodes
    ):
        moved = msgspec.structs.replace(gpu, **_place(len(gpus)), nvlinks=())
        gpus.append(moved)
        pci.append(msgspec.structs.replace(entry, address=moved.pci_path[-1]))
    profiles = {name: table for one in nodes for name, table in one.mig_profiles.items()}
    return msgspec.structs.replace(
        nodes[0], gpus=tuple(gpus), pci=tuple(pci), mig_profiles=profiles
    )


def gpu_uuid(board: Board, index: int, seed: str = "") -> str:
    """The UUID of a GPU, the same in each run."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_URL, f'gpu:{seed}:{board.name}:{index}')}"


def _gpu(board: Board, index: int, *, driver: Driver, layout: str, seed: str) -> Gpu:
    identity = gpu_uuid(board, index, seed)
    gpu = Gpu(
        index=index,
        uuid=identity,
        name=board.name,
        brand=board.brand,
        architecture=board.architecture,
        compute_capability=board.capability,
        serial=_serial(identity) if board.ecc else "",
        pci_device_id=board.device,
        pci_subsystem_id=board.subsystem,
        addressing_mode=_addressing(board, driver),
        module_id=index + 1 if board.modules else None,
        virtualization_mode=0,
        memory=_memory(board, driver),
        mig=_mig(board, layout, identity),
        compute_mode=0,
        temperature=33 + index,
        recovery_action=0 if driver.major >= 570 else None,
        ecc_uncorrected=0 if board.ecc else None,
        remapped_rows=RemappedRows() if board.remaps else None,
        retired_pages_pending=False if board.ecc and not board.remaps else None,
        errors=_errors(board, driver),
    )
    return msgspec.structs.replace(gpu, **_place(index))


def _place(index: int) -> dict[str, object]:
    root, bus = _SLOTS[index % len(_SLOTS)].split(":")
    domain = f"{index // len(_SLOTS):04x}"
    port = 1 + 2 * (index % 2)
    return {
        "index": index,
        "minor": index,
        "pci_bus_id": f"0000{domain}:{bus}:00.0".upper(),
        "pci_path": (
            f"pci{domain}:{root}",
            f"{domain}:{root}:{port:02x}.0",
            f"{domain}:{bus}:00.0",
        ),
        "numa_node": (index // 4) % 2,
        "drm": (f"card{index + 1}", f"renderD{index + 128}"),
    }


def _serial(identity: str) -> str:
    return str(1650000000000 + int(identity[4:12], 16))


def _memory(board: Board, driver: Driver) -> Memory | None:
    if board.memory_mib is None:
        return None
    reserved = board.reserved_mib if driver.major >= 510 else None  # the second version of the call
    total = board.memory_mib * MIB
    held = (reserved or 0) * MIB
    return Memory(
        total=total, free=total - held, used=0, reserved=None if reserved is None else held
    )


def _addressing(board: Board, driver: Driver) -> int | None:
    return board.addressing if driver.major >= 570 else None


def _mig(board: Board, layout: str, identity: str) -> Mig | None:
    if not board.profiles:
        return None
    if not layout:
        return Mig()
    devices = mig_devices(board.profiles, layout, identity, board.memory_mib or 0)
    return Mig(enabled=True, pending=True, devices=devices)


def _errors(board: Board, driver: Driver) -> Mapping[str, int]:
    """The calls that fail on such a board, by the names that `facts.Gpu.errors` has for them."""
    failing = {
        "nvmlDeviceGetSerial": not board.ecc and NOT_SUPPORTED,
        "nvmlDeviceGetAddressingMode": driver.major < 570 and FUNCTION_NOT_FOUND,
        "nvmlDeviceGetModuleId": not board.modules and NOT_SUPPORTED,
        "nvmlDeviceGetMemoryInfo": board.memory_mib is None and NOT_SUPPORTED,
        "nvmlDeviceGetMigMode": not board.profiles and NOT_SUPPORTED,
        "nvmlDeviceGetGpuFabricInfo": not _fabric(board, driver) and NOT_SUPPORTED,
        "nvmlDeviceGetFieldValues": driver.major < 570 and NOT_SUPPORTED,  # the recovery action
        "nvmlDeviceGetTotalEccErrors": not board.ecc and NOT_SUPPORTED,
        "nvmlDeviceGetRemappedRows": not board.remaps and NOT_SUPPORTED,
    }
    return {name: code for name, code in failing.items() if code}


def _system(board: Board, driver: Driver, *, cc: bool) -> System:
    knows = board.architecture >= HOPPER and driver.major >= 550
    return System(
        driver_version=driver.version,
        nvml_version=f"{driver.cuda // 1000}.{driver.version}",
        cuda_driver_version=driver.cuda,
        cc_feature=int(cc) if knows else None,
        cc_dev_tools=0 if knows else None,
        cc_ready=int(cc) if knows else None,
        errors={}
        if knows
        else {
            "nvmlSystemGetConfComputeState": NOT_SUPPORTED,
            "nvmlSystemGetConfComputeGpusReadyState": NOT_SUPPORTED,
        },
    )


def _fabric(board: Board, driver: Driver) -> Fabric | None:
    if not board.fabric:
        return None
    if board.addressing == ATS:  # several nodes in one NVLink domain
        cluster = str(uuid.uuid5(uuid.NAMESPACE_URL, f"fabric:{board.name}"))
        return Fabric(
            state=3,
            cluster_uuid=cluster,
            clique_id=32766,
            health_mask=HEALTHY_FABRIC,
            health_summary=1 if driver.major >= 570 else None,
        )
    return Fabric(
        state=3,
        cluster_uuid=NOWHERE,
        health_mask=0,
        health_summary=0 if driver.major >= 570 else None,
    )


def _pci(gpu: Gpu, board: Board) -> PciGpu:
    return PciGpu(
        address=gpu.pci_path[-1],
        device=board.device >> 16,
        pci_class=board.pci_class,
        driver="nvidia",
    )


def _profiles(board: Board, gpus: tuple[Gpu, ...]) -> Mapping[str, tuple[MigProfile, ...]]:
    """Ampere tells its profiles only in MIG mode."""
    on = any(gpu.mig is not None and gpu.mig.enabled for gpu in gpus)
    if not board.profiles or (board.architecture == AMPERE and not on):
        return {}
    return {board.name: board.profiles}


def _linked(board: Board, gpus: tuple[Gpu, ...], how: str) -> tuple[Gpu, ...]:
    """Return the GPUs with their NVLinks: the links of each are shared evenly between the others, or between the switches."""
    found: list[Gpu] = []
    for gpu in gpus:
        ends = list(itertools.islice(_ends(board, gpu, gpus, how), board.link_count))
        links = tuple(
            NvLink(link=number, remote_pci_bus_id=end, remote_type=kind)
            for number, (end, kind) in enumerate(ends)
        )
        found.append(msgspec.structs.replace(gpu, nvlinks=links))
    return tuple(found)


def _ends(board: Board, gpu: Gpu, gpus: tuple[Gpu, ...], how: str) -> Iterator[tuple[str, int]]:
    """The other ends of the links of a GPU, over and over."""
    if how == "switch":
        return itertools.cycle(
            (f"00000000:{0xC4 + number:02X}:00.0", 2) for number in range(board.switches or 4)
        )
    others = [other for other in gpus if other is not gpu]
    if how == "pairs":
        others = [other for other in others if other.index // 2 == gpu.index // 2]
    return itertools.cycle((other.pci_bus_id, 0) for other in others if how)
