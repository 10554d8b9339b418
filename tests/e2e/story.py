# SPDX-License-Identifier: Apache-2.0
"""The words in which the end-to-end tests tell their stories: claims, pods, and what a pod sees."""

import base64
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hack.testbed.onenode.components import ETCD
from hack.testbed.onenode.driver import DRIVER_NAME, Driver
from hack.testbed.onenode.namespaces import TestBedError, wait_until
from hack.testbed.onenode.node_files import IMAGE
from tests.e2e.agreement import allocated_here, published

LOCAL_MAJORS = {*range(60, 64), *range(120, 128)}  # numbers that Linux leaves to local use
API = "resource.k8s.io/v1"
# What lets a namespace ask for admin access; Kubernetes 1.33 knows the second name.
ADMIN_ACCESS = {
    "resource.kubernetes.io/admin-access": "true",
    "resource.k8s.io/admin-access": "true",
}
# Every character device of the container as "path major minor", the numbers in hexadecimal.
LOOK = "env; find /dev -type c -exec stat -c '/dev-node %n %t %T' {} +"
SAID = "story-said-all"  # what a shell in a container says last
FIRST = "c0"  # the name of a pod's first container
NODE_LINE = re.compile(r"^/dev-node (\S+) ([0-9a-f]+) ([0-9a-f]+)$", re.MULTILINE)

ASK_ETCD = """
import json, sys, urllib.request
asked = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), {"Content-Type": "application/json"})
print(urllib.request.urlopen(asked, timeout=10).read().decode())
"""


def memory_at_least(quantity: str) -> str:
    """CEL that selects by memory."""
    return f'device.capacity["{DRIVER_NAME}"].memory.compareTo(quantity("{quantity}")) >= 0'


def exactly(*, cel: str = "", **more: Any) -> dict[str, Any]:
    """What a request asks of each device."""
    selectors = {"selectors": [{"cel": {"expression": cel}}]} if cel else {}
    return {"deviceClassName": "gpu", **selectors, **more}


def request(name: str = "gpu", *, cel: str = "", **more: Any) -> dict[str, Any]:
    """A request for devices of class gpu."""
    return {"name": name, "exactly": exactly(cel=cel, **more)}


@dataclass(frozen=True, slots=True)
class Seen:
    """What a container has of this driver: variables, and (major, minor) of device nodes by path."""

    env: Mapping[str, str]
    nodes: Mapping[str, tuple[int, int]]

    @property
    def devices(self) -> dict[str, str]:
        """Variables that name devices, with their uuids."""
        return {name: value for name, value in self.env.items() if name.startswith("GPU_DEVICE_")}


@dataclass(slots=True)
class Story:
    """A namespace with claims and pods, on a cluster with a driver."""

    driver: Driver
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def begin(self) -> None:
        """Make the namespace."""
        name = {"name": self.namespace, "labels": dict(self.labels)}
        self.driver.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": name})
        wait_until(
            lambda: self._kubectl("get", "serviceaccount", "default", "-o", "name", check=False),
            f"the service account of namespace {self.namespace}",
        )

    def end(self) -> None:
        """Delete what is in the namespace and wait until the pods are gone.

        The namespace itself goes later, by its own controller, and nobody needs to wait for it.
        """
        cluster = self.driver.cluster
        # Nothing here heeds SIGTERM, and half a minute for each pod adds up.
        now = ("--all", "--wait=false", "--grace-period=1")
        self._kubectl("delete", "pods,resourceclaims", *now)
        what = f"the end of everything in namespace {self.namespace}"
        try:
            wait_until(self._is_empty, what, timeout_seconds=150)
        except TestBedError as error:
            left = self._kubectl("get", "pods,resourceclaims", "-o", "yaml")
            raise AssertionError(f"{error}; what is left:\n{left}") from error
        cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def _is_empty(self) -> bool:
        return not self._kubectl("get", "pods,resourceclaims", "-o", "name")

    def _kubectl(self, *arguments: str, check: bool = True) -> str:
        kubectl = self.driver.cluster.kubectl
        return kubectl("--namespace", self.namespace, *arguments, check=check)

    def _object(self, kind: str, name: str) -> dict[str, Any]:
        return self.driver.cluster.get("--namespace", self.namespace, kind, name)

    # Making things

    def claim(self, name: str, *requests: Mapping[str, Any]) -> None:
        """Create a ResourceClaim."""
        metadata = {"name": name, "namespace": self.namespace}
        spec = {"devices": {"requests": list(requests)}}
        claim = {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
        self.driver.cluster.apply(claim)

    def pod(self, name: str, claim: str = "", *, containers: Sequence[str] = ("",)) -> None:
        """Create a pod of that claim; `containers` names each one's request, "" for the whole claim.

        The containers are called c0, c1, … . They run until they are killed, and are asked then.
        """
        resources = [
            {"claims": [{"name": "devices"} | ({"request": wanted} if wanted else {})]}
            for wanted in containers
        ]
        listed = [
            {
                "name": f"c{number}",
                "image": IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "resources": resources[number] if claim else {},
            }
            for number in range(len(containers))
        ]
        claims = [{"name": "devices", "resourceClaimName": claim}] if claim else []
        spec = {
            "containers": listed,
            "resourceClaims": claims,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
        }
        metadata = {"name": name, "namespace": self.namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.driver.cluster.apply(pod)

    def delete_pod(self, name: str, *, wait: bool = True) -> None:
        """Delete a pod; without `wait` only ask for it."""
        self._kubectl("delete", "pod", name, "--wait=false")
        if wait:
            self.wait_gone(name)

    def remove_without_deletion(self, pod: str) -> None:
        """Take the pod out of etcd, as a restored backup does: nobody asked its containers to end."""
        key = base64.b64encode(f"/registry/pods/{self.namespace}/{pod}".encode()).decode()
        asked = (f"{ETCD}/v3/kv/deleterange", json.dumps({"key": key}))
        said = self.driver.cluster.output_of([sys.executable, "-c", ASK_ETCD, *asked])
        assert json.loads(said).get("deleted") == "1", said

    def delete_claim(self, name: str) -> None:
        """Delete a claim that no pod uses any more."""
        self._kubectl("delete", "resourceclaim", name)

    def wait_gone(self, name: str) -> None:
        """Wait until the pod is no more."""
        wait_until(
            lambda: not self._kubectl("get", "pod", name, "-o", "name", check=False),
            f"the end of pod {name}",
            timeout_seconds=150,
        )

    def apply_file(self, path: Path) -> None:
        """Create what a manifest holds."""
        self.driver.cluster.apply_file(path, namespace=self.namespace)

    # Asking

    def pods(self) -> list[str]:
        """The names of the pods."""
        return self._kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}").split()

    def wait_ready(self, *names: str) -> None:
        """Wait until the pods run; a failure shows what the pods' events say."""
        for name in names:
            try:
                wait_until(partial(self._is_ready, name), f"pod {name}", timeout_seconds=120)
            except TestBedError as error:
                raise AssertionError(
                    f"{error}\n{self._kubectl('describe', 'pod', name)}"
                ) from error

    def _is_ready(self, name: str) -> bool:
        conditions = self._object("pod", name)["status"].get("conditions", [])
        return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)

    def restarts(self, name: str) -> int:
        """How often the first container of the pod was started again."""
        statuses = self._object("pod", name)["status"].get("containerStatuses", [{}])
        return int(statuses[0].get("restartCount", 0))

    def why_pending(self, name: str) -> str:
        """The scheduler's reason, once it has given one."""

        def reason() -> str:
            conditions = self._object("pod", name)["status"].get("conditions", [])
            refused = [entry for entry in conditions if entry.get("reason") == "Unschedulable"]
            return str(refused[0]["message"]) if refused else ""

        return wait_until(reason, f"the scheduler's verdict on pod {name}")

    def shell(self, pod: str, script: str, *, container: str = FIRST) -> str:
        """What a shell in the container says, errors included; its exit status does not matter."""
        shell = ("--", "sh", "-c", f"( {script} ) 2>&1; echo; echo {SAID}")

        def said() -> str:
            # A kubelet that has just started does not know its pods for a moment, and refuses.
            text = self._kubectl("exec", pod, "-c", container, *shell, check=False)
            return text if SAID in text else ""

        return wait_until(said, f"a shell in container {container} of pod {pod}")

    def seen_by(self, pod: str, *, container: str = FIRST) -> Seen:
        """Look around inside a container."""
        text = self.shell(pod, LOOK, container=container)
        pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
        numbers = {
            path: (int(major, 16), int(minor, 16)) for path, major, minor in NODE_LINE.findall(text)
        }
        local = {path: node for path, node in numbers.items() if node[0] in LOCAL_MAJORS}
        return Seen({name: value for name, _, value in pairs}, local)

    def allocated(self, claim: str) -> dict[str, str]:
        """The claim's devices of this driver: name and request."""
        results = allocated_here(self._object("resourceclaim", claim))
        return {entry["device"]: entry["request"] for entry in results}

    def claims_of(self, pod: dict[str, Any]) -> dict[str, str]:
        """The pod's ResourceClaims by the pod's own names for them, those from templates too."""
        made = pod["status"].get("resourceClaimStatuses", [])
        named = {entry["name"]: entry["resourceClaimName"] for entry in made}
        direct = pod["spec"].get("resourceClaims", [])
        return named | {
            entry["name"]: entry["resourceClaimName"]
            for entry in direct
            if "resourceClaimName" in entry
        }

    def assert_has_what_it_asks_for(self, name: str) -> list[Seen]:
        """Each container has exactly what its entries under resources.claims were given."""
        pod = self._object("pod", name)
        claims = self.claims_of(pod)
        seen = []
        for container in pod["spec"]["containers"]:
            devices = [
                device
                for entry in container["resources"]["claims"]
                for device, wanted in self.allocated(claims[entry["name"]]).items()
                if entry.get("request", wanted) in (wanted, wanted.partition("/")[0])
            ]
            assert devices, f"pod {name} was given nothing for container {container['name']}"
            seen.append(self.assert_has(name, *devices, container=container["name"]))
        return seen

    def assert_has(self, pod: str, *devices: str, container: str = FIRST) -> Seen:
        """The container has exactly these devices: their nodes by number, and their uuids.

        The variables of one claim number its devices. Of several claims in one container, the runtime keeps those of one.
        """
        seen, there = self.seen_by(pod, container=container), self._published(devices)
        minors = sorted(there[name]["attributes"]["index"]["int"] for name in devices)
        assert sorted(node[1] for node in seen.nodes.values()) == minors
        uuids = {there[name]["attributes"]["uuid"]["string"] for name in devices}
        assert set(seen.devices.values()) <= uuids
        assert bool(seen.devices) == bool(devices)
        return seen

    def _published(self, devices: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The driver's devices; between two drivers an old kubelet takes them away for a moment."""

        def complete() -> dict[str, dict[str, Any]]:
            there = published(self.driver)
            return there if there.keys() >= set(devices) else {}

        # A pod without devices needs no slice to be compared with.
        what = f"slices with {', '.join(devices)}"
        return wait_until(complete, what) if devices else {}

    def assert_has_claimed(self, pod: str, claim: str, *, container: str = FIRST) -> Seen:
        """The container has exactly the devices in the claim's allocation, and that is at least one."""
        devices = self.allocated(claim)
        assert devices, f"claim {claim} has no allocation"
        return self.assert_has(pod, *devices, container=container)
