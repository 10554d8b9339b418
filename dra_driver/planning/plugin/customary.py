# SPDX-License-Identifier: Apache-2.0
"""What are devices called where nobody wrote a class? As the vendors' own plugins call them, so that pods of today run unchanged.

The rules are those of the plugins of NVIDIA, AMD, Intel and Habana. A GPU that is divided is not offered as a whole, and how its parts are
called is the admin's choice (`MigStrategy`), for AMD's partitions too.
Source: NVIDIA/k8s-device-plugin internal/rm/device_map.go; ROCm/k8s-device-plugin; intel/intel-device-plugins-for-kubernetes.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from dra_driver.model.ids import DriverName, ResourceName
from dra_driver.model.plugin_policy import MigStrategy, PluginPolicy
from dra_driver.planning.plugin.candidates import Candidate, Group, Report
from dra_driver.planning.plugin.exclusion import Listed
from dra_driver.planning.plugin.problems import ResourceProblem, few, wrong_resource

_NAMES = re.compile(
    r"nvidia\.com/(gpu|mig-.+)|amd\.com/(gpu|[a-z]+_[a-z0-9]+)|gpu\.intel\.com/(i915|xe)|habana\.ai/gaudi"
)
_XE = ("Xe2", "Xe3")
"""Architectures of Intel whose kernel driver is xe. All older ones have i915, unless an admin changes it."""
_CHOICE = ("devicePlugin", "migStrategy")


class _Asked(Struct, frozen=True):
    policy: PluginPolicy
    driver: DriverName
    report: Report


_Named = Iterator[tuple[str, Candidate]]


def customary_groups(
    found: Sequence[Candidate],
    listed: Listed,
    policy: PluginPolicy,
    *,
    driver: DriverName,
    report: Report,
) -> Iterator[Group]:
    """Yield the devices of each customary name, vendor by vendor. Devices of two vendors may have one name, if the admin chose it."""
    asked = _Asked(policy, driver, report)
    groups: dict[ResourceName, list[Candidate]] = {}
    sources: dict[ResourceName, str] = {}
    nameless = [one for one in found if one.said("vendor", driver) not in _VENDORS]
    for vendor, name in _VENDORS.items():
        mine = [one for one in found if one.said("vendor", driver) == vendor]
        for customary, one in name(mine, asked):
            resource = _chosen(one, customary, asked)
            if wrong_resource(resource):
                nameless.append(one)
            elif listed.add(one.found, one.published):
                sources.setdefault(resource, f"customary name for vendor {vendor}")
                groups.setdefault(resource, []).append(one)
    _no_name([one.found.name for one in nameless], report)
    _tell_idle_rules(found, asked)
    for resource, devices in groups.items():
        yield Group(resource, tuple(devices), sources[resource])


def _no_name(names: Sequence[str], report: Report) -> None:
    if names:
        text = f"{few(names)}: no vendor's plugin has a name for such a device"
        action = "it is not offered; write a DeviceClass that selects it"
        report(ResourceProblem("customary names", "", text, action))


def _tell_idle_rules(found: Sequence[Candidate], asked: _Asked) -> None:
    """Tell the rules for hardware that is not here, where there is other hardware of the kind that they are for."""
    kinds = [_text_of(one, asked.driver) for one in found]
    for rule in asked.policy.resources:
        texts = sorted({text for is_part, text in kinds if is_part is rule.parts and text})
        if texts and not any(map(rule.fits, texts)):
            what = "profile of a part" if rule.parts else "product"
            text = f"{rule.pattern[:80]!a} fits no {what} of this node; here are {few(texts)}"
            action = "no device gets this name; correct the pattern, or remove the rule, unless other nodes have such devices"
            asked.report(ResourceProblem(f"rule for {rule.name}", "pattern", text, action))


def _text_of(one: Candidate, driver: DriverName) -> tuple[bool, str]:
    """Whether the device is a part, and what a rule's pattern has to fit."""
    profile = one.said("profile", driver)
    is_part = bool(profile) and one.said("type", driver) == "mig"
    return is_part, profile if is_part else one.said("productName", driver)


def is_customary(resource: str) -> bool:
    """Whether a device of some machine has this customary name."""
    return _NAMES.fullmatch(resource) is not None


def _chosen(one: Candidate, customary: str, asked: _Asked) -> ResourceName:
    """The name that the admin chose for such devices, or the customary one."""
    is_part, text = _text_of(one, asked.driver)
    fitting = (
        rule.name
        for rule in asked.policy.resources
        if customary and rule.parts is is_part and rule.fits(text) and not wrong_resource(rule.name)
    )
    return next(fitting, ResourceName(customary))


def _nvidia(devices: Sequence[Candidate], asked: _Asked) -> _Named:
    whole = [one for one in devices if one.said("type", asked.driver) in ("", "gpu")]
    parents = {one.found.resource.parent for one in whole}
    # Parts of a GPU that is offered as a whole are those that could be made of it.
    parts = [
        one
        for one in devices
        if one.said("type", asked.driver) == "mig" and one.found.resource.parent not in parents
    ]
    match asked.policy.mig_strategy:
        case MigStrategy.MIXED:
            yield from (("nvidia.com/gpu", one) for one in whole)
            for one in parts:
                profile = one.said("profile", asked.driver).replace("+", ".")
                yield f"nvidia.com/mig-{profile}", one
        case MigStrategy.SINGLE:
            if wrong := _unlike(whole, parts, asked.driver):
                action = (
                    "no GPU of NVIDIA is offered; make all GPUs of the node alike, or write mixed"
                )
                asked.report(ResourceProblem(*_CHOICE, wrong, action))
            else:
                yield from (("nvidia.com/gpu", one) for one in whole or parts)
        case _:
            yield from (("nvidia.com/gpu", one) for one in whole)
            if parts:
                text = (
                    f"{few(one.found.name for one in parts)}: with none, parts of GPUs have no name"
                )
                action = "they are not offered; write mixed, or single"
                asked.report(ResourceProblem(*_CHOICE, text, action))


def _unlike(whole: Sequence[Candidate], parts: Sequence[Candidate], driver: DriverName) -> str:
    """Return why the GPUs cannot have one name; empty if they can."""
    if whole and parts:
        return (
            f"with single, all GPUs of a node are divided or none is; here {few(one.found.name for one in whole)} is whole, and "
            f"{few(one.found.name for one in parts)} is a part"
        )
    kinds: dict[object, Candidate] = {}
    for one in parts:
        kinds.setdefault(_kind(one, driver), one)
    if len(kinds) > 1:
        profiles = few(
            f"{one.found.name} ({one.said('profile', driver)})" for one in kinds.values()
        )
        return f"with single, all parts of GPUs are of one kind; here are {profiles}"
    return ""


def _kind(one: Candidate, driver: DriverName) -> object:
    """What has to be equal in parts of one kind: all but the place in the GPU."""
    sizes = (one.published.capacity or {}).items()
    return (
        one.said("profile", driver),
        frozenset((name, size.value) for name, size in sizes if "memorySlice" not in name),
    )


def _amd(devices: Sequence[Candidate], asked: _Asked) -> _Named:
    modes = [(_mode(one, asked.driver), one) for one in devices]
    if asked.policy.mig_strategy is MigStrategy.MIXED:
        yield from ((f"amd.com/{mode or 'gpu'}", one) for mode, one in modes)
        return
    kinds = dict(reversed(modes))
    if len(kinds) > 1:
        found = ", ".join(f"{one.found.name} ({mode or 'no mode'})" for mode, one in kinds.items())
        text = f"without mixed, all GPUs of a node are in one partition mode; here are {found}"
        action = "no GPU of AMD is offered; give all GPUs one mode, or write mixed"
        asked.report(ResourceProblem(*_CHOICE, text, action))
        return
    yield from (("amd.com/gpu", one) for one in devices)


def _mode(one: Candidate, driver: DriverName) -> str:
    """The modes of compute units and memory: "cpx_nps4"; empty for a GPU that has none."""
    modes = (one.said("computePartition", driver), one.said("memoryPartition", driver))
    return "_".join(modes).lower() if all(modes) else ""


def _intel(devices: Sequence[Candidate], asked: _Asked) -> _Named:
    for one in devices:
        guessed = "xe" if one.said("architecture", asked.driver) in _XE else "i915"
        kernel = one.said("kernelDriver", asked.driver) or guessed
        # A GPU that another kernel driver has, such as vfio-pci, is none for containers.
        yield f"gpu.intel.com/{kernel}" if kernel in ("i915", "xe") else "", one


def _habana(devices: Sequence[Candidate], _asked: _Asked) -> _Named:
    return (("habana.ai/gaudi", one) for one in devices)


_VENDORS: Mapping[str, Callable[[Sequence[Candidate], _Asked], _Named]] = {
    "nvidia": _nvidia,
    "amd": _amd,
    "intel": _intel,
    "habana": _habana,
}
