# SPDX-License-Identifier: Apache-2.0
"""The names of attributes and capacities of devices, the same for all vendors.

DeviceClasses and claims select by these names, so a name that was released never changes its meaning or type. A backend uses a name
of these tables where one fits. The driver's own backends do not publish a reserved name yet: the table fixes what the name will mean,
so that no backend invents another name for it. Nothing here changes while a device runs, but for the fabric of a GPU and whether
it takes work in a mode of confidential computing, which an admin's work on the node changes: a temperature or the free memory in a slice
would be old when the scheduler reads it, and each change would write the slice anew. Names are those of NVIDIA's driver where it has
one. A name without domain belongs to the driver's own domain; `resource.kubernetes.io/` has only names that Kubernetes defines.

`docs/reference/names.md` is generated from the tables.
"""

from typing import Literal

from msgspec import Struct

Kind = Literal["string", "int", "bool", "version", "list of strings", "quantity"]
"""The type of a value. An attribute has one of the first five, a capacity is a quantity."""

ALL = ("all",)
NVIDIA = ("nvidia",)
AMD = ("amd",)
INTEL = ("intel",)
EXAMPLE = ("example",)
"""Names of the Kubernetes project's example driver, which only the profile `example` publishes, some of them only with an option."""

PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"
PRODUCTS = ("productName", "model", "product")
"""Attributes that name the product, each in the devices of some drivers; the first that a device has counts."""


class Term(Struct, frozen=True):
    """One name: its type, its meaning, and the vendors whose devices have it."""

    name: str
    kind: Kind
    meaning: str
    vendors: tuple[str, ...] = ALL
    reserved: bool = False


def _later(name: str, kind: Kind, meaning: str, vendors: tuple[str, ...] = ALL) -> Term:
    return Term(name, kind, meaning, vendors, reserved=True)


ATTRIBUTES = (
    Term("architecture", "string", "the vendor's name of the generation"),
    Term("brand", "string", "the vendor's product line"),
    Term("cudaComputeCapability", "version", "what CUDA code the device can run", NVIDIA),
    Term("cudaDriverVersion", "version", "the newest CUDA that the kernel driver supports", NVIDIA),
    Term("driverVersion", "version", "of the kernel driver; a driver of Linux has Linux's version"),
    Term("index", "int", "place among the node's devices"),
    Term("memoryMiB", "int", "the capacity `memory`, for comparisons with `>=`"),
    Term("minor", "int", "number of the device file"),
    Term("model", "string", "the product", EXAMPLE),
    Term("productName", "string", "the name that the vendor's own tool shows"),
    Term("type", "string", "`gpu`, `mig`, or `accelerator` for Gaudi; reserved: `vf`, `vfio`"),
    Term("uuid", "string", "identifies the hardware; containers see it"),
    Term("vendor", "string", "the maker: `nvidia`, `amd`, `intel`, `habana`"),
    Term(NUMA_NODE, "int", "NUMA node; missing if the machine has only one"),
    Term(PCI_BUS_ID, "string", "PCI address, `0000:65:00.0`"),
    Term(PCIE_ROOT, "string", "PCIe root complex, `pci0000:64`; equal for devices that share it"),
    Term("addressingMode", "string", "how CPU and GPU share addresses: `HMM`, `ATS`", NVIDIA),
    Term("ccMode", "string", "mode of confidential computing: `on`, `off`, `devtools`", NVIDIA),
    Term(
        "ccReady",
        "bool",
        "whether GPUs in a mode of confidential computing take work: they do once the node is attested",
        NVIDIA,
    ),
    Term(
        "cliqueID",
        "int",
        "number of the clique in its fabric; unique only together with the fabric: use `fabricID` in a constraint",
        NVIDIA,
    ),
    _later("computePartition", "string", "mode of the compute units: `SPX`, `CPX`, …", AMD),
    _later("deviceID", "string", "PCI device ID, `0x2330`"),
    Term(
        "driverStackID",
        "string",
        "equal for devices whose kernel driver and user libraries are the same installation, so that one container can use both",
    ),
    Term("driverVersionString", "string", "the driver's version as it reports it, if no semver"),
    _later(
        "enforcement",
        "string",
        "what keeps a share within its limits: `hardware`, `driver`, `library` (a program can evade it) or `none`",
    ),
    Term(
        "fabricID",
        "string",
        "equal for devices, also of several nodes, that one fabric joins: `<UUID of the cluster>.<clique>`",
        NVIDIA,
    ),
    _later("family", "string", "the vendor's name of a group of products", INTEL),
    Term("full", "bool", "whether it is the whole of a device with partitions", EXAMPLE),
    _later("gfxTarget", "string", "instruction set, `gfx942`", AMD),
    Term("gpuModuleID", "int", "place of the GPU on its board", NVIDIA),
    _later("iommuFDEnabled", "bool", "whether the device can be given to a VM by iommufd"),
    _later("kernelDriver", "string", "the kernel driver of the device: `i915`, `xe`", INTEL),
    Term(
        "linkIsland",
        "string",
        "equal for devices of one node that direct links (NVLink, xGMI) join",
        NVIDIA,
    ),
    _later("memoryPartition", "string", "mode of the memory: `NPS1`, `NPS4`", AMD),
    Term("numaNodeID", "int", "NUMA node of CPUs", EXAMPLE),
    _later("pairedNicPciBusID", "string", "PCI address of the network card next to the device"),
    _later(
        "pairedNicPciBusIDs",
        "list of strings",
        "the same for several cards; needs the gate DRAListTypeAttributes",
    ),
    Term("parentUUID", "string", "`uuid` of the device that this one is a partition of", NVIDIA),
    Term("partition", "int", "number of a partition", EXAMPLE),
    Term("partitionable", "bool", "whether the device has partitions", EXAMPLE),
    _later("pcieSwitch", "string", "PCI address of the switch above; finer than the root complex"),
    Term("profile", "string", "kind of partition in the vendor's words: `1g.10gb`", NVIDIA),
    Term("pcieBusID", "string", "the PCI address under its older name in NVIDIA's driver", NVIDIA),
    Term("serial", "string", "serial number of the board"),
    _later("sriov", "bool", "whether the device can have virtual functions", INTEL),
    Term(
        "unifiedMemory",
        "bool",
        "whether `memory` is the node's own memory, which CPUs use as well",
        NVIDIA,
    ),
    Term(
        "usableMemoryMiB",
        "int",
        "`memoryMiB` without what the kernel driver keeps for itself; missing if the library does not tell",
        NVIDIA,
    ),
    _later("vendorID", "string", "PCI vendor ID, `0x10de`"),
)
CAPACITIES = (
    Term("compute", "quantity", "percent of the device's compute", EXAMPLE),
    Term("memory", "quantity", "bytes of memory, as the vendor's own tool shows them"),
    _later("addressableMemory", "quantity", "bytes of the PCI regions of a device for VMs"),
    _later("computeUnits", "quantity", "compute units", AMD),
    Term("copyEngines", "quantity", "engines that copy memory", NVIDIA),
    _later("cores", "quantity", "percent of the device's compute that a share gets"),
    Term("cpu", "quantity", "CPUs of a NUMA node", EXAMPLE),
    Term("decoders", "quantity", "video decoders", NVIDIA),
    Term("egressBandwidth", "quantity", "bits per second out of a network card", EXAMPLE),
    Term("encoders", "quantity", "video encoders", NVIDIA),
    Term("ingressBandwidth", "quantity", "bits per second into a network card", EXAMPLE),
    Term("jpegEngines", "quantity", "JPEG decoders", NVIDIA),
    *(
        Term(
            f"memorySlice{number}",
            "quantity",
            "this slice of the memory, if the partition has it",
            NVIDIA,
        )
        for number in range(8)
    ),
    Term("multiprocessors", "quantity", "streaming multiprocessors", NVIDIA),
    Term("ofaEngines", "quantity", "optical flow engines", NVIDIA),
    _later("simdUnits", "quantity", "SIMD units", AMD),
    Term("vfs", "quantity", "virtual functions", EXAMPLE),
)
