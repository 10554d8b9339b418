# SPDX-License-Identifier: Apache-2.0
"""Loops and format(), written as Python, answer as the evaluation does that counts every step, or not at all.

The devices are also ones that no API server takes: their lists and texts are so long that the cost limit ends an evaluation.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dra_driver.cel.cancellation import Check, never
from dra_driver.cel.checking import check
from dra_driver.cel.costs.turns import most_turns
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.errors import CompileError
from dra_driver.cel.exact import evaluate
from dra_driver.cel.failures import EvaluationError, PlanError
from dra_driver.cel.fast import generate, inline, loops, templates
from dra_driver.cel.syntax import parser
from dra_driver.cel.turns import NO_LOOPS, Turns
from dra_driver.cel.versions import MAX_COST, Environment
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity
from tests.support.examples import examples

DRIVER = "gpu.example.com"
OWN = f'device.attributes["{DRIVER}"]'
ENVIRONMENT = Environment()
parser.parse("true", ENVIRONMENT)  # raises Python's limit of recursion, not during a test


BOOL, INT, TEXT = "bool", "int", "text"
KINDS = (BOOL, INT, TEXT)
CONSTANTS = {
    BOOL: ("true", "false"),
    INT: ("0", "1", "-3", "9223372036854775807", "255"),
    TEXT: ('"a"', '"fish"', '""', '"Ä"', "device.driver"),
}
# Of type dyn, so that the last ones are accepted everywhere and are often of the wrong kind.
READ = {
    BOOL: (f"{OWN}.more1", f"{OWN}.text"),
    INT: (f"{OWN}.number", f"{OWN}.numbers[0]", f"{OWN}.text"),
    TEXT: (f"{OWN}.text", f"{OWN}.texts[0]", f"{OWN}.missing", f"{OWN}.number"),
}
LISTS = {
    BOOL: ("[true, false]",),
    INT: ("[1, 2, 3]", "[0]", f"{OWN}.numbers"),
    TEXT: ('["a", "fish"]', f"{OWN}.texts", f"{OWN}.text", f"{OWN}.numbers"),
}
MAPS = (OWN, 'device.attributes["x"]', "device.attributes[device.driver]")
TEMPLATES = ("%s", "%d", "%x", "%.2f", "%b", "%%%s", "é%s", "%e", "%q", "%", "%s%s")
NAMES = ("x", "y", "z")

Scope = tuple[tuple[str, str], ...]


class Growing:
    """One expression while it is drawn; `scope` is the names of the loops around, and their kinds."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._left = 12

    def _one(self, options: Sequence[str]) -> str:
        return self._draw(st.sampled_from(options))

    def of(self, kind: str, scope: Scope) -> str:
        """An expression of the kind, if its values at run time are."""
        self._left -= 1
        if self._left < 0 or self._draw(st.integers(0, 3)) == 0:
            return self._leaf(kind, scope)
        return str(getattr(self, f"_{kind}")(scope))

    def _leaf(self, kind: str, scope: Scope) -> str:
        names = [name for name, known in dict(scope).items() if known in (kind, "dyn")]
        if names and self._draw(st.integers(0, 2)):
            return self._one(names)
        return self._one((*CONSTANTS[kind], *READ[kind]))

    def _bool(self, scope: Scope) -> str:  # noqa: PLR0911 - a row for each
        kind = self._one(KINDS)
        match self._one(("==", "<", "&&", "!", "?", "in", "quantifier", "quantifier", "bind")):
            case "==":
                sign = self._one(("==", "!="))
                return f"({self.of(kind, scope)} {sign} {self.of(kind, scope)})"
            case "<":
                sign = self._one(("<", ">="))
                return f"({self.of(INT, scope)} {sign} {self.of(INT, scope)})"
            case "&&":
                sign = self._one(("&&", "||"))
                return f"({self.of(BOOL, scope)} {sign} {self.of(BOOL, scope)})"
            case "!":
                return f"!{self.of(BOOL, scope)}"
            case "in":
                return f"({self.of(kind, scope)} in {self._list(kind, scope)})"
            case "bind":
                name = self._one(NAMES)
                value = self.of(kind, scope)
                return f"cel.bind({name}, {value}, {self.of(BOOL, (*scope, (name, kind)))})"
            case "?":
                return f"({self.of(BOOL, scope)} ? {self.of(BOOL, scope)} : {self.of(BOOL, scope)})"
        macro = self._one(("all", "exists", "exists_one"))
        over, names, inside = self._over(scope)
        return f"{over}.{macro}({names}, {self.of(BOOL, inside)})"

    def _over(self, scope: Scope) -> tuple[str, str, Scope]:
        """What a loop goes over, its names, and what is known in it."""
        first, second = self._draw(st.permutations(NAMES))[:2]
        kind = self._one((*KINDS, "map", "made", "domains"))
        pair = self._draw(st.booleans())
        names = f"{first}, {second}" if pair else first
        if kind == "domains":
            inside = ((first, TEXT), (second, "map")) if pair else ((first, TEXT),)
            return "device.attributes", names, scope + inside
        if kind in ("map", "made"):
            over, keys = (self._one(MAPS), TEXT) if kind == "map" else (self._map(scope), "dyn")
            inside = ((first, keys), (second, "dyn")) if pair else ((first, keys),)
            return over, names, scope + inside
        inside = ((first, INT), (second, kind)) if pair else ((first, kind),)
        return self._list(kind, scope), names, scope + inside

    def _list(self, kind: str, scope: Scope) -> str:
        self._left -= 1
        how = self._one(("plain", "map", "filter", "transformList", "literal"))
        if self._left < 0 or how == "plain":
            return self._one(LISTS[kind])
        if how == "literal":
            return f"[{self.of(kind, scope)}, {self.of(kind, scope)}]"
        if how == "filter":
            name = self._one(NAMES)
            return (
                f"{self._list(kind, scope)}.filter({name}, {self.of(BOOL, (*scope, (name, kind)))})"
            )
        over, names, inside = self._over(scope)
        macro = "transformList" if "," in names else "map"
        condition = f"{self.of(BOOL, inside)}, " if self._draw(st.booleans()) else ""
        return f"{over}.{macro}({names}, {condition}{self.of(kind, inside)})"

    def _map(self, scope: Scope) -> str:
        kind = self._one(KINDS)
        over = self._list(kind, scope) if self._draw(st.booleans()) else self._one(MAPS)
        inside = (*scope, ("x", "dyn"), ("y", "dyn"))
        value = self.of(self._one(KINDS), inside)
        if self._draw(st.booleans()):
            return f"{over}.transformMapEntry(x, y, {{{self.of(TEXT, inside)}: {value}}})"
        return f"{over}.transformMap(x, y, {value})"

    def _int(self, scope: Scope) -> str:
        match self._one(("size", "sum", "+", "-", "*", "item")):
            case "size":
                return f"{self._list(self._one(KINDS), scope)}.size()"
            case "sum":
                return f"{self._list(INT, scope)}.sum()"
            case "item":
                return f"{self._list(INT, scope)}[{self.of(INT, scope)}]"
            case sign:
                return f"({self.of(INT, scope)} {sign} {self.of(INT, scope)})"

    def _text(self, scope: Scope) -> str:
        match self._one(("+", "format", "entry", "?")):
            case "+":
                return f"({self.of(TEXT, scope)} + {self.of(TEXT, scope)})"
            case "format":
                template = self._one(TEMPLATES) + "-" + self._one(TEMPLATES)
                values = ", ".join(self.of(self._one(KINDS), scope) for _ in range(2))
                return f'"{template}".format([{values}])'
            case "entry":
                return f"{self._map(scope)}[{self.of(TEXT, scope)}]"
        return f"({self.of(BOOL, scope)} ? {self.of(TEXT, scope)} : {self.of(TEXT, scope)})"


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """A condition with loops in it."""
    return Growing(draw).of(BOOL, ())


short = st.sampled_from(("a", "fish", "", "Ä", DRIVER))


class Kind(NamedTuple):
    """What makes a device; long texts are made later, so that a failure can be read."""

    text: str | int
    texts: Sequence[str] | tuple[int, int]
    numbers: Sequence[int]
    more: int

    def device(self) -> DeviceValue:
        """The device; a number stands for a text of this length, a pair for so many of them."""
        text = self.text if isinstance(self.text, str) else "b" * self.text
        texts = list(self.texts)
        if isinstance(self.texts, tuple):
            count, length = self.texts
            texts = [f"{number:0{length}}" for number in range(count)]
        attributes = {
            "text": DeviceAttribute(string_value=text),
            "texts": DeviceAttribute(string_values=texts),
            "numbers": DeviceAttribute(int_values=list(self.numbers)),
            "number": DeviceAttribute(int_value=3),
            "x/version": DeviceAttribute(version_value="1.2.3"),
        }
        attributes |= {
            f"more{number}": DeviceAttribute(bool_value=True) for number in range(self.more)
        }
        capacity = {"memory": DeviceCapacity(value="1Gi"), "x/cores": DeviceCapacity(value="4")}
        return DeviceValue(DRIVER, Device(attributes=attributes, capacity=capacity))


fleets = st.lists(
    st.builds(
        Kind,
        st.one_of(short, st.just(5000)),
        st.one_of(st.lists(short, max_size=4), st.sampled_from(((20, 60), (70, 64), (300, 3000)))),
        st.lists(st.sampled_from((0, 1, -3, 2**63 - 1, -(2**63))), max_size=4),
        st.sampled_from((0, 0, 0, 40)),
    ),
    min_size=1,
    max_size=3,
)


class LeftToTheExactOne(Exception):
    """What the generated function does not decide."""


def _leave(_device: DeviceValue, _cancelled: Check = never) -> bool:
    raise LeftToTheExactOne


def differs(
    expression: str, fleet: Sequence[DeviceValue], turns: Turns | None = None
) -> bool | None:
    """Whether the two disagree about a device; None where no function is generated."""
    checked = check.check(parser.parse(expression, ENVIRONMENT), ENVIRONMENT)
    exact = evaluate.program(checked, MAX_COST)
    turns = turns or most_turns(checked, ENVIRONMENT)
    generated = _leave if turns is None else generate.matcher(checked, _leave, turns)
    if generated is _leave:
        return None
    for device in fleet:
        expected: bool | EvaluationError
        try:
            answer = generated(device)
        except LeftToTheExactOne:
            continue
        try:
            expected = evaluate.as_bool(exact(device))
        except EvaluationError as error:
            expected = error
        if answer is not expected:
            return True
    return False


@examples(400)
@given(expressions(), fleets)
def test_a_generated_loop_answers_as_the_counted_evaluation_does(
    expression: str, fleet: list[Kind]
) -> None:
    try:
        found = differs(expression, [kind.device() for kind in fleet])
    except (CompileError, PlanError):
        assume(condition=False)
        return
    assert not found, expression


DEVICE = DeviceValue(
    DRIVER,
    Device(
        attributes={
            "text": DeviceAttribute(string_value="fish"),
            "texts": DeviceAttribute(string_values=["a", "b"]),
            "numbers": DeviceAttribute(int_values=[1, 2, 3]),
        }
    ),
)
LONG = DeviceValue(
    DRIVER, Device(attributes={"texts": DeviceAttribute(string_values=["a" * 3000] * 300)})
)


@pytest.mark.parametrize(
    ("place", "name", "value", "expression"),
    [
        (
            loops._QUANTIFIERS,
            "_||_",
            ("all({holds} for {targets} in {over})", 1),
            f'{OWN}.exists(x, y, x == "text")',
        ),
        (
            loops._QUANTIFIERS,
            "_?_:_",
            ("any({holds} for {targets} in {over})", 0),
            "[1, 1].exists_one(x, x == 1)",
        ),
        (loops.HELPERS, "each", lambda value: value[:1], f'{OWN}.texts.exists(x, x == "b")'),
        (loops.HELPERS, "items", lambda _: [], f"{OWN}.transformMap(x, y, 1).exists(x, y, y == 1)"),
        (
            loops.HELPERS,
            "inserted",
            dict,
            f"{OWN}.texts.transformMapEntry(x, y, {{1: y}}).size() == 1",
        ),
        (
            loops.HELPERS,
            "item",
            lambda values, index: values[index],
            "[1].map(x, x)[-1] == 1",
        ),
        (inline._INLINE, "sum", lambda *_: inline.Code("0", inline.Form.INT), "[1, 2].sum() == 3"),
        (
            inline._INLINE,
            "_*_",
            lambda _writer, _name, operands: inline.Code(
                f"({operands[0].text} * {operands[1].text})", inline.Form.INT
            ),
            f"[1].map(x, x * {2**62} * 2).size() == 1",
        ),
    ],
)
def test_a_loop_that_is_written_wrongly_is_seen(
    monkeypatch: pytest.MonkeyPatch,
    place: dict[str, object],
    name: str,
    value: object,
    expression: str,
) -> None:
    assert differs(expression, [DEVICE]) is False
    monkeypatch.setitem(place, name, value)
    assert differs(expression, [DEVICE]) is True


def test_a_loop_that_is_not_bounded_is_seen() -> None:
    expression = f"{OWN}.texts.all(x, {OWN}.texts.all(y, y == x))"
    assert differs(expression, [LONG]) is False
    assert differs(expression, [LONG], NO_LOOPS) is True


def test_a_template_that_is_written_wrongly_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    expression = '"%x".format([255]) == "ff"'
    assert differs(expression, [DEVICE]) is False
    wrong = {*templates._AS_IT_IS, ("x", inline.Form.INT)}
    monkeypatch.setattr(templates, "_AS_IT_IS", wrong)
    assert differs(expression, [DEVICE]) is True
