# SPDX-License-Identifier: Apache-2.0
"""A node with mocked NVIDIA GPUs, the driver on it under NVIDIA's name, and what a program in a container sees.

What is true is asked of the mock (the folder in which it keeps modes and a journal) and of containers (a program there that opens
NVIDIA's library), never of the driver.
"""

import os
import re
import signal
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dra_driver.backends.nvidia.facts import Node
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import MIG_CHANGE, Control
from hack.testbed.onenode import image, init, node_files
from hack.testbed.onenode.cluster import Cluster
from hack.testbed.onenode.driver import TAG
from hack.testbed.onenode.helm import CHART
from hack.testbed.onenode.namespaces import TestBedError, wait_until
from hack.testbed.onenode.nvidia import MockGpus
from hack.testbed.onenode.release import NAMESPACE, Release
from tests.e2e.story import FIRST, Story
from tests.support.nvidia_names import uuids

DRIVER = "gpu.nvidia.com"
NAME = "dra-driver-nvidia"
CLASSES = CHART.parents[1] / "deviceclasses" / "nvidia"
EXAMPLES = CHART.parents[1] / "deviceclasses" / "examples" / "nvidia"
IMAGE = "localhost/gpu-program:1"
WANTS_ALL = "localhost/wants-all-gpus:1"  # the same, as NVIDIA's images are: with a variable that asks for all GPUs
PROGRAM = "/bin/list-gpus"
LAYOUT = "3g.20gb 2g.10gb 1g.5gb 1g.5gb"  # what one pod of the Deployment of four takes
MINORS = {0: 2, 1: 0, 2: 1}  # as on many servers, not in the order of the PCI bus
UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
SECONDS = 120.0
Object = dict[str, Any]


def hardware() -> Node:
    """Four whole A100s, and four that are cut into MIG devices."""
    found = machine.node(boards.A100_40, 8, mig=dict.fromkeys(range(4, 8), LAYOUT))
    gpus = tuple(
        msgspec.structs.replace(gpu, minor=MINORS.get(gpu.index, gpu.minor)) for gpu in found.gpus
    )
    return msgspec.structs.replace(found, gpus=gpus)


def import_programs(cluster: Cluster) -> None:
    """Give the node an image with a C library and a program that opens NVIDIA's; one more of the kind that asks for all GPUs."""
    programs = {PROGRAM: build.list_gpus().read_bytes(), **image.c_library()}
    for name, variables in {
        IMAGE: (),
        WANTS_ALL: ("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=all"),
    }.items():
        archive = cluster.root / "gpu-program.tar"
        image.write_image(archive, (name,), programs, variables)
        cluster.import_image(archive)


@dataclass
class NvidiaNode:
    """The GPUs, the release of the driver, and the questions to both."""

    cluster: Cluster
    facts: Node

    def __post_init__(self) -> None:
        self.uuids = uuids(self.facts)
        self.release = Release(self.cluster, NAME)
        self.gpus = MockGpus(self.cluster, self.facts)

    def start(self) -> None:
        """Bring everything to the node; the driver's image is there already."""
        self.gpus.install()
        import_programs(self.cluster)
        for file in sorted(CLASSES.glob("*.yaml")):
            text = file.read_text().replace("# extendedResourceName:", "extendedResourceName:")
            self.cluster.kubectl("apply", "-f", "-", stdin=text)
        try:
            self.release.install(self.values())
            wait_until(self.is_whole, "all devices in the slices, and none tainted")
        except TestBedError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from error

    def stop(self) -> None:
        """Remove everything."""
        self.release.uninstall()
        self.cluster.kubectl("delete", "-f", str(CLASSES), "--ignore-not-found")
        self.gpus.remove()

    def values(self) -> Object:
        """What the chart is told."""
        return {
            "image": {"tag": TAG},
            "driverName": DRIVER,
            "backends": {"nvidia": {"health": {"recoverySeconds": 2}}},
            "deviceClasses": {"enabled": False},  # the other driver's release has them
            "resources": {"requests": {"cpu": "0"}},  # two CPUs may be all that the machine has
            **self.gpus.values(),
        }

    # Questions to the driver's books.

    def devices(self) -> dict[str, Object]:
        """The published devices by name."""
        slices = [one["spec"] for one in self.cluster.get("resourceslices")["items"]]
        ours = [one for one in slices if one["driver"] == DRIVER]
        return {device["name"]: device for one in ours for device in one.get("devices") or ()}

    def taints(self) -> dict[str, list[str]]:
        """The keys of the taints of each tainted device."""
        return {
            name: [taint["key"] for taint in device["taints"]]
            for name, device in self.devices().items()
            if device.get("taints")
        }

    def is_whole(self) -> bool:
        """Whether all devices are published, and none is tainted."""
        return self.devices().keys() == self.uuids.keys() and not self.taints()

    def prepared(self) -> list[str]:
        """The UIDs of the claims in the driver's state."""
        folder = init.KUBELET_FOLDER / "plugins" / DRIVER
        file = self.cluster.path_inside(folder / "state.db")
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as state:
            return [uid for (uid,) in state.execute("SELECT uid FROM claims")]

    def pod(self) -> Object:
        """The driver's pod."""
        [pod] = self.release.pods()
        return pod

    def logs(self) -> str:
        """What the containers of the driver's pod said last."""
        last = ("--namespace", NAMESPACE, "logs", "--all-containers", "--prefix", "--tail=40")
        return self.cluster.kubectl(*last, f"daemonset/{NAME}", check=False)

    def restarts(self) -> int:
        """How often the hardware container was started again."""
        statuses = self.pod()["status"]["containerStatuses"]
        return sum(one["restartCount"] for one in statuses if one["name"] == "hardware")

    def hardware_processes(self) -> dict[int, int]:
        """Those that listen for the driver and call the library, by their numbers outside: each with the number of its parent."""
        found: dict[int, int] = {}
        for pid in self.cluster.namespaces.processes():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"--listen" in words and b"--host-root" in words:
                    found[pid] = int(
                        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
                    )
        return found

    def end_hardware(self) -> None:
        """Kill all of the hardware container; answers when it is there again."""
        before = self.restarts()
        for pid in self.hardware_processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.restarts() > before, "the hardware container to be started again")

    # The mock.

    @property
    def control(self) -> Control:
        """What befalls the hardware."""
        return self.gpus.control

    def settings(self) -> dict[str, dict[str, int]]:
        """What each GPU is set to by its name, but for what it is set to by default."""
        found: dict[str, dict[str, int]] = {}
        for name, uuid in self.uuids.items():
            modes = {
                "compute mode": self.control.compute_mode(uuid),
                "time slice": self.control.time_slice(uuid),
            }
            if told := {what: value for what, value in modes.items() if value}:
                found[name] = told
        return found

    def befalls(self, device: str) -> None:
        """Something unimportant happens to a GPU: the driver looks at once, and not only ten seconds later."""
        self.control.event(self.index_of(device), MIG_CHANGE, 0)

    def wait(self, question: Callable[[], object], what: str, device: str) -> None:
        """Wait for something that the driver learns from a look at a GPU."""

        def asked() -> object:
            self.befalls(device)
            return question()

        wait_until(asked, what, timeout_seconds=SECONDS)

    def index_of(self, device: str) -> int:
        """The index of a whole GPU, as the mock counts."""
        return next(gpu.index for gpu in self.facts.gpus if gpu.uuid == self.uuids[device])


class GpuStory(Story):
    """A namespace with pods that use NVIDIA GPUs."""

    __slots__ = ()

    def events(self, pod: str) -> str:
        """What the pod's events say."""
        about = f"involvedObject.name={pod}"
        path = "{.items[*].message}"
        return self._kubectl("get", "events", "--field-selector", about, "-o", f"jsonpath={path}")

    def gpu_claim(self, name: str, *requests: Object, config: Object | None = None) -> None:
        """A claim for devices, with a configuration for all of them."""
        devices: Object = {"requests": list(requests)}
        if config is not None:
            opaque = {"driver": DRIVER, "parameters": config}
            devices["config"] = [{"requests": [], "opaque": opaque}]
        self._make("resource.k8s.io/v1", "ResourceClaim", name, {"devices": devices})

    def gpu_pod(self, name: str, claim: str = "", **more: Any) -> None:
        """A pod with one container; `more` are further fields of the container."""
        container = {"name": FIRST, "image": IMAGE, "imagePullPolicy": "Never", **more}
        if claim:
            container["resources"] = {"claims": [{"name": "devices"}]}
        spec: Object = {
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": "devices", "resourceClaimName": claim}] if claim else [],
        }
        self._make("v1", "Pod", name, spec)

    def _make(self, version: str, kind: str, name: str, spec: Object) -> None:
        metadata = {"name": name, "namespace": self.namespace}
        self.driver.cluster.apply(
            {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
        )

    def apply_example(self, name: str, replaced: Mapping[str, str] | None = None) -> None:
        """Create what a manifest of the examples holds; its pods run the program that opens the library."""
        text = (EXAMPLES / f"{name}.yaml").read_text().replace(node_files.EXAMPLE_IMAGE, IMAGE)
        for before, after in (replaced or {}).items():
            text = text.replace(before, after)
        objects = [one for one in yaml.safe_load_all(text) if one]
        self.driver.cluster.apply(*objects, namespace=self.namespace)

    def wait_all_ready(self, count: int) -> list[str]:
        """Wait until there are so many pods and all run; answers their names."""
        wait_until(lambda: len(self.pods()) == count, f"{count} pods")
        names = self.pods()
        self.wait_ready(*names)
        return names

    def lists(self, pod: str, *, container: str = FIRST) -> list[str]:
        """The UUIDs that NVIDIA's library shows a program in the container, in its order."""
        return UUID.findall(self.shell(pod, PROGRAM, container=container))

    def given(self, claim: str) -> list[str]:
        """The devices of NVIDIA's driver in the claim's allocation."""
        found = self._object("resourceclaim", claim).get("status", {}).get("allocation", {})
        results = found.get("devices", {}).get("results", [])
        return [one["device"] for one in results if one["driver"] == DRIVER]

    def claims_by_pod(self) -> dict[str, list[str]]:
        """Which devices of NVIDIA's driver each pod has, by all of its claims."""
        listed = self.driver.cluster.get("--namespace", self.namespace, "pods")["items"]
        return {
            pod["metadata"]["name"]: [
                device for claim in self._claims(pod) for device in self.given(claim)
            ]
            for pod in listed
        }

    def _claims(self, pod: Object) -> list[str]:
        extended = pod["status"].get("extendedResourceClaimStatus", {})
        made = [extended["resourceClaimName"]] if extended else []
        return [*self.claims_of(pod).values(), *made]

    def leave(self) -> None:
        """Delete everything, and wait for nothing but that the pods have heard of it."""
        now = ("--all", "--wait=false", "--grace-period=1")
        self._kubectl("delete", "deployments,pods,resourceclaims", *now)
        self.driver.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def device_files(self, pod: str, *, container: str = FIRST) -> set[str]:
        """The device files of NVIDIA's driver in the container."""
        said = self.shell(pod, "find /dev -name 'nvidia*' ! -type d", container=container)
        return set(re.findall(r"^/dev/\S+", said, re.MULTILINE))


def request(name: str = "gpu", kind: str = "gpu.nvidia.com", **more: Any) -> Object:
    """A request for devices of a class."""
    return {"name": name, "exactly": {"deviceClassName": kind, **more}}


def selector(expression: str) -> list[Object]:
    """Selectors that say this of the device's attributes, which are `own`."""
    text = expression.replace("own.", f'device.attributes["{DRIVER}"].')
    return [{"cel": {"expression": text}}]


def wait_for_settings(node: NvidiaNode, expected: Mapping[str, Mapping[str, int]]) -> None:
    """Wait until the hardware is set to exactly this."""
    try:
        wait_until(lambda: node.settings() == expected, "the settings", timeout_seconds=SECONDS)
    except TestBedError as error:
        raise AssertionError(f"{error}: {node.settings()}, expected {expected}") from error
