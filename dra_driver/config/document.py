# SPDX-License-Identifier: Apache-2.0
"""How is the config document read? `dra-driver run --config FILE` takes one versioned YAML document:

    apiVersion: config.dra-driver.dev/v1alpha1
    kind: DriverConfig
    logLevel: debug
    backends:
      auto: {}
      simulated: {profile: mixed}

Its fields are those of `options.OPTIONS` that are the same on each node, and `backends`: the options of each backend by its name. A
field that nobody knows, or that has a wrong value, is refused; all mistakes are told at once. `devicePlugin` has the settings of the
device plugin API that have structure (`device_plugin.py`).

Up to version 0.1 the file was a flat mapping of option names. It is still read, for one version, with a note in the log.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta, Struct, field

from dra_driver.backends.base import AUTO
from dra_driver.config.device_plugin import DevicePlugin, broken_rules
from dra_driver.config.options import OPTIONS, Option
from dra_driver.errors import Fatal
from dra_driver.model.decoding import Mistake, below, decode, told

API_VERSION = "config.dra-driver.dev/v1alpha1"
KIND = "DriverConfig"
SECTION = "devicePlugin"
PAGE = "docs/reference/config.md"
OptionsOf = Callable[[str], type[msgspec.Struct] | None]
"""The structure with the options of a backend; None if it declares none, or is not installed."""


class ConfigFile(Struct, frozen=True):
    """The content of a config file: values by option name, and the backends with their options in the file's order.

    `backends` is empty if the file names none. `notes` are for the log.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    backends: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    device_plugin: DevicePlugin = field(default_factory=DevicePlugin)
    notes: tuple[str, ...] = ()
    path: str = ""

    def source(self, option: Option) -> str:
        """The words for the place of an option's value."""
        return f"{self.path}, key {option.name if self.notes else option.key}"


def nothing_declared(_backend: str) -> None:
    """The options of backends for commands that use none: they are not looked at."""


def read_config(path: Path, options_of: OptionsOf) -> ConfigFile:
    """Read the config file. Raises Fatal with all mistakes."""
    content = _loaded(path)
    if content is None:
        return ConfigFile(path=str(path))
    if not isinstance(content, Mapping):
        raise Fatal(
            f"config file {path} must be a YAML mapping, not a {type(content).__name__}: {PAGE} shows one"
        )
    if "apiVersion" not in content and "kind" not in content:
        return _older_form(content, path)
    found, mistakes = decode(content, document())
    mistakes += tuple(_broken_rules(content, {mistake.path for mistake in mistakes}))
    mistakes += tuple(broken_rules(content.get(SECTION), SECTION))
    mistakes += tuple(_of_backends(content.get("backends"), options_of))
    if found is None or mistakes:
        count = "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise Fatal(
            f"config file {path} has {count}: {told(mistakes)}. Correct the file ({PAGE} has all fields)"
        )
    values = {option.name: content[option.key] for option in OPTIONS if option.key in content}
    named = content.get("backends") or {}
    chosen = {name: one or {} for name, one in named.items()}
    section = getattr(found, SECTION) or DevicePlugin()
    return ConfigFile(values, chosen, section, path=str(path))


def document() -> type[msgspec.Struct]:
    """The structure of the document, made from the table of options."""
    fields: list[tuple[str, Any, Any]] = [
        ("apiVersion", Literal[API_VERSION], msgspec.NODEFAULT),
        ("kind", Literal[KIND], msgspec.NODEFAULT),
    ]
    fields += [(option.key, _type_of(option), option.default) for option in OPTIONS if option.key]
    about = "The options of each backend, by its name. auto: all installed backends whose hardware exists."
    sections = Annotated[dict[str, dict[str, Any] | None] | None, Meta(description=about)]
    fields.append(("backends", sections, msgspec.field(default_factory=lambda: {AUTO: None})))
    fields.append((SECTION, DevicePlugin | None, None))
    return msgspec.defstruct(KIND, fields, kw_only=True, frozen=True, forbid_unknown_fields=True)


def _type_of(option: Option) -> Any:
    schema: dict[str, Any] = {"enum": list(option.allowed)} if option.allowed else {}
    return Annotated[str, Meta(description=option.help, extra_json_schema=schema)]


def _broken_rules(content: Mapping[str, Any], known: set[str]) -> Iterator[Mistake]:
    """Yield the values of the right type that break the rule of their option."""
    for option in OPTIONS:
        if not option.key or option.key not in content or option.key in known:
            continue
        try:
            option.parse(content[option.key])
        except ValueError as error:
            yield Mistake(option.key, f"{content[option.key]!r} {error}")


def _of_backends(backends: object, options_of: OptionsOf) -> Iterator[Mistake]:
    """Yield the mistakes in the options of backends that declare theirs."""
    for name, options in backends.items() if isinstance(backends, Mapping) else ():
        path = below("backends", name)
        if name == AUTO and options:
            yield Mistake(path, "has no options; give a backend its options under its own name")
        elif (structure := options_of(str(name))) and isinstance(options, Mapping | None):
            yield from decode(options or {}, structure, path)[1]


def _older_form(content: Mapping[Any, Any], path: Path) -> ConfigFile:
    known = {option.name for option in OPTIONS}
    unknown = sorted(str(key) for key in content if key not in known)
    if unknown:
        raise Fatal(
            f"config file {path} has unknown keys: {', '.join(unknown)}; it has neither apiVersion nor kind, so it is read in the older "
            f"form, where known are {', '.join(sorted(known))}; {PAGE} shows the new form"
        )
    note = (
        f"config file {path} has the older form, a flat mapping of option names; the next version reads only documents with "
        f"apiVersion {API_VERSION} and kind {KIND} ({PAGE})"
    )
    return ConfigFile(content, notes=(note,), path=str(path))


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping: YAML would silently use the last one."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Mapping[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, str) and key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"key {key!a} stands twice; remove one of them", key_node.start_mark
            )
        seen.add(key if isinstance(key, str) else id(key_node))
    content: Mapping[Any, Any] = yaml.SafeLoader.construct_mapping(loader, node, deep=True)
    return content


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _loaded(path: Path) -> object:
    try:
        # A SafeLoader, so that a file cannot make other objects than values.
        return yaml.load(path.read_text(), Loader=_Loader)  # noqa: S506
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        step = f"correct --config, or the file ({PAGE} shows one)"
        raise Fatal(
            f"cannot read config file {path}: {' '.join(str(error).split())}; {step}"
        ) from error
