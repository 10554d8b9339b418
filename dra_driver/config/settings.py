# SPDX-License-Identifier: Apache-2.0
"""Which value does each setting have? `Settings` has the checked values of all options, read once at the start.

A value comes from the first source that has one: flag, environment variable, config file, default. `document.py` reads the file.
"""

import os
from collections.abc import Iterable, Mapping
from hashlib import blake2s
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from dra_driver.backends.base import AUTO
from dra_driver.config.device_plugin import DevicePlugin, divided_by, policy_of
from dra_driver.config.document import (
    ConfigFile,
    OptionsOf,
    nothing_declared,
    read_config,
)
from dra_driver.config.options import OPTIONS, Option
from dra_driver.errors import Fatal
from dra_driver.model.decoding import Text
from dra_driver.model.ids import DriverName, NodeName, ResourceName
from dra_driver.model.plugin import Path as ApiPath
from dra_driver.model.plugin import Strategy
from dra_driver.model.plugin_policy import DeviceChoice, PluginPolicy

SOCKET_PATH_LIMIT = (
    107  # the kernel's limit for the path of a unix socket, in bytes without the final NUL
)
SIMULATED = "simulated"
_DEFAULT = "default"
_AUTO_WORD = "auto"
_ONLY_SIMULATED = ("simulated_profile", "simulated_faults")


class NodeSettings(Struct, frozen=True):
    """The node and driver name of this process."""

    name: NodeName
    driver: DriverName
    boot_id_file: Path


class KubeletSettings(Struct, frozen=True):
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


class BackendSettings(Struct, frozen=True):
    """The name of a backend, or "auto", and its options, not yet decoded. An option of the command line is a Text."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


class PluginSettings(Struct, frozen=True):
    """The device plugin API. `path` and `strategy` are None if the driver decides. `policy` is what the config document says, `divided` what it
    leaves to the plugins of others. `customary`: classes do not count, and the resources are those of the vendors' own plugins.
    """

    path: ApiPath | None = None
    plugins_dir: Path = Path("/var/lib/kubelet/device-plugins")
    classes_dir: Path | None = None
    strategy: Strategy | None = None
    policy: PluginPolicy = field(default_factory=PluginPolicy)
    divided: Mapping[ResourceName, DeviceChoice] = field(default_factory=dict)
    customary: bool = False


class LogSettings(Struct, frozen=True):
    """The lowest level that is logged, and the format of the lines ("json" or "console")."""

    level: str
    format: str


class NodeWriteSettings(Struct, frozen=True):
    """What the driver writes about its Node: labels, with their aliases, the condition, and the taint that it removes ("" for none)."""

    labels: str = "nfd"
    aliases: tuple[tuple[str, str], ...] = ()
    features_dir: Path = Path("/etc/kubernetes/node-feature-discovery/features.d")
    condition: str = "none"
    startup_taint: str = ""


class Settings(Struct, frozen=True):
    """All settings of `dra-driver run`. Only `load` makes this object, so every value has been checked.

    `notes` are for the log: what the admin should change before the next version.
    """

    node: NodeSettings
    kubelet: KubeletSettings
    backends: tuple[BackendSettings, ...]
    log: LogSettings
    kubeconfig: Path | None
    cdi_dir: Path
    state_dir: Path
    cgroup_root: Path
    release_proof: str
    http_address: tuple[str, int] | None
    metrics_names: tuple[str, ...] = ("own",)
    device_status: str = "none"
    device_metadata: str = "none"
    plugin: PluginSettings = field(default_factory=PluginSettings)
    about_node: NodeWriteSettings = NodeWriteSettings()
    notes: tuple[str, ...] = ()


def load(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    config_file: Path | None = None,
    *,
    named: bool = True,
    options_of: OptionsOf = nothing_declared,
) -> Settings:
    """Read the settings from flags, environment and config file.

    `flags` maps option names to the values of the command line: text, or a list of texts for an option that can be repeated.
    If `named` is false, the node name may be missing. `options_of` gives the options that a backend declares, so that mistakes in
    the file's sections for backends are told with all others. If a value is wrong, raises Fatal with its source and the rule.
    """
    file = read_config(config_file, options_of) if config_file else ConfigFile()
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for option in OPTIONS:
        source, raw = _lookup(option, flags, environment, file)
        values[option.name] = _parsed(option, source, raw)
        sources[option.name] = source
    if named and not values["node_name"]:
        raise Fatal(
            "no node name: give --node-name or set NODE_NAME (in a pod: from spec.nodeName through the downward API)"
        )
    return _settings(values, _backends(values, sources, file), file)


def _backends(
    values: Mapping[str, Any], sources: Mapping[str, str], file: ConfigFile
) -> tuple[BackendSettings, ...]:
    """The chosen backends with their options. A flag or variable that names a backend wins over the file's `backends`."""
    chosen = {name: dict(options) for name, options in file.backends.items()}
    if not chosen or sources["backend"] != _DEFAULT:
        name = values["backend"]
        chosen = {name: chosen.get(name, {})}
    for name in _ONLY_SIMULATED:
        if sources[name] == _DEFAULT or not values[name]:
            continue
        if SIMULATED in chosen:
            chosen[SIMULATED][name.removeprefix("simulated_")] = Text(str(values[name]))
        elif sources[name].startswith("flag "):
            flag = name.replace("_", "-")
            raise Fatal(f"--{flag} works only with simulated devices: add --backend simulated")
    if options := dict(values["backend_option"]):
        _only_backend(chosen, options).update((key, Text(one)) for key, one in options.items())
    return tuple(BackendSettings(name, options) for name, options in chosen.items())


def _only_backend(
    chosen: Mapping[str, dict[str, Any]], options: Mapping[str, str]
) -> dict[str, Any]:
    """The options of the one backend that --backend-option can mean."""
    named = [name for name in chosen if name != AUTO]
    if len(named) != 1:
        several = f"{', '.join(named)} are chosen" if named else "none is named"
        raise Fatal(
            f"--backend-option {', '.join(sorted(options))} is for a backend, and {several}: name one with --backend"
        )
    return chosen[named[0]]


def _settings(
    values: Mapping[str, Any], backends: tuple[BackendSettings, ...], file: ConfigFile
) -> Settings:
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
    return Settings(
        node=NodeSettings(NodeName(values["node_name"]), driver, values["boot_id_file"]),
        kubelet=kubelet,
        backends=backends,
        log=LogSettings(values["log_level"], values["log_format"]),
        kubeconfig=values["kubeconfig"],
        cdi_dir=values["cdi_dir"],
        state_dir=values["state_dir"] or kubelet.plugin_dir(driver),
        cgroup_root=values["cgroup_root"],
        release_proof=values["release_proof"],
        device_status=values["device_status"],
        device_metadata=values["device_metadata"],
        about_node=NodeWriteSettings(
            labels=values["node_labels"],
            aliases=values["node_label_aliases"],
            features_dir=values["nfd_features_dir"],
            condition=values["node_condition"],
            startup_taint=values["startup_taint"],
        ),
        http_address=values["http_address"],
        metrics_names=values["metrics_names"],
        plugin=_plugin(values, file.device_plugin),
        notes=file.notes,
    )


def _plugin(values: Mapping[str, Any], section: DevicePlugin) -> PluginSettings:
    path, strategy = values["path"], values["device_list_strategy"]
    return PluginSettings(
        path=None if path == _AUTO_WORD else ApiPath(path),
        plugins_dir=values["device_plugins_dir"],
        classes_dir=values["device_classes_dir"],
        customary=values["plugin_resources"] == "customary",
        strategy=None if strategy == _AUTO_WORD else Strategy(strategy),
        policy=policy_of(section),
        divided=divided_by(section),
    )


def _lookup(
    option: Option, flags: Mapping[str, Any], environment: Mapping[str, str], file: ConfigFile
) -> tuple[str, Any]:
    if flags.get(option.name) is not None:
        return f"flag {option.flag}", flags[option.name]
    if option.variable in environment:
        text = environment[option.variable]
        return f"environment variable {option.variable}", text.split(
            ","
        ) if option.repeated and text else text
    if file.values.get(option.name) is not None:
        return file.source(option), file.values[option.name]
    return _DEFAULT, option.default


def _parsed(option: Option, source: str, raw: Any) -> Any:
    try:
        if not option.repeated:
            # The empty default of a required option is not parsed: `load` reports a missing node name with a better message.
            return (
                option.parse(str(raw)) if raw or source != _DEFAULT or not option.required else ""
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
