# SPDX-License-Identifier: Apache-2.0
"""The machines that the simulated backend can simulate, as data. `docs/reference/profiles.md` is generated from it.

Machines with NVIDIA's GPUs are recordings (the folder `recordings`). The others are described here: product names and memory are those
that the vendors' tools report, memory is the VRAM that the kernel driver offers. PCI addresses and NUMA nodes are as in typical servers. A driver that is part of Linux has no version
of its own; its `driverVersion` is the kernel's.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from dra_driver.backends.partitions import Partitioning
from dra_driver.backends.simulated_config import GPU, GPU_OF_LATER_RELEASES, LABEL
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.device import AttributeValue, Version

MIB = 1024 * 1024


class Model(Struct, frozen=True):
    """What all devices of one product have in common."""

    vendor: str
    product: str
    memory_mib: int
    uuid_format: str  # vendors write UUIDs in their own way; {} is the UUID
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)


class Slot(Struct, frozen=True):
    """The place of a device: its PCI bus, the PCIe root complex, and its NUMA node (None if the machine has only one)."""

    bus: str
    root: str
    numa_node: int | None = None

    @property
    def address(self) -> str:
        """The PCI address, as sysfs writes it."""
        return f"0000:{self.bus}:00.0"


class Group(Struct, frozen=True):
    """Devices of one model, one for each slot. A device that is no PCI device has the slot None.

    With `partitioning` each device is published as a whole and as all its partitions. `fields` are fields of the API that each device
    has instead of those of its model.
    """

    model: Model
    slots: tuple[Slot | None, ...]
    partitioning: Partitioning | None = None
    fields: Mapping[str, object] = field(default_factory=dict)


class Profile(Struct, frozen=True):
    """A machine: the devices of a recording, and then those of the groups. `config_kinds` are the kinds of configuration that they read.

    With `named_by_address` the devices have the names of their PCI addresses. The devices of the other profiles are numbered, and stay
    so: a claim that was prepared before an update refers to its device by the name. `demo`: the demo, which gives two GPUs to pods, can
    play it.
    """

    groups: tuple[Group, ...] = ()
    recording: str = ""
    config_kinds: tuple[ConfigKind, ...] = (LABEL,)
    named_by_address: bool = False
    demo: bool = True


def _other(vendor: str, product: str, memory_mib: int, **attributes: AttributeValue) -> Model:
    return Model(vendor, product, memory_mib, "{}", {"type": "gpu", **attributes})


MI300X = _other(
    "amd",
    "AMD Instinct MI300X OAM",
    196592,
    brand="Instinct",
    architecture="gfx942",
    driverVersion=Version("6.12.12"),
)
B580 = _other(
    "intel",
    "Intel Arc B580",
    12216,  # of 12288 MiB on the board
    brand="Arc",
    architecture="Xe2",
    driverVersion=Version("6.14.0"),
)
GAUDI3 = _other(
    "habana",
    "Gaudi3 HL-325",
    131072,
    type="accelerator",
    brand="Gaudi",
    architecture="Gaudi3",
    driverVersion=Version("1.18.0"),
)
# As dra-example-driver of the Kubernetes project publishes it: without vendor and PCI address.
EXAMPLE = Model(
    vendor="",
    product="",
    memory_mib=81920,
    uuid_format="gpu-{}",
    attributes={"model": "LATEST-GPU-MODEL", "driverVersion": Version("1.0.0")},
    capacity={"compute": "100"},
)


def _slots(*halves: str) -> tuple[Slot, ...]:
    """Slots from words "root:bus". The first text is NUMA node 0, the second is node 1; with one text there are no NUMA nodes."""
    return tuple(
        Slot(bus=bus, root=root, numa_node=node if len(halves) > 1 else None)
        for node, half in enumerate(halves)
        for root, _, bus in (word.partition(":") for word in half.split())
    )


_MI300X8 = _slots("00:05 20:27 40:47 60:65", "80:85 a0:a7 c0:c7 e0:e5")
_GAUDI3X8 = _slots("15:19 15:1a 42:43 42:44", "b0:b3 b0:b4 c8:cc c8:cd")
_DESKTOP = _slots("00:03 00:07")

PROFILES: Mapping[str, Profile] = {
    "h100x8": Profile(recording="h100x8"),
    "h200x8": Profile(recording="h200x8", named_by_address=True),
    "a100x8": Profile(recording="a100x8"),
    "a100-40x8": Profile(recording="a100-40x8"),
    "a100-mig": Profile(recording="a100-mig", demo=False),
    "l40sx4": Profile(recording="l40sx4"),
    "t4x2": Profile(recording="t4x2"),
    "v100x1": Profile(recording="v100x1", demo=False),
    "v100x4": Profile(recording="v100x4"),
    "gb200x4": Profile(recording="gb200x4"),
    "gb10": Profile(recording="gb10", demo=False),
    "mi300x8": Profile((Group(MI300X, _MI300X8),)),
    "b580x2": Profile((Group(B580, _DESKTOP),)),
    "gaudi3x8": Profile((Group(GAUDI3, _GAUDI3X8),)),
    "mixed": Profile((Group(MI300X, _MI300X8[1:2]), Group(B580, _DESKTOP[:1])), recording="mixed"),
    "example": Profile(
        (Group(EXAMPLE, (None,) * 8),), config_kinds=(LABEL, GPU, GPU_OF_LATER_RELEASES)
    ),
}
DEMO_PROFILES = tuple(name for name, profile in PROFILES.items() if profile.demo)
"""The machines that `dra-driver demo --profile` plays."""
