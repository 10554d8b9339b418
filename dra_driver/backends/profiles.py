# SPDX-License-Identifier: Apache-2.0
"""The machines that the simulated backend plays, as data.

Names, memory, PCI addresses and NUMA nodes are those of real machines: memory is what the vendor's own tool reports,
buses are those of a server of that kind. `docs/reference/profiles.md` is generated from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dra_driver.model.device import AttributeValue, Version

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Model:
    """What all devices of one product share."""

    vendor: str
    product: str
    memory_mib: int
    uuid_format: str  # vendors write UUIDs in their own way; {} is the UUID
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """Devices of one model: one for each PCI bus, the first half on NUMA node 0 when there are two nodes."""

    model: Model
    buses: tuple[str, ...]
    numa_nodes: int = 2


@dataclass(frozen=True, slots=True)
class Profile:
    """A machine. `config_kinds` are opaque configurations that its devices understand besides DeviceConfig."""

    groups: tuple[Group, ...]
    config_kinds: frozenset[str] = frozenset()


def _nvidia(product: str, memory_mib: int, architecture: str, capability: str) -> Model:
    return Model(
        vendor="nvidia",
        product=product,
        memory_mib=memory_mib,
        uuid_format="GPU-{}",
        attributes={
            "brand": "Nvidia",
            "architecture": architecture,
            "cudaComputeCapability": Version(capability),
            "cudaDriverVersion": Version("12.4.0"),
            "driverVersion": Version("550.54.15"),
            "type": "gpu",
        },
    )


H100 = _nvidia("NVIDIA H100 80GB HBM3", 81559, "Hopper", "9.0.0")
A100 = _nvidia("NVIDIA A100-SXM4-80GB", 81920, "Ampere", "8.0.0")
L40S = _nvidia("NVIDIA L40S", 46068, "Ada Lovelace", "8.9.0")
MI300X = Model(
    vendor="amd",
    product="AMD Instinct MI300X OAM",
    memory_mib=196592,
    uuid_format="{}",
    attributes={
        "brand": "Instinct",
        "architecture": "gfx942",
        "driverVersion": Version("6.12.12"),
        "type": "gpu",
    },
)
B580 = Model(
    vendor="intel",
    product="Intel Arc B580",
    memory_mib=12288,
    uuid_format="{}",
    attributes={
        "brand": "Arc",
        "architecture": "Xe2",
        "driverVersion": Version("6.12.0"),
        "type": "gpu",
    },
)
GAUDI3 = Model(
    vendor="habana",
    product="Gaudi3 HL-325",
    memory_mib=131072,
    uuid_format="{}",
    attributes={
        "brand": "Gaudi",
        "architecture": "Gaudi3",
        "driverVersion": Version("1.18.0"),
        "type": "accelerator",
    },
)

_H100X8 = ("0000:1a", "0000:1b", "0000:4a", "0000:4b", "0000:8a", "0000:8b", "0000:ba", "0000:bb")
_A100X8 = ("0000:07", "0000:0f", "0000:47", "0000:4e", "0000:87", "0000:90", "0000:b7", "0000:bd")
_L40SX4 = ("0000:17", "0000:65", "0000:ca", "0000:e3")
_MI300X8 = ("0000:05", "0000:27", "0000:47", "0000:65", "0000:85", "0000:a7", "0000:c7", "0000:e5")
_GAUDI3X8 = ("0000:19", "0000:1a", "0000:43", "0000:44", "0000:b3", "0000:b4", "0000:cc", "0000:cd")

# What the Kubernetes project's example driver publishes; its devices have no PCI address.
EXAMPLE = Model(
    vendor="",
    product="",
    memory_mib=81920,
    uuid_format="gpu-{}",
    attributes={"model": "LATEST-GPU-MODEL", "driverVersion": Version("1.0.0")},
    capacity={"compute": "100"},
)

PROFILES: Mapping[str, Profile] = {
    "h100x8": Profile((Group(H100, _H100X8),)),
    "a100x8": Profile((Group(A100, _A100X8),)),
    "l40sx4": Profile((Group(L40S, _L40SX4),)),
    "mi300x8": Profile((Group(MI300X, _MI300X8),)),
    "b580x2": Profile((Group(B580, ("0000:03", "0000:07"), numa_nodes=0),)),
    "gaudi3x8": Profile((Group(GAUDI3, _GAUDI3X8),)),
    "mixed": Profile(
        (
            Group(H100, _H100X8[:2], numa_nodes=1),
            Group(L40S, _L40SX4[1:3]),
            Group(MI300X, _MI300X8[1:2], numa_nodes=1),
            Group(B580, ("0000:03",), numa_nodes=0),
        )
    ),
    "example": Profile((Group(EXAMPLE, ("",) * 8),), frozenset({"GpuConfig"})),
}
