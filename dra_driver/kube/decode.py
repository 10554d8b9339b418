# SPDX-License-Identifier: Apache-2.0
"""How is an answer of the API server decoded if parts of it cannot be?

The API server does not check opaque fields such as the parameters of a claim. It stores and returns bytes there that a strict
decoder refuses: strings that are not UTF-8, lone surrogates, brackets nested ten thousand deep. Everybody who may write one object
can write such a value. It must not make other objects unreadable. So `read_object` decodes the object without this value and
reports what it left out and where; `read_page` first splits a list into its items, and each item is decoded by itself.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from dra_driver.kube.opaque import DEEPEST, MARK, OPAQUE, marked, taken_out
from dra_driver.kube.scan import NotJson, elements, members
from dra_driver.kube.strict import Undecodable, decode
from dra_driver.model.api.meta import learn

Object = Mapping[str, Any]

_SHOWN_CHARACTERS = 253  # the longest name
_UNKNOWN = "?"


class Defect(Struct, frozen=True):
    """A value that could not be decoded, its path ("status", "allocation", "devices", "config", "3", …) and the reason."""

    path: tuple[str, ...]
    why: str

    @property
    def is_opaque(self) -> bool:
        """Whether the value is in an opaque field, which the API server and the scheduler do not look at."""
        return bool(self.path) and self.path[-1] in OPAQUE

    def __str__(self) -> str:
        return f"{'.'.join(self.path) or 'it'} cannot be read ({self.why})"


class Found(Struct, frozen=True):
    """A decoded object. Each value that could not be decoded is None in `content`, and listed in `defects`."""

    content: Object
    defects: tuple[Defect, ...] = ()

    @property
    def identity(self) -> "Identity":
        """Which object this is, for messages."""
        metadata = self.content.get("metadata")
        said = metadata if isinstance(metadata, Mapping) else {}
        texts = (said.get(key) for key in ("namespace", "name", "uid", "resourceVersion"))
        return Identity(*(_shown(text) if isinstance(text, str) else "" for text in texts))


class Identity(Struct, frozen=True):
    """Which object this is, as far as its bytes tell. The texts are escaped and cut: they may be hostile."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def full_name(self) -> str:
        """Namespace and name with a slash between them; only one of them, or empty, if not both are known."""
        return "/".join(part for part in (self.namespace, self.name) if part)

    def __str__(self) -> str:
        named = self.full_name or _UNKNOWN
        return f"{named} (uid {self.uid})" if self.uid else named


class Page(Struct, frozen=True):
    """One page of a list: its items, not decoded yet, its resource version, and the token for the next page."""

    items: tuple[bytes, ...]
    resource_version: str = ""
    token: str = ""


def read_object(text: bytes) -> Found:
    """Decode an object, and find its defects. Raises Undecodable if the text is no JSON object at all."""
    defects: list[Defect] = []
    content = _content(text, defects)
    if not isinstance(content, Mapping):
        raise Undecodable(defects[0].why if defects else f"it is no object but {_kind(content)}")
    return Found(content, tuple(defects))


def _content(text: bytes, defects: list[Defect]) -> Any:
    """Return the value of the text. This function tries three ways; each is slower than the one before.

    First the decoder reads the whole text. If it fails, or if the text contains a mark already, each opaque value that the decoder
    refuses is replaced by a mark, and the decoder reads the text again. If that fails too, each value is decoded by itself.
    """
    if MARK not in text:
        try:
            return decode(text)
        except Undecodable:
            text = marked(text)
    try:
        content = decode(text)
    except Undecodable:
        return _around(text, (), defects)
    defects += (Defect(path, why) for path, why in taken_out(content))
    return content


def read_page(text: bytes) -> Page:
    """Split a list into its items. Raises Undecodable if it is no JSON object."""
    for again in (False, True):
        try:
            return _at_once(marked(text) if again else text)
        except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError):
            continue
    try:
        return _scanned(text)
    except NotJson as error:
        raise Undecodable(str(error)) from error


def read_table(text: bytes) -> tuple[Page, tuple[str, ...]]:
    """Read a list that was requested as a Table: a page without items, and the name (first cell) of each row. Raises Undecodable."""
    content = read_object(text).content
    rows, head = content.get("rows") or (), content.get("metadata") or {}
    try:
        names = tuple(_shown(str(row["cells"][0])) for row in rows)
        return _page([], head), names
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise Undecodable(f"it is no table ({type(error).__name__})") from error


def identity(text: bytes, *path: bytes) -> Identity:
    """Which object this is, or which one is at `path`. Works even if the text is cut or cannot be decoded."""
    start = 0
    for key in (*path, b"metadata"):
        found = _member(text, start, key)
        if found is None:
            return Identity()
        start = found
    known = dict.fromkeys((b"namespace", b"name", b"uid", b"resourceVersion"), "")
    for key, value in _broken_off(text, start):
        name = key[1:-1]
        if not known.get(name, "-"):
            known[name] = _plain(value)
    return Identity(*known.values())


class _List(msgspec.Struct):
    items: list[msgspec.Raw] = []
    metadata: msgspec.Raw = msgspec.Raw(b"")


learn(_List)


def _at_once(text: bytes) -> Page:
    """Split a list into its items with the decoder. The decoder is fast, because it does not build the items, but it fails at some
    unreadable values.
    """
    whole = msgspec.json.decode(text, type=_List)
    head = read_object(bytes(whole.metadata)).content if whole.metadata else {}
    return _page([bytes(item) for item in whole.items], head)


def _scanned(text: bytes) -> Page:
    """Split a list into its items with our own scanner. The scanner checks only quotes and brackets, so it also splits lists with
    values that the decoder refuses.
    """
    items: list[bytes] = []
    head: Object = {}
    for key, (start, end) in members(text):
        if key == b'"items"' and text[start : start + 1] == b"[":
            items = [text[a:b] for a, b in elements(text, start)]
        elif key == b'"metadata"':
            head = read_object(text[start:end]).content
    return _page(items, head)


def _page(items: list[bytes], head: Object) -> Page:
    return Page(
        tuple(items), str(head.get("resourceVersion") or ""), str(head.get("continue") or "")
    )


def _around(text: bytes, path: tuple[str, ...], defects: list[Defect]) -> Any:
    """The value; each part of it that cannot be decoded is None and added to `defects`.

    It goes down only as deep as the types of the API, and not into opaque fields: below that a value is one defect.
    """
    try:
        return decode(text)
    except Undecodable as error:
        why = str(error)
    if len(path) < DEEPEST and not (path and path[-1] in OPAQUE):
        mine: list[Defect] = []
        try:
            value = _parts(text, path, mine)
        except (NotJson, Undecodable):
            pass
        else:
            defects += mine
            return value
    defects.append(Defect(path, why))
    return None


def _parts(text: bytes, path: tuple[str, ...], defects: list[Defect]) -> Any:
    """The members or elements, each decoded by itself. Raises NotJson, and Undecodable for a key that is no text."""
    if text.lstrip()[:1] == b"{":
        found: dict[str, Any] = {}
        for key, (start, end) in members(text):
            name = str(decode(key))
            found[name] = _around(text[start:end], (*path, name), defects)
        return found
    return [
        _around(text[start:end], (*path, str(index)), defects)
        for index, (start, end) in enumerate(elements(text))
    ]


def _member(text: bytes, start: int, key: bytes) -> int | None:
    for found, (at, _end) in _spans(text, start):
        if found[1:-1] == key:
            return at
    return None


def _broken_off(text: bytes, start: int) -> Iterator[tuple[bytes, bytes]]:
    for key, (at, end) in _spans(text, start):
        yield key, text[at:end]


def _spans(text: bytes, start: int) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """The members, up to the place where the text ends or is no JSON any more."""
    try:
        yield from members(text, start, cut=True)
    except NotJson:
        return


def _plain(value: bytes) -> str:
    """The content of a JSON string in printable ASCII, cut to the longest name; empty if the value is no string."""
    if len(value) < 2 or value[:1] != b'"' or value[-1:] != b'"':  # noqa: PLR2004  both of its quotes
        return ""
    try:
        return _shown(decode(value))
    except Undecodable:
        return ascii(value[1:-1])[2:-1][:_SHOWN_CHARACTERS]


def _shown(text: str) -> str:
    return ascii(text)[1:-1][:_SHOWN_CHARACTERS]


def _kind(value: object) -> str:
    return {list: "a list", str: "text", type(None): "null"}.get(type(value), "a number or a truth")
