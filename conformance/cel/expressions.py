# SPDX-License-Identifier: Apache-2.0
"""How are random CEL expressions made that mostly compile?

By type: to make an expression of a type, one of the ways is chosen to get such a value (a constant, an attribute of the
device, a variable in scope, a call of a function with that result, a macro, a conditional), and the parts that it needs
are made in the same way, smaller. With the chance `careless` a part is wrong on purpose: a value of another type behind
dyn(), an attribute that the device has not, a text that its reader refuses.
"""

import random
from collections.abc import Callable
from typing import ClassVar

from conformance.cel.declarations import BINARY, OTHER_SYNTAX, UNARY, Declarations, DeclaredOverload
from conformance.cel.trees import Many, Tree, leaf, operand
from conformance.cel.types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    FORMAT,
    INT,
    IP,
    NULL,
    QUANTITY,
    SEMVER,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    URL,
    Substitution,
    Type,
    list_of,
    map_of,
    optional_of,
    substitute,
)  # fmt: skip
from conformance.cel.vocabulary import LITERALS, STRINGS, TEXTS

DOMAINS = (
    "dra.example.com",
    "dra.example.com",
    "dra.example.com",
    "other.example.com",
    "missing.example.com",
)
# The device of a case has these with the type that the name promises, mostly.
ATTRIBUTES = {
    BOOL: ("flag", "off"),
    INT: ("index", "big"),
    STRING: ("name", "model"),
    SEMVER: ("version",),
    list_of(BOOL): ("flags",),
    list_of(INT): ("numbers",),
    list_of(STRING): ("names",),
    list_of(SEMVER): ("versions",),
}
CAPACITIES = ("memory", "cores")
MADE_BY = {
    TIMESTAMP: "timestamp",
    DURATION: "duration",
    QUANTITY: "quantity",
    SEMVER: "semver",
    IP: "ip",
    CIDR: "cidr",
}
SIMPLE = (BOOL, INT, UINT, DOUBLE, STRING, BYTES)
RARE = (TIMESTAMP, DURATION, QUANTITY, SEMVER, IP, CIDR, URL, NULL, TYPE, DYN)
KEYS = (STRING, STRING, INT, UINT, BOOL)
Scope = tuple[tuple[str, Type], ...]


class Expressions:
    """Makes expressions from the declarations, always the same ones from the same random numbers."""

    def __init__(
        self, declarations: Declarations, chance: random.Random, *, careless: float = 0.0
    ) -> None:
        self.declarations = declarations
        self.chance = chance
        self.careless = careless
        self._names = 0

    # Types

    def any_type(self) -> Type:
        """A type that values can be made of."""
        at = self.chance.random()
        if at < 0.6:
            return self.chance.choice(SIMPLE)
        if at < 0.8:
            return self.chance.choice(RARE)
        inner = self.chance.choice(SIMPLE)
        return self.chance.choice(
            (
                list_of(inner),
                map_of(self.chance.choice(KEYS), inner),
                optional_of(inner),
                list_of(list_of(inner)),
            )
        )

    def instance(self, overload: DeclaredOverload, found: Substitution) -> tuple[Type, ...]:
        """The types of the arguments, with what is open chosen."""
        filled = dict(found)
        for name in overload.parameters:
            if name not in filled:
                is_key = any(
                    argument.name == "map" and str(argument.params[0]) == name
                    for argument in overload.arguments
                )
                filled[name] = self.chance.choice(KEYS) if is_key else self.any_type()
        return tuple(substitute(argument, filled) for argument in overload.arguments)

    # Values

    def make(self, wanted: Type, depth: int, scope: Scope = ()) -> Tree:
        """An expression of the type, at most `depth` calls deep."""
        if self.chance.random() < self.careless:
            return self.wrong(wanted, scope)
        in_scope = [name for name, of in scope if of == wanted]
        if in_scope and self.chance.random() < 0.4:
            return leaf(self.chance.choice(in_scope), wanted)
        if depth <= 0 or self.chance.random() < 0.15:
            return self.simple(wanted, scope)
        return self.chance.choices(self._WAYS, self._WEIGHTS)[0](self, wanted, depth, scope)

    def simple(self, wanted: Type, scope: Scope = ()) -> Tree:
        """A constant, or a part of the device."""
        if wanted in ATTRIBUTES and self.chance.random() < 0.5:
            return self.attribute(wanted)
        if wanted == QUANTITY and self.chance.random() < 0.5:
            return self.device_part("capacity", self.chance.choice(CAPACITIES), QUANTITY)
        if wanted.name == "map" and self.chance.random() < 0.2:
            return self.device_map(wanted)
        if wanted == STRING and self.chance.random() < 0.1:
            return leaf("device.driver", STRING)
        return self.constant(wanted, scope)

    def constant(self, wanted: Type, scope: Scope = ()) -> Tree:
        """A constant of the type."""
        if wanted == STRING:
            return leaf(self.chance.choice(STRINGS), STRING)
        if wanted.name in LITERALS:
            text = self.chance.choice(LITERALS[wanted.name])
            return leaf(text, wanted, primary=text[0] not in "-.0123456789")
        if wanted in MADE_BY:
            function = MADE_BY[wanted]
            return Tree((f"{function}(", self.text_for(function), ")"), wanted)
        return self._constructed(wanted, scope)

    def _constructed(self, wanted: Type, scope: Scope) -> Tree:
        match wanted.name:
            case "list":
                items = tuple(self.element(wanted.params[0], 0, scope) for _ in range(self.few()))
                return Tree(("[", Many(items), "]"), wanted)
            case "map":
                entries = tuple(self.entry(wanted, 0, scope) for _ in range(self.few()))
                return Tree(("{", Many(entries), "}"), wanted)
            case "optional_type":
                return self._optional(wanted, scope)
            case "kubernetes.URL":
                return Tree(("url(", self.text_for("url"), ")"), wanted)
            case "kubernetes.NamedFormat":
                return leaf(
                    f"format.{self.chance.choice(TEXTS['format.named'][:13])[1:-1]}()", FORMAT
                )
        return Tree(
            ("dyn(", self.constant(self.chance.choice((*SIMPLE, QUANTITY, list_of(INT)))), ")"), DYN
        )

    def _optional(self, wanted: Type, scope: Scope) -> Tree:
        if self.chance.random() < 0.25:
            return leaf("optional.none()", wanted)
        maker = self.chance.choice(("optional.of", "optional.of", "optional.ofNonZeroValue"))
        return Tree((f"{maker}(", self.simple(wanted.params[0], scope), ")"), wanted)

    def entry(self, a_map: Type, depth: int, scope: Scope) -> Tree:
        """`key: value` of a map."""
        key, value = a_map.params
        return Tree((self.element(key, 0, scope), ": ", self.element(value, depth, scope)))

    def element(self, wanted: Type, depth: int, scope: Scope) -> Tree:
        """A part of a list or map literal: all parts must have one type, so seldom something of type dyn."""
        if self.chance.random() < 0.05:
            return self.make(wanted, depth, scope)
        made = self.make(wanted, depth, scope)
        return made if "device.attributes" not in str(made) else self.constant(wanted, scope)

    def few(self) -> int:
        """How many elements a list has."""
        return self.chance.choice((0, 1, 1, 2, 2, 3, 4))

    def text_for(self, function: str) -> Tree:
        """A string that the function may like."""
        texts = TEXTS[function]
        careful = max(3, len(texts) // 3)
        doubtful = self.chance.random() < (0.4 if self.careless else 0.15)
        return leaf(self.chance.choice(texts if doubtful else texts[:careful]), STRING)

    def attribute(self, wanted: Type) -> Tree:
        """An attribute that has, by its name, the type."""
        return self.device_part("attributes", self.chance.choice(ATTRIBUTES[wanted]), DYN)

    def device_part(self, kind: str, name: str, a_type: Type) -> Tree:
        """device.attributes[…].name, or device.capacity[…].name, in one of its spellings."""
        domain = DOMAINS[0] if self.careless == 0 else self.chance.choice(DOMAINS)
        base = self.chance.choice(
            (f'device.{kind}["{domain}"]',) * 9 + (f"device.{kind}['{domain}']",)
        )
        return leaf(base + self.chance.choice((f".{name}", f".{name}", f'["{name}"]')), a_type)

    def device_map(self, wanted: Type) -> Tree:
        """A map of the device: its attributes or capacities, by domain or by name."""
        kind = self.chance.choice(("attributes", "capacity"))
        return leaf(
            self.chance.choice(
                (f"device.{kind}", f'device.{kind}["{self.chance.choice(DOMAINS)}"]')
            ),
            wanted,
        )

    # Mistakes

    def wrong(self, wanted: Type, scope: Scope) -> Tree:
        """Something that compiles in the place of `wanted`, and is not it when it runs."""
        at = self.chance.random()
        if at < 0.35:
            return leaf(f'device.attributes["{self.chance.choice(DOMAINS)}"].nope', DYN)
        if at < 0.7:
            return Tree(("dyn(", self.simple(self.any_type(), scope), ")"), wanted)
        if at < 0.85:
            return self.chance.choice(
                (
                    leaf("[][0]"),
                    leaf("{}.a"),
                    leaf("dyn(1 / 0)"),
                    leaf("optional.none().value()"),
                    leaf('[1, 2][dyn("0")]'),
                )
            )
        other = self.chance.choice([of for of in ATTRIBUTES if of != wanted])
        return self.attribute(other)

    # Ways to a value

    def call(self, wanted: Type, depth: int, scope: Scope) -> Tree:
        """A call of a function that has the type as result."""
        overloads = self.declarations.answering(wanted)
        if not overloads:
            return self.simple(wanted, scope)
        functions = sorted({overload.function for overload, _ in overloads})
        function = self.chance.choice(functions)
        overload, found = self.chance.choice(
            [entry for entry in overloads if entry[0].function == function]
        )
        arguments = tuple(
            self.argument(overload, place, of, depth - 1, scope)
            for place, of in enumerate(self.instance(overload, found))
        )
        return self.written(overload, arguments, wanted)

    def argument(
        self, overload: DeclaredOverload, place: int, of: Type, depth: int, scope: Scope
    ) -> Tree:
        """One argument; a text that its function reads is mostly one that it understands."""
        reads_text = (
            place == len(overload.arguments) - 1
            or not overload.member
            or len(overload.arguments) == 3
        )
        is_text_place = place > 0 or not overload.member or overload.function == "format"
        if (
            of == STRING
            and overload.function in TEXTS
            and reads_text
            and is_text_place
            and self.chance.random() < 0.85
        ):
            return self.text_for(overload.function)
        if of == INT and self.chance.random() < 0.7:
            return leaf(self.chance.choice(("0", "1", "2", "3", "4", "-1")), INT, primary=False)
        return self.make(of, depth, scope)

    def written(
        self, overload: DeclaredOverload, arguments: tuple[Tree, ...], result: Type
    ) -> Tree:
        """The call as text."""
        name = overload.function
        if name in BINARY:
            left, right = map(operand, arguments)
            return Tree((left, f" {BINARY[name]} ", right), result, primary=False)
        if name in UNARY:
            return Tree((UNARY[name], operand(arguments[0])), result, primary=False)
        if name in OTHER_SYNTAX:
            return self._in_brackets(name, arguments, result)
        if overload.member:
            return Tree((operand(arguments[0]), f".{name}(", Many(arguments[1:]), ")"), result)
        return Tree((f"{name}(", Many(arguments), ")"), result)

    def _in_brackets(self, name: str, arguments: tuple[Tree, ...], result: Type) -> Tree:
        """The calls that are written neither as operators nor with their names."""
        match name:
            case "_?_:_":
                first, second, third = map(operand, arguments)
                return Tree((first, " ? ", second, " : ", third), result, primary=False)
            case "_[_]":
                return Tree((operand(arguments[0]), "[", arguments[1], "]"), result)
            case "_[?_]":
                return Tree((operand(arguments[0]), "[?", arguments[1], "]"), result)
            case _:
                return Tree(
                    (operand(arguments[0]), ".?", self.chance.choice(("a", "name", "nope"))), result
                )

    def conditional(self, wanted: Type, depth: int, scope: Scope) -> Tree:
        """c ? a : b"""
        condition = self.make(BOOL, depth - 1, scope)
        first, second = self.make(wanted, depth - 1, scope), self.make(wanted, depth - 1, scope)
        return Tree(
            (operand(condition), " ? ", operand(first), " : ", operand(second)),
            wanted,
            primary=False,
        )

    def literal(self, wanted: Type, depth: int, scope: Scope) -> Tree:
        """A list or map with parts that are expressions; else whatever is simple."""
        if wanted.name == "list":
            items = [self.element(wanted.params[0], depth - 1, scope) for _ in range(self.few())]
            if self.chance.random() < 0.15:
                items.append(
                    Tree(("?", operand(self.make(optional_of(wanted.params[0]), depth - 1, scope))))
                )
            return Tree(("[", Many(tuple(items)), "]"), wanted)
        if wanted.name == "map":
            entries = [self.entry(wanted, depth - 1, scope) for _ in range(self.few())]
            return Tree(("{", Many(tuple(entries)), "}"), wanted)
        return self.simple(wanted, scope)

    def indexed(self, wanted: Type, depth: int, scope: Scope) -> Tree:
        """An element of a list or a map."""
        at = self.chance.random()
        if at < 0.4:
            a_list = self.make(list_of(wanted), depth - 1, scope)
            return Tree(
                (
                    operand(a_list),
                    "[",
                    leaf(self.chance.choice(("0", "1", "0", "5", "dyn(0.0)", "dyn(0u)"))),
                    "]",
                ),
                wanted,
            )
        key = self.chance.choice(KEYS)
        a_map = self.make(map_of(key, wanted), depth - 1, scope)
        if key == STRING and at < 0.6:
            return Tree((operand(a_map), self.chance.choice((".a", ".abc", '["a"]'))), wanted)
        return Tree((operand(a_map), "[", self.make(key, 0, scope), "]"), wanted)

    def unwrapped(self, wanted: Type, depth: int, scope: Scope) -> Tree:
        """The value of an optional."""
        if wanted in ATTRIBUTES and self.chance.random() < 0.5:
            name = self.chance.choice((*ATTRIBUTES[wanted], "nope"))
            optional = leaf(f'device.attributes["{self.chance.choice(DOMAINS)}"].?{name}')
        else:
            optional = operand(self.make(optional_of(wanted), depth - 1, scope))
        if self.chance.random() < 0.2:
            return Tree((optional, ".value()"), wanted)
        return Tree((optional, ".orValue(", self.make(wanted, depth - 1, scope), ")"), wanted)

    def bound(self, wanted: Type, depth: int, scope: Scope) -> Tree:
        """cel.bind."""
        name, of = self.fresh(), self.any_type()
        value = self.make(of, depth - 1, scope)
        return Tree(
            (
                f"cel.bind({name}, ",
                value,
                ", ",
                self.make(wanted, depth - 1, ((name, of), *scope)),
                ")",
            ),
            wanted,
        )

    def macro(self, wanted: Type, depth: int, scope: Scope) -> Tree:
        """A macro that answers the type, or else a call."""
        ways = self._MACROS.get(wanted.name)
        if not ways:
            return self.call(wanted, depth, scope)
        return self.chance.choice(ways)(self, wanted, depth, scope)

    def fresh(self) -> str:
        """A name for a variable; sometimes one that is in use already."""
        return self.chance.choice(("x", "y", "z", "k", "v", "i"))

    def _range(self, element: Type, depth: int, scope: Scope) -> Tree:
        return operand(self.make(list_of(element), depth - 1, scope))

    def quantifier(self, _: Type, depth: int, scope: Scope) -> Tree:
        """all, exists, exists_one over one variable."""
        name, of = self.fresh(), self.any_type()
        over = self._range(of, depth, scope)
        if self.chance.random() < 0.2:
            over, of = operand(self.make(map_of(STRING, self.any_type()), depth - 1, scope)), STRING
        macro = self.chance.choice(("all", "exists", "exists_one"))
        condition = self.make(BOOL, depth - 1, ((name, of), *scope))
        return Tree((over, f".{macro}({name}, ", condition, ")"), BOOL)

    def quantifier_of_two(self, _: Type, depth: int, scope: Scope) -> Tree:
        """all, exists, existsOne, exists_one over two variables."""
        value = self.any_type()
        key = self.chance.choice((INT, STRING))
        over = (
            self._range(value, depth, scope)
            if key == INT
            else operand(self.make(map_of(key, value), depth - 1, scope))
        )
        macro = self.chance.choice(("all", "exists", "existsOne", "exists_one"))
        condition = self.make(BOOL, depth - 1, (("i", key), ("v", value), *scope))
        return Tree((over, f".{macro}(i, v, ", condition, ")"), BOOL)

    def has(self, _: Type, depth: int, scope: Scope) -> Tree:
        """has(…)"""
        if self.chance.random() < 0.7:
            name = self.chance.choice(("name", "index", "nope", "version", "flag"))
            return leaf(f'has(device.attributes["{self.chance.choice(DOMAINS)}"].{name})', BOOL)
        return Tree(
            ("has(", operand(self.make(map_of(STRING, INT), depth - 1, scope)), ".a)"), BOOL
        )

    def mapped(self, wanted: Type, depth: int, scope: Scope) -> Tree:
        """map, filter, transformList, sortBy and the like."""
        name, of = self.fresh(), self.any_type()
        inner = ((name, of), *scope)
        element = wanted.params[0]
        match self.chance.choice(
            ("map", "map3", "filter", "transformList", "transformList4", "sortBy")
        ):
            case "map":
                parts = (
                    self._range(of, depth, scope),
                    f".map({name}, ",
                    self.make(element, depth - 1, inner),
                    ")",
                )
            case "map3":
                kept, made = self.make(BOOL, depth - 1, inner), self.make(element, depth - 1, inner)
                parts = (self._range(of, depth, scope), f".map({name}, ", kept, ", ", made, ")")
            case "filter":
                inner = ((name, element), *scope)
                parts = (
                    self._range(element, depth, scope),
                    f".filter({name}, ",
                    self.make(BOOL, depth - 1, inner),
                    ")",
                )
            case "transformList":
                inner = (("i", INT), ("v", of), *scope)
                parts = (
                    self._range(of, depth, scope),
                    ".transformList(i, v, ",
                    self.make(element, depth - 1, inner),
                    ")",
                )
            case "transformList4":
                inner = (("i", INT), ("v", of), *scope)
                kept, made = self.make(BOOL, depth - 1, inner), self.make(element, depth - 1, inner)
                parts = (
                    self._range(of, depth, scope),
                    ".transformList(i, v, ",
                    kept,
                    ", ",
                    made,
                    ")",
                )
            case _:
                key = self.chance.choice((*SIMPLE, TIMESTAMP, DURATION))
                inner = ((name, element), *scope)
                parts = (
                    self._range(element, depth, scope),
                    f".sortBy({name}, ",
                    self.make(key, depth - 1, inner),
                    ")",
                )
        return Tree(parts, wanted)

    def transformed(self, wanted: Type, depth: int, scope: Scope) -> Tree:
        """transformMap, transformMapEntry."""
        key, value = wanted.params
        of = self.any_type()
        over = operand(self.make(map_of(key, of), depth - 1, scope))
        inner = (("k", key), ("v", of), *scope)
        kept = (self.make(BOOL, depth - 1, inner), ", ") if self.chance.random() < 0.4 else ()
        if self.chance.random() < 0.5:
            return Tree(
                (over, ".transformMap(k, v, ", *kept, self.make(value, depth - 1, inner), ")"),
                wanted,
            )
        entry = Tree(("{", self.make(key, 0, inner), ": ", self.make(value, depth - 1, inner), "}"))
        return Tree((over, ".transformMapEntry(k, v, ", *kept, entry, ")"), wanted)

    def optionally(self, wanted: Type, depth: int, scope: Scope) -> Tree:
        """optMap, optFlatMap, and the optional spellings of select and index."""
        name, of = self.fresh(), self.any_type()
        inner = ((name, of), *scope)
        at = self.chance.random()
        if at < 0.35:
            optional = operand(self.make(optional_of(of), depth - 1, scope))
            return Tree(
                (optional, f".optMap({name}, ", self.make(wanted.params[0], depth - 1, inner), ")"),
                wanted,
            )
        if at < 0.6:
            optional = operand(self.make(optional_of(of), depth - 1, scope))
            return Tree(
                (optional, f".optFlatMap({name}, ", self.make(wanted, depth - 1, inner), ")"),
                wanted,
            )
        if at < 0.8:
            a_map = operand(self.make(map_of(STRING, wanted.params[0]), depth - 1, scope))
            return Tree((a_map, self.chance.choice((".?a", '[?"a"]', ".?abc"))), wanted)
        a_list = operand(self.make(list_of(wanted.params[0]), depth - 1, scope))
        return Tree((a_list, self.chance.choice(("[?0]", "[?7]", "[?-1]"))), wanted)

    _WAYS: tuple[Callable[..., Tree], ...] = (
        call, simple, conditional, literal, indexed, unwrapped, bound, macro,
    )  # fmt: skip
    _WEIGHTS = (10, 0, 1, 2, 1.5, 1, 1, 3)
    _MACROS: ClassVar[dict[str, tuple[Callable[..., Tree], ...]]] = {
        "bool": (quantifier, quantifier, quantifier_of_two, has),
        "list": (mapped,),
        "map": (transformed,),
        "optional_type": (optionally,),
    }
