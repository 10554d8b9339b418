# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's boards as data: what NVML answers on each product.

Names, PCI IDs and total memory are those of real boards; of those at the end only the ID and the model are known. `reserved_mib` is typical: it depends on the driver. MIG tables are in
`mig_tables.py`.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.backends.nvidia.facts import MigProfile
from dra_driver.testing.nvml import mig_tables

VOLTA, TURING, AMPERE, ADA, HOPPER, BLACKWELL = 5, 6, 7, 8, 9, 10
TESLA, GEFORCE, NVIDIA = 2, 5, 14
ATS = 2
COMPUTE_ONLY, DISPLAY = 0x030200, 0x030000


class Board(Struct, frozen=True, kw_only=True):
    """What all GPUs of one product have in common. `links` is how they are joined in their usual server: "switch", "mesh", "pairs", "".

    `memory_mib` None: NVML reports no memory (NOT_SUPPORTED), because the GPU uses the memory of the CPU.
    """

    name: str
    memory_mib: int | None
    device: int
    subsystem: int
    architecture: int
    capability: tuple[int, int]
    reserved_mib: int = 0
    brand: int = NVIDIA
    profiles: tuple[MigProfile, ...] = ()
    link_count: int = 0
    links: str = ""
    switches: int = 0
    addressing: int = 0
    ecc: bool = True
    remaps: bool = True
    fabric: bool = False
    modules: bool = False
    """It is an SXM module with a number on its base board."""
    pci_class: int = COMPUTE_ONLY


V100_16 = Board(
    name="Tesla V100-SXM2-16GB",
    memory_mib=16384,
    reserved_mib=231,
    device=0x1DB110DE,
    subsystem=0x121210DE,
    architecture=VOLTA,
    capability=(7, 0),
    brand=TESLA,
    link_count=6,
    links="mesh",
    remaps=False,
)
V100_32 = replace(
    V100_16,
    name="Tesla V100-SXM2-32GB",
    memory_mib=32768,
    reserved_mib=267,
    device=0x1DB510DE,
    subsystem=0x124910DE,
)
V100_PCIE = Board(
    name="Tesla V100-PCIE-16GB",
    memory_mib=16384,
    reserved_mib=231,
    device=0x1DB410DE,
    subsystem=0x121410DE,
    architecture=VOLTA,
    capability=(7, 0),
    brand=TESLA,
    remaps=False,
)
T4 = Board(
    name="Tesla T4",
    memory_mib=15360,
    reserved_mib=455,
    device=0x1EB810DE,
    subsystem=0x12A210DE,
    architecture=TURING,
    capability=(7, 5),
    remaps=False,
)
A30 = Board(
    name="NVIDIA A30",
    memory_mib=24576,
    reserved_mib=340,
    device=0x20B710DE,
    subsystem=0x153210DE,
    architecture=AMPERE,
    capability=(8, 0),
    profiles=mig_tables.A30,
    link_count=4,
    links="pairs",
)
A100_40 = Board(
    name="NVIDIA A100-SXM4-40GB",
    memory_mib=40960,
    reserved_mib=571,
    device=0x20B010DE,
    subsystem=0x134F10DE,
    architecture=AMPERE,
    capability=(8, 0),
    profiles=mig_tables.A100_40,
    link_count=12,
    links="switch",
    switches=6,
    modules=True,
)
A100_80 = Board(
    name="NVIDIA A100-SXM4-80GB",
    memory_mib=81920,
    reserved_mib=869,
    device=0x20B210DE,
    subsystem=0x146310DE,
    architecture=AMPERE,
    capability=(8, 0),
    profiles=mig_tables.A100_80,
    link_count=12,
    links="switch",
    switches=6,
    modules=True,
)
A100_PCIE_40 = replace(
    A100_40,
    name="NVIDIA A100-PCIE-40GB",
    device=0x20F110DE,
    subsystem=0x145F10DE,
    links="pairs",
    switches=0,
    modules=False,
)
A100_PCIE_80 = Board(
    name="NVIDIA A100 80GB PCIe",
    memory_mib=81920,
    reserved_mib=869,
    device=0x20B510DE,
    subsystem=0x153310DE,
    architecture=AMPERE,
    capability=(8, 0),
    profiles=mig_tables.A100_80,
    link_count=12,
    links="pairs",
)
L4 = Board(
    name="NVIDIA L4",
    memory_mib=23034,
    reserved_mib=457,
    device=0x27B810DE,
    subsystem=0x16CA10DE,
    architecture=ADA,
    capability=(8, 9),
)
L40S = Board(
    name="NVIDIA L40S",
    memory_mib=46068,
    reserved_mib=597,
    device=0x26B910DE,
    subsystem=0x185110DE,
    architecture=ADA,
    capability=(8, 9),
)
RTX_4090 = Board(
    name="NVIDIA GeForce RTX 4090",
    memory_mib=24564,
    reserved_mib=350,
    device=0x268410DE,
    subsystem=0x16F310DE,
    architecture=ADA,
    capability=(8, 9),
    brand=GEFORCE,
    ecc=False,
    remaps=False,
    pci_class=DISPLAY,
)
H100 = Board(
    name="NVIDIA H100 80GB HBM3",
    memory_mib=81559,
    reserved_mib=551,
    device=0x233010DE,
    subsystem=0x16C110DE,
    architecture=HOPPER,
    capability=(9, 0),
    profiles=mig_tables.H100_80,
    link_count=18,
    links="switch",
    switches=4,
    fabric=True,
    modules=True,
)
H100_PCIE = Board(
    name="NVIDIA H100 PCIe",
    memory_mib=81559,
    reserved_mib=551,
    device=0x233110DE,
    subsystem=0x162610DE,
    architecture=HOPPER,
    capability=(9, 0),
    profiles=mig_tables.H100_PCIE,
    link_count=12,
    links="pairs",
)
H100_NVL = Board(
    name="NVIDIA H100 NVL",
    memory_mib=95830,
    reserved_mib=549,
    device=0x232110DE,
    subsystem=0x183910DE,
    architecture=HOPPER,
    capability=(9, 0),
    profiles=mig_tables.H100_NVL,
    link_count=12,
    links="pairs",
)
H200 = Board(
    name="NVIDIA H200",
    memory_mib=143771,
    reserved_mib=614,
    device=0x233510DE,
    subsystem=0x18BE10DE,
    architecture=HOPPER,
    capability=(9, 0),
    profiles=mig_tables.H200,
    link_count=18,
    links="switch",
    switches=4,
    fabric=True,
    modules=True,
)
H200_NVL = replace(
    H200,
    name="NVIDIA H200 NVL",
    device=0x233B10DE,
    subsystem=0x199610DE,
    links="pairs",
    switches=0,
    fabric=False,
    modules=False,
)
GH200_96 = Board(
    name="NVIDIA GH200 480GB",
    memory_mib=97871,
    reserved_mib=592,
    device=0x234210DE,
    subsystem=0x16EB10DE,
    architecture=HOPPER,
    capability=(9, 0),
    profiles=mig_tables.GH200_96,
    addressing=ATS,
)
GH200_144 = Board(
    name="NVIDIA GH200 144G HBM3e",
    memory_mib=146831,
    reserved_mib=621,
    device=0x234810DE,
    subsystem=0x18D210DE,
    architecture=HOPPER,
    capability=(9, 0),
    profiles=mig_tables.GH200_144,
    addressing=ATS,
)
B200 = Board(
    name="NVIDIA B200",
    memory_mib=183359,
    reserved_mib=693,
    device=0x290110DE,
    subsystem=0x199910DE,
    architecture=BLACKWELL,
    capability=(10, 0),
    profiles=mig_tables.B200,
    link_count=18,
    links="switch",
    switches=2,
    fabric=True,
    modules=True,
)
GB200 = Board(
    name="NVIDIA GB200",
    memory_mib=189471,
    reserved_mib=708,
    device=0x294110DE,
    subsystem=0x204610DE,
    architecture=BLACKWELL,
    capability=(10, 0),
    profiles=mig_tables.GB200,
    link_count=18,
    links="switch",
    switches=2,
    addressing=ATS,
    fabric=True,
    modules=True,
)
B300 = Board(
    name="NVIDIA B300 SXM6 AC",
    memory_mib=275040,
    reserved_mib=790,
    device=0x318210DE,
    subsystem=0x20E610DE,
    architecture=BLACKWELL,
    capability=(10, 3),
    profiles=mig_tables.B300,
    link_count=18,
    links="switch",
    switches=2,
    fabric=True,
    modules=True,
)
GB300 = replace(
    GB200,
    name="NVIDIA GB300",
    memory_mib=284208,
    reserved_mib=812,
    device=0x31C210DE,
    subsystem=0x21F110DE,
    capability=(10, 3),
    profiles=mig_tables.GB300,
)
RTX_PRO_6000 = Board(
    name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
    memory_mib=97887,
    reserved_mib=638,
    device=0x2BB510DE,
    subsystem=0x204E10DE,
    architecture=BLACKWELL,
    capability=(12, 0),
    profiles=mig_tables.RTX_PRO_6000,
)
GB10 = Board(
    name="NVIDIA GB10",
    memory_mib=None,
    device=0x2E1210DE,
    subsystem=0x000010DE,
    architecture=BLACKWELL,
    capability=(12, 1),
    addressing=ATS,
    ecc=False,
    remaps=False,
    pci_class=DISPLAY,
)


def _known_by_its_id(board: Board, device: int, **fields: Any) -> Board:
    """Return a board of which only the PCI ID and the model are known, as one of the same class of memory.

    Nothing is made up: it has no subsystem, no NVLink and no number on a base board.
    """
    unknown: dict[str, Any] = {
        "subsystem": 0x000010DE,
        "link_count": 0,
        "links": "",
        "switches": 0,
        "fabric": False,
        "modules": False,
    }
    return replace(board, device=device, **unknown, **fields)


# Source of the IDs: mig-parted, config-default.yaml. It has one table of MIG devices for all boards of a class. Thor is missing here: it is
# known that it reports no memory, as GB10, and neither its ID nor its compute capability.
A100_40_20B1 = _known_by_its_id(A100_40, 0x20B110DE)
A100_40_20F6 = _known_by_its_id(A100_40, 0x20F610DE)
A100_80_20F3 = _known_by_its_id(A100_80, 0x20F310DE)
A100_80_20F5 = _known_by_its_id(A100_80, 0x20F510DE)
H800_2322 = _known_by_its_id(H100, 0x232210DE, name="NVIDIA H800")
H800_2324 = _known_by_its_id(H100, 0x232410DE, name="NVIDIA H800")
H800_NVL = _known_by_its_id(H100_NVL, 0x233A10DE, name="NVIDIA H800 NVL")
H100_96 = _known_by_its_id(GH200_96, 0x233D10DE, name="NVIDIA H100 96GB", addressing=0)
# How its MIG devices share its multiprocessors is not known.
H20 = _known_by_its_id(GH200_96, 0x232910DE, name="NVIDIA H20", addressing=0, profiles=())

BOARDS: Mapping[str, Board] = {
    "v100": V100_16,
    "v100-32": V100_32,
    "v100-pcie": V100_PCIE,
    "t4": T4,
    "a30": A30,
    "a100-40": A100_40,
    "a100-80": A100_80,
    "a100-40-pcie": A100_PCIE_40,
    "a100-80-pcie": A100_PCIE_80,
    "l4": L4,
    "l40s": L40S,
    "rtx-4090": RTX_4090,
    "h100": H100,
    "h100-pcie": H100_PCIE,
    "h100-nvl": H100_NVL,
    "h200": H200,
    "h200-nvl": H200_NVL,
    "gh200-96": GH200_96,
    "gh200-144": GH200_144,
    "b200": B200,
    "gb200": GB200,
    "b300": B300,
    "gb300": GB300,
    "rtx-pro-6000": RTX_PRO_6000,
    "gb10": GB10,
    "a100-40-20b1": A100_40_20B1,
    "a100-40-20f6": A100_40_20F6,
    "a100-80-20f3": A100_80_20F3,
    "a100-80-20f5": A100_80_20F5,
    "h800-2322": H800_2322,
    "h800-2324": H800_2324,
    "h800-nvl": H800_NVL,
    "h100-96": H100_96,
    "h20": H20,
}
