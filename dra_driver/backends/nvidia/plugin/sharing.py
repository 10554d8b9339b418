# SPDX-License-Identifier: Apache-2.0
"""The lists of NVIDIA's file: `resources` and `sharing`. Its own rules, in its own words, each with the path of the field.

NVIDIA's plugin parses `resources`, `rename` and `devices`, and then ignores them with a warning. Here they count.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from dra_driver.backends.nvidia.plugin.keys import NO_MPS
from dra_driver.model.decoding import Mistake, shown
from dra_driver.model.ids import ResourceName
from dra_driver.model.plugin import MOST_REPLICAS
from dra_driver.model.plugin_policy import DeviceChoice, ResourceRule, SharingRule

PREFIX = "nvidia.com/"
SHARED = ".shared"
LONGEST_NAME = 63
LEAST_REPLICAS = 2
COUNTS = "NVIDIA's plugin ignores this key, and this driver does what it says: remove it if you do not want that"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DEVICE = re.compile(rf"\d+|\d+:\d+|GPU-{_UUID}|MIG-{_UUID}|MIG-GPU-{_UUID}/\d+/\d+")


class Lists(Struct):
    """What the lists say."""

    sharing: list[SharingRule] = field(default_factory=list)
    resources: list[ResourceRule] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    refusals: list[Mistake] = field(default_factory=list)
    unknown: list[Mistake] = field(default_factory=list)
    notes: list[Mistake] = field(default_factory=list)

    def counts(self, path: str) -> None:
        """Say that a key counts here which NVIDIA's plugin reads and ignores."""
        self.notes.append(Mistake(path, COUNTS))

    def wrong(self, path: str, found: str) -> None:
        self.mistakes.append(Mistake(path, found))

    def mapping(self, value: object, path: str, known: tuple[str, ...]) -> Mapping[str, Any]:
        """The value as a mapping; keys that nobody knows are told."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.wrong(path, f"{shown(value)} must be a mapping")
            return {}
        for name in value:
            if name not in known:
                told = f"unknown key; known are {', '.join(known)}"
                self.unknown.append(Mistake(f"{path}.{shown(str(name))[1:-1]}", told))
        return value

    def entries(self, value: object, path: str) -> Iterator[tuple[str, Any]]:
        """Yield the entries of a list, each with its path."""
        if value is None:
            return
        if not isinstance(value, list):
            self.wrong(path, f"{shown(value)} must be a list")
            return
        for index, entry in enumerate(value):
            yield f"{path}[{index}]", entry

    def truth(self, section: Mapping[str, Any], name: str, path: str) -> bool:
        value = section.get(name)
        if value is not None and not isinstance(value, bool):
            self.wrong(f"{path}.{name}", f"{shown(value)} must be true or false")
        return value is True

    def resource(self, value: object, path: str) -> ResourceName | None:
        """The whole name of a resource; None after a mistake."""
        if not isinstance(value, str):
            self.wrong(path, f"{shown(value)} must be a text")
            return None
        name = value if value.startswith(PREFIX) else PREFIX + value
        if len(name) > LONGEST_NAME:
            told = f"fully-qualified resource name must be {LONGEST_NAME} characters or less: {shown(name)[1:-1]}"
            self.wrong(path, told)
        elif not _NAME.fullmatch(name.removeprefix(PREFIX)):
            told = f"incorrect format for resource name {shown(name)}: behind {PREFIX} a lower-case DNS name is due"
            self.wrong(path, told)
        else:
            return ResourceName(name)
        return None


def read_lists(found: Mapping[str, Any]) -> Lists:
    """The values of `resources` and `sharing`."""
    lists = Lists()
    resources = lists.mapping(found.get("resources"), "resources", ("gpus", "mig"))
    for key in ("gpus", "mig"):
        for path, entry in lists.entries(resources.get(key), f"resources.{key}"):
            _pattern(lists, entry, path, parts=key == "mig")
    sharing = lists.mapping(found.get("sharing"), "sharing", ("timeSlicing", "mps"))
    if "timeSlicing" in sharing:
        _sharing(lists, sharing["timeSlicing"], "sharing.timeSlicing")
    if sharing.get("mps") is not None:
        apart = Lists()  # it is checked, and then refused
        _sharing(apart, sharing["mps"], "sharing.mps")
        lists.mistakes += apart.mistakes
        lists.refusals.append(Mistake("sharing.mps", NO_MPS))
    return lists


def _pattern(lists: Lists, entry: object, path: str, *, parts: bool) -> None:
    section = lists.mapping(entry, path, ("pattern", "name"))
    for key in ("pattern", "name"):
        if section.get(key) is None:
            lists.wrong(f"{path}.{key}", f"resources must have a '{key}' field set")
    pattern, name = section.get("pattern"), section.get("name")
    if pattern is None or name is None:
        return
    if not isinstance(pattern, str):
        lists.wrong(f"{path}.pattern", f"{shown(pattern)} must be a text")
    elif resource := lists.resource(name, f"{path}.name"):
        lists.resources.append(ResourceRule(pattern, resource, parts))
        lists.counts(path)


def _sharing(lists: Lists, value: object, path: str) -> None:
    known = ("renameByDefault", "failRequestsGreaterThanOne", "resources")
    section = lists.mapping(value, path, known)
    renames = lists.truth(section, "renameByDefault", path)
    refuses = lists.truth(section, "failRequestsGreaterThanOne", path)
    if section.get("resources") in (None, []):
        if value is None or isinstance(value, Mapping):
            lists.wrong(f"{path}.resources", "no resources specified")
        return
    for place, entry in lists.entries(section["resources"], f"{path}.resources"):
        rule = _rule(lists, entry, place, renames=renames, refuses=refuses)
        if rule is None:
            continue
        if any(rule.resource == other.resource for other in lists.sharing):
            lists.wrong(f"{place}.name", f"{rule.resource} is there twice: remove one of them")
            continue
        lists.sharing.append(rule)
        if rule.devices is not None:
            lists.counts(f"{place}.devices")
        if rule.rename not in (None, rule.resource + SHARED if renames else None):
            lists.counts(f"{place}.rename")


def _rule(
    lists: Lists, entry: object, path: str, *, renames: bool, refuses: bool
) -> SharingRule | None:
    section = lists.mapping(entry, path, ("name", "rename", "devices", "replicas"))
    before = len(lists.mistakes)
    name = _name(lists, section, path)
    replicas = _replicas(lists, section, f"{path}.replicas")
    devices = _devices(lists, section.get("devices", "all"), f"{path}.devices")
    rename = section.get("rename")
    new_name = lists.resource(rename, f"{path}.rename") if rename not in (None, "") else None
    if name is None or len(lists.mistakes) > before:
        return None
    if new_name is None and renames:
        new_name = ResourceName(name + SHARED)
    return SharingRule(
        name, replicas=replicas, rename=new_name, refuses_several=refuses, devices=devices
    )


def _name(lists: Lists, section: Mapping[str, Any], path: str) -> ResourceName | None:
    if section.get("name") is None:
        lists.wrong(f"{path}.name", "no resource name specified")
        return None
    return lists.resource(section["name"], f"{path}.name")


def _replicas(lists: Lists, section: Mapping[str, Any], path: str) -> int:
    value = section.get("replicas")
    if value is None:
        lists.wrong(path, "no replicas specified")
    elif not isinstance(value, int) or isinstance(value, bool):
        lists.wrong(path, f"{shown(value)} must be a whole number")
    elif value < LEAST_REPLICAS:
        lists.wrong(path, f"number of replicas must be >= {LEAST_REPLICAS}; it is {value}")
    elif value > MOST_REPLICAS:
        lists.wrong(path, f"number of replicas must be <= {MOST_REPLICAS}; it is {shown(value)}")
    else:
        return value
    return LEAST_REPLICAS


def _devices(lists: Lists, value: object, path: str) -> DeviceChoice | None:
    """The chosen devices; None stands for all."""
    match value:
        case "all":
            return None
        case str():
            told = f"devices set as {shown(value)} but the only valid string input is 'all'"
            lists.wrong(path, told)
        case bool():
            lists.wrong(path, f"unrecognized type for devices spec: {value}")
        case int() if value > 0:
            return DeviceChoice(count=value)
        case int():
            lists.wrong(path, f"devices set as '{value}' but a count of devices must be > 0")
        case list():
            return _named(lists, value, path)
        case _:
            lists.wrong(path, f"unrecognized type for devices spec: {shown(value)}")
    return None


def _named(lists: Lists, value: list[object], path: str) -> DeviceChoice:
    names = []
    for index, one in enumerate(value):
        name = "" if isinstance(one, bool) else str(one)
        if not isinstance(one, int | str) or not _DEVICE.fullmatch(name):
            told = f'unsupported type for device in devices list: {shown(one)}; write an index (0), an index of a MIG device ("0:1"), or a UUID'
            lists.wrong(f"{path}[{index}]", told)
        names.append(name)
    return DeviceChoice(named=tuple(names))
