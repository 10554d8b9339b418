# SPDX-License-Identifier: Apache-2.0
"""How is the Python text of a generated function written, and which types do its values have?

No text of the expression becomes Python text. Strings and numbers are written with repr(). Other values and functions are
in the namespace of the function. Variables get numbers instead of their names. Each piece of text is one operand: a name, a
literal, a call, or text in parentheses. Python's parser limits nested parentheses, so the depth is limited.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum, auto
from itertools import count

from msgspec import Struct, field

from dra_driver.cel import values
from dra_driver.cel.checked_ast import CheckedAst
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.functions import FUNCTIONS
from dra_driver.cel.library import operators
from dra_driver.cel.overloads import Dispatcher
from dra_driver.cel.turns import NO_LOOPS, Turns
from dra_driver.cel.types import Kind, Type
from dra_driver.cel.work import SHORT_TEXT

_DEEPEST, _MOST_NODES = 40, 2_000
_LOOK_AT_CAPACITY = "capacity = device.capacity"
_LOOK_AT_TEXTS = "device.short_texts or give_up()"
_ROOM = f"room = {1 << 16}"  # characters of all texts that the loops make for one device
_WITH_LITERALS = frozenset({bool, bytes, int, str, type(None)})
ATTRIBUTES, CAPACITY = "attributes", "capacity"


class Unsupported(Exception):
    """The expression cannot be written as Python with the same meaning. A generated function raises it to give up."""


class Form(Enum):
    """The Python type of the value of a piece of text. ANYTHING if the type is not known."""

    ANYTHING = auto()
    BOOL = auto()
    BYTES = auto()
    DOUBLE = auto()
    INT = auto()
    LIST = auto()
    MAP = auto()
    """A map that a loop made. `values.key_of` has encoded its keys."""
    STRING = auto()
    UINT = auto()
    QUANTITY = auto()
    SEMVER = auto()
    DOMAINS = auto()
    """device.attributes or device.capacity. A lookup of an unknown domain gives an empty map."""
    VALUES = auto()
    """The values of one domain, by name."""


_FORMS = {
    Kind.BOOL: Form.BOOL,
    Kind.BYTES: Form.BYTES,
    Kind.DOUBLE: Form.DOUBLE,
    Kind.INT: Form.INT,
    Kind.LIST: Form.LIST,
    Kind.STRING: Form.STRING,
    Kind.UINT: Form.UINT,
}
_NAMED_FORMS = {"kubernetes.Quantity": Form.QUANTITY, "kubernetes.Semver": Form.SEMVER}
SCALARS = {
    Form.BOOL: "bool",
    Form.BYTES: "bytes",
    Form.INT: "int",
    Form.STRING: "str",
}
"""The forms whose values Python compares as CEL does, and the name of the type."""


def form_of(type_: Type) -> Form:
    """Return the form of all values of a static type."""
    return _FORMS.get(type_.kind) or _NAMED_FORMS.get(type_.name, Form.ANYTHING)


class Code(Struct, frozen=True):
    """One operand of Python text: its form, the form of its elements, and its value if the operand is `constant`."""

    text: str
    form: Form
    element: Form = Form.ANYTHING
    value: object = None
    constant: bool = False


_EXACT: dict[str, Callable[..., object]] = {
    **FUNCTIONS,
    "_==_": values.equal,
    "_!=_": operators.not_equal,
}


class Writer(Struct):
    """The state while the function of one expression is written."""

    checked: CheckedAst
    turns: Turns = NO_LOOPS
    prologue: list[str] = field(default_factory=list)
    namespace: dict[str, object] = field(default_factory=dict)
    _variables: dict[str, list[Code]] = field(default_factory=dict)
    _depth: int = 0
    _nodes: int = 0
    _loops: int = 0
    _numbers: Iterator[int] = field(default_factory=count)
    _domains: dict[tuple[str, str], str] = field(default_factory=dict)
    _functions: dict[tuple[str, str], str] = field(default_factory=dict)

    def name(self) -> str:
        """Return a new variable name."""
        return f"v{next(self._numbers)}"

    def constant(self, value: object, form: Form) -> Code:
        """Return the operand for a constant."""
        if type(value) in _WITH_LITERALS:
            return Code(repr(value), form, value=value, constant=True)
        name = f"k{next(self._numbers)}"
        self.namespace[name] = value
        return Code(name, form, value=value, constant=True)

    def call(self, function: str, *operands: str, overload: str = "") -> str:
        """Write a call of the exact implementation, which checks the types of its arguments itself.

        `overload` is its ID if the static types leave only one. The values of an empty list do not show which one is meant.
        """
        name = self._functions.get((function, overload))
        if name is None:
            name = self._functions[function, overload] = f"f{next(self._numbers)}"
            exact = _EXACT[function]
            if overload and isinstance(exact, Dispatcher):
                exact = exact.overload(overload)
            self.namespace[name] = exact
        return f"{name}({', '.join(operands)})"

    def folded(self, function: str, operands: Sequence[Code], form: Form) -> Code:
        """Return the result of a function whose arguments are constants. Raises Unsupported if it fails."""
        try:
            value = _EXACT[function](*(operand.value for operand in operands))
        except EvaluationError as error:
            raise Unsupported from error
        return self.constant(value, form)

    def require_short_texts(self) -> None:
        """Let the function give up for a device with longer texts than the limits of the loops assume."""
        if self.turns.short_texts and _LOOK_AT_TEXTS not in self.prologue:
            self.prologue.insert(0, _LOOK_AT_TEXTS)

    def short_text(self, text: str) -> str:
        """Return code for a text of at most SHORT_TEXT characters; it gives up for a longer one. Growing texts cost nothing in CEL.

        In loops the code also limits the length of all texts of one device together.
        """
        name = self.name()
        short = f"len({name} := {text}) <= {SHORT_TEXT}"
        if self._loops:
            if _ROOM not in self.prologue:
                self.prologue.insert(0, _ROOM)
            short += f" and (room := room - len({name})) >= 0"
        return f"({name} if {short} else give_up())"

    def part(self, name: str) -> Code:
        """Return the operand device.attributes or device.capacity."""
        if name == CAPACITY and _LOOK_AT_CAPACITY not in self.prologue:
            self.prologue.insert(0, _LOOK_AT_CAPACITY)
        return Code(name, Form.DOMAINS, Form.QUANTITY if name == CAPACITY else Form.ANYTHING)

    def values_of(self, part: Code, domain: Code) -> Code:
        """Return the values of a domain, which are looked up once, at the start.

        The lookup cannot fail: an unknown domain is empty.
        """
        name = self._domains.get((part.text, domain.text))
        if name is None:
            name = self._domains[part.text, domain.text] = self.name()
            self.prologue.append(f"{name} = {part.text}[{domain.text}]")
        return Code(name, Form.VALUES, part.element)

    def variable(self, name: str) -> Code:
        """Return the operand for a variable of the expression. Raises Unsupported if the expression has no such variable."""
        if not self.is_variable(name):
            raise Unsupported
        return self._variables[name][-1]

    def is_variable(self, name: str) -> bool:
        """Return whether the expression has defined this variable."""
        return bool(self._variables.get(name))

    @contextmanager
    def bound(self, name: str, code: Code) -> Iterator[None]:
        """Define a variable of the expression for the code that is written inside."""
        self._variables.setdefault(name, []).append(code)
        yield
        self._variables[name].pop()

    @contextmanager
    def bound_all(self, codes: Mapping[str, Code]) -> Iterator[None]:
        """Define the variables of a loop for its body."""
        with ExitStack() as names:
            for name, code in codes.items():
                names.enter_context(self.bound(name, code))
            self._loops += 1
            yield
            self._loops -= 1

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Enter a nested operand. Raises Unsupported if the nesting is too deep or the function too long."""
        self._depth += 1
        self._nodes += 1
        if self._depth > _DEEPEST or self._nodes > _MOST_NODES:
            raise Unsupported
        yield
        self._depth -= 1


def as_bool(writer: Writer, code: Code) -> str:
    """Return the operand as a bool. The generated code gives up for any other value."""
    if code.form is Form.BOOL:
        return code.text
    name = writer.name()
    return f"({name} if ({name} := {code.text}) is True or {name} is False else give_up())"
