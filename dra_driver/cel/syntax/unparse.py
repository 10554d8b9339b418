# SPDX-License-Identifier: Apache-2.0
"""How is a tree, or a part of it, written as CEL text?

The text parses to the same tree. It can differ from the original text in spaces and parentheses. A macro is written as the
original call, not as its expansion, and a double as in the original text: 550.90 may be a version, and is not 550.9 then.
Source: cel-go parser/unparser.go for the operators' precedences.
"""

import json
import re
from collections.abc import Mapping, Sequence

from dra_driver.cel.syntax.ast import (
    Call,
    Comprehension,
    Constant,
    ConstantValue,
    Expr,
    Identifier,
    ListLiteral,
    MapLiteral,
    ParsedAst,
    Select,
    StructLiteral,
    Uint,
)

_CONDITIONAL = 8
_PRIMARY = 1
_UNARY = 2
_BINARY: Mapping[str, tuple[str, int]] = {
    "_*_": ("*", 3),
    "_/_": ("/", 3),
    "_%_": ("%", 3),
    "_+_": ("+", 4),
    "_-_": ("-", 4),
    "_==_": ("==", 5),
    "_!=_": ("!=", 5),
    "_<_": ("<", 5),
    "_<=_": ("<=", 5),
    "_>_": (">", 5),
    "_>=_": (">=", 5),
    "@in": ("in", 5),
    "_&&_": ("&&", 6),
    "_||_": ("||", 7),
}
_LOGIC = ("_||_", "_&&_")
"""Several of one of these need no parentheses: the parser makes a tree of them whose halves are alike."""
_PREFIX = {"!_": "!", "-_": "-"}
_TEXTS = json.JSONEncoder(ensure_ascii=False)
"""A string literal is written as in JSON. `json.dumps` would make an encoder for each text."""
_DOUBLE = re.compile(r"-?(\d*\.\d+([eE][+-]?\d+)?|\d+[eE][+-]?\d+)")


def unparse(parsed: ParsedAst, part: Expr | None = None) -> str:
    """Return the text of the whole expression, or of `part`."""
    return _Writer(parsed).write(parsed.root if part is None else part)


def written_double(parsed: ParsedAst, part: Constant) -> str:
    """Return the double as its author wrote it; "" if it is not in the original text, or was changed since."""
    found = _DOUBLE.match(parsed.expression, parsed.offsets.get(part.id, len(parsed.expression)))
    return found.group() if found and float(found.group()) == part.value else ""


def literal(value: ConstantValue) -> str:
    """Return the CEL literal for a constant."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Uint):
        return f"{int(value)}u"
    if isinstance(value, bytes):
        return 'b"' + "".join(f"\\x{byte:02x}" for byte in value) + '"'
    if isinstance(value, str):
        return _TEXTS.encode(value)
    return repr(value)


class _Writer:
    """Writes trees, which may be changed ones of the parsed expression."""

    def __init__(self, parsed: ParsedAst) -> None:
        self._parsed = parsed
        self._macros = parsed.macros

    def write(self, part: Expr) -> str:
        macro = self._macros.get(part.id)
        if macro is not None:
            return self._call(macro)
        match part:
            case Constant(value=float()):
                text = written_double(self._parsed, part) or literal(part.value)
            case Constant():
                text = literal(part.value)
            case Identifier():
                text = part.name
            case Select():
                access = f"{self._operand(part.operand, _PRIMARY)}.{part.field}"
                text = f"has({access})" if part.test_only else access
            case Call():
                text = self._call(part)
            case Comprehension():  # A comprehension without a macro call. The parser makes none.
                text = f"{self.write(part.iter_range)}.fold(…)"
            case _:
                text = self._aggregate(part)
        return text

    def _aggregate(self, part: ListLiteral | MapLiteral | StructLiteral) -> str:
        if isinstance(part, ListLiteral):
            return f"[{', '.join(self._elements(part))}]"
        if isinstance(part, MapLiteral):
            return self._braces(
                "", [(e.optional, self.write(e.key), e.value) for e in part.entries]
            )
        return self._braces(part.type_name, [(f.optional, f.name, f.value) for f in part.fields])

    def _braces(self, name: str, pairs: Sequence[tuple[bool, str, Expr]]) -> str:
        inside = (f"{'?' if mark else ''}{key}: {self.write(value)}" for mark, key, value in pairs)
        return f"{name}{{{', '.join(inside)}}}"

    def _elements(self, part: ListLiteral) -> list[str]:
        return [
            ("?" if index in part.optional_indices else "") + self.write(element)
            for index, element in enumerate(part.elements)
        ]

    def _call(self, call: Call) -> str:
        if call.target is None:
            operator = self._operator(call)
            if operator is not None:
                return operator
        arguments = ", ".join(self.write(argument) for argument in call.args)
        prefix = "" if call.target is None else f"{self._operand(call.target, _PRIMARY)}."
        return f"{prefix}{call.function}({arguments})"

    def _operator(self, call: Call) -> str | None:
        match call.function, call.args:
            case "_?_:_", (condition, yes, no):
                return (
                    f"{self._operand(condition, _CONDITIONAL - 1)} ? {self._operand(yes, _CONDITIONAL - 1)}"
                    f" : {self._operand(no, _CONDITIONAL)}"
                )
            case "_[_]" | "_[?_]" as index, (operand, key):
                mark = "?" if index == "_[?_]" else ""
                return f"{self._operand(operand, _PRIMARY)}[{mark}{self.write(key)}]"
            case "_?._", (operand, Constant(value=str(field))):
                return f"{self._operand(operand, _PRIMARY)}.?{field}"
            case prefix, (operand,) if prefix in _PREFIX:
                return _PREFIX[prefix] + self._operand(operand, _PRIMARY)
            case name, (left, right) if name in _BINARY:
                sign, precedence = _BINARY[name]
                again = precedence if name in _LOGIC else precedence - 1
                return f"{self._operand(left, precedence)} {sign} {self._operand(right, again)}"
        return None

    def _operand(self, part: Expr, loosest: int) -> str:
        """Return the text of `part`, in parentheses if its precedence value exceeds `loosest`."""
        text = self.write(part)
        return f"({text})" if self._precedence(part) > loosest else text

    def _precedence(self, part: Expr) -> int:
        if isinstance(part, Constant):  # (-1).f() needs its parentheses.
            negative = isinstance(part.value, int | float) and part.value < 0
            return _UNARY if negative else _PRIMARY
        if part.id in self._macros or not isinstance(part, Call) or part.target is not None:
            return _PRIMARY
        if part.function in _BINARY:
            return _BINARY[part.function][1]
        if part.function == "_?_:_":
            return _CONDITIONAL
        return _UNARY if part.function in _PREFIX else _PRIMARY
