# SPDX-License-Identifier: Apache-2.0
"""The file that makes simulated devices ill, vanish, or refuse to be set up:

    devices:
      gpu-0: {unhealthy: "fell off the bus"}
      gpu-3: {vanished: true}
      gpu-5: {configure: "no memory left"}

A missing file means no faults. A broken one costs only itself: the last good content stays in force.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from dra_driver.errors import Permanent

_FIELDS = {"unhealthy": str, "vanished": bool, "configure": str}


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one device; `configure` is the error that setting it up ends with."""

    unhealthy: str = ""
    vanished: bool = False
    configure: str = ""


def read_faults(path: Path) -> Mapping[str, Fault]:
    """Faults by device name. Raises Permanent, naming file, field and what it must be, for a broken file."""
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Permanent(f"cannot read fault file {path}: {error}") from error
    devices = _mapping(content or {}, f"fault file {path}").get("devices") or {}
    return {
        str(name): _fault(entry, f"fault file {path}: devices.{name}")
        for name, entry in _mapping(devices, f"fault file {path}: devices").items()
    }


def _fault(entry: object, where: str) -> Fault:
    fields = _mapping(entry or {}, where)
    for name, value in fields.items():
        if name not in _FIELDS:
            raise Permanent(f"{where}.{name}: unknown; known are {', '.join(_FIELDS)}")
        if not isinstance(value, _FIELDS[name]):
            raise Permanent(f"{where}.{name} must be a {_FIELDS[name].__name__}")
    return Fault(
        unhealthy=str(fields.get("unhealthy", "")),
        vanished=bool(fields.get("vanished", False)),
        configure=str(fields.get("configure", "")),
    )


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise Permanent(f"{where} must be a mapping")
    return value
