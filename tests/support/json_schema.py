# SPDX-License-Identifier: Apache-2.0
"""Does a document fit a JSON schema? The keywords that msgspec writes, and no others: a schema with another one is an error."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
SAID = {"$defs", "$schema", "title", "description", "default", "discriminator"}


def misfits(schema: Schema, value: object) -> list[str]:
    """What does not fit, with its place; empty if all does."""
    return list(_Checker(schema.get("$defs", {})).check(schema, value, ""))


class _Checker:
    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def check(self, schema: Schema, value: object, place: str) -> Iterator[str]:
        for keyword, rule in schema.items():
            if keyword not in SAID and not (keyword == "items" and rule is False):
                check = getattr(self, "_" + keyword.lstrip("$").lower())
                yield from check(rule, value, place)

    def _ref(self, rule: str, value: object, place: str) -> Iterator[str]:
        yield from self.check(self._definitions[rule.rpartition("/")[2]], value, place)

    def _type(self, rule: str, value: object, place: str) -> Iterator[str]:
        if not isinstance(value, TYPES[rule]) or (isinstance(value, bool) and rule != "boolean"):
            yield f"{place} is a {type(value).__name__}, not {rule}"

    def _const(self, rule: object, value: object, place: str) -> Iterator[str]:
        if value != rule:
            yield f"{place} is not {rule}"

    def _enum(self, rule: list[object], value: object, place: str) -> Iterator[str]:
        if value not in rule:
            yield f"{place} is none of {rule}"

    def _pattern(self, rule: str, value: object, place: str) -> Iterator[str]:
        if not re.search(rule, str(value)):
            yield f"{place} does not match {rule}"

    def _anyof(self, rule: list[Schema], value: object, place: str) -> Iterator[str]:
        found = [list(self.check(one, value, place)) for one in rule]
        if all(found):
            yield f"{place} fits none: {found}"

    def _required(self, rule: list[str], value: object, place: str) -> Iterator[str]:
        yield from (f"{place}.{name} is missing" for name in rule if name not in _dict(value))

    def _properties(self, rule: Mapping[str, Schema], value: object, place: str) -> Iterator[str]:
        for name, inner in _dict(value).items():
            if name in rule:
                yield from self.check(rule[name], inner, f"{place}.{name}")
            else:
                yield f"{place}.{name} is not in the schema"

    def _additionalproperties(self, rule: Schema, value: object, place: str) -> Iterator[str]:
        for name, inner in _dict(value).items():
            yield from self.check(rule, inner, f"{place}.{name}")

    def _items(self, rule: Schema, value: object, place: str) -> Iterator[str]:
        for index, inner in enumerate(value if isinstance(value, list) else ()):
            yield from self.check(rule, inner, f"{place}[{index}]")


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
