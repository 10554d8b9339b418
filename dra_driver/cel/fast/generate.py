# SPDX-License-Identifier: Apache-2.0
"""How is one expression evaluated quickly for very many devices?

This module generates a Python function from the tree. It is several times as fast as the exact evaluation. The function
handles the common case only. If anything else happens (a key is missing, a value has another type, a number is too large),
the function gives up: it raises an exception, and the exact evaluation starts from the beginning. Only the exact evaluation
knows errors and the operators that ignore errors. So there is one rule for all generated code: *return only what the exact evaluation would return. If
in doubt, raise.* An expression that cannot be written in this way gets no generated function.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, cast

from dra_driver.cel.cancellation import Check, never
from dra_driver.cel.checked_ast import CheckedAst
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.fast import inline, loops, templates
from dra_driver.cel.fast.writer import (
    ATTRIBUTES,
    CAPACITY,
    Code,
    Form,
    Unsupported,
    Writer,
    as_bool,
    form_of,
)
from dra_driver.cel.syntax.ast import (
    Call,
    Comprehension,
    Constant,
    ConstantValue,
    Expr,
    Identifier,
    ListLiteral,
    Select,
)
from dra_driver.cel.turns import NO_LOOPS, Turns
from dra_driver.cel.types import DYN


class Matcher(Protocol):
    """Returns whether the selector matches a device. EvaluationError if the evaluation fails, Cancelled if `cancelled` ends it."""

    def __call__(self, device: DeviceValue, cancelled: Check = never) -> bool:
        """Return whether the selector matches."""


_CONSTANTS: dict[type, Form] = {
    bool: Form.BOOL,
    bytes: Form.BYTES,
    int: Form.INT,
    str: Form.STRING,
}


def matcher(checked: CheckedAst, exact: Matcher, turns: Turns = NO_LOOPS) -> Matcher:
    """Return the generated function, or `exact` itself if the expression has none. Both have the same results.

    `turns` limits the iterations of loops. A device that needs more goes to `exact`.
    """
    writer = Writer(checked, turns)
    try:
        answer = as_bool(writer, _write(writer, checked.parsed.root))
    except Unsupported:
        return exact
    source = _SOURCE.format(prologue="".join(map(_LINE.format, writer.prologue)), answer=answer)
    namespace = (
        writer.namespace
        | loops.HELPERS
        | {
            "exact": exact,
            "never": never,
            "give_up": _give_up,
        }
    )
    exec(compile(source, "<a generated selector>", "exec"), namespace)  # noqa: S102 - no text of the expression is in it: see writer.py
    return cast(Matcher, namespace["matches"])


def _give_up() -> bool:
    """Give up: the exact evaluation takes over."""
    raise Unsupported


# The function reads the attributes in any case, because an attribute that cannot be converted fails every expression.
_SOURCE = """\
def matches(device, cancelled=never):
    try:
        attributes = device.attributes
{prologue}        return {answer}
    except Exception:
        return exact(device, cancelled)
"""
_LINE = "        {}\n"


def _write(writer: Writer, expr: Expr) -> Code:
    with writer.deeper():
        match expr:
            case Constant():
                return writer.constant(expr.value, _constant_form(expr.value))
            case Identifier():
                return writer.variable(expr.name)
            case Select():
                return _select(writer, expr)
            case Call():
                return _call(writer, expr)
            case ListLiteral():
                return _list(writer, expr)
            case Comprehension():
                return loops.loop(writer, expr, _write)
            case _:
                raise Unsupported


def _constant_form(value: ConstantValue) -> Form:
    return _CONSTANTS.get(type(value), Form.ANYTHING)


def _list(writer: Writer, expr: ListLiteral) -> Code:
    if expr.optional_indices:
        raise Unsupported
    elements = [_write(writer, node) for node in expr.elements]
    forms = {element.form for element in elements}
    text = f"[{', '.join(element.text for element in elements)}]"
    return Code(text, Form.LIST, forms.pop() if len(forms) == 1 else Form.ANYTHING)


# --- fields and keys --------------------------------------------------------------------------------------------------


def _select(writer: Writer, expr: Select) -> Code:
    if _is_device(writer, expr.operand):
        return _field(writer, expr)
    operand = _write(writer, expr.operand)
    if expr.test_only:
        if operand.form is Form.VALUES:
            return Code(f"({expr.field!r} in {operand.text})", Form.BOOL)
        raise Unsupported
    return _value_at(writer, operand, writer.constant(expr.field, Form.STRING))


def _is_device(writer: Writer, expr: Expr) -> bool:
    return (
        isinstance(expr, Identifier) and expr.name == "device" and not writer.is_variable(expr.name)
    )


def _field(writer: Writer, expr: Select) -> Code:
    if expr.test_only:
        raise Unsupported
    return _FIELDS.get(expr.field) or writer.part(expr.field)


_FIELDS = {
    "driver": Code("device.driver", Form.STRING),
    "allowMultipleAllocations": Code("device.allow_multiple_allocations", Form.BOOL),
}


def _value_at(writer: Writer, operand: Code, key: Code) -> Code:
    """Return the value at a key. The generated code gives up if the key is missing."""
    if key.form is Form.STRING and operand.form is Form.DOMAINS:
        if key.constant and operand.text in {ATTRIBUTES, CAPACITY}:
            return writer.values_of(operand, key)
        return Code(f"{operand.text}[{key.text}]", Form.VALUES, operand.element)
    if key.form is Form.STRING and operand.form is Form.VALUES:
        return Code(f"{operand.text}[{key.text}]", operand.element)
    if key.form is Form.INT and operand.form is Form.LIST:
        return Code(f"item({operand.text}, {key.text})", operand.element)
    if operand.form is Form.MAP:
        return Code(f"entry({operand.text}, {key.text})", operand.element)
    raise Unsupported


# --- calls ------------------------------------------------------------------------------------------------------------


def _call(writer: Writer, expr: Call) -> Code:
    special = _SPECIAL.get(expr.function)
    code = special(writer, expr) if special is not None else None
    if code is not None:
        return code
    nodes = expr.args if expr.target is None else (expr.target, *expr.args)
    operands = [_write(writer, node) for node in nodes]
    result = form_of(writer.checked.types.get(expr.id, DYN))
    overload = writer.checked.only_overload(expr.id)
    return inline.call(writer, expr.function, operands, result, overload)


def _both(writer: Writer, expr: Call) -> Code:
    """Write `&&` or `||`.

    Python also stops at the first operand that decides. If an operand gives up, the exact evaluation starts.
    """
    word = " and " if expr.function == "_&&_" else " or "
    operands = [as_bool(writer, _write(writer, node)) for node in _chain(expr)]
    return Code(f"({word.join(operands)})", Form.BOOL)


def _chain(expr: Call) -> list[Expr]:
    """Return the operands of `a && b && c`, from the left."""
    operands: list[Expr] = []
    rest: list[Expr] = [expr]
    while rest:
        node = rest.pop()
        if isinstance(node, Call) and node.function == expr.function:
            rest += reversed(node.args)
        else:
            operands.append(node)
    return operands


def _not(writer: Writer, expr: Call) -> Code:
    return Code(f"(not {as_bool(writer, _write(writer, expr.args[0]))})", Form.BOOL)


def _choice(writer: Writer, expr: Call) -> Code:
    condition = as_bool(writer, _write(writer, expr.args[0]))
    yes, no = (_write(writer, node) for node in expr.args[1:])
    form = yes.form if yes.form is no.form else Form.ANYTHING
    if Form.DOMAINS in (yes.form, no.form) or yes.element is not no.element:
        raise Unsupported
    return Code(f"({yes.text} if {condition} else {no.text})", form, yes.element)


def _index(writer: Writer, expr: Call) -> Code:
    operand, key = (_write(writer, node) for node in expr.args)
    return _value_at(writer, operand, key)


def _or_value(writer: Writer, expr: Call) -> Code:
    """Write `values.?name.orValue(otherwise)`. Nothing else uses the optional, so the generated code makes none."""
    values, name = _optional(writer, expr.target)
    otherwise = _write(writer, expr.args[0])
    found = writer.name()
    form = values.element if values.element is otherwise.form else Form.ANYTHING
    missing = writer.constant(_MISSING, Form.ANYTHING).text
    test = f"({found} := {values.text}.get({name.text}, {missing})) is {missing}"
    return Code(f"({otherwise.text} if {test} else {found})", form)


def _has_value(writer: Writer, expr: Call) -> Code:
    values, name = _optional(writer, expr.target)
    return Code(f"({name.text} in {values.text})", Form.BOOL)


def _optional(writer: Writer, expr: Expr | None) -> tuple[Code, Code]:
    """Return the map and the name in `values.?name` and `values[?name]`."""
    if not isinstance(expr, Call) or expr.function not in {"_?._", "_[?_]"}:
        raise Unsupported
    values, name = (_write(writer, node) for node in expr.args)
    if values.form is not Form.VALUES or name.form is not Form.STRING:
        raise Unsupported
    return values, name


def _in(writer: Writer, expr: Call) -> Code | None:
    container = expr.args[1]
    if isinstance(container, ListLiteral):
        return inline.in_constants(writer, _write(writer, expr.args[0]), container)
    return None


def _compared(writer: Writer, expr: Call) -> Code | None:
    """Write `a.compareTo(b) >= 0` as one comparison. Returns None if the call has another form."""
    left, right = expr.args
    if not isinstance(left, Call) or left.function != "compareTo" or left.target is None:
        return None
    if not isinstance(right, Constant) or type(right.value) is not int or right.value != 0:
        return None
    target, other = _write(writer, left.target), _write(writer, left.args[0])
    return inline.compare_to(writer, inline.COMPARISONS[expr.function], target, other)


def _format(writer: Writer, expr: Call) -> Code | None:
    """Write format() with a constant template. Returns None for another template: format() itself parses it at run time."""
    template, arguments = expr.target, expr.args[0]
    if not isinstance(template, Constant) or not isinstance(arguments, ListLiteral):
        return None
    if not isinstance(template.value, str) or arguments.optional_indices:
        return None
    with writer.deeper():  # A filled template has as many nested brackets as two operands.
        operands = [_write(writer, node) for node in arguments.elements]
    return templates.filled(writer, template.value, operands)


def _dyn(writer: Writer, expr: Call) -> Code:
    return _write(writer, expr.args[0])


_MISSING = object()
_SPECIAL: Mapping[str, Callable[[Writer, Call], Code | None]] = {
    "_&&_": _both,
    "_||_": _both,
    "!_": _not,
    "_?_:_": _choice,
    "_[_]": _index,
    "orValue": _or_value,
    "hasValue": _has_value,
    "@in": _in,
    "dyn": _dyn,
    "format": _format,
} | dict.fromkeys(inline.COMPARISONS, _compared)
