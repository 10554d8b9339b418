# SPDX-License-Identifier: Apache-2.0
"""MIG devices: the names of their profiles, what they take of their GPU, and the counters that say so.

Each GPU in MIG mode has one counter set, with an amount for each kind of engine, and one counter for each slice of its memory. A MIG
device consumes its own amounts. The MIG devices of a layout that exists fit into their GPU by nature, so these counters restrict
nothing; they show what is left, and a server without them publishes the same devices.
"""

from collections.abc import Iterable, Mapping, Sequence

from dra_driver.backends.nvidia.facts import MigDevice, MigProfile
from dra_driver.backends.nvidia.numbers import GRAPHICS, MIG_ATTRIBUTES
from dra_driver.model.api.resource_slice import Counter, CounterSet, DeviceCounterConsumption
from dra_driver.model.quantity import Quantity

MIB = 1024 * 1024
MOST_SLICES = 16
"""Of memory. Boards have 4 or 8; a larger number is a mistake."""
_GIB = 1024 * MIB
_EIGHTHS = 8

Amounts = Mapping[str, int]
"""By the name of a capacity. `memory` is in bytes."""


def profile_name(device: MigDevice, total: int, profiles: Sequence[MigProfile]) -> str:
    """Return the profile of a MIG device as nvidia-smi writes it, `[<C>c.]<G>g.<GB>gb[+attribute]`: 1g.10gb, 1g.10gb+me, 1c.3g.40gb.

    GB is the memory in eighths of the GPU's, rounded up, times the GiB of the GPU, rounded up. So no table of boards is needed.
    """
    eighths = -(-_EIGHTHS * device.memory_mib * MIB // total) if total > 0 else _EIGHTHS
    gib = -(-total // _GIB) if total > 0 else -(-device.memory_mib // 1024)
    size = (2 * eighths * gib + _EIGHTHS) // (2 * _EIGHTHS)  # a half is rounded up
    known = next((one for one in profiles if one.id == device.profile), None)
    slices, compute = device.gpu_slices or (known.slices if known else 0), device.compute_slices
    part = f"{compute}c." if compute and compute != slices else ""
    attribute = MIG_ATTRIBUTES.get(known.profile, "") if known else ""
    return f"{part}{slices}g.{size}gb{attribute}"


def has_graphics(device: MigDevice, profiles: Iterable[MigProfile]) -> bool:
    """Whether programs can draw on a MIG device: its profile is one of those with `+gfx`. All others compute only."""
    kinds = (one.profile for one in profiles if one.id == device.profile)
    return any(MIG_ATTRIBUTES.get(kind) == GRAPHICS for kind in kinds)


def device_name(minor: int, device: MigDevice, profile: str, *, alone: bool) -> str:
    """Return the name of a MIG device, as NVIDIA's driver has it: gpu-0-mig-1g10gb-19-2.

    Compute instances that can share a GPU instance have the number of the compute instance behind it.
    """
    kind = profile.replace(".", "").replace("+", "-")
    last = "" if alone else f"-{device.compute_instance}"
    return f"gpu-{minor}-mig-{kind}-{device.profile}-{device.start}{last}"


def slices_of(device: MigDevice) -> range:
    """Return the numbers of the memory slices of a MIG device."""
    return range(device.start, device.start + device.size)


def amounts(one: MigDevice | MigProfile) -> dict[str, int]:
    """Return what a MIG device, or a device of a profile, gets: the capacities of NVIDIA's driver."""
    return {
        "multiprocessors": one.multiprocessors,
        "copyEngines": one.copy_engines,
        "decoders": one.decoders,
        "encoders": one.encoders,
        "jpegEngines": one.jpeg_engines,
        "ofaEngines": one.ofa_engines,
        "memory": one.memory_mib * MIB,
    }


def sharing(devices: Iterable[MigDevice]) -> frozenset[int]:
    """Return the GPU instances that have several compute instances, or room for several: one that is a part stays alone only until
    somebody makes another one beside it, and must not get another name then.
    """
    seen: set[int] = set()
    several: set[int] = set()
    for one in devices:
        part = 0 < one.compute_slices < one.gpu_slices
        (several if part or one.gpu_instance in seen else seen).add(one.gpu_instance)
    return frozenset(several)


def set_name(minor: int) -> str:
    """Return the name of a GPU's counter set."""
    return f"gpu-{minor}-counter-set"


def consumed(minor: int, device: MigDevice, *, alone: bool) -> DeviceCounterConsumption:
    """Return what a MIG device consumes of its GPU.

    Compute instances of one GPU instance share its memory and engines, so each consumes its multiprocessors only.
    """
    taken = amounts(device)
    if not alone:
        taken = {"multiprocessors": device.multiprocessors}
    slices = {_slice(number): 1 for number in slices_of(device)} if alone else {}
    return DeviceCounterConsumption(
        counter_set=set_name(minor), counters=_counters({**_named(taken), **slices})
    )


def counter_set(
    minor: int, devices: Sequence[MigDevice], profiles: Sequence[MigProfile]
) -> CounterSet:
    """Return the counter set of a GPU: of each amount the most that a profile has, and never less than the MIG devices have together."""
    several = sharing(devices)
    shared = {one.gpu_instance: one for one in devices}
    whole = [one for one in devices if one.gpu_instance not in several]
    whole += [one for number, one in shared.items() if number in several]
    together = {name: sum(amounts(one)[name] for one in whole) for name in _NO_AMOUNTS}
    together["multiprocessors"] = sum(one.multiprocessors for one in devices)
    most = {
        name: max([size, *(amounts(one)[name] for one in profiles)])
        for name, size in together.items()
    }
    ends = [one.start + one.size for one in devices]
    ends += [start + one.size for one in profiles for start in one.starts]
    count = min(max(ends), MOST_SLICES)
    slices = {_slice(number): 1 for number in range(count)}
    return CounterSet(name=set_name(minor), counters=_counters({**_named(most), **slices}))


def parts(device: MigDevice, *, alone: bool) -> tuple[str, ...]:
    """Return the parts of the GPU that a MIG device occupies, for `Hardware.parts`.

    The numbers of its instances are one of them: containers open it by the files of these numbers. After a new partitioning another
    MIG device may have the numbers, and must not be in a second claim while a container can still open it by them.
    """
    instance = f"instance-{device.gpu_instance}-{device.compute_instance}"
    slices = slices_of(device) if alone else ()
    return (*map(_slice, slices), instance)


_NO_AMOUNTS = amounts(MigDevice(uuid="", gpu_instance=0, compute_instance=0, profile=0))
_COUNTERS = {
    "multiprocessors": "multiprocessors",
    "copyEngines": "copy-engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpegEngines": "jpeg-engines",
    "ofaEngines": "ofa-engines",
    "memory": "memory",
}


def _slice(number: int) -> str:
    return f"memory-slice-{number}"


def _named(sizes: Amounts) -> dict[str, int]:
    return {_COUNTERS[name]: size for name, size in sizes.items()}


def _counters(sizes: Amounts) -> dict[str, Counter]:
    return {name: Counter(value=_text(name, size)) for name, size in sizes.items()}


def _text(name: str, size: int) -> str:
    return str(Quantity.of_bytes(size)) if name == "memory" else str(size)
