# SPDX-License-Identifier: Apache-2.0
"""The program text of a generated function, and what it may assume of values.

Nothing of an expression's text becomes program text: strings and numbers enter by repr(), other values and functions by
a namespace, and variables get numbers in place of their names. A piece of text is always one operand: a name, a literal, a call, or
in brackets. Python's parser takes a limited number of brackets inside each other, so the depth is bounded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count

from dra_driver.cel import values
from dra_driver.cel.checked_ast import CheckedAst
from dra_driver.cel.failures import Aborted, EvaluationError
from dra_driver.cel.functions import FUNCTIONS
from dra_driver.cel.turns import NO_LOOPS, Turns
from dra_driver.cel.types import Kind, Type

_DEEPEST, _MOST_NODES = 40, 2_000
_LOOK_AT_CAPACITY = "capacity = device.capacity"
_LOOK_AT_TEXTS = "device.short_texts or stumble()"
_WITH_LITERALS = frozenset({bool, bytes, int, str, type(None)})
ATTRIBUTES, CAPACITY = "attributes", "capacity"


class Unsupported(Exception):
    """What cannot be written as Python, or not so that it surely means the same."""


class Form(Enum):
    """What Python surely finds when a piece of text is evaluated."""

    ANYTHING = auto()
    BOOL = auto()
    BYTES = auto()
    DOUBLE = auto()
    INT = auto()
    LIST = auto()
    MAP = auto()
    """what a loop made: its keys are encoded by `values.key_of`"""
    STRING = auto()
    UINT = auto()
    QUANTITY = auto()
    SEMVER = auto()
    DOMAINS = auto()
    """device.attributes or device.capacity: every domain can be looked up"""
    VALUES = auto()
    """a dict of one domain's values by name"""


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
    """What a static type promises."""
    return _FORMS.get(type_.kind) or _NAMED_FORMS.get(type_.name, Form.ANYTHING)


@dataclass(frozen=True, slots=True)
class Code:
    """One operand of program text, what it gives, and the value if it is known already."""

    text: str
    form: Form
    element: Form = Form.ANYTHING
    value: object = None
    constant: bool = False


def _unequal(left: object, right: object) -> bool:
    """What cannot be compared is not equal, and no error; what would take too long to compare is left to the exact one."""
    try:
        return not values.equal(left, right)
    except Aborted:
        raise
    except EvaluationError:
        return True


_EXACT: dict[str, Callable[..., object]] = {
    **FUNCTIONS,
    "_==_": values.equal,
    "_!=_": _unequal,
}


@dataclass(slots=True)
class Writer:
    """What has been written so far for one expression."""

    checked: CheckedAst
    turns: Turns = NO_LOOPS
    prologue: list[str] = field(default_factory=list)
    namespace: dict[str, object] = field(default_factory=dict)
    _variables: dict[str, list[Code]] = field(default_factory=dict)
    _depth: int = 0
    _nodes: int = 0
    _numbers: Iterator[int] = field(default_factory=count)
    _domains: dict[tuple[str, str], str] = field(default_factory=dict)
    _functions: dict[str, str] = field(default_factory=dict)

    def name(self) -> str:
        """A variable that nothing else uses."""
        return f"v{next(self._numbers)}"

    def constant(self, value: object, form: Form) -> Code:
        """A value that is known already."""
        if type(value) in _WITH_LITERALS:
            return Code(repr(value), form, value=value, constant=True)
        name = f"k{next(self._numbers)}"
        self.namespace[name] = value
        return Code(name, form, value=value, constant=True)

    def call(self, function: str, *operands: str) -> str:
        """A call of the exact implementation, which finds out itself what it is given."""
        name = self._functions.get(function)
        if name is None:
            name = self._functions[function] = f"f{next(self._numbers)}"
            self.namespace[name] = _EXACT[function]
        return f"{name}({', '.join(operands)})"

    def folded(self, function: str, operands: Sequence[Code], form: Form) -> Code:
        """The value of a function of constants."""
        try:
            value = _EXACT[function](*(operand.value for operand in operands))
        except EvaluationError as error:
            raise Unsupported from error
        return self.constant(value, form)

    def require_short_texts(self) -> None:
        """Leave devices to the exact evaluation that have longer texts than the loops were allowed for."""
        if self.turns.short_texts and _LOOK_AT_TEXTS not in self.prologue:
            self.prologue.insert(0, _LOOK_AT_TEXTS)

    def part(self, name: str) -> Code:
        """device.attributes or device.capacity."""
        if name == CAPACITY and _LOOK_AT_CAPACITY not in self.prologue:
            self.prologue.insert(0, _LOOK_AT_CAPACITY)
        return Code(name, Form.DOMAINS, Form.QUANTITY if name == CAPACITY else Form.ANYTHING)

    def values_of(self, part: Code, domain: Code) -> Code:
        """The values of a domain, looked up once; one that is not there is empty, so this cannot fail."""
        name = self._domains.get((part.text, domain.text))
        if name is None:
            name = self._domains[part.text, domain.text] = self.name()
            self.prologue.append(f"{name} = {part.text}[{domain.text}]")
        return Code(name, Form.VALUES, part.element)

    def variable(self, name: str) -> Code:
        """What a name of the expression stands for."""
        if not self.is_variable(name):
            raise Unsupported
        return self._variables[name][-1]

    def is_variable(self, name: str) -> bool:
        """Whether the name is one that the expression gave."""
        return bool(self._variables.get(name))

    @contextmanager
    def bound(self, name: str, code: Code) -> Iterator[None]:
        """Where a name of the expression stands for something."""
        self._variables.setdefault(name, []).append(code)
        yield
        self._variables[name].pop()

    @contextmanager
    def bound_all(self, codes: Mapping[str, Code]) -> Iterator[None]:
        """The same for the variables of a loop."""
        with ExitStack() as names:
            for name, code in codes.items():
                names.enter_context(self.bound(name, code))
            yield

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One operand inside another."""
        self._depth += 1
        self._nodes += 1
        if self._depth > _DEEPEST or self._nodes > _MOST_NODES:
            raise Unsupported
        yield
        self._depth -= 1


def as_bool(writer: Writer, code: Code) -> str:
    """The operand where only a bool will do."""
    if code.form is Form.BOOL:
        return code.text
    name = writer.name()
    return f"({name} if ({name} := {code.text}) is True or {name} is False else stumble())"
