# SPDX-License-Identifier: Apache-2.0
"""What can be done to the cluster?

One object: start and stop it, talk to it, break parts of it. Its components are the control plane
(etcd, kube-apiserver, kube-controller-manager, kube-scheduler), which survives a reboot of the
node, and the node's (containerd, kubelet, every container, the driver), which do not.
"""

import dataclasses
import json
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hack.testbed.onenode import (
    build,
    cgroups,
    components,
    etcd_keys,
    features,
    image,
    init,
    node_files,
    old_api,
)
from hack.testbed.onenode.namespaces import Namespaces, Program, TestBedError, wait_until

CTR = ("ctr", "--address", node_files.RUNTIME_SOCKET, "--namespace", "k8s.io")
CLIENTS = ("kube-controller-manager", "kube-scheduler")  # of the control plane's API server
FROM_OUTSIDE = ("HOME", "LANG", "TERM", "TMPDIR")  # of our own environment, for programs inside


@dataclass(frozen=True, slots=True)
class Options:
    """What may differ from one cluster to the next.

    A version alone makes a cluster with DRA where the driver can use it, that is from 1.32 on; gates and served APIs come on top of
    what it needs. The gate DynamicResourceAllocation decides up to 1.33 whether resource.k8s.io is served: False is a cluster without
    DRA, and True serves v1alpha3 on 1.31.
    """

    version: str = build.KUBERNETES
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    # Names under which pods find the one image that there is.
    images: tuple[str, ...] = (node_files.IMAGE,)
    # What a component is told beyond its usual command line.
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Cluster:
    """One node and its control plane, in a folder and namespaces of their own."""

    def __init__(
        self, binaries: build.Binaries, options: Options | None = None, *, root: Path | None = None
    ) -> None:
        self.options = options or Options()
        self.root = root or Path(tempfile.mkdtemp(prefix="dra-testbed-"))
        self.boot_id_file = self.root / "boot_id"
        self.admin_kubeconfig = self.root / "admin.kubeconfig"
        self.namespaces = Namespaces(self.root)
        self._binaries = binaries
        self._gates: dict[str, dict[str, bool]] = {}
        self._components: dict[str, Program] = {}
        self._started: list[Program] = []

    # The life of the cluster

    def start(self) -> None:
        """From nothing to a node that is Ready."""
        self.root.mkdir(parents=True, exist_ok=True)
        node_files.write_node_files(self.root, version=self.options.version)
        image.write_image(self.root / "image.tar", self.options.images)
        self._new_boot_id()
        cgroups.make(self.root.name)
        self.namespaces.open()
        self.start_containerd()
        self.start_control_plane()
        self.start_kubelet()
        self.wait_node_ready()
        wait_until(self._has_default_account, "the service account of namespace default")

    def stop(self, *, keep: Path | None = None) -> None:
        """End everything and remove every trace; copy the logs to `keep` first."""
        if keep is not None:
            self.save_logs(keep)
        self.namespaces.close()
        self._bury(self._started)
        cgroups.remove(self.root.name)
        shutil.rmtree(self.root, ignore_errors=True)

    def save_logs(self, folder: Path) -> None:
        """Copy what explains a failure."""
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.root / "log", folder, dirs_exist_ok=True)
        for kind in ("events", "pods", "resourceclaims", "resourceslices", "nodes"):
            said = self.kubectl("get", kind, "--all-namespaces", "-o", "yaml", check=False)
            (folder / f"{kind}.yaml").write_text(said)

    def path_inside(self, path: Path) -> Path:
        """A file of the node, by a path that works outside the namespaces."""
        for folder, below_root in init.NODE_FOLDERS.items():
            if path.is_relative_to(folder):
                return self.root / below_root / path.relative_to(folder)
        # Programs that resolve links themselves (SQLite) would leave the node by this one.
        inside = Path(f"/proc/{self.namespaces.init_pid}/root")
        return inside / path.resolve().relative_to("/")

    # Programs inside

    @property
    def environment(self) -> dict[str, str]:
        """What every program inside finds in its environment."""
        kept = {name: os.environ[name] for name in FROM_OUTSIDE if name in os.environ}
        path = f"{self._binaries.path}:/usr/sbin:/usr/bin:/sbin:/bin"
        # kubectl remembers by address which versions are served, and all clusters have the same.
        own = {"KUBECACHEDIR": str(self.root / "kube-cache")}
        return {**kept, **own, "PATH": path, "KUBECONFIG": str(self.admin_kubeconfig)}

    def run_inside(self, argv: Sequence[str], *, log: str) -> Program:
        """Start a program on the node; its output is appended to a file among the logs."""
        with (self.root / "log" / f"{log}.log").open("ab") as output:
            program = self.namespaces.start(argv, env=self.environment, stdout=output)
        self._started.append(program)
        return program

    def _bury(self, programs: Sequence[Program]) -> None:
        """Wait for programs that were killed from elsewhere, so that none is left a zombie."""
        for program in programs:
            program.entered.wait(30)
        self._started = [program for program in self._started if program.running()]

    def output_of(
        self, argv: Sequence[str], *, stdin: str | None = None, check: bool = True
    ) -> str:
        """Run a program on the node to its end and answer what it printed."""
        ended = self.namespaces.run(argv, env=self.environment, stdin=stdin)
        if check and ended.returncode != 0:
            raise TestBedError(f"`{' '.join(argv)}` said: {ended.stderr.strip()}")
        return ended.stdout

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl as the cluster's administrator."""
        return self.output_of(["kubectl", *arguments], stdin=stdin, check=check)

    @property
    def resource_api(self) -> str:
        """The newest version of resource.k8s.io that this cluster serves, such as "v1beta1"; "" if none."""
        served = features.api_versions(self.options.version, self._own_gates("kube-apiserver"))
        return served[0] if served else ""

    def get(self, *arguments: str) -> dict[str, Any]:
        """`kubectl get … -o json`, decoded; claims and slices in v1 form on every release."""
        return old_api.to_v1(json.loads(self.kubectl("get", *arguments, "-o", "json")))

    def apply(self, *objects: Mapping[str, Any], namespace: str = "") -> None:
        """Create or change objects; those of resource.k8s.io are given in v1 form."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        text = json.dumps(old_api.to_version(listed, self.resource_api))
        where = ("--namespace", namespace) if namespace else ()
        self.kubectl(*where, "apply", "-f", "-", stdin=text)

    def apply_file(self, path: Path, *, namespace: str = "") -> None:
        """Create or change what a manifest, or each of a folder's, holds; pods of the examples run this cluster's image."""
        for file in sorted(path.glob("*.yaml")) if path.is_dir() else [path]:
            text = file.read_text().replace(node_files.EXAMPLE_IMAGE, node_files.IMAGE)
            objects = [found for found in yaml.safe_load_all(text) if found]
            self.apply(*objects, namespace=namespace)

    # Parts of the cluster

    def _start(self, name: str) -> None:
        options, own = self.options, self._own_gates(name)
        gates = features.feature_gates(options.version) | own
        served = features.runtime_config(options.version, own) | dict(options.runtime_config)
        command = components.command(name, self.root, gates, served)
        told = (*command, *options.flags.get(name, ()))
        self._components[name] = self.run_inside(told, log=name)

    def _own_gates(self, name: str) -> dict[str, bool]:
        """The feature gates of a component that do not follow from the release."""
        return dict(self.options.feature_gates) | self._gates.get(name, {})

    def _stop(self, name: str) -> None:
        self._components.pop(name).stop()

    def change_gates(
        self, gates: Mapping[str, bool], *, of: Sequence[str] = components.GATED
    ) -> None:
        """Restart these components with other feature gates, while pods run.

        With DynamicResourceAllocation the API server begins or ends to serve resource.k8s.io, as at the start of a cluster.
        """
        for name in of:
            self._gates.setdefault(name, {}).update(gates)
        if "kube-apiserver" in of:
            self.stop_apiserver()
            self.start_apiserver()
        else:
            for name in [client for client in CLIENTS if client in of]:
                self._stop(name)
                self._start(name)
        if "kubelet" in of:
            self.restart_kubelet()

    def replace_release(
        self, version: str, *, feature_gates: Mapping[str, bool] | None = None
    ) -> None:
        """Go on as another release, older minors skipped, with the objects of the API and with /var/lib/kubelet; containers run on.

        No gate is kept, for the other release may not know it. docs/testbed.md says what a release makes of older data.
        """
        self.stop_kubelet()
        for name in (*CLIENTS, "kube-apiserver"):
            self._stop(name)
        self._keys("dump")
        self._stop("etcd")
        shutil.rmtree(self.etcd_folder)
        self._binaries = build.build(version)
        self._gates.clear()
        self.options = dataclasses.replace(
            self.options, version=version, feature_gates=feature_gates or {}
        )
        node_files.write_kubelet_yaml(self.root, version=version)
        self._start("etcd")
        wait_until(self._etcd_is_ready, f"etcd ({self.root}/log/etcd.log)")
        self._keys("load")
        self._start_apiserver()
        for name in CLIENTS:
            self._start(name)
        self.start_kubelet()
        wait_until(self._is_of_release, f"the node to report {version}")
        self.wait_node_ready()

    def _keys(self, verb: str) -> None:
        self.output_of([sys.executable, etcd_keys.__file__, verb, str(self.root / "etcd.json")])

    def _etcd_is_ready(self) -> bool:
        ready = ["/bin/busybox", "wget", "-q", "-O", "-", f"{components.ETCD}/readyz"]
        return "ok" in self.output_of(ready, check=False)

    def stop_apiserver(self) -> None:
        """Kill the API server."""
        self._stop("kube-apiserver")

    def start_apiserver(self) -> None:
        """Start the API server again, and wait until it serves; the controllers and the scheduler start anew.

        With leader election they end after an outage. Without it each of their watches comes back at a time of its own, up to a
        minute later. Until then the controllers work on old objects, and after each conflict they wait twice as long: claims
        without a pod were kept for 150 s.
        """
        for name in CLIENTS:
            self._stop(name)
        self._start_apiserver()
        for name in CLIENTS:
            self._start(name)

    def _start_apiserver(self) -> None:
        self._start("kube-apiserver")
        wait_until(self._api_is_ready, f"the API server ({self.root}/log/kube-apiserver.log)")

    def stop_control_plane(self) -> None:
        """Kill it, etcd first of all; the node goes on alone."""
        for name in components.CONTROL_PLANE:
            self._stop(name)

    def start_control_plane(self, *, etcd: Path | None = None) -> None:
        """Start it, on a copy of etcd's data if one is given, and wait until the API server serves."""
        if etcd is not None:
            shutil.rmtree(self.etcd_folder)
            shutil.copytree(etcd, self.etcd_folder)
        self._start("etcd")
        self._start_apiserver()
        for name in CLIENTS:
            self._start(name)

    @property
    def etcd_folder(self) -> Path:
        """etcd's data; to be copied while the control plane is stopped."""
        return self.root / "etcd"

    def start_kubelet(self) -> None:
        """Start the kubelet; `wait_node_ready` says when it works."""
        self._start("kubelet")

    def stop_kubelet(self) -> None:
        """Kill the kubelet; containers go on."""
        self._stop("kubelet")

    def restart_kubelet(self) -> None:
        """Kill the kubelet and wait until its successor has reported."""
        before = self._kubelet_started()
        self.stop_kubelet()
        self.start_kubelet()
        self._wait_kubelet(before)

    @property
    def plugin_folder(self) -> Path:
        """Where device plugins and the kubelet have their sockets, by a path that works outside."""
        return self.path_inside(init.KUBELET_FOLDER / "device-plugins")

    def empty_plugin_folder(self) -> None:
        """Delete what is in it, as an admin does who cleans up: the sockets, the kubelet's own too, and its checkpoint."""
        for path in self.plugin_folder.iterdir():
            path.unlink(missing_ok=True)

    def start_containerd(self) -> None:
        """Start containerd and give it the image, which a fresh one does not have."""
        self._start("containerd")
        wait_until(
            lambda: self.namespaces.run([*CTR, "version"], env=self.environment).returncode == 0,
            f"containerd ({self.root}/log/containerd.log)",
        )
        self.import_image(self.root / "image.tar")

    def import_image(self, archive: Path) -> None:
        """Give containerd an image."""
        self.output_of([*CTR, "images", "import", "--local", str(archive)])

    def reboot(self) -> None:
        """Pull the node's plug and switch it on again; the control plane stands elsewhere."""
        before = self._kubelet_started()
        survivors = [
            self._components[name] for name in components.CONTROL_PLANE if name in self._components
        ]
        self.namespaces.kill_all(but={program.pid for program in survivors})
        self._bury([program for program in self._started if program not in survivors])
        self.output_of(["umount", "--lazy", "--recursive", str(init.RUN_FOLDER)])
        self.output_of(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(init.RUN_FOLDER)])
        self._new_boot_id()
        cgroups.remove(self.root.name)
        cgroups.make(self.root.name)
        self.start_containerd()
        self.start_kubelet()
        self._wait_kubelet(before)

    def _wait_kubelet(self, before: str) -> None:
        """Wait for a kubelet that differs from the one `before`, and until it has heard of its pods.

        The node's condition Ready says nothing here: it is left over from the kubelet before.
        """
        log = f"{self.root}/log/kubelet.log"
        wait_until(lambda: self._kubelet_started() not in ("", before), f"a new kubelet ({log})")
        wait_until(self._kubelet_knows_its_pods, f"the kubelet to hear of its pods ({log})")
        self.wait_node_ready()

    def wait_node_ready(self) -> None:
        """Wait until the node has the condition Ready."""
        wait_until(self._node_is_ready, f"node {node_files.NODE} ({self.root}/log/kubelet.log)")

    # Questions

    def _api_is_ready(self) -> bool:
        return "ok" in self.kubectl("get", "--raw", "/readyz", check=False)

    def _node_is_ready(self) -> bool:
        path = '{.status.conditions[?(@.type=="Ready")].status}'
        ready = self.kubectl("get", "node", node_files.NODE, "-o", f"jsonpath={path}", check=False)
        return ready == "True"

    def _is_of_release(self) -> bool:
        path = "jsonpath={.status.nodeInfo.kubeletVersion}"
        said = self.kubectl("get", "node", node_files.NODE, "-o", path, check=False)
        return said == f"v{self.options.version}"

    def _kubelet_started(self) -> str:
        """A text that differs for each run of the kubelet: its newest event Starting."""
        path = "{.items[*].metadata.uid}"
        selector = "reason=Starting,involvedObject.kind=Node"
        arguments = ("--namespace", "default", "--field-selector", selector)
        return self.kubectl("get", "events", *arguments, "-o", f"jsonpath={path}", check=False)

    def _kubelet_knows_its_pods(self) -> bool:
        node = node_files.NODE
        bound = self.get("pods", "--all-namespaces", "--field-selector", f"spec.nodeName={node}")
        known = {pod["metadata"]["uid"] for pod in self.pods_of_kubelet()}
        return {pod["metadata"]["uid"] for pod in bound["items"]} <= known

    def pods_of_kubelet(self) -> list[dict[str, Any]]:
        """The pods as the kubelet knows them; none while it does not answer."""
        path = f"/api/v1/nodes/{node_files.NODE}/proxy/pods"
        answer = json.loads(self.kubectl("get", "--raw", path, check=False) or "{}")
        return answer.get("items") or []

    def _has_default_account(self) -> bool:
        return "default" in self.kubectl(
            "get", "serviceaccount", "default", "-o", "name", check=False
        )

    # The node's secrets and remains

    def _new_boot_id(self) -> None:
        self.boot_id_file.write_text(f"{uuid.uuid4()}\n")
