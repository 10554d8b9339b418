# SPDX-License-Identifier: Apache-2.0
"""Does a device satisfy a CEL selector? A stand-in on cel-python, until the driver has a CEL compiler of its own.

Kubernetes evaluates selectors with cel-go and libraries of its own. cel-python knows the language's core, checks no
types and differs in places, so this stand-in gives three kinds of answer and never a guess:

- true or false, as Kubernetes answers, provided that it takes the expression at all: without a type check the stand-in
  may answer where the API server had refused (`true || "text"`);
- `SelectorError`: Kubernetes too would fail here, most often on an attribute that the device lacks (in a real cluster
  that ends the scheduling of the whole pod, whatever other devices there are);
- `CannotEvaluate`: this stand-in does not know. That holds for optionals (`.?`), `cel.bind`, the string, list, set,
  regex and IP libraries, two-variable macros, and for operators on two types that cel-python treats unlike cel-go.

Known here: the core's operators, macros and string functions, quantities and semantic versions. No cost is counted.

Two effects reach beyond this module: the first `Selector` makes cel-python raise the interpreter's recursion limit for
the whole process, and cel-python's loggers are silenced, since they report errors that are answers here. Neither the
daemon nor anything that it imports uses this module.
"""

import importlib
import logging
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dra_driver.errors import Fatal, Permanent
from dra_driver.model.quantity import Quantity
from dra_driver.testing.semver import Semver

LONGEST_EXPRESSION_BYTES = 10 * 1024

# Names that a selector may call: everything else cel-python has is either unknown to Kubernetes or not the same there.
_GLOBALS = frozenset(
    {"has", "size", "matches", "quantity", "isQuantity", "sign", "semver", "isSemver"}
)
_QUANTITY_MEMBERS = frozenset({"isInteger", "asInteger", "asApproximateFloat", "add", "sub"})
_ORDER_MEMBERS = frozenset({"compareTo", "isGreaterThan", "isLessThan"})
_VERSION_MEMBERS = ("major", "minor", "patch")
_TEXT_MEMBERS = frozenset({"size", "contains", "startsWith", "endsWith", "matches"})
_MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
_MEMBERS = _QUANTITY_MEMBERS | _ORDER_MEMBERS | _TEXT_MEMBERS | _MACROS | {*_VERSION_MEMBERS}
_MACRO_ARGUMENTS = 2
_ODD_SHAPES = ("member_object", "dot_ident", "dot_ident_arg")
_DEVICE_FIELDS = frozenset(("driver", "attributes", "capacity", "allowMultipleAllocations"))
# What cel-python lets through instead of an error of its own, for example of a macro over something that is no list.
_SLIPS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_INT64 = 2**63
_NANO = 10**9

Device = Mapping[str, Any]
"""A device as `spec.devices[]` of a ResourceSlice holds it."""


class CannotEvaluate(Permanent):
    """The stand-in does not know what Kubernetes would answer."""


class SelectorError(Permanent):
    """Kubernetes too would fail to evaluate this selector on this device."""


class Selector:
    """One CEL expression, read once and asked for many devices."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        if len(expression.encode()) > LONGEST_EXPRESSION_BYTES:
            raise SelectorError(
                f"selector of {len(expression.encode())} bytes: at most {LONGEST_EXPRESSION_BYTES} are allowed; shorten it"
            )
        self._celpy = _load()
        environment = self._celpy.Environment()
        try:
            tree = environment.compile(expression)
        except self._celpy.CELParseError as error:
            raise CannotEvaluate(
                f"selector {expression!r}: this is no CEL, or CEL that the stand-in cannot read"
                f" (optionals like .? are of that kind); write it with has() or `in`, or ask a real cluster"
            ) from error
        _check_names(tree, expression)
        self._program = environment.program(tree, functions=_functions(self._celpy))

    def __repr__(self) -> str:
        return f"Selector({self.expression!r})"

    def matches(self, driver: str, device: Device) -> bool:
        """Whether a device of this driver's slice satisfies the selector."""
        value = _device(self._celpy.celtypes, driver, device)
        try:
            result = self._program.evaluate({"device": value})
        except self._celpy.CELEvalError as error:
            raise self._translated(error, str(device.get("name"))) from error
        except _SLIPS as error:
            raise CannotEvaluate(
                f"selector {self.expression!r} on device {device.get('name')}: cel-python itself failed ({error!r});"
                " ask a real cluster"
            ) from error
        if not isinstance(result, self._celpy.celtypes.BoolType):
            raise SelectorError(
                f"selector {self.expression!r} on device {device.get('name')}: the result is"
                f" {result!r}, not true or false; compare it with something"
            )
        return bool(result)

    def _translated(self, error: Exception, device: str) -> CannotEvaluate | SelectorError:
        text, kind, details = (*error.args, None, None)[:3]
        where = f"selector {self.expression!r} on device {device}"
        if kind is KeyError:
            key = details[0] if details else str(text).rpartition(": ")[2].strip("'")
            return SelectorError(
                f"{where}: no such key: {key}; guard it with has() or `in`, or compare the driver first"
            )
        if kind is ValueError and details:
            return SelectorError(f"{where}: {details[0]}")
        return CannotEvaluate(
            f"{where}: cel-python has no answer for operands of these types ({text});"
            " compare values of one type, or ask a real cluster"
        )


def _load() -> Any:
    try:
        logging.getLogger("celpy").setLevel(logging.CRITICAL)
        return importlib.import_module("celpy")
    except ImportError as error:
        raise Fatal(
            "evaluating CEL needs the package cel-python: pip install dra-driver[demo]"
        ) from error


def _check_names(tree: Any, expression: str) -> None:
    """Refuse what the stand-in does not know before `||` or `&&` can swallow its absence."""
    for problem in (*_unknown_calls(tree), *_unknown_names(tree)):
        raise CannotEvaluate(
            f"selector {expression!r}: {problem} is not known to the stand-in; ask a real cluster"
        )


def _unknown_calls(tree: Any) -> Iterator[str]:
    for call in tree.find_data("ident_arg"):
        if str(call.children[0]) not in _GLOBALS:
            yield f"function {call.children[0]}()"
    for call in tree.find_data("member_dot_arg"):
        if str(call.children[1]) not in _MEMBERS:
            yield f"function .{call.children[1]}()"
    for macro in _macros(tree):
        if len(macro.children[2:]) != 1 or len(macro.children[2].children) != _MACRO_ARGUMENTS:
            yield f"macro .{macro.children[1]}() with another number of arguments than two"


def _unknown_names(tree: Any) -> Iterator[str]:
    known = {"device", *(name for macro in _macros(tree) for name in _variables(macro))}
    for name in tree.find_data("ident"):
        if str(name.children[0]) not in known:
            yield f"name {name.children[0]}"
    for field in tree.find_data("member_dot"):
        if _is_device(field.children[0]) and str(field.children[1]) not in _DEVICE_FIELDS:
            yield f"field device.{field.children[1]}"
    for shape in _ODD_SHAPES:
        if next(tree.find_data(shape), None) is not None:
            yield "a message literal or a name with a leading dot"


def _macros(tree: Any) -> Iterator[Any]:
    return (call for call in tree.find_data("member_dot_arg") if str(call.children[1]) in _MACROS)


def _variables(macro: Any) -> Iterator[str]:
    for argument in macro.children[2:]:
        for name in argument.children[0].find_data("ident"):
            yield str(name.children[0])


def _is_device(member: Any) -> bool:
    """Whether this syntax tree is the bare name `device`."""
    shape = [str(node.data) for node in member.iter_subtrees()]
    return sorted(shape) == ["ident", "member", "primary"] and [
        str(name.children[0]) for name in member.find_data("ident")
    ] == ["device"]


def _device(celtypes: Any, driver: str, device: Device) -> Any:
    """The variable `device` as Kubernetes builds it: bare names belong to the driver's own domain."""
    text = celtypes.StringType

    def by_domain(values: Mapping[str, Any], convert: Callable[[Any, Any], Any]) -> Any:
        domains: Any = _domains(celtypes)()
        for name, value in values.items():
            domain, _, identifier = name.rpartition("/")
            inner = domains.setdefault(text(domain or driver), celtypes.MapType())
            inner[text(identifier)] = convert(celtypes, value)
        return domains

    return celtypes.MapType(
        {
            text("driver"): text(driver),
            text("attributes"): by_domain(device.get("attributes") or {}, _attribute),
            text("capacity"): by_domain(device.get("capacity") or {}, _capacity),
            text("allowMultipleAllocations"): celtypes.BoolType(
                bool(device.get("allowMultipleAllocations"))
            ),
        }
    )


def _domains(celtypes: Any) -> Any:
    """A map whose unknown keys answer an empty map when indexed, and are absent all the same for `in`."""
    parent = celtypes.MapType

    def lookup(domains: Any, key: Any, _default: object = None) -> Any:
        return parent.__getitem__(domains, key) if key in domains else parent()

    return type("Domains", (parent,), {"__getitem__": lookup, "get": lookup})


def _attribute(celtypes: Any, attribute: Mapping[str, Any]) -> Any:
    ((kind, value),) = attribute.items()
    if kind == "version":
        return Opaque(Semver.parse(value))
    kinds = {"string": celtypes.StringType, "int": celtypes.IntType, "bool": celtypes.BoolType}
    if kind not in kinds:
        raise CannotEvaluate(
            f"an attribute of kind {kind!r} is not known to the stand-in; ask a real cluster"
        )
    return kinds[kind](value)


def _capacity(_: Any, capacity: Mapping[str, Any]) -> "Opaque":
    return Opaque(Quantity.parse(str(capacity["value"])))


class Opaque:
    """A quantity or version inside CEL: equal or not within its type; no other operators, as in Kubernetes."""

    __slots__ = ("value",)

    def __init__(self, value: Quantity | Semver) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return self.value == _same(self, other).value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return str(self.value)


def _same(one: Opaque, other: object) -> Opaque:
    if not isinstance(other, Opaque) or type(one.value) is not type(other.value):
        raise TypeError(f"no such overload: {type(one.value).__name__} with {type(other).__name__}")
    return other


def _functions(celpy: Any) -> dict[str, Callable[..., Any]]:
    celtypes = celpy.celtypes
    integer, boolean = celtypes.IntType, celtypes.BoolType

    def parsed(parse: Callable[[str], Quantity | Semver], text: Any) -> Opaque:
        if not isinstance(text, celtypes.StringType):
            raise TypeError("no such overload: a string is needed")
        return Opaque(parse(str(text)))

    def readable(parse: Callable[[str], Quantity | Semver], text: Any) -> Any:
        try:
            parsed(parse, text)
        except ValueError:
            return boolean(False)
        return boolean(True)

    def compared(test: Callable[[Any, Any], bool]) -> Callable[[Opaque, object], Any]:
        return lambda one, other: boolean(test(one.value, _same(one, other).value))

    def order(one: Opaque, other: object) -> Any:
        second: Any = _same(one, other).value
        return integer((one.value > second) - (one.value < second))

    def arithmetic(apply: Callable[[int, int], int]) -> Callable[[Opaque, Any], Opaque]:
        def act(one: Opaque, other: Any) -> Opaque:
            quantity = _quantity(one)
            more = int(other) * _NANO if isinstance(other, integer) else _quantity(other).nanos
            return Opaque(Quantity(apply(quantity.nanos, more), quantity.format))

        return act

    return {
        **_strict_operators(celpy),
        "quantity": lambda text: parsed(Quantity.parse, text),
        "isQuantity": lambda text: readable(Quantity.parse, text),
        "sign": lambda one: integer((_quantity(one).nanos > 0) - (_quantity(one).nanos < 0)),
        "semver": lambda text: parsed(Semver.parse, text),
        "isSemver": lambda text: readable(Semver.parse, text),
        "compareTo": order,
        "isGreaterThan": compared(operator.gt),
        "isLessThan": compared(operator.lt),
        "isInteger": lambda one: boolean(_whole(_quantity(one)) is not None),
        "asInteger": lambda one: integer(_integer(_quantity(one))),
        "asApproximateFloat": lambda one: celtypes.DoubleType(_quantity(one).nanos / _NANO),
        "add": arithmetic(operator.add),
        "sub": arithmetic(operator.sub),
        **{
            name: lambda one, place=place: integer(_semver(one).numbers[place])
            for place, name in enumerate(_VERSION_MEMBERS)
        },
    }


def _strict_operators(celpy: Any) -> dict[str, Callable[..., Any]]:
    """Operators for which cel-python would answer although cel-go answers otherwise, or nothing."""
    original = celpy.evaluation.base_functions

    def compared(name: str) -> Callable[[Any, Any], Any]:
        def act(one: Any, other: Any) -> Any:
            _refuse_bool_with_another(celpy, one, other)
            return original[name](one, other)

        return act

    def contained(item: Any, container: Any) -> Any:
        if isinstance(container, celpy.celtypes.ListType):
            for member in container:
                if type(member) is not type(item):
                    raise TypeError("no such overload: a list of several types")
        return original["_in_"](item, container)

    def indexed(container: Any, key: Any) -> Any:
        if isinstance(container, str):
            raise TypeError("no such overload: a string has no index")
        return original["_[_]"](container, key)

    return {
        "_==_": compared("_==_"),
        "_!=_": compared("_!=_"),
        "_in_": contained,
        "_[_]": indexed,
    }


def _refuse_bool_with_another(celpy: Any, one: Any, other: Any) -> None:
    if any(isinstance(operand, celpy.CELEvalError) for operand in (one, other)):
        return  # an operand that already failed stays what it is
    if isinstance(one, celpy.celtypes.BoolType) is not isinstance(other, celpy.celtypes.BoolType):
        raise TypeError("no such overload: bool with another type")


def _quantity(one: object) -> Quantity:
    if isinstance(one, Opaque) and isinstance(one.value, Quantity):
        return one.value
    raise TypeError("no such overload: a quantity is needed")


def _semver(one: object) -> Semver:
    if isinstance(one, Opaque) and isinstance(one.value, Semver):
        return one.value
    raise TypeError("no such overload: a version is needed")


def _whole(quantity: Quantity) -> int | None:
    value, rest = divmod(quantity.nanos, _NANO)
    return value if rest == 0 and -_INT64 <= value < _INT64 else None


def _integer(quantity: Quantity) -> int:
    value = _whole(quantity)
    if value is None:
        raise ValueError(f"cannot convert value {quantity} to integer")
    return value
