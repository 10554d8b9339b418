# SPDX-License-Identifier: Apache-2.0
"""A daemon that offers its devices through the device plugin API, and a kubelet's device manager that takes the time of its calls.

After each call the manager does what a kubelet does: it writes its checkpoint, the pod's cgroup has processes, and then they end. So the driver
takes the units back, and the next call finds none that are given out.
"""

import sqlite3
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import grpc

from dra_driver.kubelet.pb import deviceplugin_v1beta1_pb2 as pb
from dra_driver.model.ids import PodUid
from dra_driver.testing.device_checkpoint import NO_NODE, Given
from dra_driver.testing.fake_device_manager import FakeDeviceManager
from dra_driver.testing.fake_kubelet import FakeKubelet
from hack.bench.cost.node import DEADLINE_SECONDS, BenchNode, wait_for

RESOURCE = "nvidia.com/gpu"
GPUS = 8
CONTAINER = "main"
PAUSE_SECONDS = 0.01
BATCH = 50
LONGEST_MESSAGE = (("grpc.max_receive_message_length", 64 * 1024 * 1024),)


class TimedManager(FakeDeviceManager):
    """Gives out units that the caller names."""

    arrived = 0.0  # when the last list came, by time.perf_counter

    def received(self, resource: str, devices: list[Any]) -> None:
        self.arrived = time.perf_counter()
        super().received(resource, devices)

    def socket(self) -> Path:
        """The socket of the plugin that is called."""
        with self.changed:
            client = self._endpoints[RESOURCE].client
        if client is None:
            raise SystemExit(f"no plugin offers {RESOURCE}")
        return client.path

    def units(self) -> list[str]:  # type: ignore[override]
        """All units of the list."""
        with self.changed:
            return list(self._devices[RESOURCE])

    def healthy(self) -> int:
        """How many units can be given out."""
        with self.changed:
            return len(self._healthy.get(RESOURCE, ()))

    def note(self, pod: PodUid, units: Sequence[str], answer: Any) -> None:
        """A container has these units."""
        with self.changed:
            self._given.insert(pod, CONTAINER, RESOURCE, Given({NO_NODE: list(units)}, answer))

    def write(self) -> None:
        """Write the checkpoint, without pods that are not active."""
        self.take_back()
        with self.changed:
            self._write()


class _Kubelet(FakeKubelet):
    """The fake kubelet with that manager."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.device_manager.stop()
        self.timed = TimedManager(root / "device-plugins", self.version, self._active_pods)
        self.timed._ready = True  # noqa: SLF001  it has heard from the API server
        self.device_manager = self.timed


class PluginNode(BenchNode):
    """Eight simulated GPUs, each in so many units; 1: each GPU is a unit."""

    def __init__(self, replicas: int, *, marks: bool = False) -> None:
        super().__init__(marks=marks)
        self.replicas = replicas
        self.faults = self.root / "faults.yaml"

    def arguments(self) -> list[str]:
        flags = {
            "path": "device-plugin",
            "device-plugins-dir": self.root / "device-plugins",
            "pod-resources-socket": self.kubelet.pod_resources_socket,
            "simulated-faults": self.faults,
            "config": self.root / "config.yaml",
        }
        return [*super().arguments(), *(f"--{name}={text}" for name, text in flags.items())]

    def __enter__(self) -> Self:
        self.set_faults("{}")
        several = f"{{{RESOURCE}: {{replicas: {self.replicas}}}}}" if self.replicas > 1 else "{}"
        (self.root / "config.yaml").write_text(
            "apiVersion: config.dra-driver.dev/v1alpha1\nkind: DriverConfig\n"
            f"devicePlugin: {{timeSlicing: {several}}}\n"
        )
        self.kubelet = _Kubelet(self.root)
        self.manager = self.kubelet.timed
        begun = time.perf_counter()
        try:
            super().__enter__()
            wait_for(lambda: self.manager.healthy() == GPUS * self.replicas, "all units")
        except BaseException:
            self.kubelet.close()
            raise
        self.listed_after = self.manager.arrived - begun
        self.all_units = self.manager.units()
        self._channel = grpc.insecure_channel(
            f"unix:{self.manager.socket()}",
            options=(("grpc.enable_http_proxy", 0), *LONGEST_MESSAGE),
        )
        self._allocate = self._channel.unary_unary("/v1beta1.DevicePlugin/Allocate")
        self._list = self._channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")
        self._next = 0
        return self

    def __exit__(self, *reason: object) -> None:
        self._channel.close()
        super().__exit__(*reason)
        self.kubelet.close()

    def set_faults(self, devices: str) -> None:
        """Replace the file that says which devices are ill."""
        whole = self.faults.with_suffix(".new")
        whole.write_text(f"devices: {devices}\n")
        whole.replace(self.faults)

    def allocate(self) -> tuple[float, str]:
        """Seconds of a call for the next unit, and the pod that has it."""
        unit = self.all_units[self._next % len(self.all_units)]
        self._next += 1
        pod = f"default/{uuid.uuid4()}"
        uid = self.kubelet.pod_uid(pod)
        request = pb.AllocateRequest()
        request.container_requests.add(devices_ids=[unit])
        text = request.SerializeToString()
        begun = time.perf_counter()
        answer = self._allocate(text, timeout=DEADLINE_SECONDS)
        seconds = time.perf_counter() - begun
        (given,) = pb.AllocateResponse.FromString(answer).container_responses
        self.manager.note(uid, [unit], given)
        return seconds, pod

    def identify(self, pods: Sequence[str]) -> None:
        """The pods start, and the driver learns who they are."""
        for pod in pods:
            self.kubelet.cgroups.run(self.kubelet.pod_uid(pod))
        self.manager.write()
        # Until then a row has what the node showed when its call began.
        unnamed = "WHERE users IS NULL OR users LIKE '%\"call\"%'"
        wait_for(lambda: not self._rows(unnamed), "the pods are known")
        time.sleep(PAUSE_SECONDS)  # it has seen their processes too

    def free(self, pods: Sequence[str]) -> None:
        """The pods end, and the driver takes their units back."""
        left = self._rows() - len(pods)
        for pod in pods:
            self.kubelet.end(pod)
        self.manager.write()
        wait_for(lambda: self._rows() == left, f"units are free; see {self.root}/log")
        time.sleep(PAUSE_SECONDS)

    def give_out(self, count: int) -> list[str]:
        """Give so many units to as many pods that go on."""
        pods: list[str] = []
        while len(pods) < count:
            batch = [self.allocate()[1] for _ in range(min(BATCH, count - len(pods)))]
            self.identify(batch)
            pods += batch
        return pods

    def list_once(self) -> tuple[float, int]:
        """Seconds from a question for the list to its arrival, and its bytes."""
        begun = time.perf_counter()
        stream = self._list(b"")
        text = next(stream)
        seconds = time.perf_counter() - begun
        stream.cancel()
        return seconds, len(text)

    def _rows(self, where: str = "") -> int:
        with closing(sqlite3.connect(self.state_dir / "state.db")) as db:
            (count,) = db.execute(f"SELECT count(*) FROM claims {where}").fetchone()  # noqa: S608
        return int(count)
