# SPDX-License-Identifier: Apache-2.0
"""Which value does each setting have? `Settings` has the checked values of all options, read once at the start.

A value comes from the first source that has one: flag, environment variable, config file, default.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2s
from pathlib import Path
from typing import Any

import yaml

from dra_driver.config.options import OPTIONS, Option
from dra_driver.errors import Fatal
from dra_driver.model.ids import DriverName, NodeName

SOCKET_PATH_LIMIT = (
    107  # the kernel's limit for the path of a unix socket, in bytes without the final NUL
)
_ONLY_SIMULATED = ("simulated_profile", "simulated_faults")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The node and driver name of this process."""

    name: NodeName
    driver: DriverName
    boot_id_file: Path


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """The kubelet's directories and sockets. `pod_uid` is the UID of the driver's pod, "" if it runs in no pod."""

    plugins_dir: Path
    registry_dir: Path
    pod_resources_socket: Path
    pod_uid: str = ""

    def plugin_dir(self, driver: DriverName) -> Path:
        """Return the driver's own directory inside the kubelet's plugin directory."""
        return self.plugins_dir / driver

    def endpoint(self, driver: DriverName) -> Path:
        """Return the path of the DRA socket, which the kubelet calls to prepare claims."""
        return self._named(self.plugin_dir(driver), "dra", ".sock")

    def registration(self, driver: DriverName) -> Path:
        """Return the path of the registration socket, through which the kubelet finds the driver."""
        return self._named(self.registry_dir, driver, "-reg.sock")

    def _named(self, folder: Path, before: str, after: str) -> Path:
        """Return the path of a socket. If the driver runs in a pod, the pod's UID is in the name.

        During a rolling update two pods of the driver run on one node, so each needs its own socket names. If the path would be
        too long for a socket, a short digest replaces the UID.
        """
        if not self.pod_uid:
            return folder / f"{before}{after}"
        path = folder / f"{before}-{self.pod_uid}{after}"
        if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT:
            return path
        digest = blake2s(self.pod_uid.encode(), digest_size=4).hexdigest()
        return folder / f"{before}-{digest}{after}"


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """The name of the backend and the options that are passed to it."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The lowest level that is logged, and the format of the lines ("json" or "console")."""

    level: str
    format: str


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of `dra-driver run`. Only `load` makes this object, so every value has been checked."""

    node: NodeSettings
    kubelet: KubeletSettings
    backend: BackendSettings
    log: LogSettings
    kubeconfig: Path | None
    cdi_dir: Path
    state_dir: Path
    cgroup_root: Path
    release_proof: str
    http_address: tuple[str, int] | None


def load(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    config_file: Path | None = None,
    *,
    named: bool = True,
) -> Settings:
    """Read the settings from flags, environment and config file.

    `flags` maps option names to the values of the command line: text, or a list of texts for an option that can be repeated.
    If `named` is false, the node name may be missing. If a value is wrong, raises Fatal with the source of the value and the rule.
    """
    file_values = _read_file(config_file) if config_file else {}
    values: dict[str, Any] = {}
    for option in OPTIONS:
        source, raw = _lookup(option, flags, environment, file_values, config_file)
        values[option.name] = _parsed(option, source, raw)
    if named and not values["node_name"]:
        raise Fatal(
            "no node name: give --node-name or set NODE_NAME (in a pod: from spec.nodeName through the downward API)"
        )
    for name in _ONLY_SIMULATED:
        if flags.get(name) is not None and values["backend"] != "simulated":
            flag = name.replace("_", "-")
            raise Fatal(f"--{flag} works only with simulated devices: add --backend simulated")
    return _settings(values)


def _settings(values: Mapping[str, Any]) -> Settings:
    driver = DriverName(values["driver_name"])
    kubelet = KubeletSettings(
        plugins_dir=values["plugins_dir"],
        registry_dir=values["registry_dir"],
        pod_resources_socket=values["pod_resources_socket"],
        pod_uid=values["pod_uid"],
    )
    for socket in (kubelet.endpoint(driver), kubelet.registration(driver)):
        if len(str(socket).encode()) > SOCKET_PATH_LIMIT:
            raise Fatal(
                f"socket path {socket} is longer than {SOCKET_PATH_LIMIT} bytes; shorten --driver-name, --plugins-dir or --registry-dir"
            )
    options = dict(values["backend_option"])
    if values["backend"] == "simulated":
        options.setdefault("profile", values["simulated_profile"])
        if values["simulated_faults"]:
            options.setdefault("faults", str(values["simulated_faults"]))
    return Settings(
        node=NodeSettings(NodeName(values["node_name"]), driver, values["boot_id_file"]),
        kubelet=kubelet,
        backend=BackendSettings(values["backend"], options),
        log=LogSettings(values["log_level"], values["log_format"]),
        kubeconfig=values["kubeconfig"],
        cdi_dir=values["cdi_dir"],
        state_dir=values["state_dir"] or kubelet.plugin_dir(driver),
        cgroup_root=values["cgroup_root"],
        release_proof=values["release_proof"],
        http_address=values["http_address"],
    )


def _lookup(
    option: Option,
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    file_values: Mapping[str, Any],
    config_file: Path | None,
) -> tuple[str, Any]:
    if flags.get(option.name) is not None:
        return f"flag {option.flag}", flags[option.name]
    if option.variable in environment:
        text = environment[option.variable]
        return f"environment variable {option.variable}", text.split(
            ","
        ) if option.repeated and text else text
    if file_values.get(option.name) is not None:
        return f"{config_file}, key {option.name}", file_values[option.name]
    return "default", option.default


def _parsed(option: Option, source: str, raw: Any) -> Any:
    try:
        if not option.repeated:
            # The empty default of a required option is not parsed: `load` reports a missing node name with a better message.
            return (
                option.parse(str(raw)) if raw or source != "default" or not option.required else ""
            )
        return [option.parse(str(item)) for item in _items(raw)]
    except ValueError as error:
        raise Fatal(f"{source} is {raw!r}: {error}") from error


def _items(raw: Any) -> Iterable[Any]:
    """Return the values of an option that can be repeated. A config file can give a mapping, a list or one text."""
    if isinstance(raw, Mapping):
        return [f"{key}={value}" for key, value in raw.items()]
    if isinstance(raw, str):
        return [raw] if raw else []
    return raw if isinstance(raw, Iterable) else [raw]


def _read_file(path: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Fatal(f"cannot read config file {path}: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise Fatal(
            f"config file {path} must be a YAML mapping of option names, not a {type(content).__name__}"
        )
    known = {option.name for option in OPTIONS}
    unknown = sorted(str(key) for key in content if key not in known)
    if unknown:
        raise Fatal(
            f"config file {path} has unknown keys: {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )
    return content
