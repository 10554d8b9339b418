# SPDX-License-Identifier: Apache-2.0
"""Promises about what a backend declares: its methods, its options, and its kinds of configuration."""

import re
from collections.abc import Iterator
from functools import partial

import msgspec

from dra_driver.backends.base import config_kinds_of
from dra_driver.backends.registry import misfit
from dra_driver.config.schema import kind_schema
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.decoding import decode, told
from dra_driver.planning.config import restored
from dra_driver.testing.contract.bench import Bench, BrokenPromise, Promise, attempt, same, shown

_API_VERSION = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/v[0-9]+((alpha|beta)[0-9]+)?")


def methods(bench: Bench) -> None:
    """The driver calls each method with positional arguments."""
    found = misfit(bench.machine().backend)
    if found:
        raise BrokenPromise(
            "the methods of the backend", found, "take the arguments of dra_driver.backends.base"
        )


def options(bench: Bench) -> None:
    """A person who writes a config document gets the schema of the options, and `auto` gives none."""
    factory = type(bench.machine().backend)
    declared = getattr(factory, "options", None)
    if declared is None:
        return
    called = f"{factory.__name__}.options"
    if not (isinstance(declared, type) and issubclass(declared, msgspec.Struct)):
        raise BrokenPromise(
            called,
            shown(declared),
            "declare a subclass of msgspec.Struct, or none: then options are texts",
        )
    attempt(f"{called}: its JSON schema", lambda: msgspec.json.schema(declared))
    _value, mistakes = decode({}, declared)
    if mistakes and getattr(factory, "auto", True):
        raise BrokenPromise(
            f"{called} without any option",
            told(mistakes),
            "give each option a default, because `auto` chooses the backend without options; or declare auto = False",
        )


def kinds(bench: Bench) -> None:
    """A kind is found by its name, and the state stores configurations of it as JSON."""
    backend = bench.machine().backend
    found = config_kinds_of(backend)
    for kind in found:
        if not isinstance(kind, ConfigKind):
            raise BrokenPromise(
                "config_kinds", f"{shown(kind)} in it", "declare each kind as a ConfigKind"
            )
        if not _API_VERSION.fullmatch(kind.api_version):
            raise BrokenPromise(
                f"config kind {kind}",
                f"apiVersion {kind.api_version!r}",
                "write your own group and a version, such as acme.example.com/v1",
            )
        attempt(f"config kind {kind}: its JSON schema", partial(kind_schema, kind))
    _only_one(found)
    for config in _configs(bench, found):
        _is_stored(config, found)


def _only_one(found: tuple[ConfigKind, ...]) -> None:
    names = [str(kind) for kind in found]
    if len(set(names)) < len(names):
        raise BrokenPromise(
            "config_kinds", f"a kind twice: {', '.join(names)}", "declare each kind once"
        )
    with_default = [str(kind) for kind in found if kind.default is not None]
    if len(with_default) > 1:
        raise BrokenPromise(
            "config_kinds",
            f"kinds with a default: {', '.join(with_default)}",
            "give only one kind a default: a device without configuration gets it",
        )


def _configs(bench: Bench, found: tuple[ConfigKind, ...]) -> Iterator[DeviceConfig]:
    yield from (kind.config(kind.default) for kind in found if kind.default is not None)
    for config in bench.configs:
        if (config.api_version, config.kind) not in {(one.api_version, one.kind) for one in found}:
            raise BrokenPromise(
                "backend_contract(configs=…)",
                f"{config.api_version} {config.kind}, which the backend does not declare",
                "declare the kind in config_kinds, or correct the argument",
            )
        yield config


def _is_stored(config: DeviceConfig, found: tuple[ConfigKind, ...]) -> None:
    """A configuration in a claim is JSON, and the state stores it again as JSON."""
    kind = next(
        one for one in found if (one.api_version, one.kind) == (config.api_version, config.kind)
    )
    called = f"config kind {kind}: decode {shown(config.value)}"
    written = attempt(called, lambda: msgspec.json.decode(msgspec.json.encode(config.value)))
    value, mistakes = decode(written, kind.structure)
    if mistakes:
        raise BrokenPromise(
            called, told(mistakes), "let the structure accept its own values, as JSON has them"
        )
    action = "let the structure read what it writes: a stored configuration has to be the same after a restart"
    same(value, config.value, called, action)
    same(restored(kind.config(written), found).value, config.value, called, action)


PROMISES = (
    Promise("the methods take what the driver passes", methods),
    Promise("options are declared with defaults", options),
    Promise("each kind of configuration reads its own values", kinds),
)
