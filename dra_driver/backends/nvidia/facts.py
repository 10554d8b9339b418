# SPDX-License-Identifier: Apache-2.0
"""What the NVIDIA library, sysfs and the driver installation of a node answered: raw values, before anything is decided.

The hardware process reads facts, the daemon turns them into devices (`devices.py`) and container edits (`edits.py`), and a snapshot is
a file of facts. So a node can be played again anywhere, and all decisions are tested without hardware. A value is None if the call
failed or the library has no such function; `errors` then has the number of the NVML error by the name of the function, without the
version at its end. One call asks for several fields: there the name is that of the function for the same value
(nvmlDeviceGetRemappedRows, nvmlDeviceGetTotalEccErrors), and for the recovery action nvmlDeviceGetFieldValues.

Names and numbers are NVML's (nvml.h): sizes in bytes unless the name says MiB, temperatures in degrees Celsius.
"""

from collections.abc import Mapping

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A group of facts. Unknown fields are ignored: a newer driver may have written the file."""


class Memory(Fact, frozen=True):
    """nvmlDeviceGetMemoryInfo_v2, or the first version of the function, which has no `reserved`."""

    total: int
    free: int = 0
    used: int = 0
    reserved: int | None = None


class NvLink(Fact, frozen=True):
    """One link of a GPU that is active, and what is at its other end."""

    link: int
    remote_pci_bus_id: str = ""
    remote_type: int | None = None
    """nvmlIntNvLinkDeviceType_t: 0 a GPU, 1 IBM NPU, 2 a switch, 255 unknown."""


class Fabric(Fact, frozen=True):
    """nvmlDeviceGetGpuFabricInfoV. `cluster_uuid` is written as a UUID; `state` 3 means completed."""

    state: int
    status: int = 0
    cluster_uuid: str = ""
    clique_id: int = 0
    health_mask: int | None = None
    health_summary: int | None = None


class RemappedRows(Fact, frozen=True):
    """nvmlDeviceGetRemappedRows."""

    correctable: int = 0
    uncorrectable: int = 0
    pending: bool = False
    failed: bool = False


class Process(Fact, frozen=True):
    """A process on a GPU. `kind` is the list that names it: "compute", "graphics" or "mps"."""

    pid: int
    kind: str = "compute"
    used_memory: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class MigProfile(Fact, frozen=True):
    """One kind of GPU instance: nvmlDeviceGetGpuInstanceProfileInfo and …PossiblePlacements. `profile` is the number of the enum
    (0 for 1_SLICE), `id` the one that nvidia-smi shows (19).
    """

    profile: int
    id: int
    slices: int
    instances: int
    memory_mib: int
    multiprocessors: int = 0
    copy_engines: int = 0
    decoders: int = 0
    encoders: int = 0
    jpeg_engines: int = 0
    ofa_engines: int = 0
    starts: tuple[int, ...] = ()
    size: int = 0
    """Memory slices of a placement."""


class MigDevice(Fact, frozen=True):
    """A MIG device that exists. The amounts are those of nvmlDeviceGetAttributes_v2; `start` and `size` of its GPU instance's placement."""

    uuid: str
    gpu_instance: int
    compute_instance: int
    profile: int
    """The `id` of the GPU instance's profile."""
    start: int = 0
    size: int = 0
    gpu_slices: int = 0
    compute_slices: int = 0
    memory_mib: int = 0
    multiprocessors: int = 0
    copy_engines: int = 0
    decoders: int = 0
    encoders: int = 0
    jpeg_engines: int = 0
    ofa_engines: int = 0


class Mig(Fact, frozen=True):
    """nvmlDeviceGetMigMode, and the MIG devices that exist."""

    enabled: bool = False
    pending: bool = False
    devices: tuple[MigDevice, ...] = ()


class Gpu(Fact, frozen=True):
    """One GPU. What can change while it runs is in the second block; a refresh reads only that."""

    index: int
    uuid: str = ""
    pci_bus_id: str = ""
    """As the library writes it: 00000000:65:00.0."""
    minor: int | None = None
    name: str = ""
    brand: int | None = None
    architecture: int | None = None
    compute_capability: tuple[int, int] | None = None
    serial: str = ""
    pci_device_id: int | None = None
    """Device and vendor in one number: 0x233510DE."""
    pci_subsystem_id: int | None = None
    addressing_mode: int | None = None
    module_id: int | None = None
    virtualization_mode: int | None = None
    nvlinks: tuple[NvLink, ...] = ()
    numa_node: int | None = None
    """As sysfs has it: -1 for none."""
    pci_path: tuple[str, ...] = ()
    """The parts of its path in sysfs: pci0000:64, 0000:64:01.0, 0000:65:00.0."""
    drm: tuple[str, ...] = ()
    """card1, renderD129."""

    memory: Memory | None = None
    mig: Mig | None = None
    fabric: Fabric | None = None
    compute_mode: int | None = None
    temperature: int | None = None
    recovery_action: int | None = None
    """Field 230."""
    ecc_uncorrected: int | None = None
    """Double-bit errors since the driver was loaded."""
    remapped_rows: RemappedRows | None = None
    retired_pages_pending: bool | None = None
    """nvmlDeviceGetRetiredPagesPendingStatus; only GPUs without row remapping (before Ampere) have it."""
    processes: tuple[Process, ...] | None = None
    problem: str = ""
    """Why this look at the GPU failed (it fell off the bus, a call did not return); the other values are then of an earlier look."""
    problem_code: int | None = None
    """The number of the NVML error behind `problem`: 15 for a GPU that fell off the bus. None: the GPU did not answer at all."""
    errors: Mapping[str, int] = {}


class System(Fact, frozen=True):
    """What the library says of the node."""

    driver_version: str = ""
    nvml_version: str = ""
    cuda_driver_version: int | None = None
    """12040 is 12.4."""
    cc_feature: int | None = None
    """nvmlSystemGetConfComputeState: ccFeature, devToolsMode; nvmlSystemGetConfComputeGpusReadyState."""
    cc_dev_tools: int | None = None
    cc_ready: int | None = None
    memory_total: int | None = None
    """MemTotal of /proc/meminfo in bytes: the memory of GPUs that have none of their own."""
    errors: Mapping[str, int] = {}


class PciGpu(Fact, frozen=True):
    """A display controller of NVIDIA in sysfs, with or without a driver. `address` as the kernel writes it, `driver` its name there."""

    address: str
    device: int = 0
    pci_class: int = 0
    driver: str = ""


class DeviceFile(Fact, frozen=True):
    """A character device of the node."""

    path: str
    major: int
    minor: int
    mode: int = 0o666
    gid: int = 0


class Installation(Fact, frozen=True):
    """The driver installation of the node: what a container needs of it. Paths are the host's, without the driver root in front.

    `problems` are sentences for an admin: which half is missing, and what to do.
    """

    driver_root: str = ""
    """As a path of the host: /, /run/nvidia/driver, /home/kubernetes/bin/nvidia."""
    dev_root: str = "/"
    kernel_version: str = ""
    """Of the loaded kernel module; empty: it is not loaded."""
    library_version: str = ""
    """From the name of libcuda.so.<version> or libnvidia-ml.so.<version>."""
    machine: str = "x86_64"
    """As uname writes it; it decides which folders a container's linker looks into."""
    libraries: tuple[str, ...] = ()
    links: Mapping[str, tuple[str, ...]] = {}
    """By the path of a library: the names that must link to it (its SONAME, and a plain .so where the installation has one)."""
    binaries: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    """With the driver root in front, if they are there."""
    configs: Mapping[str, str] = {}
    """Path in the container by path in the driver root."""
    sources: Mapping[str, str] = {}
    """Where a binary or firmware file really is, if its path is a link or goes through one."""
    device_files: tuple[DeviceFile, ...] = ()
    """With paths below the device root. A file that the kernel driver would serve is here even if nobody has made it yet."""
    drm_links: Mapping[str, str] = {}
    """/dev/dri/by-path/pci-0000:65:00.0-card to ../card1."""
    gpu_major: int | None = None
    """Major number of /dev/nvidia<minor>."""
    caps_major: int | None = None
    caps: Mapping[str, int] = {}
    """Minor numbers: gpu0/gi1/access to 12."""
    hook: str = ""
    """Path of nvidia-cdi-hook on the host; empty: there is none."""
    hook_commands: tuple[str, ...] = ()
    """The commands that this nvidia-cdi-hook knows, of those that not every release has: a container with an unknown one fails."""
    problems: tuple[str, ...] = ()


class Node(Fact, frozen=True):
    """All facts of a node.

    `problem` says why the library gave nothing: it is missing, the kernel driver is not loaded, versions do not match. `gpus` is then
    empty, and `pci` still says which GPUs there are. `mig_profiles` are by product name.
    """

    system: System = System()
    gpus: tuple[Gpu, ...] = ()
    pci: tuple[PciGpu, ...] = ()
    mig_profiles: Mapping[str, tuple[MigProfile, ...]] = {}
    installation: Installation = Installation()
    problem: str = ""


class Usage(Fact, frozen=True):
    """What is measured on a GPU now; None: it cannot say it. `mig_memory` is that of its MIG devices, by UUID."""

    gpu_percent: int | None = None
    memory_percent: int | None = None
    memory: Memory | None = None
    temperature: int | None = None
    power_milliwatts: int | None = None
    power_limit_milliwatts: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    clock_reasons: int | None = None
    """nvmlClocksEventReasons: why the clocks are lower than they could be, as bits."""
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    mig_memory: Mapping[str, Memory] = {}


class HardwareEvent(Fact, frozen=True):
    """An event of the library: nvmlEventData_t. `gpu_instance` is None for the whole GPU."""

    uuid: str
    type: int
    """The bits of nvmlEventType: 8 for an XID, 2 for a double-bit ECC error, 256 for a change of MIG."""
    data: int = 0
    """The XID."""
    gpu_instance: int | None = None
    compute_instance: int | None = None
