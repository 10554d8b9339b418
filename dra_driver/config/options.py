# SPDX-License-Identifier: Apache-2.0
"""Which settings are there, and which values are valid? `OPTIONS` is the only table of settings.

The command line, the reader of the config file and the page docs/reference/settings.md are all made from this table. So a new
setting needs one entry here, and one field in `settings.py`.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from dra_driver.model.dns_names import is_subdomain
from dra_driver.model.ids import DriverName
from dra_driver.model.names import DOMAIN
from dra_driver.planning.label_text import FACTS, label_key_problem, taint_key_problem
from dra_driver.planning.metrics.schemes import OWN_NAMES, SCHEME_NAMES

DEFAULT_DRIVER_NAME = DriverName(DOMAIN)
LARGEST_PORT = 65535
CONFIG_VARIABLE = "DRA_DRIVER_CONFIG"
"""The environment variable with the path of the config document. Commands that run in the driver's pod need no flag then."""

_POD_UID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]{0,62}")


class Option(Struct, frozen=True):
    """One setting. Its flag is `name` with dashes, and its key in the config document is `name` in camel case.

    `parse` makes the value from the text. If the text breaks a rule, `parse` raises ValueError, and the message is the rule.
    `allowed` are the only values, if there are few. `in_document` is False for a setting that each node or pod has for itself, and
    for the choice of backends, which the document makes in its own form.
    """

    name: str
    default: str
    help: str
    parse: Callable[[str], Any] = str
    env: str = ""
    repeated: bool = False
    required: bool = False
    allowed: tuple[str, ...] = ()
    in_document: bool = True

    @property
    def flag(self) -> str:
        """The command-line flag, for example "--node-name"."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable, for example "DRA_DRIVER_CDI_DIR"."""
        return self.env or "DRA_DRIVER_" + self.name.upper()

    @property
    def metavar(self) -> str:
        """What the help shows in place of a value, for example "{none,write}" or "PATH"."""
        if self.allowed:
            return f"{{{','.join(self.allowed)}}}"
        return _METAVARS.get(self.parse, "VALUE")

    @property
    def key(self) -> str:
        """The field of the config document, for example "cdiDir"; "" if the document has none."""
        first, *others = self.name.split("_")
        return first + "".join(map(str.capitalize, others)) if self.in_document else ""


def _subdomain(limit: int) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not is_subdomain(text, limit):
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


def _optional_absolute(text: str) -> Path | None:
    return _absolute(text) if text else None


def _pod_uid(text: str) -> str:
    if text and not _POD_UID.fullmatch(text):
        raise ValueError("must be a pod's metadata.uid")
    return text


def _address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > LARGEST_PORT:
        raise ValueError("must be HOST:PORT, :PORT for every address, or empty for none")
    return host.strip("[]"), int(port)


def _choice(name: str, default: str, help_text: str, allowed: tuple[str, ...]) -> Option:
    """An option with few values."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return text

    return Option(name, default, help_text, parse, allowed=allowed)


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError("must be KEY=VALUE")
    return key, value


def _aliases(text: str) -> tuple[tuple[str, str], ...]:
    pairs = tuple(_key_value(part) for part in text.split(",") if part)
    for label, fact in pairs:
        if problem := label_key_problem(label):
            raise ValueError(f"must be LABEL=FACT,…; {label!r}: {problem}")
        if fact not in FACTS:
            raise ValueError(f"must be LABEL=FACT,… with a fact of {', '.join(FACTS)}")
    if len(dict(pairs)) < len(pairs):
        raise ValueError("must have each label once")
    return pairs


def _metrics_names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if name not in SCHEME_NAMES:
            known = ", ".join(SCHEME_NAMES)
            raise ValueError(f"must be NAME,… with names of {known}; {name!r} is none")
    return tuple(dict.fromkeys(names))


def _startup_taint(text: str) -> str:
    if text and (problem := taint_key_problem(text)):
        raise ValueError(f"must be the key of a taint; {problem}")
    return text


_METAVARS: Mapping[Callable[[str], Any], str] = {
    _absolute: "PATH",
    _optional_path: "PATH",
    _optional_absolute: "PATH",
    _address: "HOST:PORT",
    _key_value: "KEY=VALUE",
    _aliases: "LABEL=FACT,…",
    _metrics_names: "NAME,…",
}

OPTIONS: tuple[Option, ...] = (
    Option(
        "node_name",
        "",
        "The name of this node's Node object.",
        _subdomain(253),
        env="NODE_NAME",
        required=True,
        in_document=False,
    ),
    Option(
        "driver_name",
        DEFAULT_DRIVER_NAME,
        "The driver name, with which the driver registers at the kubelet and publishes its ResourceSlices.",
        _subdomain(63),
    ),
    Option(
        "pod_uid",
        "",
        "The UID of the driver's pod. It becomes part of the socket names, so that the old and the new pod can run at the same time "
        "during a rolling update; needs kubelet 1.33 or later. Empty: fixed socket names, only one process at a time.",
        _pod_uid,
        env="POD_UID",
        in_document=False,
    ),
    Option(
        "kubeconfig",
        "",
        "Kubeconfig file for the API server. Empty: the service account of the pod.",
        _optional_path,
        env="KUBECONFIG",
    ),
    Option(
        "backend",
        "auto",
        "The name of the installed backend that finds the devices, instead of the backends of the config document; for several "
        "backends write that document. auto: all installed backends whose hardware exists, never simulated. This release brings one "
        "for real hardware: nvidia.",
        in_document=False,
    ),
    Option(
        "backend_option",
        "",
        "KEY=VALUE that is passed to the backend; may be repeated.",
        _key_value,
        repeated=True,
        in_document=False,
    ),
    Option(
        "simulated_profile",
        "h100x8",
        "The machine that --backend simulated simulates. docs/reference/profiles.md has all; a wrong name is answered with them.",
        in_document=False,
    ),
    Option(
        "simulated_faults",
        "",
        "YAML file with faults for --backend simulated: it makes devices unhealthy, lets them vanish, or lets their set-up fail or hang. The driver watches the file.",
        _optional_path,
        in_document=False,
    ),
    Option(
        "plugins_dir",
        "/var/lib/kubelet/plugins",
        "The kubelet's plugin directory. The DRA socket is made in a subdirectory of it.",
        _absolute,
    ),
    Option(
        "registry_dir",
        "/var/lib/kubelet/plugins_registry",
        "The directory in which the kubelet looks for registration sockets.",
        _absolute,
    ),
    Option(
        "pod_resources_socket",
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        "The kubelet's pod-resources socket.",
        _absolute,
    ),
    Option(
        "cdi_dir",
        "/var/run/cdi",
        "The directory in which the container runtime looks for CDI files.",
        _absolute,
    ),
    Option(
        "state_dir",
        "",
        "The directory of the state file, which records the prepared claims. Empty: PLUGINS_DIR/DRIVER_NAME.",
        _optional_path,
    ),
    Option(
        "boot_id_file",
        "/proc/sys/kernel/random/boot_id",
        "A file whose content changes with each boot of the machine.",
        _absolute,
    ),
    Option(
        "cgroup_root",
        "/sys/fs/cgroup",
        "The mount point of the node's cgroups. The driver only reads them, to see whether a pod still has processes.",
        _absolute,
    ),
    _choice(
        "release_proof",
        "cgroups",
        "What must be true before a device is free for the next claim. cgroups: the cgroups of all pods that used the device show no "
        "process. unprepare: the kubelet has called NodeUnprepareResources; only for kubelets that make no cgroups for pods "
        "(cgroupsPerQOS: false). For a force-deleted pod the kubelet makes this call while containers still run, so with unprepare two "
        "workloads may use one device.",
        ("cgroups", "unprepare"),
    ),
    _choice(
        "device_status",
        "none",
        "Whether the driver reports the devices of prepared claims in their status.devices. none: no. write: yes; the driver then needs "
        "the right to patch resourceclaims/status, and on Kubernetes 1.36 and later associated-node:patch on resourceclaims/driver.",
        ("none", "write"),
    ),
    _choice(
        "device_metadata",
        "none",
        "Whether containers get files with the metadata of their devices (KEP-5304). none: no. files: one file for each request of a "
        "claim, below /var/run/kubernetes.io/dra-device-attributes. A change concerns only claims that are prepared after it.",
        ("none", "files"),
    ),
    _choice(
        "path",
        "auto",
        "Through which API pods get the devices of this node. auto: DRA if the cluster and the kubelet of this node have it, else the "
        "device plugin API. dra: only DRA. device-plugin: only the device plugin API, for a cluster that is not ready for claims.",
        ("auto", "dra", "device-plugin"),
    ),
    Option(
        "device_plugins_dir",
        "/var/lib/kubelet/device-plugins",
        "The directory of the kubelet's device plugin socket. The driver makes the sockets of its resources there.",
        _absolute,
    ),
    Option(
        "device_classes_dir",
        "",
        "A directory with DeviceClasses in YAML files. The device plugin API offers what these classes select. If it has no class, "
        "or is empty, the classes of the cluster count, if the API server has such objects.",
        _optional_absolute,
    ),
    _choice(
        "plugin_resources",
        "classes",
        "What the resources of the device plugin API are. classes: what DeviceClasses select; where there is no class, as customary. "
        "customary: what the vendors' own plugins offer, under their names (nvidia.com/gpu), whatever classes there are.",
        ("classes", "customary"),
    ),
    _choice(
        "device_list_strategy",
        "auto",
        "How a container gets the devices that the kubelet asked the device plugin API for. auto: CDI names from kubelet 1.31 on, else "
        "edits. cdi: CDI names. edits: variables, device files and mounts, without CDI. cdi-annotations: annotations with CDI "
        "names, which containerd and CRI-O read.",
        ("auto", "cdi", "edits", "cdi-annotations"),
    ),
    _choice(
        "node_labels",
        "nfd",
        "How the Node gets labels that say which devices it has. none: not at all. nfd: by a feature file, from which Node Feature "
        "Discovery makes the labels; without its folder the driver writes nothing. patch: the driver writes them itself, and needs "
        "the right to patch nodes.",
        ("none", "nfd", "patch"),
    ),
    Option(
        "node_label_aliases",
        "",
        "LABEL=FACT,…: more labels of the Node, for manifests that select by names of their own, such as "
        f"accelerator=vendor,gpu-memory=memory-mib. Facts: {', '.join(FACTS)}. A label without a domain needs --node-labels patch.",
        _aliases,
    ),
    Option(
        "nfd_features_dir",
        "/etc/kubernetes/node-feature-discovery/features.d",
        "The directory of feature files, from which Node Feature Discovery makes labels.",
        _absolute,
    ),
    _choice(
        "node_condition",
        "none",
        "Whether the driver writes the condition DevicesReady of the Node. none: no. write: yes; the driver then needs the right to patch "
        "nodes/status.",
        ("none", "write"),
    ),
    Option(
        "startup_taint",
        "",
        "The key of a taint that the driver removes from its Node once the devices are ready, so that no pod is placed there, and no "
        "autoscaler adds a second node, before that. The driver then needs the right to patch nodes. Empty: none.",
        _startup_taint,
    ),
    Option(
        "http_address",
        ":9410",
        "HOST:PORT of /metrics, /livez and /readyz. Empty: no HTTP port.",
        _address,
    ),
    Option(
        "metrics_names",
        OWN_NAMES,
        "NAME,…: under which names /metrics has what is measured on devices. own: dra_driver_device_…. dcgm: those of dcgm-exporter "
        "(DCGM_FI_DEV_GPU_UTIL). duty-cycle: those of nvidia_gpu_prometheus_exporter (nvidia_gpu_duty_cycle). opentelemetry: hw.gpu.…, "
        "with underscores (hw_gpu_utilization_ratio). Empty: nothing is measured.",
        _metrics_names,
    ),
    _choice(
        "log_level",
        "info",
        "The lowest level that is logged: debug, info, warning or error.",
        ("debug", "info", "warning", "error"),
    ),
    _choice(
        "log_format",
        "json",
        "json for programs, or console for people.",
        ("json", "console"),
    ),
)
