# SPDX-License-Identifier: Apache-2.0
"""The file that makes simulated devices ill, vanish, or refuse to be set up:

    devices:
      gpu-0: {unhealthy: "XID 79: GPU has fallen off the bus"}
      gpu-3: {vanished: true}
      gpu-5: {configure: "no memory left"}
      gpu-6: {configure: {error: "busy", temporary: true}}
      gpu-7: {hangs: true}

At start the file has to be there and right, for a typo in its name would make everything healthy. Later a missing file means no
faults, and a broken one costs only itself: the last good content stays in force.
"""

import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from dra_driver.errors import Permanent

MOST_BYTES = 64 * 1024
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_FIELDS = ("unhealthy", "vanished", "configure", "hangs")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one device; `configure` is the error that setting it up ends with, for now or for good.

    While `hangs` stands in the file, setting it up does not end.
    """

    unhealthy: str = ""
    vanished: bool = False
    configure: str = ""
    temporary: bool = False
    hangs: bool = False


def read_text(path: Path) -> bytes | None:
    """The file's content, None when there is none. Raises Permanent when it cannot be read, or is nothing that has an end."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Permanent(f"cannot read fault file {path}: {error.strerror}") from error
    if len(text) > MOST_BYTES:
        raise Permanent(
            f"fault file {path} has more than {MOST_BYTES // 1024} KiB: name a file of faults, a few lines for each device"
        )
    return text


def first_text(path: Path) -> bytes:
    """The file's content at start, when it has to be there. Raises Permanent.

    A named pipe hangs until somebody writes, as hardware does; it is read by the first scan. Nothing else stands in for a file:
    what cannot be read would make everything healthy.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        mode = stat.S_IFREG  # reading it says why
    if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no file")
        raise Permanent(
            f"fault file {path} is {kind}: name a YAML file; `devices: {{}}` in it stands for no faults"
        )
    text = b"" if stat.S_ISFIFO(mode) else read_text(path)
    if text is None:
        raise Permanent(
            f"fault file {path} does not exist: correct its name, or write one; `devices: {{}}` stands for no faults"
        )
    return text


def parse_faults(text: bytes | None, path: Path, known: Collection[str]) -> Mapping[str, Fault]:
    """Faults by the names of `known` devices. Raises Permanent, naming file, field and what it must be, for a broken file."""
    where = f"fault file {path}"
    try:
        content = yaml.safe_load(text or b"")
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Permanent(f"{where} is no YAML: {' '.join(str(error).split())}") from error
    top = _mapping(content, where)
    _only(top, ("devices",), where)
    devices = _mapping(top.get("devices"), f"{where}: devices")
    for name in devices:
        if name not in known:
            raise Permanent(
                f"{where}: devices.{name}: this machine has no such device; it has {', '.join(known)}"
            )
    return {str(name): _fault(entry, f"{where}: devices.{name}") for name, entry in devices.items()}


def _fault(entry: object, where: str) -> Fault:
    fields = _mapping(entry, where)
    _only(fields, _FIELDS, where)
    configure = fields.get("configure", "")
    temporary = False
    if not isinstance(configure, str):
        inner = _mapping(configure, f"{where}.configure")
        _only(inner, ("error", "temporary"), f"{where}.configure")
        configure = _text(inner, "error", f"{where}.configure")
        temporary = _truth(inner, "temporary", f"{where}.configure")
    return Fault(
        unhealthy=_text(fields, "unhealthy", where),
        vanished=_truth(fields, "vanished", where),
        configure=configure,
        temporary=temporary,
        hangs=_truth(fields, "hangs", where),
    )


def _text(fields: Mapping[str, object], name: str, where: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise Permanent(f"{where}.{name} must be a text, in quotes if it looks like a number")
    return value


def _truth(fields: Mapping[str, object], name: str, where: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise Permanent(f"{where}.{name} must be true or false")
    return value


def _only(fields: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for name in fields:
        if name not in known:
            raise Permanent(f"{where}.{name}: unknown; known are {', '.join(known)}")


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Permanent(f"{where} must be a mapping")
    return value
