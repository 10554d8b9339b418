# SPDX-License-Identifier: Apache-2.0
"""The process's settings: from flags, environment and a config file, checked once.

`OPTIONS` is the one table of them. The command line, the reader of the config file and the page docs/reference/settings.md
are made from it. A flag wins over the environment, the environment over the file, the file over the default.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2s
from pathlib import Path
from typing import Any

import yaml

from dra_driver.errors import Fatal
from dra_driver.model.ids import DriverName, NodeName

DEFAULT_DRIVER_NAME = DriverName("gpu.dra-driver.dev")
LARGEST_PORT = 65535
SOCKET_PATH_LIMIT = 107  # bytes of a unix socket's path, without the closing NUL

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_POD_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]{0,62}")


@dataclass(frozen=True, slots=True)
class Option:
    """One setting: `name` is its key in the config file and, with dashes, its flag."""

    name: str
    default: str
    help: str
    parse: Callable[[str], Any] = str
    env: str = ""
    repeated: bool = False
    required: bool = False

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return self.env or "DRA_DRIVER_" + self.name.upper()


def _subdomain(limit: int) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not _SUBDOMAIN.fullmatch(text) or len(text) > limit:
            raise ValueError(f"must be a lower-case DNS name of at most {limit} characters")
        return text

    return parse


def _absolute(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


def _optional_path(text: str) -> Path | None:
    return Path(text) if text else None


def _pod_uid(text: str) -> str:
    if text and not _POD_UID.fullmatch(text):
        raise ValueError("must be a pod's metadata.uid")
    return text


def _address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > LARGEST_PORT:
        raise ValueError("must be HOST:PORT, :PORT for every address, or empty for none")
    return host.strip("[]"), int(port)


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return text

    return parse


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError("must be KEY=VALUE")
    return key, value


OPTIONS: tuple[Option, ...] = (
    Option(
        "node_name",
        "",
        "This node's name, as its Node object has it.",
        _subdomain(253),
        env="NODE_NAME",
        required=True,
    ),
    Option(
        "driver_name",
        DEFAULT_DRIVER_NAME,
        "Name under which the driver registers and publishes.",
        _subdomain(63),
    ),
    Option(
        "pod_uid",
        "",
        "The driver pod's UID, part of its sockets' names then, so that an update can run two processes side by side; "
        "needs kubelet 1.33 or later. Empty: one process, fixed names.",
        _pod_uid,
        env="POD_UID",
    ),
    Option(
        "kubeconfig",
        "",
        "Kubeconfig for the API server; empty: the pod's service account.",
        _optional_path,
        env="KUBECONFIG",
    ),
    Option(
        "backend",
        "auto",
        "What finds the devices: the name of an installed backend, or auto for hardware that the driver knows by itself, which is "
        "none yet: the node then has no devices.",
    ),
    Option(
        "backend_option",
        "",
        "KEY=VALUE for the backend; may be repeated.",
        _key_value,
        repeated=True,
    ),
    Option("simulated_profile", "h100x8", "Which machine --backend simulated plays."),
    Option(
        "simulated_faults",
        "",
        "Watched YAML file that makes devices of --backend simulated ill or lets them vanish.",
        _optional_path,
    ),
    Option(
        "plugins_dir",
        "/var/lib/kubelet/plugins",
        "The kubelet's plugin directory; the DRA socket goes below it.",
        _absolute,
    ),
    Option(
        "registry_dir",
        "/var/lib/kubelet/plugins_registry",
        "Where the kubelet looks for registration sockets.",
        _absolute,
    ),
    Option(
        "pod_resources_socket",
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        "The kubelet's pod-resources socket.",
        _absolute,
    ),
    Option("cdi_dir", "/var/run/cdi", "Where the container runtime reads CDI files.", _absolute),
    Option(
        "state_dir",
        "",
        "Where prepared claims are remembered; empty: PLUGINS_DIR/DRIVER_NAME.",
        _optional_path,
    ),
    Option(
        "boot_id_file",
        "/proc/sys/kernel/random/boot_id",
        "File that holds another text after each boot.",
        _absolute,
    ),
    Option(
        "cgroup_root",
        "/sys/fs/cgroup",
        "The node's cgroups, looked at only: they show whether a pod that used a claim has processes left.",
        _absolute,
    ),
    Option(
        "release_proof",
        "cgroups",
        "What frees a device after the kubelet released its claim: cgroups, once the pods that used it are shown to have ended; or "
        "unprepare, the kubelet's word alone, for kubelets that make no cgroups for pods (cgroupsPerQOS: false). The kubelet says it "
        "too early for a force-deleted pod, whose containers run on: two workloads may use one device then.",
        _one_of("cgroups", "unprepare"),
    ),
    Option(
        "http_address", ":9410", "HOST:PORT of /metrics, /livez and /readyz; empty: none.", _address
    ),
    Option(
        "log_level",
        "info",
        "debug, info, warning or error.",
        _one_of("debug", "info", "warning", "error"),
    ),
    Option("log_format", "json", "json, or console for people.", _one_of("json", "console")),
)


_OF_SIMULATED = ("simulated_profile", "simulated_faults")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Who this process is."""

    name: NodeName
    driver: DriverName
    boot_id_file: Path


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """Where the kubelet's sockets are."""

    plugins_dir: Path
    registry_dir: Path
    pod_resources_socket: Path
    pod_uid: str = ""

    def plugin_dir(self, driver: DriverName) -> Path:
        """The driver's own directory below the kubelet's."""
        return self.plugins_dir / driver

    def endpoint(self, driver: DriverName) -> Path:
        """The socket that the kubelet calls."""
        return self._named(self.plugin_dir(driver), "dra", ".sock")

    def registration(self, driver: DriverName) -> Path:
        """The socket by which the kubelet finds the driver."""
        return self._named(self.registry_dir, driver, "-reg.sock")

    def _named(self, folder: Path, before: str, after: str) -> Path:
        """With the pod's UID, if there is one; with a digest of it where the path would be too long for a socket."""
        if not self.pod_uid:
            return folder / f"{before}{after}"
        path = folder / f"{before}-{self.pod_uid}{after}"
        if len(os.fsencode(path)) <= SOCKET_PATH_LIMIT:
            return path
        digest = blake2s(self.pod_uid.encode(), digest_size=4).hexdigest()
        return folder / f"{before}-{digest}{after}"


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """Which backend, and what it is told."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How log lines look."""

    level: str
    format: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that `dra-driver run` was told; valid if it exists."""

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
    """Settings from the three sources; Fatal names the source, what it says, and what it must be.

    `named` says that the node's name is needed; else it may be empty.
    `flags` maps option names to what the command line gave (text, or a list of texts for a repeated option).
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
    for name in _OF_SIMULATED:
        if flags.get(name) is not None and values["backend"] != "simulated":
            flag = name.replace("_", "-")
            raise Fatal(f"--{flag} is for simulated devices: give --backend simulated with it")
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
            # A default is not checked: no node name at all has an error of its own.
            return (
                option.parse(str(raw)) if raw or source != "default" or not option.required else ""
            )
        return [option.parse(str(item)) for item in _items(raw)]
    except ValueError as error:
        raise Fatal(f"{source} is {raw!r}: {error}") from error


def _items(raw: Any) -> Iterable[Any]:
    """A repeated option's texts; a file may give a mapping, a list or one text."""
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
