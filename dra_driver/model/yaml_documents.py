# SPDX-License-Identifier: Apache-2.0
"""This module reads YAML from untrusted files, and makes the same values as the API server.

10 lines of YAML with aliases can expand to gigabytes. So this module does not use PyYAML's loader. It builds the values from the
parser's events, one by one, and adds up their size before it makes them; for an alias it adds the size of the value that the alias
repeats. It does not recurse, so deep nesting cannot overflow the stack. It reads the stream only as far as needed.
"""

import dataclasses
from collections.abc import Hashable, Iterator, Mapping
from typing import IO, Any

import yaml
from msgspec import Struct, field
from msgspec.structs import replace

from dra_driver.model.printable import printable
from dra_driver.model.yaml_scalars import PREFIX, TEXT, Scalar, key_text, resolved, sent, tagged

MOST_VALUES = 150_000  # in one document
MOST_TEXT = 3 * 1024 * 1024
"""The most characters in one document: an API server accepts no object above 3 MiB."""
DEEPEST = 100
LONGEST_NUMBER = 400
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE = f"{PREFIX}merge"
_TEXTS = (TEXT, _MERGE, *(f"{PREFIX}{name}" for name in ("timestamp", "binary", "value")))
_CONTAINERS = {"map": f"{PREFIX}map", "seq": f"{PREFIX}seq"}


class BadDocument(ValueError):
    """The text is not YAML, or it is larger than a manifest can be. The message names line and column; `line` is 0 if they are not known."""

    def __init__(self, problem: str, *, line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {problem}" if line else problem)
        self.problem = problem
        self.line = line
        self.column = column

    def below(self, lines: int) -> "BadDocument":
        """Return this mistake of a text that stands in a file below so many lines."""
        line = self.line and self.line + lines
        return BadDocument(self.problem, line=line, column=self.column)


Path = tuple[Hashable, ...]
"""The keys of mappings and the indices of lists that lead from a document to a value in it."""


class Place(Struct, frozen=True):
    """Where a key or a value stands in the stream. Lines and columns begin at 1, `start` and `end` count characters from 0.

    `style` is that of the text: "" (plain), a quote, "|" or ">"; "{" or "[" for a mapping or list in brackets, "-" for one by indentation,
    and "*" for an alias.
    """

    line: int
    column: int
    start: int
    end: int
    style: str


class Places(Struct, frozen=True):
    """Where the values of a document stand, and the keys of its mappings. What an alias repeats is not in it, nor is a merged value."""

    values: Mapping[Path, Place] = field(default_factory=dict)
    keys: Mapping[Path, Place] = field(default_factory=dict)


NOWHERE = Places()


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """One document: its content, the number of values in it, and the number of characters. `places` only if they were asked for."""

    content: Any
    values: int = 1
    text: int = 0
    places: Places = dataclasses.field(default=NOWHERE, compare=False)


class _OpenNode(Struct):
    """A list or mapping whose end was not read yet. `values` and `text` are the size of its content so far."""

    value: Any
    anchor: str | None
    key: Any = None
    has_key: bool = False
    merged: list[dict[Any, Any]] = field(default_factory=list)
    values: int = 1
    text: int = 0


class _Node(Struct, frozen=True):
    """A complete value, and its size. Each alias of the value adds this size to the document again. `key` is what it is as a key."""

    value: Any
    values: int
    text: int
    key: Any = None


class _LimitedStream:
    """A stream that raises BadDocument if the parser reads too many bytes for one event.

    Without this limit, the parser would fill the memory with a single endless value before this module gets an event.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.since = 0

    def read(self, size: int = -1, /) -> bytes:
        found = self._stream.read(size)
        self.since += len(found)
        if self.since > 2 * MOST_TEXT:
            raise BadDocument(f"one value is longer than {2 * MOST_TEXT:,} bytes")
        return found


def documents(
    stream: IO[bytes], *, unique_keys: bool = False, with_places: bool = False
) -> Iterator[Document]:
    """Yield the documents of a stream, without empty ones. Raises BadDocument.

    With `unique_keys` a key that is twice in a mapping is an error; else its last value counts, as for the API server. `with_places`
    notes where each value stands.
    """
    limited = _LimitedStream(stream)
    try:
        builder = _Builder(unique_keys=unique_keys, with_places=with_places)
        for event in yaml.parse(limited, Loader=_LOADER):
            limited.since = 0
            if isinstance(event, yaml.DocumentStartEvent):
                builder = _Builder(unique_keys=unique_keys, with_places=with_places)
            elif isinstance(event, yaml.DocumentEndEvent):
                if builder.result is not None:
                    yield builder.result
            else:
                builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _bad_at(mark, _explained(str(error.problem or error.context))) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadDocument(" ".join(str(error).split())) from error


def _explained(problem: str) -> str:
    """Return the parser's problem with what to do about it. It does not say which character it found."""
    if "cannot start any token" in problem:
        return f"{problem}: no tab may indent a line, write blanks; a text that begins with @ or ` needs quotes"
    return f"{problem}: write blanks" if "tab character" in problem else problem


def _bad_at(mark: Any, problem: str) -> BadDocument:
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    return BadDocument(problem, line=line, column=column)


class _Builder:
    """Builds one document from the parser's events."""

    def __init__(self, *, unique_keys: bool = False, with_places: bool = False) -> None:
        self.result: Document | None = None
        self._unique_keys = unique_keys
        self._places = _PlaceBook() if with_places else None
        self._open: list[_OpenNode] = []
        self._anchors: dict[str, _Node] = {}
        self._values = 0
        self._text = 0

    def take(self, event: Any) -> None:
        """Handle the next event. Raises BadDocument."""
        match event:
            case yaml.ScalarEvent():
                self._put(self._scalar(event), event)
            case yaml.AliasEvent():
                known = self._anchors.get(str(event.anchor))
                if known is None:
                    raise _bad(event, f"found undefined alias {event.anchor!a}")
                self._put(known, event)
            case yaml.SequenceStartEvent():
                self._begin([], event, _CONTAINERS["seq"])
            case yaml.MappingStartEvent():
                self._begin({}, event, _CONTAINERS["map"])
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                done = self._open.pop()
                if isinstance(done.value, dict):
                    done.value = _with_merged(done)
                node = _Node(done.value, done.values, done.text)
                if done.anchor:
                    self._anchors[done.anchor] = node
                if self._places is not None:
                    self._places.close(self._open, event)
                self._put(node, event, counted=True)
            case _:
                pass  # start and end of the stream

    def _begin(self, value: Any, event: Any, usual: str) -> None:
        if event.tag not in (None, "!", usual):
            raise _bad(event, f"the tag {event.tag!a} is not known")
        if len(self._open) >= DEEPEST:
            raise _bad(event, f"it is nested deeper than {DEEPEST} levels")
        self._count(1, 0, event)
        if event.anchor:
            self._anchors.pop(event.anchor, None)
        if self._places is not None:
            self._places.note(self._open, event)
        self._open.append(_OpenNode(value, event.anchor))

    def _count(self, values: int, text: int, event: Any) -> None:
        self._values += values
        self._text += text
        if self._values > MOST_VALUES:
            raise _bad(event, f"a document of more than {MOST_VALUES:,} values (aliases count)")
        if self._text > MOST_TEXT:
            raise _bad(event, f"a document of more than {MOST_TEXT:,} characters (aliases count)")

    def _scalar(self, event: Any) -> _Node:
        text = event.value
        try:
            found = _found(event)
            key = _MERGE_KEY if _is_merge(event) else key_text(found)
            node = _Node(sent(found), 1, len(text), key)
        except ValueError as error:
            # Without a tag it is .nan or .inf.
            what = ascii(event.tag[:60]) if event.tag else "number of JSON: write it in quotes"
            raise _bad(event, f"{text[:40]!a} is no {what}") from error
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _put(self, node: _Node, event: Any, *, counted: bool = False) -> None:
        """Add a value to the open list or mapping. If none is open, the value is the document's content."""
        if not counted:
            self._count(node.values, node.text, event)
            if self._places is not None:
                self._places.note(self._open, event, node.key)
        if not self._open:
            if node.value is not None:
                places = self._places.places if self._places is not None else NOWHERE
                self.result = Document(node.value, node.values, node.text, places)
            return
        into = self._open[-1]
        into.values += node.values
        into.text += node.text
        if isinstance(into.value, list):
            into.value.append(node.value)
        elif not into.has_key:
            into.key, into.has_key = _key(node, event), True
            if self._unique_keys and into.key in into.value:
                raise _bad(
                    event, f"the key {str(into.key)[:40]!a} is there twice; remove one of them"
                )
        else:
            into.has_key = False
            if into.key is _MERGE_KEY:
                into.merged += _mappings(node.value, event)
            else:
                into.value[into.key] = node.value


class _PlaceBook:
    """Notes the place of each value and key of one document."""

    def __init__(self) -> None:
        self._values: dict[Path, Place] = {}
        self._keys: dict[Path, Place] = {}
        self.places = Places(self._values, self._keys)

    def note(self, opened: list[_OpenNode], event: Any, key: object = None) -> None:
        """Note the value, or the key, that begins with this event; `opened` are the lists and mappings around it."""
        path = tuple(
            len(one.value) if isinstance(one.value, list) else one.key for one in opened[:-1]
        )
        place = _place(event)
        if not opened:
            self._values[()] = place
        elif isinstance(opened[-1].value, list):
            self._values[(*path, len(opened[-1].value))] = place
        elif opened[-1].has_key:
            self._values[(*path, opened[-1].key)] = place
        elif isinstance(event, yaml.ScalarEvent) and isinstance(key, str):
            self._keys[(*path, key)] = place

    def close(self, opened: list[_OpenNode], event: Any) -> None:
        """Note where a mapping or list in brackets ends. One by indentation ends where the next token begins, which says nothing."""
        path = tuple(len(one.value) if isinstance(one.value, list) else one.key for one in opened)
        place = self._values.get(path)
        if place is not None and place.style in ("{", "["):
            self._values[path] = replace(place, end=event.end_mark.index)


def _place(event: Any) -> Place:
    start, end = event.start_mark, event.end_mark
    match event:
        case yaml.ScalarEvent():
            style = event.style or ""
        case yaml.MappingStartEvent():
            style = "{" if event.flow_style else "-"
        case yaml.SequenceStartEvent():
            style = "[" if event.flow_style else "-"
        case _:
            style = "*"
    return Place(start.line + 1, start.column + 1, start.index, end.index, style)


_MERGE_KEY = object()


def _found(event: Any) -> Scalar:
    """Return the value of a scalar as the reader has it in memory. Raises ValueError if the text does not fit its tag."""
    text: str = event.value
    if event.tag in (None, "!"):
        # A word so long is no number, and must cost no arithmetic.
        return resolved(text) if event.implicit[0] and len(text) <= LONGEST_NUMBER else text
    if event.tag in _TEXTS:
        return text
    if len(text) > LONGEST_NUMBER:
        raise ValueError(text[:40])
    return tagged(event.tag, text)


def _is_merge(event: Any) -> bool:
    return bool(event.value == "<<" and (event.implicit[0] or event.tag == _MERGE))


def _with_merged(done: _OpenNode) -> dict[Any, Any]:
    """Return the mapping with the content of its merge keys (`<<`).

    If a key is in the mapping itself and in a merged mapping, the own value is used. If a key is in several merged mappings, the
    value of the first one is used.
    """
    if not done.merged:
        found: dict[Any, Any] = done.value
        return found
    whole: dict[Any, Any] = {}
    for one in (*reversed(done.merged), done.value):
        whole |= one
    return whole


def _mappings(value: Any, event: Any) -> list[dict[Any, Any]]:
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(one, dict) for one in found):
        raise _bad(event, "<< needs a mapping, or a list of mappings")
    return found


def _key(node: _Node, event: Any) -> Any:
    """Return a key as JSON has it, a text. Many numbers with one hash would make each look into the mapping slow; texts have no such ones."""
    if node.key is None:
        what = "null" if node.value is None else "a list or a mapping"
        raise _bad(event, f"a mapping's key is {what}")
    return node.key


def _bad(event: Any, problem: str) -> BadDocument:
    return _bad_at(event.start_mark, problem)


def path_text(path: Path) -> str:
    """Return the path as the API server writes it: spec.devices.requests[0]."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = printable(str(step))
            text += f".{name}" if text else name
    return text
