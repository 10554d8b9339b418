# SPDX-License-Identifier: Apache-2.0
"""Decode the opaque configuration of a claim. An unknown field is refused, with its path.

The driver's own kind:

    apiVersion: gpu.dra-driver.dev/v1alpha1
    kind: DeviceConfig
    label: text            # optional, printable ASCII, at most 63 bytes

Devices of the profile `example` also accept the GpuConfig of the Kubernetes project's example driver. In an allocation, the
entries of the class come before the entries of the claim. If several entries cover the request of a device, the driver uses the
last one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dra_driver.model.claim import DeviceConfig, OpaqueConfig
from dra_driver.model.names import DOMAIN

API_VERSION = f"{DOMAIN}/v1alpha1"
KIND = "DeviceConfig"
LABEL_LIMIT_BYTES = 63
_SHOWN_CHARACTERS = 80

EXAMPLE_KIND = "GpuConfig"
EXAMPLE_API_VERSIONS = (
    "gpu.resource.example.com/v1alpha1",
    "gpu.resource.dra-example-driver.sigs.k8s.io/v1alpha1",
)
_INTERVALS = ("Default", "Short", "Medium", "Long")
_EXAMPLE_DEFAULT = DeviceConfig(
    sharing={"SHARING_STRATEGY": "TimeSlicing", "TIMESLICE_INTERVAL": "Default"}
)


@dataclass(frozen=True, slots=True)
class BadConfig:
    """The path of a refused field, and what is wrong with it."""

    path: str
    found: str


class _RefusedError(Exception):
    def __init__(self, path: str, found: str) -> None:
        super().__init__(path)
        self.bad = BadConfig(path, found)


def config_for(
    request: str, configs: Iterable[OpaqueConfig], config_kinds: frozenset[str]
) -> DeviceConfig | BadConfig:
    """Return the configuration for a result's request ("main" or "main/sub"), or the bad field. Entries for other requests must be
    valid too.

    `configs` are the entries of this driver; `config_kinds` are the kinds that the devices accept besides DeviceConfig.
    """
    chosen = _EXAMPLE_DEFAULT if EXAMPLE_KIND in config_kinds else DeviceConfig()
    try:
        for entry in configs:
            decoded = _decode(entry, config_kinds)
            if entry.covers(request):
                chosen = decoded
    except _RefusedError as refused:
        return refused.bad
    return chosen


def _decode(entry: OpaqueConfig, config_kinds: frozenset[str]) -> DeviceConfig:
    path = f"status.allocation.devices.config[{entry.index}].opaque.parameters"
    version, kind = entry.parameters.get("apiVersion"), entry.parameters.get("kind")
    if (version, kind) == (API_VERSION, KIND):
        return _device_config(entry.parameters, path)
    if kind == EXAMPLE_KIND and version in EXAMPLE_API_VERSIONS and EXAMPLE_KIND in config_kinds:
        return _gpu_config(entry.parameters, path)
    raise _RefusedError(
        path,
        f"apiVersion {_shown(version)}, kind {_shown(kind)}: this driver reads {API_VERSION} {KIND}",
    )


def _device_config(parameters: Mapping[str, object], path: str) -> DeviceConfig:
    _only(parameters, {"apiVersion", "kind", "label"}, path)
    return DeviceConfig(label=_text(parameters.get("label", ""), f"{path}.label"))


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise _RefusedError(path, f"{type(value).__name__}: must be a string")
    if len(value.encode("utf-8", "surrogatepass")) > LABEL_LIMIT_BYTES:
        raise _RefusedError(path, f"longer than {LABEL_LIMIT_BYTES} bytes")
    if not all(" " <= character <= "~" for character in value):
        raise _RefusedError(path, f"{_shown(value)}: printable ASCII only")
    return value


def _gpu_config(parameters: Mapping[str, object], path: str) -> DeviceConfig:
    _only(parameters, {"apiVersion", "kind", "sharing"}, path)
    if "sharing" not in parameters:
        return _EXAMPLE_DEFAULT
    sharing_path = f"{path}.sharing"
    sharing = _mapping(parameters["sharing"], sharing_path)
    _only(sharing, {"strategy", *_STRATEGIES.values()}, sharing_path)
    strategy = sharing.get("strategy")
    if not isinstance(strategy, str) or strategy not in _STRATEGIES:
        raise _RefusedError(
            f"{sharing_path}.strategy", f"unknown GPU sharing strategy: {_shown(strategy)}"
        )
    for name in _STRATEGIES.values():
        if name in sharing and name != _STRATEGIES[strategy]:
            raise _RefusedError(f"{sharing_path}.{name}", f"does not belong to strategy {strategy}")
    settings_path = f"{sharing_path}.{_STRATEGIES[strategy]}"
    settings = _mapping(sharing.get(_STRATEGIES[strategy], {}), settings_path)
    return DeviceConfig(
        sharing={"SHARING_STRATEGY": strategy, **_SETTINGS[strategy](settings, settings_path)}
    )


def _time_slicing(settings: Mapping[str, object], path: str) -> dict[str, str]:
    _only(settings, {"interval"}, path)
    interval = settings.get("interval", "Default")
    if interval not in _INTERVALS:
        raise _RefusedError(f"{path}.interval", f"unknown time-slice interval: {_shown(interval)}")
    return {"TIMESLICE_INTERVAL": str(interval)}


def _space_partitioning(settings: Mapping[str, object], path: str) -> dict[str, str]:
    _only(settings, {"partitionCount"}, path)
    count = settings.get("partitionCount", 0)
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise _RefusedError(f"{path}.partitionCount", f"invalid partition count: {_shown(count)}")
    return {"PARTITION_COUNT": str(count)}


_STRATEGIES = {"TimeSlicing": "timeSlicingConfig", "SpacePartitioning": "spacePartitioningConfig"}
_SETTINGS: Mapping[str, Callable[[Mapping[str, object], str], dict[str, str]]] = {
    "TimeSlicing": _time_slicing,
    "SpacePartitioning": _space_partitioning,
}


def _mapping(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise _RefusedError(path, f"{type(value).__name__}: must be an object")
    return value


def _only(fields: Mapping[str, object], known: set[str], path: str) -> None:
    for name in fields:
        if name not in known:
            raise _RefusedError(f"{path}.{_shown(name)[1:-1]}", "unknown field")


def _shown(value: object) -> str:
    """Return a value that the claim's author wrote, escaped and shortened so that it can stand in an error message."""
    return f"{value!a}"[:_SHOWN_CHARACTERS]
