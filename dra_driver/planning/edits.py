# SPDX-License-Identifier: Apache-2.0
"""Which container edits of a backend does the driver accept?

The edits become part of a CDI file, which the container runtime carries out as root. A mistake in a backend must not mount the whole
host into a container, or load a library into each of its programs. So unusual edits are refused, unless the device declares them
(`AllocatableDevice.declares`). The check finds mistakes; it is no protection against a malicious backend, which runs in the driver
and could do anything itself.
"""

import posixpath
from collections.abc import Collection, Iterator, Mapping

from dra_driver.model.cdi import ContainerEdits, DeviceNode, Hook, Mount

HOOKS = "hooks"
_LARGEST_GID = 2**32 - 2  # the one above means "no group"
_LOADER_PREFIX = "LD_"
_LOADER_VARIABLES = frozenset({"BASH_ENV", "ENV", "GCONV_PATH", "GLIBC_TUNABLES", "PATH"})
_LOADER_FILES = ("/etc/ld.so.", "/etc/ld-musl-")
_SYSTEM_PATHS = frozenset(
    {"/", "/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr", "/usr/lib"}
    | {"/root", "/run", "/usr/bin", "/usr/lib64", "/usr/sbin", "/var", "/var/lib", "/var/run"}
)


def wrong_edits(edits: object, declared: Collection[str]) -> str:
    """Return the first reason why the edits are refused; empty if they are good. A backend is other people's code, so the types are
    checked too.
    """
    if not isinstance(edits, ContainerEdits):
        return f"it must return ContainerEdits; it returned a {type(edits).__name__}"
    return next(_wrong_types(edits), "") or next(_wrong_values(edits, declared), "")


def _wrong_values(edits: ContainerEdits, declared: Collection[str]) -> Iterator[str]:
    for name in edits.env:
        loads = name.startswith(_LOADER_PREFIX) or name in _LOADER_VARIABLES
        if loads and name not in declared:
            yield f"variable {name} changes which code the container's programs load; declare {name!r} if it is meant"
    for index, node in enumerate(edits.device_nodes):
        for path in filter(None, (node.path, node.host_path)):
            yield from _path(path, f"device_nodes[{index}]")
    for index, mount in enumerate(edits.mounts):
        yield from _mount(mount, f"mounts[{index}]", declared)
    if edits.hooks and HOOKS not in declared:
        yield f"hook {edits.hooks[0].path} would run as root on the node; declare {HOOKS!r} if it is meant"
    for index, hook in enumerate(edits.hooks):
        yield from _path(hook.path, f"hooks[{index}]")
    for gid in edits.additional_gids:
        if not 0 < gid <= _LARGEST_GID:
            yield f"additional_gids: {gid} is no group that a container may join; leave it out"


def _mount(mount: Mount, where: str, declared: Collection[str]) -> Iterator[str]:
    for path in (mount.host_path, mount.container_path):
        yield from _path(path, where)
        if _normal(path) in _SYSTEM_PATHS and path not in declared:
            yield f"{where}: {path} is a whole directory of the system; mount what the device needs, or declare {path!r}"
    target = _normal(mount.container_path)
    if target.startswith(_LOADER_FILES) and mount.container_path not in declared:
        yield (
            f"{where}: {mount.container_path} changes which code the container's programs load; "
            f"declare {mount.container_path!r} if it is meant"
        )


def _normal(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")


def _path(path: str, where: str) -> Iterator[str]:
    if not path.startswith("/"):
        yield f"{where}: {path!r} is no absolute path"
    if ".." in path.split("/"):
        yield f"{where}: {path!r} has '..' in it"


def _wrong_types(edits: ContainerEdits) -> Iterator[str]:
    yield from _unlike("env", edits.env, Mapping)
    for name, value in edits.env.items():
        yield from _unlike(f"env[{name!a}]", value, str)
    for field, kind in (("device_nodes", DeviceNode), ("mounts", Mount), ("hooks", Hook)):
        entries = getattr(edits, field)
        yield from _unlike(field, entries, tuple)
        for index, entry in enumerate(entries):
            yield from _unlike(f"{field}[{index}]", entry, kind)
            yield from _entry(entry, f"{field}[{index}]")
    yield from _unlike("additional_gids", edits.additional_gids, tuple)
    for index, gid in enumerate(edits.additional_gids):
        yield from _unlike(f"additional_gids[{index}]", gid, int)


def _entry(entry: DeviceNode | Mount | Hook, where: str) -> Iterator[str]:
    texts: tuple[str, ...]
    lists: tuple[str, ...]
    match entry:
        case Mount():
            texts, lists = ("host_path", "container_path"), ("options",)
        case Hook():
            texts, lists = ("name", "path"), ("args", "env")
            yield from _unlike(f"{where}.timeout", entry.timeout, (int, type(None)))
        case _:
            texts, lists = ("path", "type", "permissions", "host_path"), ()
            for number in ("major", "minor", "file_mode"):
                yield from _unlike(f"{where}.{number}", getattr(entry, number), (int, type(None)))
    for name in texts:
        yield from _unlike(f"{where}.{name}", getattr(entry, name), str)
    for name in lists:
        values = getattr(entry, name)
        yield from _unlike(f"{where}.{name}", values, (tuple, list))
        for value in values:
            yield from _unlike(f"{where}.{name}", value, str)


def _unlike(field: str, value: object, kind: type | tuple[type, ...]) -> Iterator[str]:
    """Yield an error if the value has a wrong type. The caller uses only the first one, so the code after a check may rely on the type."""
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        expected = " or ".join(one.__name__ for one in kinds)
        yield f"{field}: {value!a:.80} is a {type(value).__name__}, it must be a {expected}"
