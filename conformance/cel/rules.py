# SPDX-License-Identifier: Apache-2.0
"""Which rules of the language are asked about beside calls: absorption of errors, macros, limits, syntax?

Templates with letters in braces: {T} and {F} are made true and false, {E} fails, {B} is any condition, {I} {S} {L} {M} are
an int, a string, a list of ints, a map, {N} a number of a size near a limit.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from conformance.cel import devices
from conformance.cel.cases import Case, Cases
from conformance.cel.expressions import Expressions
from conformance.cel.trees import Tree, leaf, operand
from conformance.cel.types import BOOL, INT, STRING, list_of, map_of

TEMPLATES = yaml.safe_load((Path(__file__).parent / "templates.yaml").read_text())
ABSORPTION: Mapping[str, list[str]] = TEMPLATES["absorption"]
MACROS: Mapping[str, list[str]] = TEMPLATES["macro"]
SYNTAX: Mapping[str, list[str]] = TEMPLATES["syntax"]
RUN_TIME_COST: list[str] = TEMPLATES["run-time cost"]

_FAILING = (
    *(
        'device.attributes["dra.example.com"].nope',
        'device.attributes["dra.example.com"].nope == 1',
        "1 / (size(device.driver) - size(device.driver)) == 0",
    ),
    *(
        "dyn(device.driver) > 3",
        "[1][size(device.driver)] == 1",
        "optional.none().value() == device.driver",
        "dyn(size(device.driver)) && true",
        "dyn(device.driver)",
    ),
    *(
        'device.attributes["x"]["y"] > 0',
        "int(device.driver) == 1",
        "device.driver.substring(99) == ''",
        "dyn(device.driver).all(x, x)",
        "dyn(size(device.driver)) ? true : true",
    ),
)
_TRUE = (
    "true",
    "1 < 2",
    "size(device.driver) >= 0",
    "device.driver == device.driver",
    "[1].exists(x, x == 1)",
    "dyn(true)",
    '"a".startsWith("a")',
)
_FALSE = (
    "false",
    "1 > 2",
    "size(device.driver) < 0",
    "device.driver != device.driver",
    "[1].exists(x, x == 2)",
    "dyn(false)",
    '"a".startsWith("b")',
)
_INTS = (
    "0",
    "1",
    "2",
    "3",
    "-1",
    "size(device.driver)",
    'device.attributes["dra.example.com"].index',
)
_STRINGS = (
    '"a"',
    '"b"',
    '""',
    '"dra.example.com"',
    '"name"',
    "device.driver",
    'device.attributes["dra.example.com"].model',
)
_LISTS = (
    "[1, 2]",
    "[1]",
    "[]",
    "[3, 1, 2]",
    "[2, 2]",
    'device.attributes["dra.example.com"].numbers',
    "[-1, 0]",
    "[1, 2].map(q, q)",
)
_MAPS = ("{'a': 1}", "{'a': 1, 'b': 2}", "{}", "{'b': -1}", "dyn({'a': 1})", "{'': 0, 'a': 5}")


def rule_cases(cases: Cases, *, rounds: int) -> Iterator[Case]:
    """For each template, `rounds` ways to fill it."""
    for _ in range(rounds):
        for group, table in (("absorption", ABSORPTION), ("macro", MACROS), ("syntax", SYNTAX)):
            for focus, templates in table.items():
                for template in templates:
                    yield rule_case(cases, group, focus, template)


def rule_case(cases: Cases, group: str, focus: str, template: str) -> Case:
    """One template, filled."""
    maker = Expressions(cases.declarations, cases.chance, careless=0.0)
    return cases.case(filled(template, maker), group=group, focus=focus)


def filled(template: str, maker: Expressions) -> Tree:
    """The template as a tree, with random parts for its letters."""
    parts: list[str | Tree] = []
    for piece in re.split(r"(\{[A-Z]\}|\{\{|\}\})", template):
        if piece in ("{{", "}}"):
            parts.append(piece[0])
        elif re.fullmatch(r"\{[A-Z]\}", piece):
            parts.append(operand(_filling(piece[1], maker)))
        elif piece:
            parts.append(piece)
    return Tree(tuple(parts), BOOL)


def _filling(letter: str, maker: Expressions) -> Tree:
    chance = maker.chance
    made = {
        "B": (BOOL, _TRUE + _FALSE),
        "I": (INT, _INTS),
        "S": (STRING, _STRINGS),
        "L": (list_of(INT), _LISTS),
        "M": (map_of(STRING, INT), _MAPS),
    }
    fixed = {"T": _TRUE, "F": _FALSE, "E": _FAILING}
    if letter in fixed:
        return leaf(chance.choice(fixed[letter]), primary=False)
    of, texts = made[letter]
    if chance.random() < 0.3:
        return maker.make(of, 2)
    text = chance.choice(texts)
    return leaf(text, of, primary=not text.startswith("-"))


# Limits: families of expressions with a size, and the sizes to ask about.

LONGEST = 10_240


def padded(length: int) -> str:
    """A true condition of exactly that many bytes."""
    return "true" + " " * (length - 4)


LIMITS: Mapping[str, tuple[tuple[int, ...], str]] = {
    "bytes of the expression": ((10_239, 10_240, 10_241), "pad"),
    "code points of the expression": ((99_999, 100_000, 100_001), "pad"),
    "parentheses": ((40, 80, 120, 248, 249, 250, 251, 252, 260, 1000), "({B})"),
    "negations": ((10, 100, 249, 250, 251, 252, 1000, 10_000), "!"),
    "minus signs": ((10, 100, 249, 250, 251, 1000), "-"),
    "nested lists": ((10, 100, 124, 125, 126, 249, 250, 251, 1000), "[]"),
    "nested maps": ((10, 60, 124, 125, 126, 249, 250, 251), "{}"),
    "nested conditionals": ((10, 60, 83, 84, 124, 125, 126, 249, 250, 251), "?:"),
    "chain of ||": ((2, 16, 31, 32, 33, 250, 251, 500, 2000), "||"),
    "chain of &&": ((2, 16, 31, 32, 33, 250, 251, 500, 2000), "&&"),
    "chain of +": ((2, 30, 248, 249, 250, 251, 252, 2000), "+"),
    "chain of members": ((2, 30, 248, 249, 250, 251, 252, 1000), "."),
    "chain of calls": ((2, 30, 124, 125, 249, 250, 251, 1000), "()"),
    "elements of a list": ((0, 1, 100, 1000, 3000), "[1,"),
    "entries of a map": ((0, 1, 100, 500), "{1:"),
    "nested macros": ((1, 2, 3, 4, 5, 6, 7, 10, 20, 40), "all"),
    "lists.range": (
        (0, 1, 1000, 10_000, 100_000, 499_000, 500_000, 999_990, 999_999, 1_000_000, 1_000_001),
        "range",
    ),
    "string repetition": ((1, 5, 10, 14, 16, 18), "double"),
    "findAll": ((-1, 0, 1, 2, 3), "findAll"),
    "format precision": ((0, 1, 99, 100, 101), "precision"),
    "repeat count of a pattern": ((999, 1000, 1001), "pattern"),
    "flatten depth": ((-1, 0, 1, 2, 10), "flatten"),
}


def sized(way: str, size: int) -> str:  # noqa: C901, PLR0911, PLR0912 - one line for each family
    """The expression of the family with that size."""
    match way:
        case "pad":
            return padded(size)
        case "({B})":
            return "(" * size + "true" + ")" * size
        case "!" | "-":
            return way * size + ("true" if way == "!" else "1 < 2")
        case "[]":
            return "[" * size + "1" + "]" * size + ".size() == 1"
        case "{}":
            return "{'a': " * size + "1" + "}" * size + ".size() == 1"
        case "?:":
            return "false ? true : " * size + "true"
        case "||" | "&&":
            return f" {way} ".join(["device.driver != ''"] * size)
        case "+":
            return " + ".join(["1"] * size) + " > 0"
        case ".":
            return "dyn({})" + ".a" * size + " == 1 || true"
        case "()":
            return "device.driver" + ".trim()" * size + " != ''"
        case "[1,":
            return "[" + ", ".join(["1"] * size) + f"].size() == {size}"
        case "{1:":
            return "{" + ", ".join(f"{key}: 1" for key in range(size)) + f"}}.size() == {size}"
        case "all":
            return (
                "".join(f"[1, 2, 3, 4, 5, 6, 7].all(x{at}, " for at in range(size))
                + "true"
                + ")" * size
            )
        case "range":
            return f"lists.range({size}).size() == {size}"
        case "double":
            return (
                "cel.bind(s, 'ab', "
                + "cel.bind(s, s + s, " * size
                + f"s.size() == {2 ** (size + 1)}"
                + ")" * size
                + ")"
            )
        case "findAll":
            return f"'abcabc'.findAll('a', {size}).size() == 2"
        case "precision":
            return f"'%.{size}f'.format([1.5]) != ''"
        case "pattern":
            return f"'a'.matches('a{{{size}}}')"
        case "flatten":
            return f"[[[1]]].flatten({size}).size() == 1"
    raise ValueError(way)


def limit_cases(cases: Cases) -> Iterator[Case]:
    """Each family at each of its sizes."""
    for focus, (sizes, way) in LIMITS.items():
        for size in sizes:
            yield cases.case(leaf(sized(way, size), BOOL), group="limit", focus=f"{focus} = {size}")


MOST_COST = 1_000_000
PADDED = f"!'{'a' * 9900}'.matches('{'b' * 3700}') && lists.range({{N}}).sum() >= 0 && (%s)"
"""A match of long texts costs nearly all that is allowed; summing a list costs as much as it is long, so N moves the
counted cost in small steps over the limit."""


def run_time_cost_case(cases: Cases, template: str, size: int) -> Case:
    """An expression whose counted cost grows with `size`, over a device that has what it asks for."""
    text = (PADDED % template).replace("{N}", str(size))
    return cases.case(
        leaf(text, BOOL), group="limit", focus="run-time cost", device=devices.typical()
    )


def random_rule_case(cases: Cases) -> Case:
    """Any template of any table, filled."""
    group, table = cases.chance.choice(
        (("absorption", ABSORPTION), ("macro", MACROS), ("syntax", SYNTAX))
    )
    focus = cases.chance.choice(list(table))
    return rule_case(cases, group, focus, cases.chance.choice(table[focus]))
