# SPDX-License-Identifier: Apache-2.0
"""The fault file: it makes simulated devices unhealthy, makes them vanish, or makes `configure` fail or hang, or
lets the hardware see a process on them:

    devices:
      gpu-0: {unhealthy: "XID 79: GPU has fallen off the bus"}
      gpu-3: {vanished: true}
      gpu-5: {configure: "no memory left"}
      gpu-6: {configure: {error: "busy", temporary: true}}
      gpu-7: {hangs: true}
      gpu-4: {in_use: true}
      gpu-2: {not_clean: "process 4711 uses it"}

At start the file must exist and be correct: otherwise a typo in its name would mean that all devices are healthy. Later a missing
file means no faults, and if the file is broken, the last correct content stays in force.
"""

import stat
from collections.abc import Collection, Mapping
from pathlib import Path

import yaml
from msgspec import Struct

from dra_driver.errors import Permanent

MOST_BYTES = 64 * 1024
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_EXAMPLE = "`devices: {gpu-0: {vanished: true}}`"
_FIELDS = ("unhealthy", "vanished", "configure", "hangs", "in_use", "not_clean")


class Fault(Struct, frozen=True):
    """What is wrong with one device.

    `unhealthy` is the reason, empty for a healthy device. `configure` is the message that the call of this name fails with:
    a Temporary error if `temporary` is set, else a Permanent one. While `hangs` is set, the call does not return. With `in_use` the
    hardware sees a process that uses the device. `not_clean` is what the hardware finds on it although no claim may have it.
    """

    unhealthy: str = ""
    vanished: bool = False
    configure: str = ""
    temporary: bool = False
    hangs: bool = False
    in_use: bool = False
    not_clean: str = ""


def read_text(path: Path) -> bytes | None:
    """The file's content, or None if there is no file. Raises Permanent if it cannot be read or is too long (/dev/zero is endless)."""
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
    """The file's content at start, when the file must exist. Raises Permanent.

    A named pipe is allowed. Reading it hangs until somebody writes, as broken hardware does, so only the first scan reads it. Any
    other kind of file is an error: if it were ignored, all devices would be healthy.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        mode = stat.S_IFREG  # `read_text` below gives the error
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
    """Faults by device name; only `known` devices may have one. Raises Permanent, with file, field and what is allowed there."""
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
        in_use=_truth(fields, "in_use", where),
        not_clean=_text(fields, "not_clean", where),
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
        raise Permanent(f"{where} must be a mapping, as in {_EXAMPLE}")
    return value
