# SPDX-License-Identifier: Apache-2.0
"""How is an expression asked of very many devices?

As a Python function made for it, which is several times as fast as walking the tree. The function is an optimist: it is
right about the usual course and raises whenever something else happens (a key is missing, a value is of
another kind, a number too large), and then the exact evaluation decides, errors, absorption and all. So the rule for all
that is written here: *return only what the exact evaluation would return; when in doubt raise.* What cannot be
written that way is not written at all, and the exact evaluation does the work.
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
    """Whether a device is wanted. Raises EvaluationError, and Cancelled where `cancelled` says so before there is an answer."""

    def __call__(self, device: DeviceValue, cancelled: Check = never) -> bool:
        """The answer."""


_CONSTANTS: dict[type, Form] = {
    bool: Form.BOOL,
    bytes: Form.BYTES,
    int: Form.INT,
    str: Form.STRING,
}


def matcher(checked: CheckedAst, exact: Matcher, turns: Turns = NO_LOOPS) -> Matcher:
    """A function that answers as `exact` does, sooner where it can. A loop turns as often as `turns` allows at most."""
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
            "stumble": _stumble,
        }
    )
    exec(compile(source, "<a generated selector>", "exec"), namespace)  # noqa: S102  see writer.py: no text of the expression is in it
    return cast(Matcher, namespace["matches"])


def _stumble() -> bool:
    """Leave it to the exact evaluation."""
    raise Unsupported


# The attributes are looked at in any case: one that cannot be converted fails every expression.
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
    """What stands there; a missing name stumbles."""
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
    return inline.call(writer, expr.function, operands, result)


def _both(writer: Writer, expr: Call) -> Code:
    """`&&` and `||`: what decides early decides here, too; what stumbles before is decided exactly."""
    word = " and " if expr.function == "_&&_" else " or "
    operands = [as_bool(writer, _write(writer, node)) for node in _chain(expr)]
    return Code(f"({word.join(operands)})", Form.BOOL)


def _chain(expr: Call) -> list[Expr]:
    """The operands of `a && b && c`, from the left."""
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
    """`values.?name.orValue(otherwise)`, as the optional is not seen by anybody else."""
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
    """The map and the name in `values.?name` and `values[?name]`."""
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
    """`a.compareTo(b) >= 0` is one comparison."""
    left, right = expr.args
    if not isinstance(left, Call) or left.function != "compareTo" or left.target is None:
        return None
    if not isinstance(right, Constant) or type(right.value) is not int or right.value != 0:
        return None
    target, other = _write(writer, left.target), _write(writer, left.args[0])
    return inline.compare_to(writer, inline.COMPARISONS[expr.function], target, other)


def _format(writer: Writer, expr: Call) -> Code | None:
    """A constant template is read here; others are left to the function itself."""
    template, arguments = expr.target, expr.args[0]
    if not isinstance(template, Constant) or not isinstance(arguments, ListLiteral):
        return None
    if not isinstance(template.value, str) or arguments.optional_indices:
        return None
    with writer.deeper():  # as many brackets as two operands inside each other
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
