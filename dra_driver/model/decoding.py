# SPDX-License-Identifier: Apache-2.0
"""How does a value of YAML or JSON become a typed structure, with every mistake named?

The driver's config document, the options of a backend and the configuration in a claim are msgspec structures. msgspec itself stops
at the first mistake, and ignores unknown fields if the author of the structure did not forbid them. So this module walks through
the value, and returns either the structure or all mistakes, each with the path of its field. A field whose `msgspec.Meta` has an
`enum` in its `extra_json_schema` takes only these values.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct, inspect

MOST_MISTAKES = 10
_SHOWN_CHARACTERS = 80
_S = TypeVar("_S", bound=msgspec.Struct)


class Mistake(Struct, frozen=True):
    """The path of a wrong field, and what is wrong with it: what was found, and what it must be."""

    path: str
    found: str

    def __str__(self) -> str:
        return f"{self.path}: {self.found}" if self.path else self.found


class Text(str):
    """A value from a command line or a variable, where each value is a text: "61" may stand for a number.

    Only a field of the outermost structure can have it.
    """

    __slots__ = ()


def decode(
    value: object, structure: type[_S], path: str = ""
) -> tuple[_S | None, tuple[Mistake, ...]]:
    """Return the structure, or None and all mistakes. `path` is the place of `value`, for messages."""
    mistakes = tuple(_mistakes(value, structure, path))
    if mistakes:
        return None, mistakes[:MOST_MISTAKES]
    try:
        return msgspec.convert(_without_texts(value, structure), structure), ()
    except msgspec.ValidationError as error:  # a rule of the structure's own __post_init__
        return None, (_own_rule(error, path),)
    except Exception as error:  # noqa: BLE001  such a rule is other people's code, and the value is somebody else's
        found = f"a rule of this configuration failed: {type(error).__name__}: {shown(str(error))[1:-1]}"
        return None, (Mistake(path, found),)


def told(mistakes: Sequence[Mistake]) -> str:
    """All mistakes in one sentence."""
    return "; ".join(map(str, mistakes))


def shown(value: object) -> str:
    """A value that somebody else wrote, escaped and shortened so that it can stand in an error message."""
    return f"{value!a}"[:_SHOWN_CHARACTERS]


def below(path: str, name: object) -> str:
    """The path of a field of the value at `path`."""
    return f"{path}.{shown(str(name))[1:-1]}" if path else shown(str(name))[1:-1]


def _without_texts(value: Any, structure: type[msgspec.Struct]) -> Any:
    """The value with what each Text stands for. Any other value stays as it is: the text "null" is no null."""
    texts = {name: one for name, one in value.items() if isinstance(one, Text)}
    if not texts:
        return value
    kinds = {field.encode_name: field.type for field in msgspec.structs.fields(structure)}
    return {
        **value,
        **{name: msgspec.convert(one, kinds[name], strict=False) for name, one in texts.items()},
    }


def _mistakes(value: object, kind: Any, path: str) -> Iterator[Mistake]:
    """Yield the mistakes of a value that has to be of this type."""
    bare = kind.__origin__ if get_origin(kind) is Annotated else kind
    origin, inner = get_origin(bare), get_args(bare)
    if origin in (Union, UnionType) and NoneType in inner:
        others = [one for one in inner if one is not NoneType]
        if value is None:
            return
        if len(others) == 1:
            yield from _mistakes(value, others[0], path)
            return
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        yield from _of_fields(value, bare, path)
    elif origin in (dict, Mapping) and isinstance(value, Mapping):
        for name, one in value.items():
            yield from _mistakes(name, inner[0], below(path, name))
            yield from _mistakes(one, inner[1], below(path, name))
    elif (origin is list or Ellipsis in inner) and isinstance(value, list):
        for index, one in enumerate(value):
            yield from _mistakes(one, inner[0], f"{path}[{index}]")
    else:
        yield from _of_leaf(value, kind, path)


def _of_fields(value: object, kind: type[msgspec.Struct], path: str) -> Iterator[Mistake]:
    if not isinstance(value, Mapping):
        yield Mistake(path, f"{shown(value)} must be a mapping of fields")
        return
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    for name, one in value.items():
        if name in fields:
            yield from _mistakes(one, fields[name].type, below(path, name))
        else:
            known = ", ".join(fields) or "none"
            yield Mistake(below(path, name), f"unknown field; known are {known}")
    for name, field in fields.items():
        if field.required and name not in value:
            yield Mistake(below(path, name), f"missing; it must be {_rule(field.type)}")


def _of_leaf(value: object, kind: Any, path: str) -> Iterator[Mistake]:
    try:
        found = msgspec.convert(value, kind, strict=not isinstance(value, Text))
    except Exception:  # noqa: BLE001  a text that is no UTF-8, or an error in the rule of a structure
        yield Mistake(path, f"{shown(value)} must be {_rule(kind)}")
        return
    allowed = _schema(inspect.type_info(kind)).get("enum")
    if allowed is not None and found not in allowed:
        yield Mistake(path, f"{shown(value)} must be {_rule(kind)}")


def _own_rule(error: msgspec.ValidationError, path: str) -> Mistake:
    """The path in msgspec's message is that of the structure with the rule: `$.sharing`, or nothing at the top."""
    said, _, place = str(error).partition(" - at `$")
    return Mistake(f"{path}{place.rstrip('`')}".removeprefix("."), said)


def _rule(kind: Any) -> str:
    """What a value of this type must be, in words."""
    found = inspect.type_info(kind)
    schema = _schema(found)
    about = schema.get("description", "").rstrip(".")
    words = _one_of(schema["enum"]) if "enum" in schema else _words(found)
    return f"{words} ({about})" if about else words


def _schema(kind: inspect.Type) -> Mapping[str, Any]:
    """What the `Meta` of a type says for the JSON schema."""
    return (kind.extra_json_schema or {}) if isinstance(kind, inspect.Metadata) else {}


def _one_of(values: Sequence[object]) -> str:
    named = ", ".join(map(str, values))
    return f"one of {named}" if len(values) > 1 else named


_WORDS: Mapping[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.NoneType: "null",
    inspect.FloatType: "a number",
    inspect.DictType: "a mapping",
    inspect.StructType: "a mapping of fields",
    inspect.ListType: "a list",
    inspect.VarTupleType: "a list",
}


def _words(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata(type=inner):
            words = _words(inner)
        case inspect.LiteralType(values=values):
            words = _one_of(values)
        case inspect.EnumType(cls=choices):
            words = _one_of([choice.value for choice in choices])
        case inspect.UnionType(types=types):
            words = " or ".join(map(_words, types))
        case inspect.StrType(max_length=longest):
            words = "a text" + ("" if longest is None else f" of at most {longest} characters")
        case inspect.IntType(ge=least, le=most):
            limits = (
                "" if least is None else f" from {least}",
                "" if most is None else f" up to {most}",
            )
            words = "a whole number" + "".join(limits)
        case _:
            words = _WORDS.get(type(kind), f"a {type(kind).__name__.removesuffix('Type').lower()}")
    return words
