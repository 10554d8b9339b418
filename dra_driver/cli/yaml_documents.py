# SPDX-License-Identifier: Apache-2.0
"""YAML that may come from anybody, as the values that the API server would see.

The values are made from the parser's events one by one, and what they would cost is counted before they are made: an alias costs
what it stands for, so that a few lines which unfold to gigabytes are refused as such. Nothing recurses, and a stream is read only
as far as needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

MOST_VALUES = 150_000  # of one document
MOST_TEXT = 3 * 1024 * 1024
"""Of one document, in characters and bytes: an API server takes no object above 3 MiB."""
DEEPEST = 100
LONGEST_NUMBER = 400
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PREFIX = "tag:yaml.org,2002:"
_TEXT = tuple(f"{_PREFIX}{name}" for name in ("str", "timestamp", "binary", "value", "merge"))
_MERGE = f"{_PREFIX}merge"
_CONTAINERS = {"map": f"{_PREFIX}map", "seq": f"{_PREFIX}seq"}


class BadDocument(ValueError):
    """Text that is no YAML, or more than a manifest can be; the message says where."""


@dataclass(frozen=True, slots=True)
class Document:
    """What one document says, and what that costs: values, and characters of text."""

    content: Any
    values: int = 1
    text: int = 0


@dataclass(slots=True)
class _Open:
    """A list or mapping that is being filled; `values` and `text` are what it holds so far."""

    value: Any
    anchor: str | None
    key: Any = None
    has_key: bool = False
    merged: list[dict[Any, Any]] = field(default_factory=list)
    values: int = 1
    text: int = 0


@dataclass(frozen=True, slots=True)
class _Made:
    """A value with what it costs wherever an alias repeats it."""

    value: Any
    values: int
    text: int
    tag: str = ""


class _Metered:
    """A stream that gives no more bytes for one event than a document may have."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.since = 0

    def read(self, size: int = -1, /) -> bytes:
        found = self._stream.read(size)
        self.since += len(found)
        if self.since > 2 * MOST_TEXT:
            raise BadDocument(f"one value is longer than {2 * MOST_TEXT:,} bytes")
        return found


def documents(stream: IO[bytes]) -> Iterator[Document]:
    """The documents of a stream that hold something, one after the other. Raises BadDocument."""
    metered = _Metered(stream)
    try:
        builder = _Builder()
        for event in yaml.parse(metered, Loader=_LOADER):
            metered.since = 0
            if isinstance(event, yaml.DocumentStartEvent):
                builder = _Builder()
            elif isinstance(event, yaml.DocumentEndEvent):
                if builder.result is not None:
                    yield builder.result
            else:
                builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadDocument(f"{_place(mark)}{error.problem or error.context}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadDocument(" ".join(str(error).split())) from error


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


class _Builder:
    """One document, from its events."""

    def __init__(self) -> None:
        self.result: Document | None = None
        self._open: list[_Open] = []
        self._anchors: dict[str, _Made] = {}
        self._values = 0
        self._text = 0

    def take(self, event: Any) -> None:
        """The next event."""
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
                made = _Made(done.value, done.values, done.text)
                if done.anchor:
                    self._anchors[done.anchor] = made
                self._put(made, event, counted=True)
            case _:
                pass  # where the stream begins and ends

    def _begin(self, value: Any, event: Any, usual: str) -> None:
        if event.tag not in (None, "!", usual):
            raise _bad(event, f"the tag {event.tag!a} is not known")
        if len(self._open) >= DEEPEST:
            raise _bad(event, f"it is nested deeper than {DEEPEST} levels")
        self._count(1, 0, event)
        if event.anchor:
            self._anchors.pop(event.anchor, None)
        self._open.append(_Open(value, event.anchor))

    def _count(self, values: int, text: int, event: Any) -> None:
        self._values += values
        self._text += text
        if self._values > MOST_VALUES:
            raise _bad(event, f"a document of more than {MOST_VALUES:,} values (aliases count)")
        if self._text > MOST_TEXT:
            raise _bad(event, f"a document of more than {MOST_TEXT:,} characters (aliases count)")

    def _scalar(self, event: Any) -> _Made:
        tag = event.tag
        if tag in (None, "!"):
            plain = event.implicit[0] and len(event.value) <= LONGEST_NUMBER
            tag = _RESOLVER.resolve(yaml.ScalarNode, event.value, (plain, not plain))
        try:
            value = _value(tag, event.value)
        except (ValueError, KeyError, OverflowError) as error:
            raise _bad(event, f"{event.value[:40]!a} is no {str(tag)[:60]!a}") from error
        made = _Made(value, 1, len(event.value), tag)
        if event.anchor:
            self._anchors[event.anchor] = made
        return made

    def _put(self, made: _Made, event: Any, *, counted: bool = False) -> None:
        """A value at the place where it stands."""
        if not counted:
            self._count(made.values, made.text, event)
        if not self._open:
            if made.value is not None:
                self.result = Document(made.value, made.values, made.text)
            return
        into = self._open[-1]
        into.values += made.values
        into.text += made.text
        if isinstance(into.value, list):
            into.value.append(made.value)
        elif not into.has_key:
            into.key, into.has_key = (_MERGE_KEY if made.tag == _MERGE else made.value), True
            _hashable(into.key, event)
        else:
            into.has_key = False
            if into.key is _MERGE_KEY:
                into.merged += _mappings(made.value, event)
            else:
                into.value[into.key] = made.value


_RESOLVER: Any = Resolver()
_CONSTRUCTOR = SafeConstructor()
_MERGE_KEY = object()


def _value(tag: str, text: str) -> Any:
    """A scalar as Python has it. Raises ValueError, KeyError, OverflowError."""
    if tag in _TEXT:
        return text
    if len(text) > LONGEST_NUMBER:
        raise ValueError(text[:40])
    node = yaml.ScalarNode(tag, text)
    match tag.removeprefix(_PREFIX):
        case "null":
            return None
        case "bool":
            return _CONSTRUCTOR.construct_yaml_bool(node)
        case "int":
            return _CONSTRUCTOR.construct_yaml_int(node)
        case "float":
            return _CONSTRUCTOR.construct_yaml_float(node)
        case _:
            raise ValueError(tag)


def _with_merged(done: _Open) -> dict[Any, Any]:
    """What `<<` brings counts less than what the mapping says itself, and of several the first counts most."""
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


def _hashable(key: Any, event: Any) -> None:
    if isinstance(key, list | dict):
        raise _bad(event, "a mapping's key is a list or a mapping")


def _bad(event: Any, problem: str) -> BadDocument:
    return BadDocument(f"{_place(event.start_mark)}{problem}")
