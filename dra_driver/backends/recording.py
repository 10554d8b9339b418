# SPDX-License-Identifier: Apache-2.0
"""The file of `dra-driver snapshot`: what the hardware of a node answered, so that the same node can be played anywhere.

`facts` has the form that the backend `backend` gives it. This module knows only what is the same for all backends: the document around
it, and identifiers. Recordings that the driver brings are in the folder `recordings` beside this file.

Identifiers are UUIDs and the values of fields named `serial`. They can be replaced, the same text always by the same other text, so
that what belongs together still does. A UUID of zeros stays: it means that there is none.
"""

import re
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, TypeGuard
from uuid import NAMESPACE_OID, uuid5

import msgspec

from dra_driver.errors import Permanent
from dra_driver.model.names import DOCUMENT_VERSION, HARDWARE_SNAPSHOT_KIND, NODE_BUNDLE_KIND

LARGEST_BYTES = 64 * 1024 * 1024
_UUID = re.compile(
    r"(?P<prefix>\b[A-Z]{3}-)?\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
)
_SERIAL = "serial"
_TAKE_AGAIN = "take the snapshot again (`dra-driver snapshot FILE`), or correct this place"

_CUT_SHORT = "Input data was truncated"  # msgspec has no error of its own for it


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A snapshot of one node's hardware. `redacted`: UUIDs and serial numbers stand for others. `facts` are what the backend read."""

    api_version: str = DOCUMENT_VERSION
    kind: str = HARDWARE_SNAPSHOT_KIND
    backend: str
    redacted: bool = False
    facts: Any


class _Bundle(msgspec.Struct):
    """The part of a file of `dra-driver doctor --bundle` that is a snapshot."""

    kind: str = ""
    snapshot: msgspec.Raw = msgspec.Raw(b"null")


def decode(content: bytes, name: str) -> Snapshot:
    """Read a snapshot, also out of a bundle. Raises Permanent, which names the place that is wrong."""
    content = _inner(content, name)
    try:
        found = msgspec.json.decode(content, type=Snapshot)
    except (msgspec.MsgspecError, RecursionError) as error:
        if str(error) == _CUT_SHORT:
            size = f"has only {len(content)} bytes" if content else "is empty (0 bytes)"
            raise Permanent(
                f"cannot read the snapshot {name}: the file is cut short, it {size}; take the snapshot again (`dra-driver snapshot FILE`)"
            ) from error
        raise Permanent(f"cannot read the snapshot {name}: {error}; {_TAKE_AGAIN}") from error
    if (found.api_version, found.kind) != (DOCUMENT_VERSION, HARDWARE_SNAPSHOT_KIND):
        raise Permanent(
            f"cannot read the snapshot {name}: it is a {found.kind:.80} of {found.api_version:.80}, not a {HARDWARE_SNAPSHOT_KIND} of "
            f"{DOCUMENT_VERSION}; give a file of `dra-driver snapshot`"
        )
    return found


def _inner(content: bytes, name: str) -> bytes:
    """Return the snapshot in a bundle; anything else as it is."""
    try:
        whole = msgspec.json.decode(content, type=_Bundle)
    except (msgspec.MsgspecError, RecursionError):
        return content
    if whole.kind != NODE_BUNDLE_KIND:
        return content
    inner = bytes(whole.snapshot)
    if inner == b"null":
        raise Permanent(
            f"cannot read the snapshot {name}: this bundle has none, and `leftOut` in it says why; ask for a file of "
            "`dra-driver snapshot` from the node"
        )
    return inner


def encode(snapshot: Snapshot) -> bytes:
    """Write a snapshot so that people can read it."""
    return msgspec.json.format(msgspec.json.encode(snapshot), indent=1) + b"\n"


def read(path: Path) -> Snapshot:
    """Read the file of a snapshot. Raises Permanent."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise Permanent(
            f"cannot read the snapshot {path}: {getattr(error, 'strerror', None) or error}; give a file of `dra-driver snapshot`"
        ) from error
    if len(content) > LARGEST_BYTES:
        raise Permanent(
            f"cannot read the snapshot {path}: it has more than {LARGEST_BYTES >> 20} MiB; give a file of `dra-driver snapshot`"
        )
    return decode(content, str(path))


class Recordable(Protocol):
    """A backend that `dra-driver snapshot` can ask."""

    def snapshot(self) -> Snapshot:
        """Return what the hardware answers now, with identifiers. Raises DriverError."""


def is_recordable(backend: object) -> TypeGuard[Recordable]:
    """Return whether the backend can be asked for a snapshot."""
    return callable(getattr(backend, "snapshot", None))


def take(backend: object) -> Snapshot:
    """Return what the hardware of a backend answers now. Raises DriverError; Permanent if the backend takes no snapshots."""
    if not is_recordable(backend):
        raise Permanent(
            f"{type(backend).__name__} takes no snapshots; choose a backend that does, such as `--backend nvidia`"
        )
    return backend.snapshot()


def shipped() -> tuple[str, ...]:
    """Return the names of the recordings that the driver brings."""
    folder = resources.files(__package__) / "recordings"
    names = (one.name for one in folder.iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))


def named(name: str) -> Snapshot:
    """Read a recording that the driver brings. Raises Permanent."""
    if name not in shipped():
        known = ", ".join(shipped()) or "none"
        raise Permanent(f"there is no recording {name:.80}; there are {known}")
    file = resources.files(__package__) / "recordings" / f"{name}.json"
    return decode(file.read_bytes(), file.name)


def redacted(
    snapshot: Snapshot,
    *,
    uuids: Callable[[str], str] | None = None,
    serials: Callable[[str], str] | None = None,
) -> Snapshot:
    """Return the snapshot with a number in the place of each UUID and each serial number.

    `uuids` is what `numbered_uuids` returned, and `serials` what `numbered_serials` returned.
    """
    facts = _mapped(snapshot.facts, uuids or numbered_uuids(), serials or numbered_serials({}))
    return msgspec.structs.replace(snapshot, facts=facts, redacted=True)


def numbered_uuids() -> Callable[[str], str]:
    """Return a function that replaces the UUIDs in texts, the same always by the same."""
    return _with_uuids(_numbered)


def numbered_serials(known: dict[str, str]) -> Callable[[str], str]:
    """Return a function that replaces a serial number, the same always by the same; `known` has what it has replaced, and gets more."""
    return lambda text: known.setdefault(text, f"{len(known) + 1:013}")


def renamed(facts: Any, new: Callable[[str, int], str]) -> Any:
    """Return facts with other UUIDs. `new` gets a prefix ("GPU-", or "") and a number, which counts the UUIDs of this prefix from 0."""
    return _mapped(facts, _with_uuids(new), str)


def _numbered(prefix: str, count: int) -> str:
    return f"{prefix}{uuid5(NAMESPACE_OID, f'{prefix}{count}')}"


def _with_uuids(new: Callable[[str, int], str]) -> Callable[[str], str]:
    """Return a function that replaces every UUID in a text, the same always by the same."""
    found: dict[str, str] = {}
    counts: dict[str, int] = {}

    def one(match: re.Match[str]) -> str:
        text, prefix = match[0], match["prefix"] or ""
        if not text.removeprefix(prefix).strip("0-"):
            return text
        if text not in found:
            found[text] = new(prefix, counts.setdefault(prefix, 0))
            counts[prefix] += 1
        return found[text]

    return lambda text: _UUID.sub(one, text)


def _mapped(value: Any, text: Callable[[str], str], serial: Callable[[str], str]) -> Any:
    match value:
        case str():
            return text(value)
        case list() | tuple():
            return [_mapped(one, text, serial) for one in value]
        case Mapping():
            return {
                text(name): serial(one)
                if name == _SERIAL and isinstance(one, str) and one
                else _mapped(one, text, serial)
                for name, one in value.items()
            }
        case _:
            return value
