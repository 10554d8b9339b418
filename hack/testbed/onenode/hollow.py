# SPDX-License-Identifier: Apache-2.0
"""A control plane with nodes that nobody runs.

A hollow node is a Node object that says it is Ready: the scheduler places pods on it, and none of
them ever starts. So a fleet of any size and shape costs nothing but objects. The controller that
watches for kubelets is off, or it would find none.
"""

import json
from collections.abc import Mapping
from typing import Any

from hack.testbed.onenode import build, node_files
from hack.testbed.onenode.cluster import Cluster, Options
from hack.testbed.onenode.namespaces import wait_until

KUBELET_VERSION = "v{version}"
RESOURCES = {"cpu": "8", "memory": "32Gi", "pods": "110"}
WITHOUT_KUBELETS = "--controllers=*,-node-lifecycle-controller"
Object = Mapping[str, Any]


class HollowCluster(Cluster):
    """etcd, API server, controllers and scheduler; neither containerd nor a kubelet."""

    def __init__(
        self,
        version: str = build.KUBERNETES,
        *,
        feature_gates: Mapping[str, bool] | None = None,
        runtime_config: Mapping[str, bool] | None = None,
    ) -> None:
        options = Options(
            version=version,
            flags={"kube-controller-manager": (WITHOUT_KUBELETS,)},
            feature_gates=feature_gates or {},
            runtime_config=runtime_config or {},
        )
        super().__init__(build.build(version), options)

    def start(self) -> None:
        """From nothing to a scheduler that works."""
        self.root.mkdir(parents=True, exist_ok=True)
        node_files.write_node_files(self.root, version=self.options.version)
        self.namespaces.open()
        self.start_control_plane()
        wait_until(self._has_default_account, "the service account of namespace default")

    def create(self, *objects: Object, namespace: str) -> None:
        """Create objects, with their status where they have one; nodes become Ready."""
        if objects:
            self.apply(*objects, namespace=namespace)
        for thing in objects:
            kind, name = thing["kind"], thing["metadata"]["name"]
            if kind == "Node":
                self._admit(thing)
            elif "status" in thing:
                self.write_status(kind, name, thing["status"], namespace=namespace)

    def write_status(self, kind: str, name: str, status: Object, *, namespace: str) -> None:
        """Say what a controller would say."""
        where = ("--namespace", namespace, kind, name, "--subresource=status", "--type=merge")
        self.kubectl("patch", *where, "--patch", json.dumps({"status": status}))

    def _admit(self, node: Object) -> None:
        """Make a new node Ready, and take off the taint that every new node gets."""
        name = node["metadata"]["name"]
        ready = {"type": "Ready", "status": "True", "reason": "Hollow", "message": "nobody runs it"}
        version = {"kubeletVersion": KUBELET_VERSION.format(version=self.options.version)}
        resources = RESOURCES | node.get("status", {}).get("allocatable", {})
        status = {
            "conditions": [ready],
            "capacity": resources,
            "allocatable": resources,
            "nodeInfo": version,
        }
        self.write_status("node", name, status, namespace="")
        taints = node.get("spec", {}).get("taints", [])
        patch = json.dumps({"spec": {"taints": taints}})
        self.kubectl("patch", "node", name, "--type=merge", "--patch", patch)
