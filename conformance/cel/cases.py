# SPDX-License-Identifier: Apache-2.0
"""Which cases are asked, and what is each of them there for?

A case has a focus: the overload, macro or rule that it is about, and the verdict that it aims at. Focus and verdict name
a cell of the coverage table. Whether the aim was met is for the oracle to say.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.cel import devices
from conformance.cel.declarations import Declarations, DeclaredOverload
from conformance.cel.expressions import Expressions
from conformance.cel.pinned import pinned
from conformance.cel.trees import Many, Tree, leaf, operand
from conformance.cel.types import BOOL, STRING, Type
from dra_driver.testing.conformance.verdicts import FAILS, FALSE, REFUSED, TRUE, VERDICTS

ENVIRONMENTS = ("", "", "StoredExpressions", "NewExpressions")


@dataclass(frozen=True, slots=True)
class Case:
    """One question, what it was made from, and what it is about."""

    line: Mapping[str, Any]
    tree: Tree
    group: str
    focus: str
    aim: str = ""


@dataclass
class Cases:
    """Makes cases from one source of random numbers."""

    declarations: Declarations
    chance: random.Random
    made: int = field(default=0)

    def overload_case(self, overload: DeclaredOverload, aim: str) -> Case:
        """A case about one overload that tries to have one verdict."""
        careless = {TRUE: 0.0, FALSE: 0.0, FAILS: 0.25, REFUSED: 0.0}[aim]
        maker = Expressions(self.declarations, self.chance, careless=careless)
        depth = self.chance.choice((0, 0, 0, 1, 1, 2))
        call = self._call(maker, overload, aim, depth)
        device = self._device(aim)
        tree = self._pinned(call, aim, device) or as_condition(maker, call, aim)
        if self.chance.random() < 0.1:
            return self.case(surrounded(maker, tree), group="surrounded", focus=aim, device=device)
        focus = f"{overload.function}|{overload.id}"
        return self.case(tree, group="overload", focus=focus, aim=aim, device=device)

    def _pinned(self, call: Tree, aim: str, device: Mapping[str, Any]) -> Tree | None:
        if aim not in (TRUE, FALSE) or self.chance.random() < 0.3:
            return None
        return pinned(call, "==" if aim == TRUE else "!=", device)

    def _device(self, aim: str) -> Mapping[str, Any]:
        careful = aim in (TRUE, FALSE) and self.chance.random() < 0.7
        return devices.typical() if careful else devices.varied(self.chance)

    def _call(self, maker: Expressions, overload: DeclaredOverload, aim: str, depth: int) -> Tree:
        types = maker.instance(overload, {})
        arguments = [
            maker.argument(overload, place, of, depth, ()) for place, of in enumerate(types)
        ]
        if aim == FAILS and arguments and self.chance.random() < 0.7:
            place = self.chance.randrange(len(arguments))
            arguments[place] = maker.wrong(types[place], ())
        if aim == REFUSED:
            overload, arguments = self._mistaken(maker, overload, arguments)
        return maker.written(overload, tuple(arguments), overload.result)

    def _mistaken(
        self, maker: Expressions, overload: DeclaredOverload, arguments: list[Tree]
    ) -> tuple[DeclaredOverload, list[Tree]]:
        """A call that no overload fits: a wrong type, one argument too many or too few, a wrong name."""
        is_operator = overload.function.strip("_@") != overload.function
        at = self.chance.random()
        if arguments and (is_operator or at < 0.6):
            place = self.chance.randrange(len(arguments))
            arguments[place] = self.chance.choice(
                (maker.constant(maker.any_type()), leaf("nowhere"), leaf("device"))
            )
            return overload, arguments
        if not is_operator and at < 0.75:
            return overload, [*arguments, maker.constant(maker.any_type())]
        if at < 0.85 and len(arguments) > overload.member:
            return overload, arguments[:-1]
        misspelt = DeclaredOverload(
            f"{overload.function}x",
            overload.id,
            overload.member,
            overload.arguments,
            overload.result,
        )
        return (overload, arguments) if is_operator else (misspelt, arguments)

    def random_case(self) -> Case:
        """A case about nothing in particular."""
        maker = Expressions(
            self.declarations, self.chance, careless=self.chance.choice((0.0, 0.02, 0.1))
        )
        tree = maker.make(BOOL, self.chance.choice((2, 3, 3, 4, 5)))
        return self.case(tree, group="random", focus="random")

    def case(
        self,
        tree: Tree,
        *,
        group: str,
        focus: str,
        aim: str = "",
        device: Mapping[str, Any] | None = None,
    ) -> Case:
        """A question about a tree, over a device and an environment that are chosen here."""
        self.made += 1
        chosen = device or self._device(aim)
        line = {
            "name": f"{group}-{self.made}",
            "expression": str(tree),
            **chosen,
            "env": self.chance.choice(ENVIRONMENTS),
        }
        if self.chance.random() < 0.3:
            line["features"] = {
                "EnableConsumableCapacity": self.chance.random() < 0.5,
                "EnableListTypeAttributes": self.chance.random() < 0.5,
            }
        return Case(line, tree, group, focus, aim)


def as_condition(maker: Expressions, call: Tree, aim: str) -> Tree:
    """The call as something that is true or false."""
    chance = maker.chance
    if call.type == BOOL and chance.random() < 0.8:
        return call if chance.random() < 0.8 else Tree(("!", operand(call)), BOOL, primary=False)
    at = chance.random()
    if at < 0.25 and call.type.name not in ("type", "T", "A", "V"):
        sign = chance.choice(
            ("==", "!=", "<", ">=")
            if call.type.name in ("int", "string", "double", "uint", "bool")
            else ("==", "!=")
        )
        return Tree(
            (operand(call), f" {sign} ", operand(maker.constant(settled(maker, call.type)))),
            BOOL,
            primary=False,
        )
    if at < 0.4:
        return Tree(("cel.bind(x, ", call, ", x == x)" if aim != FALSE else ", x != x)"), BOOL)
    sign = "!=" if aim == FALSE else "=="
    return Tree((operand(call), f" {sign} ", operand(call)), BOOL, primary=False)


def settled(maker: Expressions, a_type: Type) -> Type:
    """A type that a constant can be made of: type parameters become strings."""
    if a_type.params:
        return Type(a_type.name, tuple(settled(maker, inner) for inner in a_type.params))
    return STRING if len(a_type.name) == 1 else a_type


def surrounded(maker: Expressions, tree: Tree) -> Tree:
    """The condition with something around it that does not change its type."""
    other = operand(maker.make(BOOL, 1))
    inner = operand(tree)
    return maker.chance.choice(
        (
            Tree((inner, " && ", other), BOOL, primary=False),
            Tree((other, " || ", inner), BOOL, primary=False),
            Tree((other, " ? ", inner, " : ", inner), BOOL, primary=False),
            Tree(("[1, 2].all(q, ", tree, ")"), BOOL),
            Tree(("[", Many((tree, other)), "].exists(q, q)"), BOOL),
            Tree(("cel.bind(q, ", tree, ", q)"), BOOL),
            Tree(("optional.of(", tree, ").orValue(false)"), BOOL),
        )
    )


def overload_cases(cases: Cases, *, rounds: int) -> Iterator[Case]:
    """For every overload and every verdict, `rounds` attempts."""
    writable = [overload for overload in cases.declarations.overloads if overload.writable]
    for _ in range(rounds):
        for overload in writable:
            for aim in VERDICTS:
                yield cases.overload_case(overload, aim)
