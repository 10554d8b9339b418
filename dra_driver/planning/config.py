# SPDX-License-Identifier: Apache-2.0
"""Decode the opaque configuration of a claim for one of its devices.

Each device has the kinds of its backend that it reads (`AllocatableDevice.reads`); this module knows none by name. An unknown kind, an
unknown field and a wrong value are refused, with their paths, also in an entry for another request. Entries of the class come before
entries of the claim. If several entries cover the request of a device, the driver uses the last one. An entry for all requests counts
only for devices that read its kind; an entry that names the request of a device must be of a kind that the device reads, unless a later
one replaces it. What the values mean is judged only for the entry that counts, and for all devices of a claim before the hardware is touched.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from dra_driver.model.claim import DeviceConfig, OpaqueConfig
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.decoding import Mistake, decode, shown, told

Kinds = Sequence[ConfigKind]
_HEAD = ("apiVersion", "kind")


class BadConfig(Struct, frozen=True):
    """What is wrong with a claim's configuration."""

    mistakes: tuple[Mistake, ...]

    def __str__(self) -> str:
        return told(self.mistakes)


def config_for(
    request: str,
    configs: Iterable[OpaqueConfig],
    kinds: Kinds,
    others: Kinds = (),
    *,
    device: str = "the device",
) -> DeviceConfig | BadConfig:
    """Return the configuration for a result's request ("main" or "main/sub"), or what is wrong.

    `configs` are the entries of this driver, `kinds` are those that the device reads, and `others` those of other devices: an entry for
    all requests may be meant for them only. `device` names it in a message.
    """
    chosen: DeviceConfig | BadConfig = next(
        (kind.config(kind.default) for kind in kinds if kind.default is not None), DeviceConfig()
    )
    counts: tuple[ConfigKind, object, str] | None = None
    for entry in sorted(configs, key=lambda entry: entry.source == "FromClaim"):
        path = f"status.allocation.devices.config[{entry.index}].opaque.parameters"
        kind = _kind_of(entry, (*kinds, *others))
        if kind is None:
            return BadConfig((_unknown_kind(entry, path, kinds),))
        fields = {name: one for name, one in entry.parameters.items() if name not in _HEAD}
        value, mistakes = decode(fields, kind.structure, path)
        if mistakes:
            return BadConfig(mistakes)
        if not entry.covers(request):
            continue
        if kind in kinds:
            chosen, counts = kind.config(value), (kind, value, path)
        elif entry.requests:
            counts = None
            found = f"cannot apply {kind.kind} to {device} (request: {request}): {kind.advice or _reads(kinds)}"
            chosen = BadConfig((Mistake(path, found),))
    return (counts and _judged(*counts)) or chosen


def _judged(kind: ConfigKind, value: object, path: str) -> BadConfig | None:
    """Return what the backend has against a value that was decoded."""
    if kind.judge is None:
        return None
    try:
        kind.judge(value)
    except ValueError as error:
        return BadConfig((Mistake(path, str(error)),))
    return None


def restored(config: DeviceConfig, kinds: Kinds) -> DeviceConfig:
    """Return a configuration from the state with the typed value of its kind; without value if this driver cannot read it."""
    if not isinstance(config.value, Mapping):
        return config
    kind = next((one for one in kinds if (one.api_version, one.kind) == _name(config)), None)
    try:
        value = None if kind is None else msgspec.convert(config.value, kind.structure)
    except Exception:  # noqa: BLE001  a rule of the structure may raise anything
        value = None
    return DeviceConfig(config.api_version, config.kind, value)


def _name(config: DeviceConfig) -> tuple[str, str]:
    return config.api_version, config.kind


def _kind_of(entry: OpaqueConfig, kinds: Kinds) -> ConfigKind | None:
    asked = tuple(entry.parameters.get(name) for name in _HEAD)
    return next((kind for kind in kinds if (kind.api_version, kind.kind) == asked), None)


def _unknown_kind(entry: OpaqueConfig, path: str, kinds: Kinds) -> Mistake:
    version, kind = (shown(entry.parameters.get(name)) for name in _HEAD)
    return Mistake(path, f"apiVersion {version}, kind {kind}: {_reads(kinds)}")


def _reads(kinds: Kinds) -> str:
    return f"the device reads {' or '.join(map(str, kinds)) or 'no configuration'}"
