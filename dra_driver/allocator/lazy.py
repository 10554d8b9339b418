# SPDX-License-Identifier: Apache-2.0
"""A value that is made when somebody asks for it first, and kept in the object.

As functools.cached_property, without its lock, which costs more than most of what is kept here. Two threads that ask
at the same time may both make the value; they make the same.
"""

from collections.abc import Callable
from typing import Generic, TypeVar, overload

Owner = TypeVar("Owner")
Value = TypeVar("Value")


class lazy(Generic[Owner, Value]):  # noqa: N801 - reads as a decorator
    """Decorates a method that makes the value."""

    def __init__(self, make: Callable[[Owner], Value]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, owner: None, kind: type[Owner]) -> "lazy[Owner, Value]": ...
    @overload
    def __get__(self, owner: Owner, kind: type[Owner]) -> Value: ...
    def __get__(self, owner: Owner | None, kind: type[Owner]) -> "lazy[Owner, Value] | Value":
        """The value; from now on Python finds it in the object and does not come here."""
        if owner is None:
            return self
        value = owner.__dict__[self._name] = self._make(owner)
        return value
