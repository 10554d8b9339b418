# SPDX-License-Identifier: Apache-2.0
"""How is a backend found by its name? Among the entry points of the group `dra_driver.backends` in the installed packages.

Only the chosen backend is imported, so a broken package harms only those who choose it.
"""

import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from dra_driver.backends.auto import AUTO, AutoBackend
from dra_driver.backends.base import ENTRY_POINT_GROUP, Backend, BackendContext, BackendFactory
from dra_driver.errors import DriverError, Fatal

_CALLS: Mapping[str, tuple[str, ...]] = {
    "scan": (),
    "watch": ("stop",),
    "configure": ("lease",),
    "reset": ("lease",),
    "in_use": ("device",),
}
"""The arguments that the driver calls a backend's methods with."""


def load_backend(name: str, context: BackendContext) -> Backend:
    """Make the backend of this name. Raises Fatal if it is not installed (then it lists those that are) or cannot be made."""
    if name == AUTO:
        return AutoBackend(context, installed())
    entry = _find(name)
    where = f"backend {name!r} ({_origin(entry)})"
    try:
        factory: BackendFactory = entry.load()
        backend = factory(context)
    except DriverError:
        raise
    except Exception as error:
        raise Fatal(
            f"{where} cannot be made: {type(error).__name__}: {error}; "
            f"check its installation and its --backend-option values"
        ) from error
    missing = [method for method in _CALLS if not callable(getattr(backend, method, None))]
    if missing:
        raise Fatal(
            f"{where} is no backend: it has no {', '.join(missing)}; install a fixed version"
        )
    if problem := _unlike(backend):
        raise Fatal(
            f"{where} is of another version: {problem} (docs/write-a-backend.md); install a version of it for this driver"
        )
    return backend


def _unlike(backend: Backend) -> str:
    """Which method does not accept the driver's arguments; "" if all do.

    This is checked at the start. Otherwise each pod would fail, with a TypeError that nobody understands.
    """
    for method, arguments in _CALLS.items():
        try:
            signature = inspect.signature(getattr(backend, method))
        except (TypeError, ValueError):  # written in C: Python does not know its arguments
            continue
        try:
            signature.bind(*arguments)
        except TypeError as error:
            called = ", ".join(arguments)
            return f"its {method}{signature} cannot be called as {method}({called}): {error}"
    return ""


def installed() -> tuple[str, ...]:
    """The names of all installed backends; `auto` is not among them."""
    return tuple(sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}))


def _find(name: str) -> EntryPoint:
    everything = entry_points(group=ENTRY_POINT_GROUP)
    found = {entry.value: entry for entry in everything if entry.name == name}
    if not found:
        names = ", ".join(installed()) or "none"
        raise Fatal(
            f"no backend {name!r} is installed; installed are: {names}; choose with --backend"
        )
    if len(found) > 1:
        origins = " and ".join(sorted(_origin(entry) for entry in found.values()))
        raise Fatal(f"backend {name!r} is installed twice: {origins}; remove one of the packages")
    return next(iter(found.values()))


def _origin(entry: EntryPoint) -> str:
    return f"{entry.value} of {entry.dist.name}" if entry.dist else entry.value
