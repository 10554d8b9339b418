# SPDX-License-Identifier: Apache-2.0
"""Is one type assignable to another, and which types do the type parameters get?

The checker gives a name (a type parameter) to each type that it does not know yet. If a type is assigned to a parameter,
`Substitutions` stores this type. If the parameter already has a type, the more general of the two types stays. If an
assignment fails, no stored type changes. dyn is assignable to every type. null is assignable to messages and wrappers.

The rules are exactly cel-go's, including the surprising ones, because they decide which overloads match, and overloads
decide costs and errors. Types can grow exponentially (x = {y: y}, y = {z: z}, …). cel-go then runs without end. This module
limits the size of a type and the number of steps; above a limit the check ends with TooManyStepsError.
Source: cel-go checker/types.go, checker/mapping.go.
"""

from collections.abc import Sequence

from dra_driver.cel import work
from dra_driver.cel.types import DYN, Kind, Type, is_dyn

MAX_STEPS = 200_000
MAX_SIZE = 10_000
_NULLABLE = frozenset({Kind.OPAQUE, Kind.STRUCT, Kind.ANY, Kind.DURATION, Kind.TIMESTAMP})
_CONTAINERS = frozenset({Kind.OPAQUE, Kind.LIST, Kind.MAP})
_PLAIN = frozenset(
    {
        Kind.BOOL,
        Kind.BYTES,
        Kind.DOUBLE,
        Kind.INT,
        Kind.STRING,
        Kind.UINT,
        Kind.DURATION,
        Kind.TIMESTAMP,
        Kind.STRUCT,
    }
)


class TooManyStepsError(Exception):
    """The types of the expression are too large, or comparing them takes too many steps."""


class Substitutions:
    """The types of the type parameters found so far (cel-go: mapping)."""

    def __init__(self) -> None:
        self._known: dict[str, Type] = {}
        self._undo: list[tuple[str, Type | None]] = []
        self._steps = 0

    def assignable(self, given: Type, wanted: Type) -> bool:
        """Return whether `given` is assignable to `wanted`. If so, the types found for type parameters are kept."""
        return self.all_assignable((given,), (wanted,))

    def all_assignable(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        """Return whether each given type is assignable to its wanted type. If one is not, no found type is kept."""
        self._undo.clear()
        if self._all_fit(given, wanted):
            return True
        for name, before in reversed(self._undo):
            if before is None:
                del self._known[name]
            else:
                self._known[name] = before
        return False

    def resolved(self, checked: Type, *, finally_: bool = False) -> Type:
        """Return the type with parameters replaced by their types. With `finally_`, an unknown parameter becomes dyn."""
        return self._resolved(checked, {}, finally_=finally_) if checked.open else checked

    def _resolved(self, checked: Type, done: dict[str, Type], *, finally_: bool) -> Type:
        if not checked.open:
            return checked
        self._step()
        if checked.kind is not Kind.PARAMETER:
            inner: list[Type] = []
            for parameter in checked.parameters:
                inner.append(self._resolved(parameter, done, finally_=finally_))  # noqa: PERF401 - a comprehension needs one more stack frame in each level of the tree
            return bounded(Type(checked.kind, checked.name, tuple(inner)))
        if checked.name not in done:
            known = self._known.get(checked.name)
            if known is not None:
                done[checked.name] = self._resolved(known, done, finally_=finally_)
            else:
                done[checked.name] = DYN if finally_ else checked
        return done[checked.name]

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooManyStepsError
        work.current().steps(1)

    def _learn(self, name: str, found: Type) -> None:
        self._undo.append((name, self._known.get(name)))
        self._known[name] = found

    def _all_fit(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        if len(given) != len(wanted):
            return False
        for one, other in zip(given, wanted, strict=True):  # noqa: SIM110 - all() needs C stack in each level of the type
            if not self._fits(one, other):
                return False
        return True

    def _fits(self, given: Type, wanted: Type) -> bool:
        self._step()
        if given is wanted:
            return True
        # internalIsAssignable tries the parameter on the right side first. It tries the left side only if the right one was
        # free and could not be set.
        if wanted.kind is Kind.PARAMETER:
            valid, known = self._stands_for(given, wanted)
            if valid or known:
                return valid
        if given.kind is Kind.PARAMETER:
            return self._stands_for(wanted, given)[0]
        return self._known_fits(given, wanted)

    def _known_fits(self, given: Type, wanted: Type) -> bool:
        if _is_dyn_or_error(given) or _is_dyn_or_error(wanted):
            return True
        if given.kind is Kind.NULL:
            return _takes_null(wanted)
        if wanted.kind is Kind.NULL:
            return _takes_null(given)
        if given.kind in _PLAIN:
            return wanted.kind is given.kind and wanted.name == given.name
        # A type value is assignable to any other type value: type(int) equals type(string) for this check.
        if given.kind is Kind.TYPE:
            return wanted.kind is Kind.TYPE
        return (
            given.kind is wanted.kind
            and given.name == wanted.name
            and self._all_fit(given.parameters, wanted.parameters)
        )

    def _stands_for(self, found: Type, unknown: Type) -> tuple[bool, bool]:
        """Return whether the parameter can have the type `found`, and whether the parameter already had a type."""
        if found.kind is Kind.PARAMETER and found.name == unknown.name:
            return True, True
        known = self._known.get(unknown.name)
        if known is None:
            free = self._free_of(unknown, found)
            if free:
                self._learn(unknown.name, found)
            return free, False
        if found is known or found == known:
            return True, True
        if not self._fits(found, known):
            return False, True
        # cel-go keeps the more general type: after [1, dyn(x)] the element is dyn (isAssignable in types.go).
        general = more_general(found, known)
        if self._free_of(unknown, general):
            self._learn(unknown.name, general)
        return True, True

    def _free_of(self, unknown: Type, within: Type) -> bool:
        """Return whether the parameter does not occur in the other type. Otherwise the type would contain itself."""
        if not within.open:
            return True
        seen: set[str] = set()
        todo = [within]
        while todo:
            self._step()
            checked = todo.pop()
            if checked.kind is Kind.PARAMETER and checked.name == unknown.name:
                return False
            if checked.kind is not Kind.PARAMETER:
                todo.extend([inner for inner in checked.parameters if inner.open])
            elif checked.name not in seen:
                seen.add(checked.name)
                known = self._known.get(checked.name)
                todo.extend([] if known is None else [known])
        return True


def bounded(checked: Type) -> Type:
    """Return the type itself. Raises TooManyStepsError if it exceeds MAX_SIZE."""
    if checked.size > MAX_SIZE:
        raise TooManyStepsError
    return checked


def _is_dyn_or_error(checked: Type) -> bool:
    return checked.kind in (Kind.DYN, Kind.ANY, Kind.ERROR)


def _takes_null(checked: Type) -> bool:
    return checked.wrapper or checked.kind in _NULLABLE or checked.kind is Kind.NULL


def more_general(one: Type, other: Type) -> Type:
    """Return the more general of two assignable types (mostGeneral in types.go)."""
    return one if one is other or _less_specific(one, other) else other


def _less_specific(one: Type, other: Type) -> bool:
    """Return whether the first type is equal, or has dyn or a parameter in place of a more specific type."""
    if _is_vague(one):
        return True
    if _is_vague(other) or one.kind is not other.kind:
        return False
    if one.kind not in _CONTAINERS:
        return one.kind is Kind.TYPE or one == other
    if one.name != other.name or len(one.parameters) != len(other.parameters):
        return False
    pairs = zip(one.parameters, other.parameters, strict=True)
    return all([_less_specific(first, second) for first, second in pairs])  # noqa: C419 - a generator needs C stack in each level of the type


def _is_vague(checked: Type) -> bool:
    return is_dyn(checked) or checked.kind is Kind.PARAMETER
