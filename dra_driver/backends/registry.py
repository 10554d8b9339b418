# SPDX-License-Identifier: Apache-2.0
"""How is a backend found by its name? Among the entry points of the group `dra_driver.backends` in the installed packages.

Only chosen backends are imported, so a broken package harms only those who choose it. `auto` chooses all installed backends that do
not say `auto = False`, and leaves out what cannot be made.
"""

import inspect
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec
from msgspec import Struct
from msgspec import inspect as types
from msgspec.structs import replace

from dra_driver.backends.base import (
    AUTO,
    ENTRY_POINT_GROUP,
    Backend,
    BackendContext,
    BackendFactory,
    config_kinds_of,
)
from dra_driver.errors import DriverError, Fatal
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.decoding import Mistake, decode, told

_CALLS: Mapping[str, tuple[str, ...]] = {
    "scan": (),
    "watch": ("stop",),
    "configure": ("lease",),
    "reset": ("lease",),
    "in_use": ("device",),
}
"""The arguments that the driver calls a backend's methods with."""


class Loaded(Struct, frozen=True):
    """The backends of this process by their names, in the order in which they were chosen.

    `left_out` has a sentence for each backend that `auto` could not use.
    """

    backends: Mapping[str, Backend]
    left_out: tuple[str, ...] = ()


def load_backends(
    chosen: Mapping[str, Mapping[str, Any]], node_name: str, driver_name: str = ""
) -> Loaded:
    """Make all chosen backends: their options by name, `auto` among them. Raises Fatal if a named one cannot be made."""
    backends: dict[str, Backend] = {}
    left_out: list[str] = []
    for name, options in chosen.items():
        if name != AUTO:
            backends[name] = load_backend(name, BackendContext(node_name, options, driver_name))
            continue
        for found in installed():
            if found in chosen:
                continue
            try:
                if takes_part_in_auto(found):
                    backends[found] = load_backend(
                        found, BackendContext(node_name, driver_name=driver_name)
                    )
            except DriverError as error:
                left_out.append(str(error))
    _check_kinds(backends)
    return Loaded(backends, tuple(left_out))


def load_backend(name: str, context: BackendContext) -> Backend:
    """Make the backend of this name, with its options decoded. Raises Fatal if it is not installed (then it lists those that are),
    if an option is wrong, or if it cannot be made.
    """
    entry = _find(name)
    where = f"backend {name!r} ({_origin(entry)})"
    factory = _factory(entry, where)
    options = _decoded(context.options, options_structure(factory), where)
    try:
        backend = factory(replace(context, options=options))
    except DriverError:
        raise
    except Exception as error:
        raise _not_made(where, error) from error
    if missing := _missing(backend):
        raise Fatal(f"{where} is no backend: it has no {missing}; install a fixed version")
    if problem := _unlike(backend):
        raise Fatal(
            f"{where} is of another version: {problem} (docs/write-a-backend.md); install a version of it for this driver"
        )
    return backend


def played(name: str, context: BackendContext, facts: object) -> Backend:
    """Make a backend that plays recorded facts instead of hardware. Raises Fatal if it is not installed or cannot do this, and
    Permanent if it cannot use the facts.

    The factory of such a backend has a function `recorded(context, facts)`. `facts` are what its part of a snapshot has, as plain
    values of JSON. The options in the context are not the backend's own.
    """
    entry = _find(name)
    where = f"backend {name!r} ({_origin(entry)})"
    factory = _factory(entry, where)
    play = getattr(factory, "recorded", None)
    if not callable(play):
        raise Fatal(f"{where} plays no snapshots; install a version of it that does")
    made: Backend = play(context, facts)
    return made


def _check_kinds(backends: Mapping[str, Backend]) -> None:
    """Raises Fatal if a kind of configuration is declared wrongly or twice: a claim could mean either."""
    owners: dict[tuple[str, str], str] = {}
    for name, backend in backends.items():
        kinds = config_kinds_of(backend)
        for kind in kinds:
            if not isinstance(kind, ConfigKind):
                raise Fatal(
                    f"backend {name!r} declares {kind!a:.80} in config_kinds, which is no ConfigKind; install a fixed version of it"
                )
            owner = owners.setdefault((kind.api_version, kind.kind), name)
            if owner != name or [*map(str, kinds)].count(str(kind)) > 1:
                both = (
                    f"backend {name!r} twice"
                    if owner == name
                    else f"backends {owner!r} and {name!r}"
                )
                raise Fatal(
                    f"config kind {kind} is declared by {both}: a claim with it could mean either; choose only one of them "
                    f"(backends in the config document, or --backend), or install a fixed version"
                )


def takes_part_in_auto(name: str) -> bool:
    """Whether `auto` may choose this backend. A backend that invents devices says `auto = False`. Raises Fatal."""
    entry = _find(name)
    return bool(getattr(_factory(entry, f"backend {name!r} ({_origin(entry)})"), "auto", True))


def options_of(name: str) -> type[msgspec.Struct] | None:
    """The structure of a backend's options; None if it declares none, or cannot be loaded (`load_backend` says why)."""
    try:
        entry = _find(name)
        return options_structure(_factory(entry, name))
    except DriverError:
        return None


def options_structure(factory: object) -> type[msgspec.Struct] | None:
    """The structure that a factory declares as `options`."""
    declared = getattr(factory, "options", None)
    is_structure = isinstance(declared, type) and issubclass(declared, msgspec.Struct)
    return declared if is_structure else None


def _factory(entry: EntryPoint, where: str) -> BackendFactory:
    try:
        factory: BackendFactory = entry.load()
    except Exception as error:
        raise _not_made(where, error) from error
    return factory


def _not_made(where: str, error: Exception) -> Fatal:
    return Fatal(
        f"{where} cannot be made: {type(error).__name__}: {error}; "
        f"check its installation and its --backend-option values"
    )


def _decoded(
    options: Mapping[str, Any], structure: type[msgspec.Struct] | None, where: str
) -> object:
    """The options as the backend declares them; texts if it declares none."""
    if structure is None:
        return {key: _text(key, value, where) for key, value in options.items()}
    found, mistakes = decode(options, structure)
    if found is None:
        raise Fatal(
            f"{where} cannot use its options: {told(mistakes)}; {_where_to_correct(mistakes, structure)}"
        )
    return found


def _where_to_correct(mistakes: Iterable[Mistake], structure: type[msgspec.Struct]) -> str:
    """A value of --backend-option is one text, so no list, mapping or field of a field can be set there."""
    wrong = {re.split(r"[.\[]", one.path, maxsplit=1)[0] for one in mistakes}
    several = [
        field.encode_name
        for field in msgspec.structs.fields(structure)
        if field.encode_name in wrong and not _is_plain(types.type_info(field.type))
    ]
    if not several:
        return "correct them in the config document (backends) or in --backend-option"
    them = ", ".join(several)
    return f"correct them in the config document (backends); --backend-option cannot set {them}: it has room for one text or number"


def _is_plain(kind: types.Type) -> bool:
    if isinstance(kind, types.Metadata):
        return _is_plain(kind.type)
    if isinstance(kind, types.UnionType):
        return all(map(_is_plain, kind.types))
    return not isinstance(
        kind, types.CollectionType | types.TupleType | types.DictType | types.StructType
    )


def _text(key: str, value: object, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise Fatal(
        f"{where} declares no options, so each option is a text; {key} is a {type(value).__name__}: write a text or a number"
    )


def misfit(backend: object) -> str:
    """Which methods a backend lacks, or which one does not accept the driver's arguments; "" if it fits."""
    missing = _missing(backend)
    return f"it has no {missing}" if missing else _unlike(backend)


def _missing(backend: object) -> str:
    return ", ".join(method for method in _CALLS if not callable(getattr(backend, method, None)))


def _unlike(backend: object) -> str:
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


def next_step() -> str:
    """What to do about a node without devices."""
    return (
        f"no installed backend finds hardware; name a backend with --backend (installed: {', '.join(installed()) or 'none'}; "
        "`simulated` invents devices)"
    )


def installed() -> tuple[str, ...]:
    """The names of all installed backends; `auto` is not among them."""
    return tuple(sorted({entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}))


def kinds_of_others() -> tuple[ConfigKind, ...]:
    """Return the kinds of configuration that installed backends of other packages declare. One that cannot be imported declares none."""
    found: list[object] = []
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.module.partition(".")[0] != __name__.partition(".")[0]:
            # Whoever asks checks manifests: a broken package is told when a driver uses it.
            with suppress(Exception, SystemExit):
                found.extend(config_kinds_of(entry.load()))
    return tuple(each for each in found if isinstance(each, ConfigKind))


def _find(name: str) -> EntryPoint:
    everything = entry_points(group=ENTRY_POINT_GROUP)
    found = {entry.value: entry for entry in everything if entry.name == name}
    if not found:
        names = ", ".join(installed()) or "none"
        raise Fatal(
            f"no backend {name!r} is installed; installed are: {names}; correct the name in the config document (backends) or in "
            "--backend, or install the backend's package beside the driver (docs/write-a-backend.md)"
        )
    if len(found) > 1:
        origins = " and ".join(sorted(_origin(entry) for entry in found.values()))
        raise Fatal(f"backend {name!r} is installed twice: {origins}; remove one of the packages")
    return next(iter(found.values()))


def _origin(entry: EntryPoint) -> str:
    return f"{entry.value} of {entry.dist.name}" if entry.dist else entry.value
