# SPDX-License-Identifier: Apache-2.0
"""How does a container runtime apply CDI devices to the OCI config of a container?

A runtime gets full names ("vendor/class=name"), finds them in the CDI directory, and changes the OCI config: environment variables,
device files with a rule for the device cgroup, mounts, hooks and groups. If a name is missing, the container fails. This module does the same
without a runtime, for the demo and for tests. It writes the hooks into the config, but runs none. Rare edits are an error, because
the driver never writes them.

The rules come from the CNCF container-device-interface (pkg/cdi): a file that cannot be read is ignored; a device that two files
define is ignored; the edits of a whole spec apply once for each used spec; a later variable replaces an earlier one.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from dra_driver.errors import Permanent

OciConfig = dict[str, Any]
Edits = Mapping[str, Any]

_APPLIED = frozenset(("env", "deviceNodes", "mounts", "hooks", "additionalGids"))


class UnresolvableDevices(Permanent):
    """No CDI file has these names; a runtime does not start the container."""


def inject(config: Mapping[str, Any], names: Iterable[str], cdi_dir: Path) -> OciConfig:
    """Return a copy of the OCI config with the edits of these CDI devices. Raises UnresolvableDevices."""
    wanted = tuple(names)
    known = _devices(cdi_dir)
    missing = [name for name in wanted if name not in known]
    if missing:
        raise UnresolvableDevices(
            f"unresolvable CDI devices {', '.join(missing)}: {cdi_dir} has"
            f" {', '.join(sorted(known)) or 'no devices'}; the driver writes a claim's file before its pods start,"
            " so look whether the claim is prepared"
        )
    result = deepcopy(dict(config))
    specs_used: list[Mapping[str, Any]] = []
    for name in wanted:
        spec, device = known[name]
        if spec not in specs_used:
            specs_used.append(spec)
            apply(result, spec.get("containerEdits", {}))
        apply(result, device.get("containerEdits", {}))
    return result


def apply(config: OciConfig, edits: Edits) -> None:
    """Apply one set of edits to the config, in place."""
    unknown = sorted(edits.keys() - _APPLIED)
    if unknown:
        raise Permanent(
            f"CDI edits {', '.join(unknown)} are not applied by this stand-in; it knows {', '.join(sorted(_APPLIED))}"
        )
    for variable in edits.get("env", ()):
        _set_variable(config, variable)
    for node in edits.get("deviceNodes", ()):
        _add_device(config, node)
    for mount in edits.get("mounts", ()):
        _add_mount(config, mount)
    for hook in edits.get("hooks", ()):
        _add_hook(config, hook)
    for gid in edits.get("additionalGids", ()):
        _add_group(config, gid)


def _devices(cdi_dir: Path) -> dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return (spec, device) by full name, without names that occur twice."""
    found: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
    twice: set[str] = set()
    for spec in _specs(cdi_dir):
        for device in spec.get("devices", ()):
            name = f"{spec.get('kind')}={device.get('name')}"
            if name in found:
                twice.add(name)
            found[name] = spec, device
    return {name: entry for name, entry in found.items() if name not in twice}


def _specs(cdi_dir: Path) -> Iterator[Mapping[str, Any]]:
    for path in sorted(cdi_dir.glob("*.json")):
        try:
            spec = json.loads(path.read_text())
        except (OSError, ValueError):
            continue  # as runtimes do: a broken file of one vendor does not affect containers of others
        if isinstance(spec, Mapping):
            yield spec


def _set_variable(config: OciConfig, variable: str) -> None:
    name = variable.partition("=")[0]
    env = config.setdefault("process", {}).setdefault("env", [])
    env[:] = [present for present in env if present.partition("=")[0] != name]
    env.append(variable)


def _add_device(config: OciConfig, node: Mapping[str, Any]) -> None:
    linux = config.setdefault("linux", {})
    kind = node.get("type", "c")
    numbers = {"major": node["major"], "minor": node["minor"]}
    device = {"path": node["path"], "type": kind, **numbers}
    device |= {key: node[key] for key in ("fileMode", "uid", "gid") if key in node}
    devices = linux.setdefault("devices", [])
    devices[:] = [present for present in devices if present["path"] != node["path"]]
    devices.append(device)
    access = node.get("permissions") or "rwm"
    rule = {"allow": True, "type": kind, **numbers, "access": access}
    linux.setdefault("resources", {}).setdefault("devices", []).append(rule)


def _add_mount(config: OciConfig, mount: Mapping[str, Any]) -> None:
    mounts = config.setdefault("mounts", [])
    mounts[:] = [present for present in mounts if present["destination"] != mount["containerPath"]]
    mounts.append(
        {
            "destination": mount["containerPath"],
            "type": mount.get("type", "bind"),
            "source": mount["hostPath"],
            "options": list(mount.get("options", ())),
        }
    )


def _add_hook(config: OciConfig, hook: Mapping[str, Any]) -> None:
    hooks = config.setdefault("hooks", {}).setdefault(hook["hookName"], [])
    hooks.append({key: value for key, value in hook.items() if key != "hookName"})


def _add_group(config: OciConfig, gid: int) -> None:
    user = config.setdefault("process", {}).setdefault("user", {})
    groups = user.setdefault("additionalGids", [])
    if gid and gid not in groups:
        groups.append(gid)
