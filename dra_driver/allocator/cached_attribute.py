# SPDX-License-Identifier: Apache-2.0
"""How does an object calculate an attribute on first use and then keep it?

`cached_attribute` is functools.cached_property without the lock. Python 3.11 takes this lock on each first use, and to take the
lock is slower than to calculate most of the values here. Two threads may calculate the value at the same time; both get an equal
value.
"""

from collections.abc import Callable
from typing import Generic, TypeVar, overload

Owner = TypeVar("Owner")
Value = TypeVar("Value")


class cached_attribute(Generic[Owner, Value]):  # noqa: N801 - a decorator has a lower-case name
    """Decorator for a method without arguments. Its result becomes an attribute of the object."""

    def __init__(self, make: Callable[[Owner], Value]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, owner: None, kind: type[Owner]) -> "cached_attribute[Owner, Value]": ...
    @overload
    def __get__(self, owner: Owner, kind: type[Owner]) -> Value: ...
    def __get__(
        self, owner: Owner | None, kind: type[Owner]
    ) -> "cached_attribute[Owner, Value] | Value":
        """Calculate the value and store it in the object. Python finds it there next time and does not call this again."""
        if owner is None:
            return self
        value = owner.__dict__[self._name] = self._make(owner)
        return value
