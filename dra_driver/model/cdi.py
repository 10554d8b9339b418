# SPDX-License-Identifier: Apache-2.0
"""The Container Device Interface document: how a container runtime changes a container that has a device.

A runtime refuses a document if it does not know the `cdiVersion`, and also if this version is too low for a field. So the version
is computed: the lowest that all fields need. The JSON is canonical (sorted keys, a newline at the end). So a claim always gives
the same bytes, and other bytes mean that the file was damaged.
Source: CNCF container-device-interface, SPEC.md and MinimumRequiredVersion.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec import Struct, field

_KIND = re.compile(
    r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMMON = ("deviceNodes", "mounts", "hooks")
"""What is written once for the whole document if all devices have it."""

_Edits = dict[str, list[object]]


class DeviceNode(Struct, frozen=True):
    """A device file that the container gets.

    With `major` and `minor` the file need not exist on the host. Without them the runtime takes both from the host's file of
    this path. `permissions` is a subset of "rwm", as for the device cgroup.
    """

    path: str
    type: Literal["c", "b"] = "c"
    major: int | None = None
    minor: int | None = None
    permissions: str = "rw"
    host_path: str = ""
    file_mode: int | None = None

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise ValueError(
                f"device node {self.path!r}: the path in the container must be absolute"
            )
        if (self.major is None) != (self.minor is None):
            raise ValueError(f"device node {self.path}: give major and minor together, or neither")

    def as_dict(self) -> dict[str, object]:
        """The document's form; absent fields are left out."""
        fields: dict[str, object] = {
            "path": self.path,
            "type": self.type,
            "permissions": self.permissions,
        }
        optional = {
            "major": self.major,
            "minor": self.minor,
            "hostPath": self.host_path or None,
            "fileMode": self.file_mode,
        }
        return fields | {key: value for key, value in optional.items() if value is not None}


class Mount(Struct, frozen=True):
    """A bind mount of a host path. Only a backend chooses the path, never a claim: the author of a claim must not mount host files."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "bind")

    def as_dict(self) -> dict[str, object]:
        """The document's form."""
        return {
            "hostPath": self.host_path,
            "containerPath": self.container_path,
            "options": list(self.options),
        }


class Hook(Struct, frozen=True):
    """A program of the host that the runtime runs at one moment of a container's life, with the rights of root on the node.

    `name` is the moment, such as "createContainer". `args` includes the program's name, as in OCI.
    """

    name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None

    def as_dict(self) -> dict[str, object]:
        """The document's form; absent fields are left out."""
        fields = {"hookName": self.name, "path": self.path, "timeout": self.timeout}
        lists = {"args": list(self.args), "env": list(self.env)}
        return {key: value for key, value in {**fields, **lists}.items() if value not in (None, [])}


class ContainerEdits(Struct, frozen=True):
    """What changes in a container: variables (name to value), device files, mounts, hooks, and groups that its processes join
    (`additional_gids`, for device files that only a group may open).

    The driver refuses edits that could take over the node or any program of a container, such as hooks, if the device does not declare
    them (`dra_driver.planning.edits`).
    """

    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, value in self.env.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(
                    f"environment variable {name!r}: letters, digits and _ only, no digit first"
                )
            if "\0" in value or "\n" in value:
                raise ValueError(
                    f"environment variable {name}: the value holds a NUL or a line break"
                )

    def merged(self, other: "ContainerEdits") -> "ContainerEdits":
        """Both edits together. If both set a variable, the value of `other` counts."""
        return ContainerEdits(
            env={**self.env, **other.env},
            device_nodes=self.device_nodes + other.device_nodes,
            mounts=self.mounts + other.mounts,
            hooks=self.hooks + other.hooks,
            additional_gids=self.additional_gids + other.additional_gids,
        )

    def as_dict(self) -> dict[str, list[object]]:
        """The document's form; empty lists are left out."""
        lists: dict[str, list[object]] = {
            "env": [f"{name}={value}" for name, value in sorted(self.env.items())],
            "deviceNodes": [node.as_dict() for node in self.device_nodes],
            "mounts": [mount.as_dict() for mount in self.mounts],
            "hooks": [hook.as_dict() for hook in self.hooks],
            "additionalGids": list(dict.fromkeys(self.additional_gids)),
        }
        return {key: value for key, value in lists.items() if value}


class CdiDevice(Struct, frozen=True):
    """One device of a document; its full name is `kind=name`."""

    name: str
    edits: ContainerEdits

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"CDI device name {self.name!r}: letters, digits and _ . : - inside, letter or digit at both ends"
            )
        if not self.edits.as_dict():
            raise ValueError(
                f"CDI device {self.name}: a device without any edit makes the whole document invalid"
            )


class CdiSpec(Struct, frozen=True):
    """A CDI document. `kind` is "vendor/class".

    A container that gets several devices of the document gets the edits of each of them. A runtime replaces a variable, a device
    file or a mount that is there already, but it runs a hook again. So device files, mounts and hooks that all devices have are
    written once, as edits of the whole document: a container with any of the devices gets them, once.
    """

    kind: str
    devices: tuple[CdiDevice, ...]

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind):
            raise ValueError(
                f"CDI kind {self.kind!r}: write vendor/class, each starting with a letter"
            )
        if not self.devices:
            raise ValueError(f"CDI document {self.kind}: at least one device is needed")

    def device_id(self, device: CdiDevice) -> str:
        """The fully qualified name, which the kubelet passes to the runtime."""
        return f"{self.kind}={device.name}"

    @property
    def version(self) -> str:
        """The lowest cdiVersion that has all fields of this document."""
        if any(device.edits.additional_gids for device in self.devices):
            return "0.7.0"
        if "." in self.kind.partition("/")[2]:
            return "0.6.0"
        digit_first = any(device.name[0].isdigit() for device in self.devices)
        host_paths = any(
            node.host_path for device in self.devices for node in device.edits.device_nodes
        )
        return "0.5.0" if digit_first or host_paths else "0.3.0"

    def to_json(self) -> str:
        """The document as canonical JSON."""
        common, own = _common_and_own([device.edits.as_dict() for device in self.devices])
        devices = [
            {"name": device.name, "containerEdits": edits}
            for device, edits in zip(self.devices, own, strict=True)
        ]
        document: dict[str, object] = {
            "cdiVersion": self.version,
            "kind": self.kind,
            "devices": devices,
        }
        encoded = msgspec.json.encode(document | common, order="sorted")
        return msgspec.json.format(encoded, indent=2).decode() + "\n"


def _common_and_own(edits: list[_Edits]) -> tuple[dict[str, object], list[_Edits]]:
    """Return the field of the document with what all devices have, and what is left for each device. Nothing is common if there is
    only one device, or if nothing would be left for one: CDI accepts no device without an edit.
    """
    if len(edits) == 1:
        return {}, edits
    common, own = {}, [dict(each) for each in edits]
    for field_name in _COMMON:
        entries = [
            {msgspec.json.encode(entry): entry for entry in each.pop(field_name, ())}
            for each in own
        ]
        shared = set(entries[0]).intersection(*entries)
        if shared:
            common[field_name] = [entries[0][text] for text in entries[0] if text in shared]
        for each, found in zip(own, entries, strict=True):
            if left := [entry for text, entry in found.items() if text not in shared]:
                each[field_name] = left
    return ({"containerEdits": common}, own) if common and all(own) else ({}, edits)
