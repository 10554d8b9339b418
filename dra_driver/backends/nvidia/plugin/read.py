# SPDX-License-Identifier: Apache-2.0
"""What does a file of NVIDIA's device plugin say, together with variables and flags? Values by the path of their key; nothing is judged here.

NVIDIA's plugin ignores a key that it does not know. Here it is told, and the rest counts.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from dra_driver.backends.nvidia.plugin.keys import KEYS, OUTSIDE, Key, Kind
from dra_driver.backends.nvidia.plugin.mig_layout import MIG_LAYOUT_KEY, refused_layouts
from dra_driver.model.decoding import Mistake, below, shown
from dra_driver.model.yaml_documents import BadDocument, documents

TRUTHS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False, "": False}
LONGEST_NUMBER = 20  # digits: 64 bits
_DURATION = re.compile(r"(\d+(\.\d*)?(ns|us|µs|ms|s|m|h))+|0")
_LISTS = ("resources", "sharing")
_BY_PATH = {key.path: key for key in KEYS}
_SECTIONS = {key.path.rpartition(".")[0] for key in KEYS} | {"flags", "imex", ""}


class Said(Struct):
    """What was said: `values` by path, the lists as they stand in the file, and where each value was found, for messages.

    With `mistakes` nothing counts. `unknown` are keys that nobody knows.
    """

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    lists: dict[str, Any] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    unknown: list[Mistake] = field(default_factory=list)

    def take(self, key: Key, place: str, value: Any) -> None:
        """Add a value, if it has the type of its key."""
        found = _typed(key.kind, value)
        if found is None:
            self.mistakes.append(Mistake(place, f"{shown(value)} must be {key.kind.value}"))
        else:
            self.values[key.path], self.places[key.path] = found, place


def read_said(text: bytes, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> Said:
    """Read the file, then the variables, then the flags: each wins over those before."""
    said = Said()
    _read_file(text, said)
    for key in (*KEYS, *OUTSIDE):
        # The first name of a variable is the newer one, which wins.
        for name in reversed(key.variables):
            if name in environment:
                _take_text(said, key, name, environment[name])
    _read_arguments(arguments, said)
    return said


def _read_file(text: bytes, said: Said) -> None:
    try:
        found = list(documents(io.BytesIO(text), unique_keys=True))
    except BadDocument as error:
        said.mistakes.append(Mistake("", f"it is no YAML: {error}"))
        return
    if len(found) > 1:
        told = "it has several documents, of which NVIDIA's plugin reads one: remove the others"
        said.mistakes.append(Mistake("", told))
        return
    content = found[0].content if found else {}
    if not isinstance(content, Mapping):
        said.mistakes.append(Mistake("", f"{shown(content)} must be a mapping"))
    elif MIG_LAYOUT_KEY in content:
        said.mistakes += refused_layouts(content)
    else:
        _read_section(content, "", said)


def _read_section(content: Mapping[Any, Any], path: str, said: Said) -> None:
    for name, value in content.items():
        place = below(path, name)
        if place in _LISTS:
            said.lists[place] = value
        elif place in _BY_PATH:
            if value is not None:
                said.take(_BY_PATH[place], place, value)
        elif place not in _SECTIONS:
            said.unknown.append(Mistake(place, f"unknown key; known are {_known(path)}"))
        elif isinstance(value, Mapping):
            _read_section(value, place, said)
        elif value is not None:
            said.mistakes.append(Mistake(place, f"{shown(value)} must be a mapping"))


def _known(path: str) -> str:
    head = f"{path}." if path else ""
    names = [
        place.removeprefix(head).partition(".")[0]
        for place in (*_BY_PATH, *_LISTS)
        if place.startswith(head)
    ]
    return ", ".join(dict.fromkeys(names))


def _read_arguments(arguments: Sequence[str], said: Said) -> None:
    by_flag = {flag: key for key in (*KEYS, *OUTSIDE) for flag in key.flags}
    for flag, value in _pairs(arguments, by_flag):
        key = by_flag.get(flag)
        if key is None:
            said.unknown.append(Mistake(flag, "unknown flag of NVIDIA's device plugin"))
        else:
            _take_text(said, key, flag, value)


def _pairs(arguments: Sequence[str], known: Mapping[str, Key]) -> Iterator[tuple[str, str]]:
    """Each flag with its value; a flag for true or false may stand alone."""
    rest = list(arguments)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        flag = "--" + flag.lstrip("-")
        key = known.get(flag)
        if not equals and key is not None:
            value = "true" if key.kind is Kind.TRUTH else rest.pop(0) if rest else ""
        yield flag, value


def _take_text(said: Said, key: Key, place: str, text: str) -> None:
    """Take a text for what it stands for."""
    value: Any = text
    if key.kind is Kind.TRUTH:
        value = TRUTHS.get(text.lower(), text)
    elif key.kind in (Kind.TEXTS, Kind.NUMBERS):
        parts = [part.strip() for part in text.split(",") if part.strip()]
        numbers = key.kind is Kind.NUMBERS and all(map(is_number, parts))
        value = [int(part) for part in parts] if numbers else parts
    said.take(key, place, value)


def is_number(text: str) -> bool:
    """Whether the text is a whole number of a size that something can have; Python refuses to read one of many digits."""
    return len(text) <= LONGEST_NUMBER and text.isascii() and text.isdecimal()


def _typed(kind: Kind, value: Any) -> Any:
    """The value if it has this type, else None. Lists become tuples."""
    match kind:
        case Kind.TRUTH:
            return value if isinstance(value, bool) else None
        case Kind.TEXTS:
            several = [value] if isinstance(value, str) else value
            return _all(several, str)
        case Kind.NUMBERS:
            return _all(value, int)
        case Kind.DURATION:
            fits = isinstance(value, str) and _DURATION.fullmatch(value)
            return value if fits else None
        case _:
            return value if isinstance(value, str) else None


def _all(value: Any, kind: type) -> tuple[Any, ...] | None:
    fits = isinstance(value, list) and all(
        isinstance(one, kind) and not isinstance(one, bool) for one in value
    )
    return tuple(value) if fits else None
