# SPDX-License-Identifier: Apache-2.0
"""How is the kubelet of a host configured? By its arguments, the file of --config, and the drop-ins below --config-dir.

The kubelet reads the file, then each drop-in (*.conf) in the order of the names: a later one replaces single values, adds to mappings, and
removes what it has as null. Its arguments win, feature gates one by one. It looks for drop-ins nowhere without --config-dir.
Source: cmd/kubelet/app/server.go of Kubernetes 1.37 (mergeKubeletConfigurations, kubeletConfigFlagPrecedence).
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import chain, islice
from typing import Any

from dra_driver.backends.nvidia.hardware.tree import Tree
from dra_driver.model.host import KubeletConfig
from dra_driver.model.state import Unknown
from dra_driver.model.yaml_documents import BadDocument, documents

CONFIG = "/var/lib/kubelet/config.yaml"
"""Where kubeadm writes it."""
ARGUMENTS = (
    "/var/lib/kubelet/kubeadm-flags.env",
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
)
"""Where kubeadm's service has arguments from, for a kubelet that does not run."""
PROCESSES = ("kubelet", "kubelite")
"""The names of the process; MicroK8s has the second."""
_SUFFIX = ".conf"
_BETWEEN_WORDS = re.compile(r"""[\s"'\0]+|=(?=--)""")
_COMMENTS = ("#", ";")
_IN_A_POD = re.compile(r"kubepods|/pod[0-9a-f]{8}")
"""In the cgroup of a process. From a container its path is relative, and may begin with the folder of the pod."""
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_MOST_DROP_INS, _DEEPEST = 64, 8

Read = Callable[[str], str | Unknown]
"""Returns the text of a file of the host: "" if there is none, and why it cannot be read."""


def kubelet_config(tree: Tree, read: Read) -> KubeletConfig:
    """Return what the kubelet's files and arguments say."""
    found = _Found(read)
    running = kubelets(tree)
    if len(running) == 1:
        file = f"/proc/{running[0]}/cmdline"
        arguments = {file: tree.text(file).split("\0")}
    else:
        arguments = {path: _words(found.text(path)) for path in ARGUMENTS}
    if len(running) > 1:
        found.unreadable.append(
            f"/proc: the processes {', '.join(running)} have a kubelet's name; it is not known which of them is the node's, and how it is configured"
        )
    everything = [*chain.from_iterable(arguments.values())]
    main = _flag(everything, "config")
    if main:
        found.add_named(tree, main)
    elif len(running) != 1:
        found.add(CONFIG)
    folder = _flag(everything, "config-dir").rstrip("/")
    if folder and not os.access(tree.place(folder), os.R_OK | os.X_OK):
        found.unreadable.append(
            f"{folder}: the kubelet's --config-dir is not there, or cannot be read by this user"
        )
    drop_ins = _drop_ins(tree, folder, _DEEPEST, found.unreadable) if folder else iter(())
    for path in islice(drop_ins, _MOST_DROP_INS):
        found.add(path)
    for path in islice(drop_ins, 1):
        found.unreadable.append(f"{path}: it and later drop-ins are too many, and were not read")
    for path, words in arguments.items():
        found.add_gates(path, words)
    endpoint = _flag(everything, "container-runtime-endpoint") or found.endpoint
    return KubeletConfig(endpoint.removeprefix("unix://"), found.gates, tuple(found.unreadable))


def kubelets(tree: Tree) -> tuple[str, ...]:
    """Return the process IDs of the host's kubelets: of root, and without those in pods and in other containers (as in kind's nodes)."""
    return tuple(
        number
        for number in filter(str.isdigit, tree.names("/proc"))
        if tree.text(f"/proc/{number}/comm").strip() in PROCESSES
        and _is_of_root_and_of_the_host(tree.text(f"/proc/{number}/status"))
        # A pod with hostPID has a number of the host and can have any name. Its mounts tell nothing: a kubelet may run in a container itself.
        and not _IN_A_POD.search(tree.text(f"/proc/{number}/cgroup"))
    )


def _is_of_root_and_of_the_host(status: str) -> bool:
    """Whether a process is no stranger's of this name, and has no number in another PID namespace."""
    fields = dict(re.findall(r"^(Uid|NSpid):(.*)$", status, re.MULTILINE))
    users, numbers = (fields.get(name, "").split() for name in ("Uid", "NSpid"))
    return set(users) == {"0"} and len(numbers) <= 1


class _Found:
    """What the files that were read so far say together."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.endpoint = ""
        self.gates: dict[str, tuple[bool, str]] = {}
        self.unreadable: list[str] = []

    def text(self, path: str) -> str:
        text = self._read(path)
        if isinstance(text, Unknown):
            self.unreadable.append(f"{path}: {text.reason}")
            return ""
        return text

    def add_named(self, tree: Tree, path: str) -> None:
        """Add the file of --config, without which no kubelet starts."""
        if not path.startswith("/"):
            self.unreadable.append(
                f"{path}: the kubelet's --config depends on the folder in which it was started"
            )
        elif not self._read(path) and tree.stat(path) is None:
            self.unreadable.append(f"{path}: the kubelet's --config is not there")
        else:
            self.add(path)

    def add(self, path: str) -> None:
        """Add a configuration file."""
        content = self._content(path)
        if "containerRuntimeEndpoint" in content:
            self.endpoint = str(content["containerRuntimeEndpoint"] or "")
        gates = content.get("featureGates", {})
        if gates is None:
            self.gates.clear()
        for name, is_on in gates.items() if isinstance(gates, Mapping) else ():
            if isinstance(is_on, bool):
                self.gates[str(name)] = (is_on, path)
            elif is_on is None:
                self.gates.pop(str(name), None)

    def add_gates(self, path: str, arguments: Sequence[str]) -> None:
        """Add the feature gates of arguments."""
        for text in _flags(arguments, "feature-gates"):
            for pair in text.split(","):
                name, _, value = pair.partition("=")
                if value.lower() in _BOOLEANS:
                    self.gates[name] = (_BOOLEANS[value.lower()], path)

    def _content(self, path: str) -> Mapping[str, Any]:
        try:
            content = BytesIO(self.text(path).encode())
            found = next((one.content for one in documents(content)), None)
        except BadDocument:
            self.unreadable.append(f"{path}: it is no YAML or JSON")
            return {}
        return found if isinstance(found, Mapping) else {}


def _words(text: str) -> list[str]:
    """Return the arguments in a file of environment variables for systemd. Source: systemd.exec(5), EnvironmentFile=."""
    lines = (one for one in text.splitlines() if not one.lstrip().startswith(_COMMENTS))
    return _BETWEEN_WORDS.split("\n".join(lines))


def _flags(arguments: Sequence[str], name: str) -> Iterator[str]:
    """Yield the values of a flag: behind "=", or the next argument."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        flag, has_value, value = word.partition("=")
        if flag == f"--{name}":
            yield value if has_value else following


def _flag(arguments: Sequence[str], name: str) -> str:
    """Return the value of a flag, the last one if it is there several times; "" if there is none."""
    return ["", *_flags(arguments, name)][-1]


def _drop_ins(tree: Tree, folder: str, levels: int, unreadable: list[str]) -> Iterator[str]:
    """Yield the drop-ins of a folder and its subfolders, in the order in which the kubelet reads them."""
    for name in tree.names(folder):
        path = f"{folder}/{name}"
        entry = tree.stat(path)
        if entry is not None and stat.S_ISDIR(entry.st_mode):
            if tree.link(path):
                continue
            if levels:
                yield from _drop_ins(tree, path, levels - 1, unreadable)
            else:
                unreadable.append(f"{path}: folders as deep as this one are not read")
        elif name.endswith(_SUFFIX):
            yield path
