# SPDX-License-Identifier: Apache-2.0
"""Which calls become Python operators in a generated function, and which call the exact implementation?

Most selectors compare values, use `in`, test texts, and compare versions and quantities with a constant. These calls are
inlined. Inlined code handles the usual types; for other types it calls the exact implementation or gives up. A function in
`STRICT` is called directly: it evaluates all its arguments, and its result depends only on their values.
"""

from collections.abc import Callable
from functools import lru_cache

from dra_driver.cel import regex
from dra_driver.cel.fast.writer import SCALARS, Code, Form, Unsupported, Writer
from dra_driver.cel.functions import FUNCTIONS
from dra_driver.cel.library import regexes
from dra_driver.cel.library.quantity import Quantity
from dra_driver.cel.library.semver import Semver
from dra_driver.cel.overloads import Dispatcher, Overload
from dra_driver.cel.syntax.ast import Constant, ListLiteral

Operands = list[Code]
Inline = Callable[[Writer, str, Operands], Code | None]
"""Writes a call. Returns None if it cannot; then the call is written like a call of any other function."""


COMPARISONS = {"_==_": "==", "_!=_": "!=", "_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_EQUALITIES = frozenset({"_==_", "_!=_"})
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# For each pattern, the results for 256 texts of at most 64 characters are kept. No string attribute has more characters.
_TEXTS, _SHORT = 256, 64
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1

STRICT = frozenset(
    """
    _==_ _!=_ _<_ _<=_ _>_ _>=_ _-_ _*_ _/_ _%_ -_ size contains startsWith endsWith matches
    int double string bool bytes duration timestamp
    lowerAscii upperAscii trim replace split substring charAt indexOf lastIndexOf join format
    quantity isQuantity sign isGreaterThan isLessThan compareTo asInteger isInteger asApproximateFloat
    semver isSemver major minor patch includes isSorted sum min max
    ip isIP cidr isCIDR containsIP containsCIDR family isLoopback prefixLength
    getFullYear getMonth getDate getHours getMinutes getSeconds
    """.split()  # noqa: SIM905 - easier to read than a list of string literals
)
_FOLDED = frozenset({"quantity", "semver", "ip", "cidr", "duration", "timestamp", "-_"})


def call(
    writer: Writer, function: str, operands: Operands, result: Form, overload: str = ""
) -> Code:
    """Write a call of a function that evaluates all its arguments. The target is the first operand.

    `overload` is the ID of the overload if the static types leave only one.
    """
    if function in _FOLDED and all(operand.constant for operand in operands):
        return writer.folded(function, operands, result)
    inline = _INLINE.get(function)
    code = inline(writer, function, operands) if inline is not None else None
    if code is not None:
        return code
    if function not in STRICT:
        raise Unsupported
    direct = _only_overload(function, operands)
    if direct is not None:
        return _direct(writer, direct, operands, result)
    arguments = (operand.text for operand in operands)
    return Code(writer.call(function, *arguments, overload=overload), result)


def _only_overload(function: str, operands: Operands) -> Overload | None:
    """Return the only overload with this number of arguments, if its types are plain. Then no code must select an overload."""
    dispatcher = FUNCTIONS.get(function)
    if not isinstance(dispatcher, Dispatcher):
        return None
    fitting = [
        overload for overload in dispatcher.overloads if len(overload.parameters) == len(operands)
    ]
    plain = len(fitting) == 1 and all(item.kind in _PLAIN for item in fitting[0].parameters)
    return fitting[0] if plain else None


def _direct(writer: Writer, overload: Overload, operands: Operands, result: Form) -> Code:
    """Write a call of one overload's implementation, with a type check for each operand whose type is not known."""
    implementation = writer.constant(overload.implementation, Form.ANYTHING).text
    arguments, checks = [], []
    for operand, parameter in zip(operands, overload.parameters, strict=True):
        if operand.form is _PLAIN[parameter.kind]:
            arguments.append(operand.text)
            continue
        arguments.append(writer.name())
        kind = SCALARS[_PLAIN[parameter.kind]]
        checks.append(f"type({arguments[-1]} := {operand.text}) is {kind}")
    text = f"{implementation}({', '.join(arguments)})"
    if checks:
        text = f"({text} if {' and '.join(checks)} else give_up())"
    return Code(text, result)


_PLAIN = {"string": Form.STRING, "int": Form.INT, "bool": Form.BOOL, "bytes": Form.BYTES}


# --- comparisons ------------------------------------------------------------------------------------------------------


def _compare(writer: Writer, function: str, operands: Operands) -> Code | None:
    left, right = operands
    sign = COMPARISONS[function]
    if left.form is right.form and left.form in SCALARS:
        return Code(f"({left.text} {sign} {right.text})", Form.BOOL)
    for one, other, way in ((left, right, sign), (right, left, _MIRRORED[sign])):
        if other.constant and one.form is Form.ANYTHING and other.form in SCALARS:
            return _beside_constant(writer, function, operands, (one, way, other))
    if function in _EQUALITIES and right.constant and isinstance(right.value, Quantity | Semver):
        return _ordered(writer, left, sign, right)
    return None


def _beside_constant(
    writer: Writer, function: str, operands: Operands, comparison: tuple[Code, str, Code]
) -> Code:
    """Write the comparison of a value with a constant. For values of another type the exact implementation is called."""
    one, sign, constant = comparison
    name = writer.name()
    texts = [name if operand is one else operand.text for operand in operands]
    usual = (
        f"{name} {sign} {constant.text} if type({name} := {one.text}) is {SCALARS[constant.form]}"
    )
    return Code(f"({usual} else {writer.call(function, *texts)})", Form.BOOL)


def _ordered(writer: Writer, left: Code, sign: str, right: Code) -> Code | None:
    """Write a comparison with a constant version or quantity. A value of another type lacks the Python attribute and raises."""
    name = writer.name()
    if isinstance(right.value, Quantity) and right.value.scale == 0:
        usual = f"{name}.value {sign} {right.value.value}"
        odd = f"({name} := {left.text}).scale"
    elif isinstance(right.value, Semver) and not right.value.prerelease:
        version = (right.value.major, right.value.minor, right.value.patch)
        usual = f"({name}.major, {name}.minor, {name}.patch) {sign} {version!r}"
        odd = f"({name} := {left.text}).prerelease"
    else:
        return None
    return Code(f"(give_up() if {odd} else {usual})", Form.BOOL)


def _order(writer: Writer, function: str, operands: Operands) -> Code | None:
    """Write isGreaterThan or isLessThan."""
    left, right = operands
    sign = ">" if function == "isGreaterThan" else "<"
    return _ordered(writer, left, sign, right) if right.constant else None


def compare_to(writer: Writer, sign: str, left: Code, right: Code) -> Code | None:
    """Write `left.compareTo(right) sign 0` as one comparison."""
    return _ordered(writer, left, sign, right) if right.constant else None


# --- the rest ---------------------------------------------------------------------------------------------------------


def _in(writer: Writer, _function: str, operands: Operands) -> Code | None:
    """Write `in` for a name in a map of the device, or a value in a computed list or map. `in_constants` writes literal lists."""
    element, container = operands
    if element.form is Form.STRING and container.form in {Form.DOMAINS, Form.VALUES}:
        return Code(f"({element.text} in {container.text})", Form.BOOL)
    if container.form is Form.LIST and element.form is container.element in SCALARS:
        return Code(f"({element.text} in {container.text})", Form.BOOL)
    if container.form in {Form.LIST, Form.MAP}:
        return Code(writer.call("@in", element.text, container.text), Form.BOOL)
    raise Unsupported


def in_constants(writer: Writer, element: Code, constants: ListLiteral) -> Code:
    """Write `in` for a value in a literal list of texts or of ints."""
    values = [item.value for item in constants.elements if isinstance(item, Constant)]
    kinds = {type(value) for value in values}
    if len(values) != len(constants.elements) or kinds not in ({str}, {int}):
        raise Unsupported
    (kind,) = kinds
    known = writer.constant(frozenset(values), Form.ANYTHING).text
    if element.form is (Form.STRING if kind is str else Form.INT):
        return Code(f"({element.text} in {known})", Form.BOOL)
    name = writer.name()
    usual = f"{name} in {known} if type({name} := {element.text}) is {kind.__name__}"
    return Code(f"({usual} else give_up())", Form.BOOL)


def _matches(writer: Writer, _function: str, operands: Operands) -> Code | None:
    """Write matches() with a constant pattern. The devices of a cluster have few different texts, so the results are kept.

    To compile a pattern can take seconds. So a computed pattern is left to the exact evaluation, which can be cancelled.
    """
    text, pattern = operands
    if not isinstance(pattern.value, str):
        raise Unsupported
    compiled = regex.compile_pattern(pattern.value).matches
    search = writer.constant(compiled, Form.ANYTHING).text
    known = writer.constant(lru_cache(maxsize=_TEXTS)(compiled), Form.ANYTHING).text
    name = writer.name()
    found = f"({known} if len({name}) <= {_SHORT} else {search})({name})"
    usual = f"{found} if type({name} := {text.text}) is str"
    return Code(f"({usual} else give_up())", Form.BOOL)


def _find(writer: Writer, function: str, operands: Operands) -> Code | None:
    """Write find() or findAll() with a constant pattern."""
    text, pattern, *limit = operands
    if not isinstance(pattern.value, str):
        raise Unsupported
    found = writer.constant(regexes.WITH_CONSTANT[function](pattern.value), Form.ANYTHING).text
    arguments = ", ".join(operand.text for operand in (text, pattern, *limit))
    form, element = _FOUND[function]
    return Code(f"{found}({arguments})", form, element)


_FOUND = {"find": (Form.STRING, Form.ANYTHING), "findAll": (Form.LIST, Form.STRING)}


def _ascii_case(writer: Writer, function: str, operands: Operands) -> Code:
    """Write lowerAscii() or upperAscii(). Python changes letters outside ASCII too, so such a text makes the function give up."""
    name = writer.name()
    usual = f"type({name} := {operands[0].text}) is str and {name}.isascii()"
    return Code(f"({name}.{_CASES[function]}() if {usual} else give_up())", Form.STRING)


_CASES = {"lowerAscii": "lower", "upperAscii": "upper"}
_TEXT_METHODS = {"startsWith": "startswith", "endsWith": "endswith", "contains": "__contains__"}


def _text_test(_writer: Writer, function: str, operands: Operands) -> Code | None:
    """Write startsWith, endsWith or contains. A method of the class `str` raises TypeError if the target is no text."""
    target, argument = operands
    if argument.form is not Form.STRING:
        return None
    return Code(f"str.{_TEXT_METHODS[function]}({target.text}, {argument.text})", Form.BOOL)


def _size(_writer: Writer, _function: str, operands: Operands) -> Code | None:
    if operands[0].form in _SIZED:
        return Code(f"len({operands[0].text})", Form.INT)
    return None


_SIZED = frozenset({Form.STRING, Form.BYTES, Form.LIST, Form.MAP, Form.DOMAINS, Form.VALUES})


def _sum(writer: Writer, _function: str, operands: Operands) -> Code | None:
    (elements,) = operands
    if elements.form is not Form.LIST or elements.element is not Form.INT:
        return None
    return Code(f"{writer.constant(_total, Form.ANYTHING).text}({elements.text})", Form.INT)


def _total(numbers: list[int]) -> int:
    """Return the sum. Gives up if some order of additions could overflow, because CEL reports that as an error."""
    if sum(map(abs, numbers)) > _INT_MAX:
        raise Unsupported
    return sum(numbers)


def _arithmetic(writer: Writer, function: str, operands: Operands) -> Code | None:
    sign = function[1]
    if all(operand.form is Form.INT for operand in operands):
        name = writer.name()
        result = f"({name} := {operands[0].text} {sign} {operands[1].text})"
        return Code(f"({name} if {_INT_MIN} <= {result} <= {_INT_MAX} else give_up())", Form.INT)
    if sign == "+":
        return _concatenation(operands)
    return None


def _concatenation(operands: Operands) -> Code:
    """Write a sum of texts. In cel-go a sum of lists can change its left operand, so only the exact evaluation adds lists."""
    form = operands[0].form
    if form is operands[1].form and form in {Form.STRING, Form.BYTES}:
        return Code(f"({operands[0].text} + {operands[1].text})", form)
    raise Unsupported


_INLINE: dict[str, Inline] = {
    **dict.fromkeys(COMPARISONS, _compare),
    **dict.fromkeys(_TEXT_METHODS, _text_test),
    **dict.fromkeys(_CASES, _ascii_case),
    **dict.fromkeys(("_+_", "_-_", "_*_"), _arithmetic),
    **dict.fromkeys(("isGreaterThan", "isLessThan"), _order),
    **dict.fromkeys(_FOUND, _find),
    "@in": _in,
    "size": _size,
    "matches": _matches,
    "sum": _sum,
}
