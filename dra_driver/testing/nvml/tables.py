# SPDX-License-Identifier: Apache-2.0
"""The facts of a node as tables in C, for the library of `src/`."""

import uuid
from collections.abc import Iterable, Iterator

from dra_driver.backends.nvidia.facts import Fabric, Gpu, Memory, Mig, MigDevice, MigProfile, Node
from dra_driver.testing.nvml.layouts import profile_name

MIB = 1024 * 1024
_KINDS = {"compute": "COMPUTE", "graphics": "GRAPHICS", "mps": "MPS"}
_UNKNOWN_MEMORY = (1 << 64) - 1
IDLE = {
    "power_mw": 60_000,
    "power_limit_mw": 400_000,
    "sm_clock_mhz": 210,
    "memory_clock_mhz": 1215,
    "clock_reasons": 1,  # idle
}
"""What is measured on each GPU until the control file sets something else. No fact has it."""
_LARGEST = {"GPUs": 32, "NVLinks": 36, "MIG devices": 16, "processes": 32, "errors": 24}


def tables(node: Node, *, dev: str = "", control: str = "", state: str = "") -> str:
    """Return tables.c: what the library answers, and the folders and files that it uses if the environment does not name others."""
    _fits("GPUs", node.gpus)
    lines = ['#include "mock.h"', "", *_profiles(node)]
    lines += [
        f"const struct node mock_node = {{{_node(node)}}};",
        "",
        "const struct gpu mock_gpus[] = {",
    ]
    lines += [f"    {{{_gpu(position, gpu, node)}}}," for position, gpu in enumerate(node.gpus)]
    if not node.gpus:
        lines.append("    {0},")
    lines += ["};", f"const unsigned mock_gpu_count = {len(node.gpus)};"]
    lines += [
        f"const char mock_{name}[] = {text(value)};"
        for name, value in (("dev", dev), ("control", control), ("state", state))
    ]
    return "\n".join([*lines, ""])


def text(value: str) -> str:
    """A string of C. All but plain letters are written as octal numbers."""
    return '"' + "".join(_letter(byte) for byte in value.encode()) + '"'


def _letter(byte: int) -> str:
    letter = chr(byte)
    return (
        letter if byte < 128 and (letter.isalnum() or letter in " -_./:+,()@#") else f"\\{byte:03o}"
    )


def _node(node: Node) -> str:
    system = node.system
    return ", ".join(
        [
            f".driver_version = {text(system.driver_version)}",
            f".nvml_version = {text(system.nvml_version)}",
            f".cuda_version = {_number(system.cuda_driver_version)}",
            f".cc_feature = {_number(system.cc_feature)}",
            f".cc_dev_tools = {_number(system.cc_dev_tools)}",
            f".cc_ready = {_number(system.cc_ready)}",
            *_errors(system.errors.items()),
        ]
    )


def _gpu(position: int, gpu: Gpu, node: Node) -> str:
    capability = gpu.compute_capability or (None, None)
    numbers = {
        "minor": gpu.minor,
        "brand": gpu.brand,
        "architecture": gpu.architecture,
        "major_capability": capability[0],
        "minor_capability": capability[1],
        "addressing": gpu.addressing_mode,
        "module": gpu.module_id,
        "virtualization": gpu.virtualization_mode,
        "compute_mode": gpu.compute_mode,
        "temperature": gpu.temperature,
        "recovery_action": gpu.recovery_action,
        "ecc_uncorrected": gpu.ecc_uncorrected,
        "retired_pending": gpu.retired_pages_pending,
    }
    profiles = node.mig_profiles.get(gpu.name, ())
    table = list(node.mig_profiles).index(gpu.name) if profiles else 0
    return ", ".join(
        [
            f".index = {position}",
            f".uuid = {text(gpu.uuid)}, .name = {text(gpu.name)}, .serial = {text(gpu.serial)}",
            f".bus_id = {text(gpu.pci_bus_id)}",
            f".pci_device = {gpu.pci_device_id or 0}, .pci_subsystem = {gpu.pci_subsystem_id or 0}",
            *(f".{name} = {_number(value)}" for name, value in numbers.items()),
            *(f".{name} = {value}" for name, value in IDLE.items()),
            *_memory(gpu.memory),
            *_mig(gpu.mig, profiles, gpu.memory),
            *_links(gpu),
            *_fabric(gpu.fabric),
            *_health(gpu),
            *_errors(gpu.errors.items()),
            f".profiles = profiles_{table}, .profile_count = {len(profiles)}"
            if profiles
            else ".profiles = 0",
        ]
    )


def _memory(memory: Memory | None) -> Iterator[str]:
    if memory is not None:
        yield f".has_memory = 1, .total = {memory.total}ull, .used = {memory.used}ull"
        if memory.reserved is not None:
            yield f".has_reserved = 1, .reserved = {memory.reserved}ull"


def _mig(mig: Mig | None, profiles: tuple[MigProfile, ...], memory: Memory | None) -> Iterator[str]:
    if mig is None:
        return
    _fits("MIG devices", mig.devices)
    yield f".has_mig = 1, .mig_enabled = {int(mig.enabled)}, .mig_pending = {int(mig.pending)}"
    devices = ", ".join(f"{{{_mig_device(one, profiles, memory)}}}" for one in mig.devices)
    if devices:
        yield f".migs = {{{devices}}}, .mig_count = {len(mig.devices)}"


def mig_values(
    device: MigDevice, profiles: tuple[MigProfile, ...], memory: Memory | None
) -> dict[str, str | int]:
    """The values of a MIG device under the names that the library has for them."""
    profile = next((one for one in profiles if one.id == device.profile), None)
    name = profile_name(profile, memory.total // MIB) if profile and memory else ""
    share = f"{device.compute_slices}c." if device.compute_slices != device.gpu_slices else ""
    return {
        "uuid": device.uuid,
        "label": f"{share}{name}",
        "gpu_instance": device.gpu_instance,
        "compute_instance": device.compute_instance,
        "profile": device.profile,
        "start": device.start,
        "size": device.size,
        "gpu_slices": device.gpu_slices,
        "compute_slices": device.compute_slices,
        "memory_mib": device.memory_mib,
        "multiprocessors": device.multiprocessors,
        "copy_engines": device.copy_engines,
        "decoders": device.decoders,
        "encoders": device.encoders,
        "jpeg_engines": device.jpeg_engines,
        "ofa_engines": device.ofa_engines,
    }


def _mig_device(device: MigDevice, profiles: tuple[MigProfile, ...], memory: Memory | None) -> str:
    values = mig_values(device, profiles, memory)
    return ", ".join(
        f".{name} = {text(value) if isinstance(value, str) else value}"
        for name, value in values.items()
    )


def _links(gpu: Gpu) -> Iterator[str]:
    _fits("NVLinks", gpu.nvlinks)
    links = ", ".join(
        f"{{.number = {link.link}, .remote_type = {_number(link.remote_type)}, "
        f".remote = {text(link.remote_pci_bus_id)}}}"
        for link in sorted(gpu.nvlinks, key=lambda link: link.link)
    )
    if links:
        yield f".links = {{{links}}}, .link_count = {len(gpu.nvlinks)}"


def _fabric(fabric: Fabric | None) -> Iterator[str]:
    if fabric is None:
        return
    cluster = uuid.UUID(fabric.cluster_uuid).bytes if fabric.cluster_uuid else bytes(16)
    values = {
        "present": 1,
        "state": fabric.state,
        "status": fabric.status,
        "has_mask": int(fabric.health_mask is not None),
        "has_summary": int(fabric.health_summary is not None),
        "clique": fabric.clique_id,
        "mask": fabric.health_mask or 0,
        "summary": fabric.health_summary or 0,
        "cluster": f"{{{', '.join(str(byte) for byte in cluster)}}}",
    }
    yield f".fabric = {{{', '.join(f'.{name} = {value}' for name, value in values.items())}}}"


def _health(gpu: Gpu) -> Iterator[str]:
    if (rows := gpu.remapped_rows) is not None:
        yield f".has_rows = 1, .rows_correctable = {rows.correctable}, .rows_failed = {int(rows.failed)}"
        yield f".rows_uncorrectable = {rows.uncorrectable}, .rows_pending = {int(rows.pending)}"
    if not gpu.processes:
        return  # None says only that they were not asked for
    _fits("processes", gpu.processes)
    yield f".process_count = {len(gpu.processes)}"
    processes = ", ".join(
        f"{{.pid = {one.pid}, .kind = {_KINDS[one.kind]}, "
        f".memory = {_UNKNOWN_MEMORY if one.used_memory is None else one.used_memory}ull, "
        f".gpu_instance = {_instance(one.gpu_instance)}, "
        f".compute_instance = {_instance(one.compute_instance)}}}"
        for one in gpu.processes
    )
    yield f".processes = {{{processes}}}"


def _profiles(node: Node) -> Iterator[str]:
    for position, profiles in enumerate(node.mig_profiles.values()):
        total = next(
            (
                gpu.memory.total
                for gpu in node.gpus
                if gpu.name == list(node.mig_profiles)[position] and gpu.memory
            ),
            0,
        )
        yield f"static const struct profile profiles_{position}[] = {{"
        yield from (f"    {{{_profile(profile, total)}}}," for profile in profiles)
        yield "};"


def _profile(profile: MigProfile, total: int) -> str:
    name = f"MIG {profile_name(profile, total // MIB)}" if total else ""
    values: dict[str, object] = {
        "number": profile.profile,
        "id": profile.id,
        "slices": profile.slices,
        "instances": profile.instances,
        "multiprocessors": profile.multiprocessors,
        "copy_engines": profile.copy_engines,
        "decoders": profile.decoders,
        "encoders": profile.encoders,
        "jpeg_engines": profile.jpeg_engines,
        "ofa_engines": profile.ofa_engines,
        "memory_mib": profile.memory_mib,
        "starts": f"{{{', '.join(str(start) for start in profile.starts) or '0'}}}",
        "start_count": len(profile.starts),
        "size": profile.size,
        "label": text(name),
    }
    return ", ".join(f".{key} = {value}" for key, value in values.items())


def _errors(errors: Iterable[tuple[str, int]]) -> Iterator[str]:
    items = list(errors)
    _fits("errors", items)
    if items:
        table = ", ".join(f"{{{text(name)}, {code}}}" for name, code in items)
        yield f".errors = {{{table}}}, .error_count = {len(items)}"


def _number(value: int | None) -> str:
    return "ABSENT" if value is None else str(int(value))


def _instance(value: int | None) -> str:
    return "NOBODY" if value is None else str(value)


def _fits(what: str, values: "tuple[object, ...] | list[tuple[str, int]]") -> None:
    if len(values) > _LARGEST[what]:
        raise ValueError(f"{len(values)} {what}: the mock library has room for {_LARGEST[what]}")
