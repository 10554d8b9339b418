# SPDX-License-Identifier: Apache-2.0
"""How are macros written as Python?

all, exists and exists_one become all(), any() and sum(). map, filter, transformList and transformMap become comprehensions.
cel.bind becomes an assignment. The parser has replaced the macros, so this module recognizes its expansions (see
syntax/macros.py). A generated function does not count its cost. Instead it gives up before a loop that would have more
iterations than the cost estimate assumed (see costs/turns.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from msgspec import Struct

from dra_driver.cel import values
from dra_driver.cel.fast.writer import Code, Form, Unsupported, Writer, as_bool
from dra_driver.cel.functions import FUNCTIONS
from dra_driver.cel.syntax.ast import (
    Call,
    Comprehension,
    Constant,
    Expr,
    ListLiteral,
    MapLiteral,
)
from dra_driver.cel.values import LiteralMap, MutableMap

Write = Callable[[Writer, Expr], Code]

_MOST_TURNS = 10_000
_ONE_ENTRY = 1


def loop(writer: Writer, expr: Comprehension, write: Write) -> Code:
    """Return the code for a comprehension. Raises Unsupported if it comes from no macro that this module knows."""
    if isinstance(expr.iter_range, ListLiteral) and not expr.iter_range.elements:
        return _bind(writer, expr, write)
    if writer.is_variable(expr.accu_var) or expr.accu_var in (expr.iter_var, expr.iter_var2):
        raise Unsupported  # A variable of the expression hides the accumulator.
    writer.require_short_texts()
    if isinstance(expr.accu_init, Constant):
        return _quantifier(writer, expr, write)
    return _collector(writer, expr, write)


def _bind(writer: Writer, expr: Comprehension, write: Write) -> Code:
    """Write cel.bind. CEL evaluates the value at its first use, this code at once. If the evaluation fails, the function gives up.

    cel-go may change a bound empty list or map in place. An expression can notice this only in a sum of lists, which is never
    written as Python, and in a map of domains, which is refused here.
    """
    if not isinstance(expr.loop_condition, Constant) or expr.loop_condition.value is not False:
        raise Unsupported
    value = write(writer, expr.accu_init)
    if value.form is Form.DOMAINS:
        raise Unsupported
    name = writer.name()
    with writer.bound(expr.accu_var, Code(name, value.form, value.element)):
        result = write(writer, expr.result)
    text = f"({result.text} if (({name} := {value.text}),) else 0)"
    return Code(text, result.form, result.element)


# --- what a loop goes over --------------------------------------------------------------------------------------------


class _Range(Struct, frozen=True):
    """`for {targets} in {over}`. `check` is the condition that the loop has few iterations."""

    targets: str
    over: str
    check: str
    key: str
    text_keys: bool

    def checked(self, decided: str, form: Form, element: Form = Form.ANYTHING) -> Code:
        """Return code for the result of the loop. The code gives up if the loop would have too many iterations."""
        return Code(f"({decided} if {self.check} else give_up())", form, element)


@contextmanager
def _turning(writer: Writer, expr: Comprehension, over: Code) -> Iterator[_Range]:
    """Return a context with the range of a loop. The loop's variables exist only while the loop's body is written."""
    name, first, second = writer.name(), writer.name(), writer.name()
    two = bool(expr.iter_var2)
    most = writer.turns.most.get(expr.id, _MOST_TURNS)
    keyed = over.form in _KEYS
    elements = over.text if over.form in _SIZED else f"each({over.text})"
    check = f"len({name} := {elements}) <= {most}"
    variables = {}
    if keyed:
        variables[expr.iter_var] = Code(first, _KEYS[over.form])
        inside = Form.VALUES if over.form is Form.DOMAINS else over.element
        element = over.element if over.form is Form.DOMAINS else Form.ANYTHING
        variables[expr.iter_var2] = Code(second, inside, element)
    elif two:
        variables[expr.iter_var] = Code(first, Form.INT)
        variables[expr.iter_var2] = Code(second, over.element)
    else:
        variables[expr.iter_var] = Code(first, over.element)
    if not two:
        variables.pop("", None)
    targets = f"{first}, {second}" if two else first
    with writer.bound_all(variables):
        yield _Range(targets, _iterated(over.form, name, two=two), check, first, keyed)


# The forms that are maps, and the form of their keys. The keys of a computed map are encoded (see values.key_of).
_KEYS = {Form.DOMAINS: Form.STRING, Form.VALUES: Form.STRING, Form.MAP: Form.ANYTHING}
_SIZED = frozenset({*_KEYS, Form.LIST})


def _iterated(form: Form, name: str, *, two: bool) -> str:
    if form is Form.MAP:
        return f"{'items' if two else 'keys'}({name})"
    if not two:
        return name
    return f"{name}.items()" if form in _KEYS else f"enumerate({name})"


# --- all, exists, exists_one ------------------------------------------------------------------------------------------


def _quantifier(writer: Writer, expr: Comprehension, write: Write) -> Code:
    """Write all, exists or exists_one.

    The code stops at the same element as CEL. If it gives up, the exact evaluation decides.
    """
    step = _call(expr.loop_step)
    pattern, place = _QUANTIFIERS[step.function]
    over = write(writer, expr.iter_range)
    with _turning(writer, expr, over) as turns:
        holds = as_bool(writer, write(writer, step.args[place]))
    decided = pattern.format(holds=holds, targets=turns.targets, over=turns.over)
    return turns.checked(decided, Form.BOOL)


# By the function in the loop step: the Python code, and the index of the predicate among the arguments.
_QUANTIFIERS = {
    "_&&_": ("all({holds} for {targets} in {over})", 1),
    "_||_": ("any({holds} for {targets} in {over})", 1),
    "_?_:_": ("sum(1 for {targets} in {over} if {holds}) == 1", 0),
}


# --- map, filter, transformList, transformMap -------------------------------------------------------------------------


def _collector(writer: Writer, expr: Comprehension, write: Write) -> Code:
    """Write map, filter or transform: each step adds an element or entry, or nothing if the predicate is false."""
    step, predicate = _call(expr.loop_step), None
    if step.function == "_?_:_":
        predicate, step = step.args[0], _call(step.args[1])
    over = write(writer, expr.iter_range)
    with _turning(writer, expr, over) as turns:
        holds = f" if {as_bool(writer, write(writer, predicate))}" if predicate else ""
        rest = f"for {turns.targets} in {turns.over}{holds}"
        if step.function == "_+_":
            (added,) = cast(ListLiteral, step.args[1]).elements
            element = write(writer, added)
            return turns.checked(f"[{element.text} {rest}]", Form.LIST, element.form)
        if len(step.args) == len(_ENTRY):
            value = write(writer, step.args[2])
            if turns.text_keys and over.form is not Form.MAP:
                made = f"literal({{{turns.key}: {value.text} {rest}}})"
            else:
                made = f"inserted([({turns.key}, {value.text}) {rest}])"
            return turns.checked(made, Form.MAP, value.form)
        key, value = _one_entry(writer, step.args[1], write)
        return turns.checked(f"inserted([({key.text}, {value.text}) {rest}])", Form.MAP, value.form)


_ENTRY = ("map", "key", "value")


def _one_entry(writer: Writer, entries: Expr, write: Write) -> tuple[Code, Code]:
    """Return the key and the value of `{key: value}` in transformMapEntry. Raises Unsupported for other maps."""
    if not isinstance(entries, MapLiteral) or len(entries.entries) != _ONE_ENTRY:
        raise Unsupported
    (entry,) = entries.entries
    if entry.optional:
        raise Unsupported
    return write(writer, entry.key), write(writer, entry.value)


def _call(step: Expr) -> Call:
    """Return the loop step, which is always a call."""
    return cast(Call, step)


# --- what generated functions call ------------------------------------------------------------------------------------


def _each(value: object) -> list[object]:
    """Return the list. Gives up for another value, because the encoding of a map's keys is not known here."""
    if type(value) is list or isinstance(value, values.PublishedList):
        return value
    raise Unsupported


def _keys(mapping: Mapping[object, object]) -> list[object]:
    return [values.key_value(key) for key in mapping]


def _items(mapping: Mapping[object, object]) -> list[tuple[object, object]]:
    return [(values.key_value(key), value) for key, value in mapping.items()]


def _inserted(pairs: Iterable[tuple[object, object]]) -> LiteralMap:
    """Return the map with these entries. Raises EvaluationError if two keys are equal."""
    made = MutableMap()
    for key, value in pairs:
        _insert(made, key, value)
    return LiteralMap(made)


_insert = FUNCTIONS["cel.@mapInsert"].overload("@mapInsert_map_key_value")


def _item(elements: list[object], index: int) -> object:
    if index < 0:
        raise Unsupported
    return elements[index]


def _entry(mapping: Mapping[object, object], key: object) -> object:
    value, found = values.find(mapping, key)
    if not found:
        raise Unsupported
    return value


HELPERS: dict[str, object] = {
    "each": _each,
    "keys": _keys,
    "items": _items,
    "inserted": _inserted,
    "literal": LiteralMap,
    "item": _item,
    "entry": _entry,
}
