# SPDX-License-Identifier: Apache-2.0
"""The real driver process on a cluster without DRA: its devices are extended resources of the device plugin API."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest

from dra_driver.model.ids import PodUid
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.kubelet_calls import KubeletError
from dra_driver.testing.stage import DRIVER, NODE, Stage
from tests.support.stages import a_stage

GPU = "nvidia.com/gpu"
OPTIONAL = (
    "dra_driver.planning.plugin",
    "dra_driver.services.plugin",
    "dra_driver.kubelet.plugin",
    "dra_driver.cel",
    "dra_driver.daemon.plugin_path",
)
# The driver, which writes the modules that it has loaded into the file of the first argument when it gets SIGUSR1.
TELLING = """
import os, signal, sys
from dra_driver.cli.main import main
told = sys.argv.pop(1)
def tell(*_):
    with open(told + ".part", "w") as file:
        file.write("\\n".join(sorted(sys.modules)))
    os.rename(told + ".part", told)
signal.signal(signal.SIGUSR1, tell)
raise SystemExit(main())
"""
ONE = {"main": {GPU: 1}}


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder with a short path, for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(params=["1.30", "1.31"])
def old(request: pytest.FixtureRequest, root: Path) -> Iterator[Stage]:
    """A node of an old cluster."""
    with FakeApi(versions=()) as api:
        stage = a_stage(root, api, kubernetes=request.param)
        yield stage
        stage.close()


def allocatable(node: Stage) -> int:
    return node.kubelet.device_manager.capacity()[1].get(GPU, 0)


def offered(node: Stage, count: int) -> None:
    node.wait_for(lambda: allocatable(node) == count, f"{count} units are allocatable")


def ready(node: Stage) -> tuple[str, ...]:
    """Status, reason and message of the condition DevicesReady."""
    for found in node.api.object("nodes", NODE)["status"].get("conditions") or ():
        if found["type"] == "DevicesReady":
            return found["status"], found["reason"], found["message"]
    return ()


def devices(node: Stage, pod: PodUid, container: str = "main") -> int:
    return len(node.kubelet.device_manager.units(pod, container).get(GPU, ()))


def test_pods_of_an_old_cluster_get_gpus(old: Stage) -> None:
    old.start()
    offered(old, 8)
    pod = old.kubelet.admit("default/a", {"main": {GPU: 2}})
    options = old.kubelet.start("default/a")
    assert devices(old, pod) == 2
    assert old.slices() == []
    if old.kubernetes == "1.30":
        # This kubelet may drop CDI names without a word, so the container gets device files and variables.
        assert sum("/dev/dra-simulated/gpu-" in one for one in map(str, options.devices)) == 2
        assert not options.cdi_devices
    else:
        assert len(options.cdi_devices) == 2
    assert len(old.owners()) == 2
    old.wait_for(lambda: "units_identified" in old.log(), "the pod is known")
    old.kubelet.end("default/a")
    old.wait_for(lambda: old.owners() == {}, "the devices are free")


def test_a_pod_deleted_by_force_keeps_its_gpu_from_others(old: Stage) -> None:
    old.start()
    offered(old, 8)
    old.kubelet.admit("default/a", {"main": {GPU: 8}})
    old.kubelet.start("default/a")
    old.wait_for(lambda: "units_identified" in old.log(), "the pod is known")
    running = old.kubelet.force_delete("default/a")
    with pytest.raises(KubeletError, match="may still be used by the container that had it before"):
        old.kubelet.admit("default/b", ONE)
    offered(old, 0)
    old.kubelet.end_containers(running)
    offered(old, 8)
    old.kubelet.admit("default/c", ONE)


def test_after_a_kill_and_a_kubelet_restart_everybody_has_what_they_had(old: Stage) -> None:
    old.start()
    offered(old, 8)
    pod = old.kubelet.admit("default/a", {"main": {GPU: 3}})
    old.kubelet.start("default/a")
    before = old.owners()
    old.kill()
    old.start()
    offered(old, 8)
    old.kubelet.restart()
    offered(old, 8)
    assert (devices(old, pod), old.owners()) == (3, before)
    old.kubelet.end("default/a")
    old.wait_for(lambda: old.owners() == {}, "the devices are free")


def test_a_device_that_falls_ill_is_taken_out_and_comes_back(root: Path) -> None:
    faults = root / "faults.yaml"
    faults.write_text("{}")
    with FakeApi(versions=()) as api:
        node = a_stage(root, api, "--simulated-faults", str(faults), kubernetes="1.31")
        try:
            node.start()
            offered(node, 8)
            faults.write_text("devices: {gpu-3: {unhealthy: XID 79}}\n")
            offered(node, 7)
            faults.write_text("{}")
            offered(node, 8)
        finally:
            node.close()


def test_the_node_is_ready_as_soon_as_the_kubelet_has_the_list(old: Stage) -> None:
    old.start("--node-condition", "write")
    old.wait_for(
        lambda: ready(old) == ("True", "Listed", "the kubelet has 8 devices"),
        "the devices are ready",
    )
    offered(old, 8)


@pytest.mark.parametrize("wish", ["classes", "customary"])
def test_who_wants_customary_names_has_them_beside_any_class(root: Path, wish: str) -> None:
    """After an upgrade of the cluster too: it serves DeviceClasses then, and the names do not change."""
    selectors = [{"cel": {"expression": 'device.driver == "gpu.dra-driver.dev"'}}]
    with FakeApi() as api:
        api.put("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})
        flags = ("--path", "device-plugin", "--plugin-resources", wish)
        node = a_stage(root, api, *flags)
        try:
            node.start()
            name = GPU if wish == "customary" else "gpu.dra-driver.dev/gpu"
            capacity = node.kubelet.device_manager.capacity
            node.wait_for(lambda: capacity()[1] == {name: 8}, f"{name} is allocatable")
        finally:
            node.close()


def test_an_upgrade_of_the_cluster_waits_for_the_rights_of_dra(root: Path) -> None:
    """The chart gives no rights for an API that was not there, and pins the path until the next `helm upgrade`."""
    with FakeApi() as api:
        for resource in ("resourceclaims", "resourceslices", "deviceclasses"):
            api.faults.status(403, resource=resource, times=100_000)
        flags = ("--path", "device-plugin", "--plugin-resources", "customary")
        node = a_stage(root, api, *flags)
        try:
            node.start()
            offered(node, 8)
            pod = node.kubelet.admit("default/a", {"main": {GPU: 2}})
            node.kubelet.start("default/a")
            assert devices(node, pod) == 2
            node.kubelet.end("default/a")
            node.wait_for(lambda: node.owners() == {}, "the devices are free")
            node.kill()
            node.start()
            offered(node, 8)
        finally:
            node.close()


def test_on_a_cluster_with_dra_nothing_of_it_runs(node: Stage) -> None:
    node.start_registered()
    node.wait_for(node.published, "the slices are published")
    node.wait_for(lambda: "path_chosen" in node.log(), "the path is chosen")
    assert list(node.kubelet.device_manager.folder.glob("*gpu*")) == []
    assert "plugin-resources" not in node.log()


class Telling:
    """Starts the driver as a program of its own, not as a fork of a process that has imported everything, and asks what it has loaded."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(
        self,
        _module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: IO[bytes],
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            (sys.executable, "-c", TELLING, str(self._file), *arguments),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    def optional(self, node: Stage) -> set[str]:
        """The packages of OPTIONAL of which the driver has loaded anything."""
        assert node.process is not None
        node.process.send_signal(signal.SIGUSR1)
        node.wait_for(self._file.exists, "the driver tells its modules")
        loaded = self._file.read_text().splitlines()
        assert "dra_driver.daemon.compose" in loaded
        return {one for one in OPTIONAL if any(f"{name}.".startswith(f"{one}.") for name in loaded)}


def test_a_daemon_on_a_cluster_with_dra_loads_nothing_of_it(node: Stage, tmp_path: Path) -> None:
    node.start_child = telling = Telling(tmp_path / "modules")
    node.start_registered()
    node.wait_for(node.published, "the slices are published")
    ref = node.claim("one", ["gpu-0"])
    node.kubelet.prepare(DRIVER, [ref])
    node.wait_for(lambda: "path_chosen" in node.log(), "the path is chosen")
    assert telling.optional(node) == set()


def test_a_daemon_that_serves_it_loads_all_of_it(old: Stage, tmp_path: Path) -> None:
    """So the test before this one can fail."""
    old.start_child = telling = Telling(tmp_path / "modules")
    old.start()
    offered(old, 8)
    assert telling.optional(old) == set(OPTIONAL)
