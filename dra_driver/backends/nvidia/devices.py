# SPDX-License-Identifier: Apache-2.0
"""Which devices does a node have, by the facts of its NVIDIA hardware and the verdicts on their health? No call, no file, no clock.

The names of attributes and capacities are those of NVIDIA's driver, with more from `dra_driver.model.vocabulary`. A value that is not
known is left out. A GPU that cannot be named costs itself only, and the inventory says why.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from dra_driver.backends.nvidia import links, mig
from dra_driver.backends.nvidia.edits import DECLARES
from dra_driver.backends.nvidia.facts import Gpu, MigDevice, MigProfile, Node, System
from dra_driver.backends.nvidia.health import Verdict
from dra_driver.backends.nvidia.numbers import (
    ADDRESSING_MODES,
    ARCHITECTURES,
    BRANDS,
    FUNCTION_NOT_FOUND,
    NOT_SUPPORTED,
    UNKNOWN,
    cuda_version,
    semver,
)
from dra_driver.backends.sysfs import pci_address, root_in
from dra_driver.model.api.resource_slice import (
    CounterSet,
    Device,
    DeviceCounterConsumption,
)
from dra_driver.model.device import (
    AllocatableDevice,
    AttributeValue,
    Version,
    attributes,
    capacities,
)
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.model.names import HARDWARE_NOT_READY
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import Problem
from dra_driver.model.vocabulary import NUMA_NODE, PCI_BUS_ID, PCIE_ROOT

PROFILE = "profile"
"""The attribute that says what kind of partition a MIG device is."""
_LATER = "no GPU of it is published; the driver looks again every 10 s, and needs no restart"
LEFT_OUT = (
    "it was left out, all other GPUs are published; the driver looks again every 10 s. If this stays, see "
    "`nvidia-smi -q` and the kernel's log on the node"
)
LEFT_OUT_OF_RECORDING = "it was left out, all other GPUs are published; correct it in the snapshot, or take the snapshot again on a node where it answers"
"""What is said in place of `LEFT_OUT`: the node at hand is not that of the recording."""
_EMPTY = "make MIG devices (`nvidia-smi mig -cgi PROFILE -C`), or switch its MIG mode off: until then nothing of it is offered"
_DRIVER, _FOR_MACHINES = "nvidia", "vfio"  # vfio-pci, or nvgrace_gpu_vfio_pci on Grace Hopper
_BIND = (
    "it is not published; let the kernel driver nvidia have it (a module such as nouveau must be kept from it), or see the kernel's log "
    "for why that driver refuses it. It is published then without a restart"
)
_SEE = (
    "it is not published; see the kernel's log (`RmInitAdapter failed`, an XID) and `nvidia-smi -q`; a reset or a reboot may bring it "
    "back. It is published then without a restart"
)
_OF_PARTITIONS = (
    "productName",
    "brand",
    "architecture",
    "cudaComputeCapability",
    "driverVersion",
    "cudaDriverVersion",
    "vendor",
    "addressingMode",
    "driverStackID",
    PCI_BUS_ID,
    PCIE_ROOT,
    NUMA_NODE,
)
"""What a MIG device has of its GPU. A device has room for 32 attributes and capacities, and the largest MIG device needs all of it."""

Values = dict[str, AttributeValue]


class _Gpu(Struct, frozen=True):
    """A GPU that can be named, and what all of its devices need."""

    facts: Gpu
    minor: int
    said: Mapping[str, AttributeValue]
    memory: int | None
    profiles: tuple[MigProfile, ...]


class _Content(Struct, frozen=True):
    """What a device has in its slice, and the numbers for which a slice has no room."""

    said: Mapping[str, AttributeValue]
    sizes: Mapping[str, Quantity]
    consumed: DeviceCounterConsumption | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)


class _Found(Struct):
    """What was found so far."""

    verdicts: Mapping[str, Verdict]
    left_out: str
    devices: dict[str, AllocatableDevice] = field(default_factory=dict)
    sets: list[CounterSet] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add(
        self,
        name: str,
        identity: tuple[str, ...],
        hardware: Hardware,
        content: _Content,
    ) -> bool:
        """Add a device. `identity` has its UUID, and then that of its GPU, whose verdict counts if it has none of its own."""
        if name in self.devices:
            twice = f"the name is that of {self.devices[name].uuid} too"
            self.problem(identity[0], "name", twice)
            return False
        if not identity[0].isprintable():
            self.problem(
                name, "identity", f"its UUID is {identity[0]!r}, which no container can get"
            )
            return False
        verdict = next((self.verdicts[one] for one in identity if one in self.verdicts), Verdict())
        api = Device(
            name=name,
            attributes=attributes(content.said),
            capacity=capacities(content.sizes),
            consumes_counters=None if content.consumed is None else [content.consumed],
            taints=list(verdict.taints) or None,
        )
        self.devices[name] = AllocatableDevice(
            api,
            identity[0],
            verdict.health,
            hardware,
            declares=DECLARES,
            errors=verdict.errors,
            numbers=content.numbers,
        )
        return True

    def problem(self, gpu: str, subject: str, found: str, action: str = "") -> None:
        """Remember what is not published, and why."""
        self.problems.append(
            Problem(
                DeviceName(gpu), subject, found, action or self.left_out, "GPU", HARDWARE_NOT_READY
            )
        )


def inventory(
    node: Node, verdicts: Mapping[str, Verdict], *, left_out: str = LEFT_OUT
) -> Inventory:
    """Return the devices of the node. A GPU in MIG mode is not offered as a whole, its MIG devices are. `left_out`: what to do about one
    that cannot be offered.
    """
    found = _Found(verdicts, left_out)
    found.problems += [*_of_node(node), *_unlisted(node)]
    shared, islands = _of_system(node.system), links.islands(node.gpus)
    # The scheduler takes devices in this order. The library numbers GPUs in it too, but does not promise it.
    for gpu in sorted(node.gpus, key=lambda gpu: pci_address(gpu.pci_bus_id)):
        if gpu.uuid and gpu.minor is not None and gpu.minor >= 0:
            _add(found, _known(gpu, gpu.minor, node, {**shared, **_linked(gpu, islands)}))
        else:
            missing = "its UUID" if not gpu.uuid else "the number of its device file"
            why = gpu.problem or f"the library does not tell {missing}{_codes(gpu)}"
            found.problem(gpu.uuid or gpu.pci_bus_id or str(gpu.index), "identity", why)
    return Inventory(
        tuple(found.devices.values()),
        left_out=tuple(found.problems),
        counter_sets=tuple(found.sets),
        partition_type_attribute=PROFILE if found.sets else "",
    )


def _codes(gpu: Gpu) -> str:
    codes = ", ".join(f"{call}: {code}" for call, code in sorted(gpu.errors.items()))
    return f" (errors of NVML: {codes})" if codes else ""


def _of_node(node: Node) -> Iterator[Problem]:
    """Yield what keeps the whole node from offering its GPUs, or their containers from using them."""
    backend = DeviceName("nvidia")
    if node.problem:
        count = f"the node has {len(node.pci)} GPUs: " if node.pci else ""
        found = f"{count}{node.problem}"
        yield Problem(backend, "library", found, _LATER, "backend", HARDWARE_NOT_READY)
    # What is the reason for that problem is told with it.
    several = [one for one in node.installation.problems if one not in node.problem]
    if several:
        found = "; ".join(several)
        action = "a container may not be able to use its GPU; the driver looks again every 10 s"
        yield Problem(backend, "driver installation", found, action, "backend", HARDWARE_NOT_READY)


def _unlisted(node: Node) -> Iterator[Problem]:
    """Yield the GPUs that are plugged in and that the library does not list. One that waits for a virtual machine is no problem."""
    listed = {pci_address(gpu.pci_bus_id) for gpu in node.gpus}
    if node.problem or "" in listed:
        return  # all of them, and it is told; or one that the library lists does not say its address
    for one in node.pci:
        if one.address in listed or _FOR_MACHINES in one.driver:
            continue
        found, action = f"no kernel driver {_DRIVER} has it", _BIND
        if one.driver == _DRIVER:
            found, action = (
                f"the kernel driver {_DRIVER} has it, and the library does not list it",
                _SEE,
            )
        elif one.driver:
            found = f"the kernel driver {one.driver} has it"
        yield Problem(DeviceName(one.address), "driver", found, action, "GPU", HARDWARE_NOT_READY)


def _add(found: _Found, gpu: _Gpu) -> None:
    if gpu.facts.mig is not None and gpu.facts.mig.enabled:
        _add_partitions(found, gpu, gpu.facts.mig.devices)
        return
    uuid = gpu.facts.uuid
    code = gpu.facts.errors.get("nvmlDeviceGetMigMode", NOT_SUPPORTED)
    if gpu.facts.mig is None and code not in {NOT_SUPPORTED, FUNCTION_NOT_FOUND}:
        unknown = f"the library does not tell whether it is in MIG mode (error {code} of NVML)"
        found.problem(uuid, "MIG", unknown)
        return
    said = {"type": "gpu", "uuid": uuid, **gpu.said, **_of_whole(gpu.facts)}
    name = f"gpu-{gpu.minor}"
    found.add(name, (uuid,), Hardware(uuid), _Content(said, _bytes({"memory": gpu.memory})))


def _add_partitions(found: _Found, gpu: _Gpu, devices: tuple[MigDevice, ...]) -> None:
    good = [one for one in devices if 0 <= one.start <= one.start + one.size <= mig.MOST_SLICES]
    for one in devices:
        if one not in good:
            beyond = f"it begins at memory slice {one.start} and has {one.size}"
            found.problem(one.uuid, "placement", beyond)
    if not devices:
        found.problem(gpu.facts.uuid, "MIG", "it is in MIG mode and has no MIG devices", _EMPTY)
    several = mig.sharing(good)
    added = [
        one for one in good if _add_partition(found, gpu, one, one.gpu_instance not in several)
    ]
    if added:
        found.sets.append(mig.counter_set(gpu.minor, added, gpu.profiles))


def _add_partition(found: _Found, gpu: _Gpu, one: MigDevice, alone: bool) -> bool:  # noqa: FBT001  private, and named by its only caller
    parent = gpu.facts.uuid
    profile = mig.profile_name(one, gpu.memory or 0, gpu.profiles)
    said = {
        "type": "mig",
        "uuid": one.uuid,
        "parentUUID": parent,
        PROFILE: profile,
        "memoryMiB": one.memory_mib,
        **{name: gpu.said[name] for name in _OF_PARTITIONS if name in gpu.said},
    }
    sizes = {**_bytes({"memory": one.memory_mib * mig.MIB}), **_engines(one)}
    return found.add(
        mig.device_name(gpu.minor, one, profile, alone=alone),
        (one.uuid, parent),
        Hardware(parent, mig.parts(one, alone=alone), profile),
        _Content(
            said,
            sizes,
            mig.consumed(gpu.minor, one, alone=alone),
            {"index": gpu.facts.index, "minor": gpu.minor},
        ),
    )


def _engines(one: MigDevice) -> dict[str, Quantity]:
    amounts = {name: size for name, size in mig.amounts(one).items() if name != "memory"}
    slices = {f"memorySlice{number}": 1 for number in mig.slices_of(one)}
    return {name: Quantity.parse(str(size)) for name, size in {**amounts, **slices}.items()}


def _bytes(sizes: Mapping[str, int | None]) -> dict[str, Quantity]:
    return {name: Quantity.of_bytes(size) for name, size in sizes.items() if size is not None}


def _known(gpu: Gpu, minor: int, node: Node, more: Mapping[str, AttributeValue]) -> _Gpu:
    memory, unified = memory_of(gpu, node.system)
    said: Values = {"index": gpu.index, "minor": minor, "vendor": "nvidia", **_product(gpu)}
    said |= {**_place(gpu), **more}
    if memory is not None:
        said |= {"memoryMiB": memory // mig.MIB, "unifiedMemory": unified}
    return _Gpu(gpu, minor, said, memory, node.mig_profiles.get(gpu.name, ()))


def memory_of(gpu: Gpu, system: System) -> tuple[int | None, bool]:
    """Return the GPU's memory in bytes, and whether it is that of the node, which CPUs use as well.

    The memory is NVML's total, which nvidia-smi and NVIDIA's driver show. A GPU that is a part of the processor (GB10, Thor) has none of
    its own, and NVML says that it does not support the question: its applications use the memory of the node.
    """
    if gpu.memory is not None and gpu.memory.total > 0:
        return gpu.memory.total, False
    codes = {
        code for call, code in gpu.errors.items() if call.startswith("nvmlDeviceGetMemoryInfo")
    }
    if NOT_SUPPORTED in codes <= {NOT_SUPPORTED, FUNCTION_NOT_FOUND} and system.memory_total:
        return system.memory_total, True
    return None, False


def _product(gpu: Gpu) -> Values:
    said: Values = {}
    if gpu.name:
        said["productName"] = gpu.name
    if gpu.brand is not None:
        said["brand"] = BRANDS.get(gpu.brand, UNKNOWN)
    if gpu.architecture is not None:
        said["architecture"] = ARCHITECTURES.get(gpu.architecture, UNKNOWN)
    if gpu.compute_capability is not None:
        major, minor = gpu.compute_capability
        said["cudaComputeCapability"] = Version(f"{major}.{minor}.0")
    if gpu.addressing_mode is not None and gpu.addressing_mode in ADDRESSING_MODES:
        said["addressingMode"] = ADDRESSING_MODES[gpu.addressing_mode]
    return said


def _place(gpu: Gpu) -> Values:
    said: Values = {}
    if address := pci_address(gpu.pci_bus_id):
        said |= {PCI_BUS_ID: address, "pcieBusID": address}
    if root := root_in(gpu.pci_path):
        said[PCIE_ROOT] = root
    if gpu.numa_node is not None and gpu.numa_node >= 0:
        said[NUMA_NODE] = gpu.numa_node
    return said


def _of_whole(gpu: Gpu) -> Values:
    """What only a whole GPU has: its number on the board, and memory that the driver keeps for itself."""
    said: Values = {}
    if gpu.serial:
        said["serial"] = gpu.serial
    if gpu.module_id is not None:
        said["gpuModuleID"] = gpu.module_id
    memory = gpu.memory
    if memory is not None and memory.reserved is not None and 0 <= memory.reserved < memory.total:
        said["usableMemoryMiB"] = (memory.total - memory.reserved) // mig.MIB
    return said


def _linked(gpu: Gpu, islands: Mapping[str, str]) -> Values:
    said: Values = {}
    if island := islands.get(pci_address(gpu.pci_bus_id)):
        said["linkIsland"] = island
    if gpu.fabric is not None and (fabric := links.fabric_id(gpu.fabric)):
        said |= {"fabricID": fabric, "cliqueID": gpu.fabric.clique_id}
    return said


def _of_system(system: System) -> Values:
    said: Values = {}
    if version := semver(system.driver_version):
        said["driverVersion"] = Version(version)
    if system.driver_version and version != system.driver_version:
        said["driverVersionString"] = system.driver_version
    if system.driver_version:
        said["driverStackID"] = f"nvidia-{system.driver_version}"
    if system.cuda_driver_version:
        said["cudaDriverVersion"] = Version(cuda_version(system.cuda_driver_version))
    if system.cc_feature is not None:
        on = "devtools" if system.cc_dev_tools else "on"
        said["ccMode"] = on if system.cc_feature else "off"
    if system.cc_feature and system.cc_ready is not None:
        said["ccReady"] = bool(system.cc_ready)
    return said
