# SPDX-License-Identifier: Apache-2.0
"""What does a container see after a runtime has applied CDI devices to its OCI config?

A runtime is given qualified names ("vendor/class=name"), looks them up in the CDI directory, and changes the config:
variables, device files with a rule for the device cgroup, mounts. One missing name fails the container. This is that
step without a runtime, for the demo and for tests; hooks and the rarer edits are refused rather than left out, since
the driver writes none.

Rules kept from the CNCF container-device-interface (pkg/cdi): files that cannot be read are passed over, a name found
twice is dropped, edits of the whole spec apply once for each spec used, later variables replace earlier ones.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from dra_driver.errors import Permanent

OciConfig = dict[str, Any]
Edits = Mapping[str, Any]

_APPLIED = frozenset(("env", "deviceNodes", "mounts"))


class UnresolvableDevices(Permanent):
    """Some of the names stand in no CDI file; a runtime starts no container then."""


def inject(config: Mapping[str, Any], names: Iterable[str], cdi_dir: Path) -> OciConfig:
    """A copy of the OCI config with the edits of all named CDI devices."""
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
    """Change the config in place by one set of edits."""
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


def _devices(cdi_dir: Path) -> dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Qualified name to (spec, device), without names that two devices claim."""
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
            continue  # as runtimes do: somebody else's broken file fails nobody else's container
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
