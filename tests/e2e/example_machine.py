# SPDX-License-Identifier: Apache-2.0
"""The three drivers of the example driver's demos on one cluster, and what the demos ask of them.

Each is a release of our chart under the name that the demos expect: gpu.example.com, net.example.com, cpu.example.com.
"""

import json
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hack.testbed.onenode import init, node_files
from hack.testbed.onenode.cluster import Cluster
from hack.testbed.onenode.driver import TAG
from hack.testbed.onenode.namespaces import TestBedError, wait_until
from hack.testbed.onenode.release import Release, build_image

DEMOS = Path(__file__).resolve().parents[2] / "deviceclasses" / "examples" / "example-driver"
GATES = {
    "DRANodeAllocatableResources": True,
    "GenericWorkload": True,
    "DRAWorkloadResourceClaims": True,
}
SERVED = {"resource.k8s.io/v1beta2": True, "scheduling.k8s.io/v1beta1": True}
POD_SECONDS = 120
# What the example driver's own tests look for in the log of a container.
DEVICE_LINE = re.compile(r"^GPU_DEVICE_[A-Z0-9_]+=(gpu-.+)$", re.MULTILINE)
Object = dict[str, Any]


@dataclass
class Machines:
    """The drivers of one cluster, each with the options that it was last given."""

    cluster: Cluster
    played: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def start(self) -> None:
        """Give the node the image, and the cluster the classes."""
        archive = build_image(self.cluster.root / "driver.tar", version=TAG)
        self.cluster.import_image(archive)
        self.cluster.kubectl("apply", "-f", "-", stdin=(DEMOS / "classes.yaml").read_text())

    def play(self, profile: str, **options: Any) -> None:
        """Let the driver of a profile have these options; nothing of it may be prepared."""
        if self.played.get(profile) == options:
            return
        release = Release(self.cluster, f"dra-driver-{profile}")
        simulated = {"profile": "example", "example": {"profile": profile, **options}}
        values = {
            "image": {"tag": TAG},
            "driverName": f"{profile}.example.com",
            "deviceClasses": {"enabled": False},
            # A demo asks for two CPUs, which may be all that the machine has.
            "resources": {"requests": {"cpu": "0"}},
            "backends": {"simulated": simulated},
        }
        if options.get("bindingConditions"):
            # The driver's own entries come on top of the conditions.
            values["deviceStatus"] = "write"
        (release.upgrade if profile in self.played else release.install)(values)
        self.played[profile] = options
        wait_until(lambda: _shows(self.devices(profile), options), f"slices of {profile} {options}")

    def prepared(self) -> list[str]:
        """The claims in the state files of all drivers."""
        found: list[str] = []
        for profile in self.played:
            folder = init.KUBELET_FOLDER / "plugins" / f"{profile}.example.com"
            file = self.cluster.path_inside(folder / "state.db")
            with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as state:
                found += [name for (name,) in state.execute("SELECT uid FROM claims")]
        return found

    def devices(self, profile: str) -> dict[str, Object]:
        """The published devices by name."""
        slices = [one["spec"] for one in self.cluster.get("resourceslices")["items"]]
        ours = [one for one in slices if one["driver"] == f"{profile}.example.com"]
        return {device["name"]: device for one in ours for device in one.get("devices", [])}


def _shows(devices: Mapping[str, Object], options: Mapping[str, Any]) -> bool:
    """Do the devices look as the options say?"""
    partitions = [name for name in devices if "-partition-" in name]
    wholes = [name for name in devices if "-partition-" not in name]
    looks = {
        "multipleAllocations": any(
            one.get("allowMultipleAllocations") and name.startswith("gpu")
            for name, one in devices.items()
        ),
        "bindingConditions": any(one.get("bindingConditions") for one in devices.values()),
    }
    return (
        len(wholes) == options.get("devices", 8)
        and len(partitions) == 8 * options.get("partitions", 0)
        and all(look == options.get(name, False) for name, look in looks.items())
    )


@dataclass
class Demo:
    """One demo in a namespace of its own."""

    machines: Machines
    namespace: str
    rules: list[str] = field(default_factory=list)

    def apply(self, name: str) -> None:
        """Create what a manifest of the demos holds, with the image of this test bed."""
        text = (DEMOS / f"{name}.yaml").read_text()
        text = text.replace(node_files.EXAMPLE_IMAGE, node_files.IMAGE)
        objects = [one for one in yaml.safe_load_all(text) if one]
        self.rules += [
            one["metadata"]["name"] for one in objects if one["kind"] == "DeviceTaintRule"
        ]
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "-f", "-", stdin=listed)

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl in the demo's namespace."""
        run = self.machines.cluster.kubectl
        return run("--namespace", self.namespace, *arguments, stdin=stdin, check=check)

    def get(self, *arguments: str) -> Object:
        """`kubectl get … -o json` in the demo's namespace."""
        found: Object = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found

    def pods(self) -> dict[str, Object]:
        """The pods by name."""
        return {one["metadata"]["name"]: one for one in self.get("pods")["items"]}

    def wait_running(self, *names: str) -> None:
        """Wait until the pods run; a failure shows what the pods' events say."""
        try:
            wait_until(lambda: self._running(names), f"{names}", timeout_seconds=POD_SECONDS)
        except TestBedError as error:
            raise AssertionError(f"{error}\n{self.kubectl('describe', 'pods')}") from error

    def _running(self, names: tuple[str, ...]) -> bool:
        pods = self.pods()
        wanted = names or tuple(pods)
        return bool(wanted) and all(_is_ready(pods.get(name, {})) for name in wanted)

    def why_pending(self, name: str) -> str:
        """The scheduler's reason, once it has given one."""

        def reason() -> str:
            conditions = self.pods()[name]["status"].get("conditions", [])
            refused = [entry for entry in conditions if entry.get("reason") == "Unschedulable"]
            return str(refused[0]["message"]) if refused else ""

        return wait_until(reason, f"the scheduler's verdict on pod {name}")

    def variables(self, pod: str, container: str = "ctr0") -> dict[str, str]:
        """The variables that a container printed when it started."""

        def printed() -> str:
            return self.kubectl("logs", pod, "-c", container, check=False)

        text = wait_until(printed, f"the log of container {container} of pod {pod}")
        return {
            name: value
            for name, _, value in (line.partition("=") for line in text.splitlines())
            if re.match("(GPU|NET|CPU)_DEVICE_|DRA_|KUBERNETES_NODE_NAME", name)
        }

    def gpus(self, pod: str, container: str = "ctr0") -> list[str]:
        """The GPUs of a container, as the example driver's own tests find them."""
        seen = self.variables(pod, container)
        return DEVICE_LINE.findall("\n".join(f"{name}={value}" for name, value in seen.items()))

    def claims(self) -> list[Object]:
        """The allocated claims, the oldest first."""
        claims = self.get("resourceclaims")["items"]
        return [one for one in claims if one.get("status", {}).get("allocation")]

    def end(self) -> None:
        """Delete everything of the demo, and wait until it is gone."""
        for rule in self.rules:
            self.kubectl("delete", "devicetaintrules", rule)
        now = ("--all", "--wait=false", "--ignore-not-found")
        self.kubectl("delete", "deployments", *now)
        self.kubectl("delete", "pods", "--grace-period=1", *now)
        wait_until(lambda: not self.pods(), f"the end of {self.namespace}", timeout_seconds=150)
        self.kubectl("delete", "podgroups.scheduling.k8s.io,resourceclaims", *now)
        wait_until(
            lambda: not self.get("resourceclaims")["items"],
            f"the end of the claims of {self.namespace}",
            timeout_seconds=150,
        )
        wait_until(
            lambda: not self.machines.prepared(), "free devices on the node", timeout_seconds=150
        )
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")


def results(claim: Object) -> list[Object]:
    """The allocation results of a claim."""
    found: list[Object] = claim["status"]["allocation"]["devices"]["results"]
    return found


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
