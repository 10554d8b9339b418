# SPDX-License-Identifier: Apache-2.0
"""Which labels would NVIDIA's GPU feature discovery (GFD) give this node?

Manifests, autoscalers and dashboards select by these labels, so names and values are GFD's own. Three things differ. A label is missing
if no published attribute has its value (`gpu.machine`, `gpu.mode`, `vgpu.*`, `mig.capable` of a node without MIG devices, and
`gpu.memory` of a node whose GPUs are all in MIG mode: a MIG device does not say how much its GPU has).
`gfd.timestamp` is missing, because it would be a write at each look. And if a node has several models of GPUs, the labels are always
those of the first one; GFD takes any.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from dra_driver.model.api.resource_slice import DeviceAttribute, DeviceCapacity
from dra_driver.model.device import AllocatableDevice, plain
from dra_driver.model.quantity import Quantity
from dra_driver.planning.label_text import label_value

DOMAIN = "nvidia.com"
GPU = f"{DOMAIN}/gpu"

MigStrategy = Literal["none", "single", "mixed"]
SharingStrategy = Literal["none", "mps", "time-slicing"]

# By the first number of the compute capability, as GFD has it, with the two exceptions below.
_FAMILIES = {
    1: "tesla", 2: "fermi", 3: "kepler", 5: "maxwell", 6: "pascal", 7: "volta", 8: "ampere", 9: "hopper", 10: "blackwell",
    12: "blackwell", 13: "rubin",
}  # fmt: skip
_LATER_FAMILIES = {7: (5, "turing"), 8: (9, "ada-lovelace")}
"""The families that share the first number with an older one: from which second number on."""
# The label of each capacity of a MIG device.
_MIG_CAPACITIES = (
    ("multiprocessors", "multiprocessors"),
    ("copyEngines", "engines.copy"),
    ("decoders", "engines.decoder"),
    ("encoders", "engines.encoder"),
    ("jpegEngines", "engines.jpeg"),
    ("ofaEngines", "engines.ofa"),
)

_NANO = 10**9

Labels = dict[str, str]


class Sharing(Struct, frozen=True):
    """How often each device of a resource is offered. `renamed`: under another resource's name, so the product keeps its name."""

    replicas: int = 1
    strategy: SharingStrategy = "none"
    renamed: bool = False


NOT_SHARED = Sharing()


class GfdRules(Struct, frozen=True):
    """What GFD reads from the configuration of the device plugin: the strategy for MIG devices, and the sharing of each resource."""

    mig_strategy: MigStrategy = "mixed"
    sharing: Mapping[str, Sharing] = field(default_factory=dict)

    def of(self, resource: str) -> Sharing:
        return self.sharing.get(resource, NOT_SHARED)


def gfd_labels(devices: Sequence[AllocatableDevice], rules: GfdRules) -> Labels:
    """Return the labels for the NVIDIA devices among these."""
    ours = [device for device in devices if value_of(device, "vendor") == "nvidia"]
    if not ours:
        return {}
    migs = [device for device in ours if device.type == "mig"]
    whole = [device for device in ours if device.type != "mig"]
    # A GPU whose partitions are offered beside it is a whole one.
    parents = {device.resource.parent for device in whole}
    only_mig = _first_of_each(device for device in migs if device.resource.parent not in parents)
    labels = _versions(ours) | _clique(whole)
    if migs:
        labels[f"{DOMAIN}/mig.capable"] = "true"
    shared = any(sharing.strategy == "mps" for sharing in rules.sharing.values())
    labels[f"{DOMAIN}/mps.capable"] = "true" if shared and not migs else "false"
    labels |= _of_gpus(whole, only_mig, rules)
    if rules.mig_strategy != "none":
        labels[f"{DOMAIN}/mig.strategy"] = rules.mig_strategy
    if rules.mig_strategy == "single" and migs:
        labels |= _single(migs, whole, rules)
    elif rules.mig_strategy == "mixed":
        labels |= _mixed(migs, rules)
    return labels


def value_of(device: AllocatableDevice, name: str) -> str:
    """Return an attribute as text; "" if the device does not have it."""
    found = (device.api.attributes or {}).get(name)
    value = plain(found) if isinstance(found, DeviceAttribute) else None
    return "" if value is None else str(value)


def capacity_of(device: AllocatableDevice, name: str) -> int | None:
    """Return a capacity as a whole number; None if the device does not have it, or if it is no quantity."""
    found = (device.api.capacity or {}).get(name)
    if not isinstance(found, DeviceCapacity):
        return None
    try:
        return Quantity.parse(str(found.value)).nanos // _NANO
    except ValueError:  # publication leaves it out, and says so
        return None


def _first_of_each(devices: Iterable[AllocatableDevice]) -> list[AllocatableDevice]:
    """One device of each physical GPU, in the order of the devices."""
    return list({device.resource.parent: device for device in reversed(list(devices))}.values())[
        ::-1
    ]


def _of_gpus(
    whole: Sequence[AllocatableDevice], only_mig: Sequence[AllocatableDevice], rules: GfdRules
) -> Labels:
    """Labels of whole GPUs. A GPU that is offered as MIG devices counts too, and is not shared itself: GFD writes 0 replicas then."""
    counts = Counter(value_of(device, "productName") for device in (*whole, *only_mig))
    labels: Labels = {}
    for device in reversed(only_mig):
        count = counts[value_of(device, "productName")]
        labels |= _base(GPU, device, count, Sharing(replicas=0)) | _architecture(device)
    for device in reversed(whole):
        count = counts[value_of(device, "productName")]
        labels |= _base(GPU, device, count, rules.of(GPU)) | _architecture(device)
        if memory := value_of(device, "memoryMiB"):
            labels[f"{GPU}.memory"] = memory
    return labels


def _mixed(migs: Sequence[AllocatableDevice], rules: GfdRules) -> Labels:
    """A resource for each profile."""
    counts = Counter(_profile(device) for device in migs)
    labels: Labels = {}
    for device in reversed(migs):
        profile = _profile(device)
        resource = f"{DOMAIN}/mig-{profile}"
        labels |= _of_mig(resource, device, counts[profile], rules)
    return labels


def _single(
    migs: Sequence[AllocatableDevice], whole: Sequence[AllocatableDevice], rules: GfdRules
) -> Labels:
    """MIG devices of one profile are offered as if they were GPUs. Where this cannot be, GFD says so in the product."""
    if whole or len({_profile(device) for device in migs}) > 1:
        product = label_value(value_of(migs[0], "productName"), "-MIG-INVALID")
        none = dict.fromkeys((f"{GPU}.count", f"{GPU}.replicas", f"{GPU}.memory"), "0")
        return {f"{GPU}.product": product} | none
    return _of_mig(GPU, migs[0], len(migs), rules)


def _of_mig(resource: str, device: AllocatableDevice, count: int, rules: GfdRules) -> Labels:
    labels = _base(resource, device, count, rules.of(resource), f"-MIG-{_profile(device)}")
    compute, _, gpu = value_of(device, "profile").partition("g.")[0].rpartition("c.")
    if gpu.isdecimal():
        # Without a number of compute slices in its name, a profile has them all.
        labels |= {f"{resource}.slices.gi": gpu, f"{resource}.slices.ci": compute or gpu}
    if memory := value_of(device, "memoryMiB"):
        labels[f"{resource}.memory"] = memory
    for name, label in _MIG_CAPACITIES:
        if (amount := capacity_of(device, name)) is not None:
            labels[f"{resource}.{label}"] = str(amount)
    return labels


def _profile(device: AllocatableDevice) -> str:
    """The profile as the device plugin writes it in names: 1g.10gb+me is 1g.10gb.me there."""
    return value_of(device, "profile").replace("+", ".")


def _base(
    resource: str, device: AllocatableDevice, count: int, sharing: Sharing, suffix: str = ""
) -> Labels:
    shared = sharing.replicas > 1
    if shared and not sharing.renamed:
        suffix += "-SHARED"
    labels = {
        f"{resource}.count": str(count),
        f"{resource}.replicas": str(sharing.replicas),
        f"{resource}.sharing-strategy": sharing.strategy if shared else "none",
    }
    if product := value_of(device, "productName"):
        labels[f"{resource}.product"] = label_value(product, suffix)
    return labels


def _architecture(device: AllocatableDevice) -> Labels:
    version = _numbers(value_of(device, "cudaComputeCapability"))
    if len(version) < len(("major", "minor")):
        return {}
    major, minor = version[:2]
    since, later = _LATER_FAMILIES.get(major, (minor + 1, ""))
    return {
        f"{GPU}.family": later if minor >= since else _FAMILIES.get(major, "undefined"),
        f"{GPU}.compute.major": str(major),
        f"{GPU}.compute.minor": str(minor),
    }


def _versions(devices: Sequence[AllocatableDevice]) -> Labels:
    """Labels of the kernel driver's version and of the newest CUDA that it supports, each with its older name."""
    labels = dict(_driver_version(devices))
    cuda = _numbers(_any(devices, "cudaDriverVersion"))
    if len(cuda) >= len(("major", "minor")):
        major, minor = map(str, cuda[:2])
        labels |= {
            f"{DOMAIN}/cuda.runtime.major": major,
            f"{DOMAIN}/cuda.runtime.minor": minor,
            f"{DOMAIN}/cuda.runtime-version.major": major,
            f"{DOMAIN}/cuda.runtime-version.minor": minor,
            f"{DOMAIN}/cuda.runtime-version.full": f"{major}.{minor}",
        }
    return labels


def _driver_version(devices: Sequence[AllocatableDevice]) -> Iterator[tuple[str, str]]:
    # The attribute `driverVersion` has no leading zeros; the other one is there if the driver itself has some (535.183.06).
    full = _any(devices, "driverVersionString") or _any(devices, "driverVersion")
    parts = full.split(".")
    if len(parts) not in (2, 3) or not all(part.isdecimal() for part in parts):
        return
    major, minor, revision = (*parts, "")[:3]
    yield f"{DOMAIN}/cuda.driver.major", major
    yield f"{DOMAIN}/cuda.driver.minor", minor
    yield f"{DOMAIN}/cuda.driver.rev", revision
    yield f"{DOMAIN}/cuda.driver-version.major", major
    yield f"{DOMAIN}/cuda.driver-version.minor", minor
    yield f"{DOMAIN}/cuda.driver-version.revision", revision
    yield f"{DOMAIN}/cuda.driver-version.full", full


def _clique(whole: Sequence[AllocatableDevice]) -> Labels:
    """The clique, if all GPUs are in the same one."""
    found = {value_of(device, "fabricID") for device in whole}
    (clique, *others) = found or {""}
    return {f"{DOMAIN}/gpu.clique": label_value(clique)} if clique and not others else {}


def _any(devices: Sequence[AllocatableDevice], name: str) -> str:
    return next((value for device in devices if (value := value_of(device, name))), "")


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else ()
