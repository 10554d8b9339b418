# SPDX-License-Identifier: Apache-2.0
"""Does an expression have type errors, and what is the type of each node?

Each node gets a type. Each call gets a list of overloads that match its arguments; the values select one of them at run
time. In `a.b.c`, `a` can be a variable with fields, or `a.b.c` can be one qualified name. The checker finds out which. The
checked tree has one `Identifier` for a qualified name, and `optional.none()` becomes a call without a target. After an
error the checker continues, so that the author sees all errors at once.
Source: cel-go checker/checker.go, checker/env.go.
"""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from dra_driver.cel import types, work
from dra_driver.cel.checked_ast import CheckedAst, Reference
from dra_driver.cel.checking import hints, validate
from dra_driver.cel.checking.unify import Substitutions, TooManyStepsError, bounded, more_general
from dra_driver.cel.declarations import Declarations, OverloadDecl, declarations
from dra_driver.cel.errors import Issue, error_of
from dra_driver.cel.syntax.ast import (
    Call,
    Comprehension,
    Constant,
    Expr,
    Identifier,
    ListLiteral,
    MapEntry,
    MapLiteral,
    ParsedAst,
    Select,
    StructField,
    StructLiteral,
    Uint,
)
from dra_driver.cel.syntax.unparse import unparse
from dra_driver.cel.types import Kind, Type
from dra_driver.cel.versions import Environment

# From 1.37 on, `.name` skips the variables of comprehensions, and `list{}` is a literal.
_NAMES_RESOLVED_ANEW = 37
_SECOND_VARIABLES = 33  # From 1.33 on, the second variable of a comprehension over dyn has a type.


__all__ = ["CheckedAst", "Reference", "check"]

Hint = str | Callable[[], str]


def check(parsed: ParsedAst, environment: Environment) -> CheckedAst:
    """Check the types of an expression. CompileError lists all issues."""
    checker = _Checker(parsed, environment)
    try:
        return checker.checked()
    except TooManyStepsError:
        issue = Issue("the types of the expression are too large to be compared", None)
        raise error_of(parsed.expression, [*checker.issues, issue]) from None


class _Checker:
    """Checks one expression. An object can run only once."""

    def __init__(self, parsed: ParsedAst, environment: Environment) -> None:
        self.issues: list[Issue] = []
        self._parsed = parsed
        self._environment = environment
        self._declared: Declarations = declarations(environment)
        self._known = Substitutions()  # The types found so far for type parameters.
        self._types: dict[int, Type] = {}
        self._references: dict[int, Reference] = {}
        self._scopes: list[dict[str, Type]] = []  # The variables of comprehensions, innermost last.
        self._parameters = 0  # Error messages show the names of type parameters (_var3), so this counter counts as cel-go does.

    def checked(self) -> CheckedAst:
        """Check the whole expression. Raises CompileError if there are issues."""
        root = self._check(self._parsed.root)
        if self.issues:
            raise error_of(self._parsed.expression, self.issues)
        # cel-go runs the validators only on an expression without type errors.
        checked = CheckedAst(replace(self._parsed, root=root), self._final(), self._references)
        issues = validate.literals(checked)
        if issues:
            raise error_of(self._parsed.expression, issues)
        return checked

    def _final(self) -> dict[int, Type]:
        """Return the type of each node, with every type parameter replaced. A parameter that is still unknown becomes dyn."""
        # Many nodes share one Type object. The cache by identity keeps this linear.
        resolved: dict[int, Type] = {}
        final: dict[int, Type] = {}
        for node, found in self._types.items():
            if id(found) not in resolved:
                resolved[id(found)] = self._known.resolved(found, finally_=True)
            final[node] = resolved[id(found)]
        return final

    # --- issues

    def _issue(self, node: int, message: str, hint: Hint = "") -> None:
        self.issues.append(Issue(message, self._parsed.offsets[node], hint))

    def _undeclared(self, node: int, name: str, hint: Hint) -> None:
        self._issue(node, f"undeclared reference to '{name}' (in container '')", hint)
        self._types[node] = types.ERROR

    def _mismatch(self, node: int, wanted: Type, found: Type) -> None:
        message = f"expected type '{wanted}' but found '{found}'"
        self._issue(node, message, hints.mismatch(wanted, found))

    def _new_parameter(self) -> Type:
        self._parameters += 1
        return types.parameter(f"_var{self._parameters - 1}")

    # --- nodes

    def _check(self, node: Expr) -> Expr:
        """Find the type of the node. Returns the node of the checked tree."""
        checked: Expr = node
        work.current().steps(1)
        match node:
            case Constant():
                self._types[node.id] = _CONSTANTS[type(node.value)]
            case Identifier():
                checked = self._check_identifier(node)
            case Select():
                checked = self._check_select(node)
            case Call():
                checked = self._check_call(node)
            case ListLiteral():
                checked = self._check_list(node)
            case MapLiteral():
                checked = self._check_map(node)
            case StructLiteral():
                checked = self._check_message(node)
            case _:
                checked = self._check_loop(node)
        return checked

    def _check_all(self, nodes: Sequence[Expr]) -> tuple[Expr, ...]:
        checked: list[Expr] = []
        for node in nodes:
            checked.append(self._check(node))  # noqa: PERF401 - a comprehension needs one more stack frame in each level of the tree
        return tuple(checked)

    # --- names

    def _local(self, name: str) -> Type | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def _named(self, name: str, first: str) -> tuple[str, Type] | None:
        """Return the full name and the type of `name`, or None if it is not declared.

        `name` may be qualified (a.b.c); `first` is its first part. The full name starts with a dot if a variable of a
        comprehension has the same name, so that the evaluator does not take that variable (env.go, resolveSimpleIdent).
        """
        bare = name.removeprefix(".")
        local = self._local(first.removeprefix("."))
        reachable = self._environment.minor >= _NAMES_RESOLVED_ANEW
        if local is not None and not (reachable and name.startswith(".")):
            return (bare, local) if first == name else None
        found = self._declared.identifiers.get(bare) or self._message_type(bare)
        if found is None:
            return None
        return (f".{bare}" if local is not None else bare), found

    def _message_type(self, name: str) -> Type | None:
        made = self._declared.messages.get(name) or _KUBERNETES_SCALARS.get(name)
        return None if made is None else types.type_of(made)

    def _check_identifier(self, node: Identifier) -> Expr:
        found = self._named(node.name, node.name)
        if found is None:
            self._undeclared(node.id, node.name, partial(hints.name, node.name, self._names()))
            return node
        return self._refer(node.id, *found)

    def _refer(self, node: int, name: str, found: Type) -> Expr:
        self._types[node] = found
        self._references[node] = Reference(name, value=_ENUM_VALUES.get(name.removeprefix(".")))
        return Identifier(node, name)

    def _names(self) -> list[str]:
        names = [
            name for scope in self._scopes for name in scope if not name.startswith(("@", "#"))
        ]
        return [*names, *self._declared.identifiers]

    def _check_select(self, node: Select) -> Expr:
        # The longest name wins: a declared `a.b.c` comes before a field c of `a.b`. But has(a.b.c) always tests a field.
        qualified = None if node.test_only else _qualified(node)
        if qualified is not None:
            found = self._named(".".join(qualified), qualified[0])
            if found is not None:
                return self._refer(node.id, *found)
        # No qualified name: the operand is a value, and `field` one of its fields.
        operand = self._check(node.operand)
        field = self._field_type(node.id, node.operand, node.field, optional=False)
        self._types[node.id] = types.BOOL if node.test_only else self._known.resolved(field)
        if operand is node.operand:
            return node
        return Select(node.id, operand, node.field, node.test_only)

    def _field_type(self, node: int, operand: Expr, field: str, *, optional: bool) -> Type:
        target = self._known.resolved(self._types[operand.id])
        # A field of an optional is an optional: CEL passes "none" through a chain of selections.
        if types.is_optional(target):
            target, optional = target.parameters[0], True
        found = types.DYN
        match target.kind:
            case Kind.MAP:
                found = target.parameters[1]
            case Kind.STRUCT:
                found = self._message_field(node, target.name, field)
            case Kind.PARAMETER:
                # The element of an empty list, for example. After the selection it can only be dyn.
                self._known.assignable(types.DYN, target)
            case Kind.DYN | Kind.ANY | Kind.ERROR:
                pass
            case _:
                message = f"type '{target}' does not support field selection"
                self._issue(node, message, hints.selection(target, field))
        return types.optional_of(found) if optional else found

    def _message_field(self, node: int, message: str, field: str) -> Type:
        fields = self._declared.fields.get(message)
        if fields is None and message not in self._declared.messages:
            self._issue(
                node, f"unexpected failed resolution of '{message}'", hints.no_fields(message)
            )
            return types.ERROR
        if fields is None or field not in fields:
            self._issue(
                node, f"undefined field '{field}'", partial(hints.field, field, fields or {})
            )
            return types.ERROR
        return fields[field]

    # --- calls

    def _check_call(self, node: Call) -> Expr:
        if node.function == "_?._":
            return self._check_optional_select(node)
        # cel-go checks the arguments before the target. The order decides the numbers of type parameters.
        args = self._check_all(node.args)
        if node.target is None:
            return self._resolve(node, node.function.removeprefix("."), None, args)
        # `a.b.f(x)` is a member function f on the value a.b, or a function with the qualified name a.b.f.
        path = _qualified(node.target)
        if path is not None:
            name = ".".join([*path, node.function]).removeprefix(".")
            if name in self._declared.functions:
                return self._resolve(node, name, None, args)
        return self._resolve(node, node.function, self._check(node.target), args)

    def _check_optional_select(self, node: Call) -> Expr:
        operand, field = node.args
        checked = self._check(operand)
        name = field.value if isinstance(field, Constant) and isinstance(field.value, str) else ""
        found = self._field_type(node.id, operand, name, optional=True)
        self._types[node.id] = self._known.resolved(found)
        self._references[node.id] = Reference(overload_ids=("select_optional_field",))
        return Call(node.id, node.function, (checked, field))

    def _resolve(
        self, node: Call, function: str, target: Expr | None, args: tuple[Expr, ...]
    ) -> Expr:
        checked = Call(node.id, function, args, target)
        overloads = self._declared.functions.get(function)
        if overloads is None:
            name = node.function if target is None else function
            self._undeclared(node.id, name, partial(hints.function, function, self._declared))
            return checked
        operands = args if target is None else (target, *args)
        given = [self._types[operand.id] for operand in operands]
        # cel-go checks the operands of && and || one by one, so that the issue names the wrong one (resolveOverload).
        if function in ("_&&_", "_||_"):
            self._check_logic(node.id, overloads[0], operands, given)
            return checked
        fitting, result = self._fitting(overloads, given, member=target is not None)
        if result is None:
            self._no_overload(
                node, function, [self._known.resolved(one, finally_=True) for one in given]
            )
            return checked
        self._types[node.id] = result
        self._references[node.id] = Reference(overload_ids=tuple(fitting))
        return checked

    def _check_logic(
        self, node: int, overload: OverloadDecl, operands: Sequence[Expr], given: Sequence[Type]
    ) -> None:
        self._types[node] = types.BOOL
        self._references[node] = Reference(overload_ids=(overload.id,))
        for operand, found in zip(operands, given, strict=True):
            if not self._known.assignable(found, types.BOOL):
                self._mismatch(operand.id, types.BOOL, found)
                self._types[node] = types.ERROR

    def _fitting(
        self, overloads: Sequence[OverloadDecl], given: Sequence[Type], *, member: bool
    ) -> tuple[list[str], Type | None]:
        """Return the IDs of the matching overloads and the type of the call.

        The type is dyn if their result types differ, None if none matches.
        """
        fitting: list[str] = []
        result: Type | None = None
        for overload in overloads:
            if overload.member is not member:
                continue
            if len(overload.arguments) != len(given):
                # cel-go also numbers the parameters of overloads that do not match. Messages show these numbers.
                self._parameters += len(overload.parameters)
                continue
            arguments, returned = self._instance(overload)
            if not self._known.all_assignable(given, arguments):
                continue
            # All matching overloads stay: the static type may be dyn, and the values select one at run time.
            fitting.append(overload.id)
            found = self._known.resolved(returned)
            if result is None:
                result = found
            elif not types.is_dyn(result) and found != result:
                result = types.DYN
        return fitting, result

    def _instance(self, overload: OverloadDecl) -> tuple[Sequence[Type], Type]:
        """Return the argument and result types with new type parameters: two calls must not share type parameters."""
        if not overload.parameters:
            return overload.arguments, overload.result
        fresh = {name: self._new_parameter() for name in overload.parameters}
        arguments = [types.renamed(argument, fresh) for argument in overload.arguments]
        return arguments, types.renamed(overload.result, fresh)

    def _no_overload(self, node: Call, function: str, given: Sequence[Type]) -> None:
        self._types[node.id] = types.ERROR
        member = node.target is not None and function == node.function
        head = f"{given[0]}." if member else ""
        applied = f"{head}({', '.join([str(one) for one in given[member:]])})"
        message = f"found no matching overload for '{function}' applied to '{applied}'"
        self._issue(node.id, message, partial(self._overload_hint, node, function, given))

    def _overload_hint(self, node: Call, function: str, given: Sequence[Type]) -> str:
        operands = node.args if node.target is None else (node.target, *node.args)
        written = [unparse(self._parsed, one) for one in operands[-len(given) :]]
        return hints.overload(function, given, self._declared, written)

    # --- literals

    def _joined(self, before: Type | None, found: Type) -> Type:
        """Return the common type of the elements so far and one more, or dyn if the types differ.

        `validate` reports this later.
        """
        if before is None:
            return found
        if self._known.assignable(before, found):
            return more_general(before, found)
        return types.DYN

    def _optional_element(self, node: Expr) -> Type:
        """Return the type of an element with the mark ?, which is the type of the optional's value."""
        found = self._types[node.id]
        if types.is_optional(found):
            return found.parameters[0]
        if not types.is_dyn(found):
            self._mismatch(node.id, types.optional_of(found), found)
        return found

    def _check_list(self, node: ListLiteral) -> Expr:
        element: Type | None = None
        checked: list[Expr] = []
        for index, one in enumerate(node.elements):
            checked.append(self._check(one))
            optional = index in node.optional_indices
            found = self._optional_element(one) if optional else self._types[one.id]
            element = self._joined(element, found)
        self._types[node.id] = bounded(types.list_of(element or self._new_parameter()))
        return ListLiteral(node.id, tuple(checked), node.optional_indices)

    def _check_map(self, node: MapLiteral) -> Expr:
        key: Type | None = None
        value: Type | None = None
        entries: list[MapEntry] = []
        for entry in node.entries:
            checked_key = self._check(entry.key)
            key = self._joined(key, self._types[entry.key.id])
            checked_value = self._check(entry.value)
            optional = entry.optional
            found = self._optional_element(entry.value) if optional else self._types[entry.value.id]
            value = self._joined(value, found)
            entries.append(MapEntry(entry.id, checked_key, checked_value, entry.optional))
        # The types of an empty map are unknown until the map is used: {} == {"a": 1}.
        if key is None or value is None:
            key, value = self._new_parameter(), self._new_parameter()
        self._types[node.id] = bounded(types.map_of(key, value))
        return MapLiteral(node.id, tuple(entries))

    def _check_message(self, node: StructLiteral) -> Expr:
        name = node.type_name.removeprefix(".")
        made = self._made(node, name)
        if made is None:
            return node
        self._references[node.id] = Reference(name)
        self._types[node.id] = made
        fields: list[StructField] = []
        for field in node.fields:
            fields.append(replace(field, value=self._check(field.value)))
            self._check_message_field(_PROTOBUF_NAMES.get(made.kind, made.name), field)
        return replace(node, type_name=name, fields=tuple(fields))

    def _made(self, node: StructLiteral, name: str) -> Type | None:
        found = self._message_type(name) or self._declared.identifiers.get(name)
        if found is None or found.kind is not Kind.TYPE or not found.parameters:
            hint = partial(hints.name, name, self._declared.messages)
            self._undeclared(node.id, node.type_name, hint)
            return None
        made = found.parameters[0]
        plain_names = self._environment.minor >= _NAMES_RESOLVED_ANEW
        is_json = made in _JSON and (plain_names or "." in name)
        # cel-go accepts every well-known protobuf type here, although most of them are plain values for an expression.
        if made.kind in _MESSAGE_KINDS or made.wrapper or is_json:
            return made
        self._issue(node.id, f"'{made.name}' is not a message type")
        return types.ERROR

    def _check_message_field(self, message: str, field: StructField) -> None:
        wanted = self._message_field(field.id, message, field.name)
        found = self._types[field.value.id]
        if field.optional:
            found = self._optional_element(field.value)
        if not self._known.assignable(wanted, found):
            self._issue(
                field.id,
                f"expected type of field '{field.name}' is '{wanted}' but provided type is"
                f" '{found}'",
            )

    # --- comprehensions

    def _check_loop(self, node: Comprehension) -> Expr:
        over = self._check(node.iter_range)
        start = self._check(node.accu_init)
        accumulator = self._types[node.accu_init.id]
        variables = self._loop_variables(node)
        # The result sees the accumulator but not the variables. So there are two scopes.
        self._scopes += [{node.accu_var: accumulator}, variables]
        condition = self._check(node.loop_condition)
        self._assert_type(node.loop_condition, types.BOOL)
        step = self._check(node.loop_step)
        self._assert_type(node.loop_step, accumulator)
        self._scopes.pop()
        result = self._check(node.result)
        self._scopes.pop()
        self._types[node.id] = self._known.resolved(self._types[node.result.id])
        return replace(
            node,
            iter_range=over,
            accu_init=start,
            loop_condition=condition,
            loop_step=step,
            result=result,
        )

    def _loop_variables(self, node: Comprehension) -> dict[str, Type]:
        over = self._known.resolved(self._types[node.iter_range.id])
        match over.kind:
            case Kind.LIST:
                first, second = types.INT, over.parameters[0]
            case Kind.MAP:
                first, second = over.parameters
            case Kind.DYN | Kind.ERROR | Kind.PARAMETER:
                # As in cel-go, a range of unknown type is treated as dyn, and so are the variables.
                self._known.assignable(types.DYN, over)
                first, second = types.DYN, self._second(types.DYN)
            case _:
                message = (
                    f"expression of type '{over}' cannot be range of a comprehension"
                    " (must be list, map, or dynamic)"
                )
                self._issue(node.iter_range.id, message, hints.range_(over))
                first, second = types.ERROR, self._second(types.ERROR)
        # With one variable, a list gives its elements and a map its keys. With two, a list gives index and element.
        if node.iter_var2:
            return {node.iter_var2: second, node.iter_var: first}
        return {node.iter_var: over.parameters[0] if over.kind is Kind.LIST else first}

    def _second(self, same: Type) -> Type:
        """Return the type of the second variable of a comprehension over dyn. In 1.32 cel-go does not set it, which is a bug."""
        return same if self._environment.minor >= _SECOND_VARIABLES else types.UNSPECIFIED

    def _assert_type(self, node: Expr, wanted: Type) -> None:
        found = self._types[node.id]
        if not self._known.assignable(wanted, found):
            self._mismatch(node.id, wanted, found)


def _qualified(node: Expr) -> list[str] | None:
    """Return the parts of a qualified name a.b.c. Returns None if the node is anything else."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test_only:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Identifier):
        return None
    return [node.name, *reversed(parts)]


_ENUM_VALUES = {"google.protobuf.NullValue.NULL_VALUE": 0}
_CONSTANTS: dict[type, Type] = {
    bool: types.BOOL,
    int: types.INT,
    Uint: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
}
# Kubernetes declares names of its own for two simple types. `duration{}` is still an error: they are not messages.
_KUBERNETES_SCALARS = {"duration": types.DURATION, "timestamp": types.TIMESTAMP}
_MESSAGE_KINDS = frozenset(
    {Kind.STRUCT, Kind.ANY, Kind.TIMESTAMP, Kind.DURATION, Kind.DYN, Kind.NULL}
)
_JSON = (types.list_of(types.DYN), types.map_of(types.STRING, types.DYN))
_PROTOBUF_NAMES = {
    Kind.ANY: "google.protobuf.Any",
    Kind.BOOL: "google.protobuf.BoolValue",
    Kind.BYTES: "google.protobuf.BytesValue",
    Kind.DOUBLE: "google.protobuf.DoubleValue",
    Kind.DURATION: "google.protobuf.Duration",
    Kind.DYN: "google.protobuf.Value",
    Kind.INT: "google.protobuf.Int64Value",
    Kind.LIST: "google.protobuf.ListValue",
    Kind.NULL: "google.protobuf.NullValue",
    Kind.MAP: "google.protobuf.Struct",
    Kind.STRING: "google.protobuf.StringValue",
    Kind.TIMESTAMP: "google.protobuf.Timestamp",
    Kind.UINT: "google.protobuf.UInt64Value",
}
