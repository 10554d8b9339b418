# SPDX-License-Identifier: Apache-2.0
"""A file of MIG layouts (`mig-configs`), as NVIDIA's MIG manager takes it, that somebody gave to the device plugin: it is checked, and said who
applies it.

This driver makes no MIG devices. It offers those that are there, whoever made them.
Source: nvidia/mig-parted, api/spec/v1.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from dra_driver.model.decoding import Mistake, below, shown

MIG_LAYOUT_KEY = "mig-configs"
LABEL = "nvidia.com/mig.config"
VERSION = "v1"
_KEYS = ("devices", "device-filter", "mig-enabled", "mig-devices")
_PROFILE = re.compile(r"(\d+c\.)?\d+g\.\d+gb([+-][a-z.]+)*")


class MigLayout(Struct, frozen=True):
    """One layout: for each group of GPUs, which they are (empty: all), and how many MIG devices of each profile one of them gets."""

    name: str
    groups: tuple[tuple[tuple[int, ...], Mapping[str, int]], ...]

    def __str__(self) -> str:
        return f"{self.name}: " + "; ".join(
            f"{_gpus(gpus)} {_devices(devices)}" for gpus, devices in self.groups
        )

    @property
    def applied_by(self) -> str:
        """Who makes the devices, for people."""
        by_hand = "; ".join(
            f"nvidia-smi mig {selected}-cgi {','.join(profiles)} -C"
            for selected, profiles in _commands(self)
        )
        return (
            f"this driver makes no MIG devices, and offers those that are there. The MIG manager of NVIDIA's GPU operator applies this layout to a "
            f"node with the label {LABEL}={self.name}; by hand: {by_hand or 'nvidia-smi -mig 0'}"
        )


def refused_layouts(content: Mapping[str, object]) -> tuple[Mistake, ...]:
    """Why a file with layouts is no configuration of the device plugin: all its own mistakes, else who applies its first layout."""
    layouts, mistakes = read_layouts(content)
    if mistakes:
        return mistakes
    more = f" (and {len(layouts) - 1} more)" if len(layouts) > 1 else ""
    told = f"this is a layout of MIG devices, {layouts[0]}{more}, and no configuration of the device plugin; {layouts[0].applied_by}"
    return (Mistake(MIG_LAYOUT_KEY, told),)


def read_layouts(
    content: Mapping[str, object],
) -> tuple[tuple[MigLayout, ...], tuple[Mistake, ...]]:
    """The layouts of a file, or all its mistakes."""
    mistakes: list[Mistake] = []
    layouts = tuple(_layouts(content, mistakes))
    return ((), tuple(mistakes)) if mistakes else (layouts, ())


def _layouts(content: Mapping[str, object], mistakes: list[Mistake]) -> Iterator[MigLayout]:
    if (version := content.get("version")) != VERSION:
        mistakes.append(Mistake("version", f"unknown version: {shown(version)}; write {VERSION}"))
    configs = content.get(MIG_LAYOUT_KEY)
    if not isinstance(configs, Mapping) or not configs:
        mistakes.append(Mistake(MIG_LAYOUT_KEY, "it must be a mapping of layouts by their names"))
        return
    for name, entries in configs.items():
        path = below(MIG_LAYOUT_KEY, name)
        if not isinstance(entries, list) or not entries:
            mistakes.append(Mistake(path, f"{shown(entries)} must be a list of groups of GPUs"))
            continue
        groups = [_group(one, f"{path}[{index}]", mistakes) for index, one in enumerate(entries)]
        yield MigLayout(str(name), tuple(groups))


def _group(
    entry: object, path: str, mistakes: list[Mistake]
) -> tuple[tuple[int, ...], Mapping[str, int]]:
    if not isinstance(entry, Mapping):
        mistakes.append(Mistake(path, f"{shown(entry)} must be a mapping"))
        return (), {}
    for name in entry:
        if name not in _KEYS:
            told = f"unknown field; known are {', '.join(_KEYS)}"
            mistakes.append(Mistake(below(path, name), told))
    enabled = entry.get("mig-enabled")
    if not isinstance(enabled, bool):
        mistakes.append(Mistake(f"{path}.mig-enabled", f"{shown(enabled)} must be true or false"))
    wanted = _wanted(entry.get("mig-devices"), f"{path}.mig-devices", mistakes)
    if wanted and enabled is False:
        told = "a GPU without MIG has no MIG devices: set mig-enabled to true, or remove them"
        mistakes.append(Mistake(f"{path}.mig-devices", told))
    return _chosen(entry.get("devices"), f"{path}.devices", mistakes), wanted


def _chosen(value: object, path: str, mistakes: list[Mistake]) -> tuple[int, ...]:
    if value == "all":
        return ()
    if isinstance(value, list) and value and all(type(one) is int and one >= 0 for one in value):
        return tuple(value)
    mistakes.append(Mistake(path, f"{shown(value)} must be all, or a list of indexes of GPUs"))
    return ()


def _wanted(value: object, path: str, mistakes: list[Mistake]) -> Mapping[str, int]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        mistakes.append(Mistake(path, f"{shown(value)} must be a mapping of profiles to numbers"))
        return {}
    for profile, count in value.items():
        if not isinstance(profile, str) or not _PROFILE.fullmatch(profile):
            told = "this is no MIG profile; profiles look like 1g.5gb or 1g.10gb+me"
            mistakes.append(Mistake(below(path, profile), told))
        elif type(count) is not int or count < 1:
            told = f"{shown(count)} must be the number of MIG devices, from 1"
            mistakes.append(Mistake(below(path, profile), told))
    return value


def _gpus(gpus: tuple[int, ...]) -> str:
    return f"GPU {', '.join(map(str, gpus))}" if gpus else "each GPU"


def _devices(devices: Mapping[str, int]) -> str:
    parts = [f"{count} x {profile}" for profile, count in devices.items()]
    return " and ".join(parts) or "without MIG"


def _commands(layout: MigLayout) -> Iterator[tuple[str, list[str]]]:
    for gpus, devices in layout.groups:
        profiles = [profile for profile, count in devices.items() for _ in range(min(count, 64))]
        if profiles:
            yield f"-i {','.join(map(str, gpus))} " if gpus else "", profiles
