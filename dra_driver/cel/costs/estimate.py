# SPDX-License-Identifier: Apache-2.0
"""How much can the evaluation of an expression cost?

The API server refuses an expression if its estimated cost exceeds a limit. The API server knows no devices at this time. The estimate
visits the nodes of the tree from the leaves up. Each node has a cost. A comprehension multiplies the cost of one iteration by the
size of its range. Sizes come from literals, from the declared limits of `device` (see `sizes`), and from rules for
functions. The result must be exactly the API server's number. So this module visits the nodes in the same order and keeps
the surprising parts of the original.
Source: cel-go checker/cost.go, version 0.23 and later. `_Coster022` has the differences of version 0.22.
"""

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from dra_driver.cel import work
from dra_driver.cel.checked_ast import CheckedAst
from dra_driver.cel.costs.bounds import EMPTY, ONE, UNKNOWN, ZERO, Bounds, fixed, total
from dra_driver.cel.costs.call_estimates import CallEstimate, CallSite, Operand, extension, standard
from dra_driver.cel.costs.kubernetes_estimates import kubernetes
from dra_driver.cel.costs.sizes import Path, size_at
from dra_driver.cel.syntax.ast import (
    Call,
    Comprehension,
    Constant,
    Expr,
    Identifier,
    ListLiteral,
    MapLiteral,
    Select,
    StructLiteral,
)
from dra_driver.cel.types import DYN, Kind, Type, is_optional
from dra_driver.cel.versions import Environment

_LIST, _MAP, _STRUCT = fixed(10), fixed(30), fixed(40)
_ACCUMULATORS = ("__result__", "@result")
_SCALARS = frozenset({Kind.BOOL, Kind.DOUBLE, Kind.DURATION, Kind.INT, Kind.TIMESTAMP, Kind.UINT})
_WITH_FIELDS = frozenset({Kind.MAP, Kind.STRUCT, Kind.PARAMETER})
_INDEX = {"index_list": "@items", "index_map": "@values"}
_TURNS = {Kind.LIST: "@items", Kind.MAP: "@keys"}
_CONCATENATIONS = frozenset({"add_string", "add_bytes", "add_list"})
_FIRST_RELEASE = 32  # Kubernetes 1.32 has cel-go 0.22.
# From cel-go 0.29 on, matches(text, pattern) costs the same as text.matches(pattern).
_GLOBAL_MATCHES = 37


def cost(checked: CheckedAst, environment: Environment) -> Bounds:
    """Return the lowest and the highest cost of an evaluation of the expression."""
    coster = _Coster022 if environment.minor <= _FIRST_RELEASE else Coster
    return coster(checked, environment).cost(checked.parsed.root)


class _EntrySizes(Struct, frozen=True):
    """The sizes of the keys and the values in a list or map (cel-go: entrySizeEstimate). A list has keys of size 1."""

    of_list: bool
    key: Bounds
    value: Bounds


class _LocalVariable(Struct, frozen=True):
    """A variable of cel.bind or of a comprehension (cel-go: localVar). Each part is None if it is unknown."""

    path: Path | None
    size: Bounds | None
    entries: _EntrySizes | None = None


class Coster(Struct):
    """One estimate (cel-go: coster). The dicts have the costs, sizes and paths of visited nodes, by node ID."""

    checked: CheckedAst
    environment: Environment
    paths: dict[int, Path | None] = field(default_factory=dict)
    locals: dict[str, list[_LocalVariable]] = field(default_factory=dict)
    sizes: dict[int, Bounds] = field(default_factory=dict)
    entries: dict[int, _EntrySizes] = field(default_factory=dict)

    # --- costs

    def cost(self, expr: Expr) -> Bounds:
        """Return the cost of the node and of all nodes below it."""
        cost = ZERO
        work.current().steps(1)
        match expr:
            case Constant():
                pass
            case Identifier():
                cost = self._identifier(expr)
            case Select():
                cost = self._select(expr)
            case Call():
                cost = self._call(expr)
            case ListLiteral():
                cost = self._list(expr)
            case MapLiteral():
                cost = self._map(expr)
            case StructLiteral():
                cost = total([self.cost(given.value) for given in expr.fields]) + _STRUCT
            case _:
                cost = self._bind(expr) if binds(expr) else self._comprehension(expr)
        return cost

    def _identifier(self, expr: Identifier) -> Bounds:
        local = self._local(expr.name)
        self.paths[expr.id] = Path(expr.name) if local is None else local.path
        return ONE

    def _select(self, expr: Select) -> Bounds:
        cost = self.cost(expr.operand)
        # has(a.b) has only the cost of its operand (costSelect), although the evaluation does a lookup.
        if expr.test_only:
            return cost
        if self._type(expr.operand).kind in _WITH_FIELDS:
            cost += ONE
        self.paths[expr.id] = (self._path(expr.operand) or Path()).then(expr.field)
        return cost

    def _list(self, expr: ListLiteral) -> Bounds:
        cost, item = ZERO, EMPTY if expr.elements else ZERO
        # The element sizes are needed for a comprehension over this literal: its variable has the size of an element.
        for element in expr.elements:
            cost += self.cost(element)
            item |= self.size(element) or UNKNOWN
        self.entries[expr.id] = _EntrySizes(of_list=True, key=ONE, value=item)
        return cost + _LIST

    def _map(self, expr: MapLiteral) -> Bounds:
        cost = ZERO
        key = value = EMPTY if expr.entries else ZERO
        for entry in expr.entries:
            cost += self.cost(entry.key) + self.cost(entry.value)
            key |= self.size(entry.key) or UNKNOWN
            value |= self.size(entry.value) or UNKNOWN
        self.entries[expr.id] = _EntrySizes(of_list=False, key=key, value=value)
        return cost + _MAP

    def _bind(self, expr: Comprehension) -> Bounds:
        # The loop of cel.bind never runs, so its condition and its step cost nothing (costBind).
        cost = self.cost(expr.iter_range) + self.cost(expr.accu_init)
        self._open(expr.accu_var, self._bound_to(expr.accu_init))
        cost += self.cost(expr.result)
        self._close(expr.accu_var)
        self._keep(expr, self.size(expr.result), self._entries(expr.result))
        return cost

    def _comprehension(self, expr: Comprehension) -> Bounds:
        cost = self.cost(expr.iter_range) + self.cost(expr.accu_init)
        self._open(expr.accu_var, self._bound_to(expr.accu_init))
        if expr.iter_var2:
            self._open(expr.iter_var, self._keys_of(expr.iter_range))
            self._open(expr.iter_var2, self._values_of(expr.iter_range))
        elif self._is_list(expr.iter_range):
            self._open(expr.iter_var, self._values_of(expr.iter_range))
        else:
            self._open(expr.iter_var, self._keys_of(expr.iter_range))
        turn = self.cost(expr.loop_condition) + self.cost(expr.loop_step)
        self._close(expr.iter_var)
        if expr.iter_var2:
            self._close(expr.iter_var2)
        cost += self.cost(expr.result)
        self._close(expr.accu_var)
        turns = self.turns_of(expr)
        # The size of the result follows from the start value of the accumulator: all and exists start with a constant; map
        # and filter start with an empty literal and add at most one element in each iteration.
        if isinstance(expr.accu_init, Constant):
            self._keep(expr, self.size(expr.accu_init))
        elif isinstance(expr.accu_init, ListLiteral | MapLiteral):
            self._keep(expr, turns, self._entries(expr.loop_step))
        return cost + turns * turn

    def turns_of(self, expr: Comprehension) -> Bounds:
        """Return the number of iterations of a comprehension whose range was visited before."""
        return self.size(expr.iter_range) or UNKNOWN

    def _call(self, expr: Call) -> Bounds:
        return self._dyn(expr) if expr.function == "dyn" else self._plain_call(expr)

    def _plain_call(self, expr: Call) -> Bounds:
        costs, args = [], []
        for arg in expr.args:
            costs.append(self.cost(arg))
            args.append(self._operand(arg))
        # costCall visits the arguments before the target. The order matters for paths with a shared array (see `Path`).
        cost, target = ZERO, None
        if expr.target is not None:
            cost, target = self.cost(expr.target), self._operand(expr.target)
        return cost + self._overloads(expr, CallSite(expr.function, "", target, args), costs)

    def _dyn(self, expr: Call) -> Bounds:
        """dyn(x) only changes the static type, so the result has the size and the entries of x."""
        cost = self.cost(expr.args[0])
        self._keep(expr, self.size(expr.args[0]), self._entries(expr.args[0]))
        return cost + ONE

    def _overloads(self, expr: Call, site: CallSite, costs: list[Bounds]) -> Bounds:
        """Return the range over all overloads that the checker left, because any of them may run."""
        cost, size = EMPTY, None
        for overload in self.checked.references[expr.id].overload_ids:
            found = self.of_overload(expr, replace(site, overload=overload), costs)
            cost |= found.cost
            if found.size is not None:
                size = found.size if size is None else size | found.size
            # cost.go computes the path of an index here, inside the loop, so the last index overload decides.
            if overload in _INDEX:
                size = self._index(expr, _INDEX[overload])
            if size is None:
                size = self.size(expr)
        self._keep(expr, size)
        return cost

    def of_overload(self, expr: Call, site: CallSite, costs: list[Bounds]) -> CallEstimate:
        """Return the cost of a call and its operands, if the overload of `site` runs. `costs` are the operands' costs."""
        # Kubernetes' estimator comes before cel-go's standard rules, so it decides for a function that both know.
        found = extension(site) or kubernetes(site, self.environment)
        if found is not None:
            return CallEstimate(found.cost + total(costs), found.size)
        # The right operand of && and || may not be evaluated, so it adds only to the highest cost.
        if site.overload in {"logical_and", "logical_or"}:
            return CallEstimate(Bounds(costs[0].low, total(costs).high))
        if site.overload == "conditional":
            return self._conditional(expr, site, costs)
        # A comprehension over a sum of two lists sees elements of both.
        if site.overload in _CONCATENATIONS:
            self._keep(expr, None, self._united(expr.args))
        if site.overload == "matches" and self.environment.minor < _GLOBAL_MATCHES:
            return CallEstimate(ONE + total(costs))
        found = standard(site, self._size_of)
        return CallEstimate(found.cost + total(costs), found.size)

    def _conditional(self, expr: Call, site: CallSite, costs: list[Bounds]) -> CallEstimate:
        size = self._size_of(site.args[1]) | self._size_of(site.args[2])
        self._keep(expr, None, self._united(expr.args[1:]))
        return CallEstimate(costs[0] + (costs[1] | costs[2]), size)

    def _index(self, expr: Call, step: str) -> Bounds | None:
        self.paths[expr.id] = (self._path(expr.args[0]) or Path()).then(step)
        entries = self._entries(expr.args[0])
        return None if entries is None else entries.value

    # --- sizes

    def size(self, expr: Expr) -> Bounds | None:
        """Return the size of a visited node, or None if the size is unknown."""
        if expr.id in self.sizes:
            return self.sizes[expr.id]
        written = _written_size(expr)
        if written is not None:
            return written
        # The limits of the API come before the type, because a string attribute is `dyn` or `any` for the checker.
        declared = self._declared(expr)
        if declared is not None:
            self.sizes[expr.id] = declared
            return declared
        if _scalar(self._type(expr)):
            return ONE
        local = self._local(expr.name) if isinstance(expr, Identifier) else None
        return None if local is None else local.size

    def _declared(self, expr: Expr) -> Bounds | None:
        return size_at(self._path(expr))

    def _size_of(self, operand: Operand) -> Bounds:
        return operand.size or UNKNOWN

    def _keep(self, expr: Expr, size: Bounds | None, entries: _EntrySizes | None = None) -> None:
        if size is not None:
            self.sizes[expr.id] = size
        if entries is not None:
            self.entries[expr.id] = entries

    def _entries(self, expr: Expr) -> _EntrySizes | None:
        if expr.id in self.entries:
            return self.entries[expr.id]
        local = self._local(expr.name) if isinstance(expr, Identifier) else None
        return None if local is None else local.entries

    def _united(self, pair: Sequence[Expr]) -> _EntrySizes | None:
        first, second = map(self._entries, pair)
        if first is None or second is None:
            return None
        return _EntrySizes(first.of_list, first.key | second.key, first.value | second.value)

    def _operand(self, expr: Expr) -> Operand:
        path = self._path(expr)
        # cel-go hides accumulators from the estimator of Kubernetes, because their names are not part of `device`.
        if path is not None and path.names[0] in _ACCUMULATORS:
            path = None
        return Operand(expr, self._type(expr), path, self.size(expr))

    def _type(self, expr: Expr) -> Type:
        return self.checked.types.get(expr.id, DYN)

    # --- paths and variables

    def _path(self, expr: Expr) -> Path | None:
        local = self._local(expr.name) if isinstance(expr, Identifier) else None
        return self.paths.get(expr.id) if local is None else local.path

    def _local(self, name: str) -> _LocalVariable | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def _open(self, name: str, local: _LocalVariable) -> None:
        self.locals.setdefault(name, []).append(local)

    def _close(self, name: str) -> None:
        self.locals[name].pop()

    def _bound_to(self, expr: Expr) -> _LocalVariable:
        return _LocalVariable(self._path(expr), self.size(expr), self._entries(expr))

    def _is_list(self, expr: Expr) -> bool:
        entries = self._entries(expr)
        return self._type(expr).kind is Kind.LIST if entries is None else entries.of_list

    def _keys_of(self, expr: Expr) -> _LocalVariable:
        entries = self._entries(expr)
        path = self._path(expr) or Path()
        step = "@indices" if self._is_list(expr) else "@keys"
        return _LocalVariable(path.then(step), None if entries is None else entries.key)

    def _values_of(self, expr: Expr) -> _LocalVariable:
        entries = self._entries(expr)
        path = self._path(expr) or Path()
        step = "@items" if self._is_list(expr) else "@values"
        return _LocalVariable(path.then(step), None if entries is None else entries.value)


class _Coster022(Coster):
    """The estimate of cel-go 0.22. It does not know the elements of literals, and of the variables only loop variables."""

    ranges: dict[str, list[Expr]] = field(default_factory=dict)

    def size(self, expr: Expr) -> Bounds | None:
        return self.sizes.get(expr.id) or _written_size(expr)

    def _size_of(self, operand: Operand) -> Bounds:
        known = operand.size or size_at(operand.path)
        return known or (ONE if operand.type.kind in _SCALARS else UNKNOWN)

    def _bind(self, expr: Comprehension) -> Bounds:
        return self._comprehension(expr)

    def _comprehension(self, expr: Comprehension) -> Bounds:
        cost = self.cost(expr.iter_range) + self.cost(expr.accu_init)
        ranges = self.ranges.setdefault(expr.iter_var, [])
        ranges.append(expr.iter_range)
        turn = self.cost(expr.loop_condition) + self.cost(expr.loop_step)
        ranges.pop()
        cost += self.cost(expr.result)
        turns = self._size_of(self._operand(expr.iter_range))
        self._keep(expr, turns)
        return cost + turns * turn

    def _dyn(self, expr: Call) -> Bounds:
        return self._plain_call(expr)

    def _identifier(self, expr: Identifier) -> Bounds:
        ranges = self.ranges.get(expr.name)
        if not ranges:
            self.paths[expr.id] = Path(expr.name)
        elif self._type(ranges[-1]).kind in _TURNS:
            path = self.paths.get(ranges[-1].id) or Path()
            self.paths[expr.id] = path.then(_TURNS[self._type(ranges[-1]).kind])
        return ONE


def binds(expr: Comprehension) -> bool:
    """Return whether the comprehension is an expanded cel.bind: its range is empty and its condition is false (isBind)."""
    return (
        isinstance(expr.iter_range, ListLiteral)
        and not expr.iter_range.elements
        and isinstance(expr.loop_condition, Constant)
        and expr.loop_condition.value is False
        and expr.accu_var != _ACCUMULATORS[0]
    )


def _written_size(expr: Expr) -> Bounds | None:
    match expr:
        case Constant(value=str() | bytes() as text):
            return fixed(len(text))
        case Constant():
            return ONE
        case ListLiteral():
            return fixed(len(expr.elements))
        case MapLiteral():
            return fixed(len(expr.entries))
        case _:
            return None


def _scalar(type_: Type) -> bool:
    return _scalar(type_.parameters[0]) if is_optional(type_) else type_.kind in _SCALARS
