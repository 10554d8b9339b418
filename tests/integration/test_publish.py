# SPDX-License-Identifier: Apache-2.0
"""Backend, inventory, publisher and HTTP client on their threads, against an API server on a real socket."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep

import pytest

from dra_driver.backends.base import BackendContext
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.kube.auth import connect
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.events import DriverEvent, FieldsDropped, PublishFailed, SliceLost
from dra_driver.model.health import HealthStatus
from dra_driver.services.inventory import InventoryFeed
from dra_driver.services.node_inventory import NodeInventory
from dra_driver.services.publish import Publisher
from dra_driver.services.vanished import PublisherInputs
from dra_driver.services.watch_health import HealthFeed
from dra_driver.testing.builders import A_DRIVER, A_NODE, A_PLACE, A_POOL
from dra_driver.testing.fake_api import FakeApi, Object, Reset

SLICE = f"00000-{A_DRIVER}-{A_NODE}"
PATIENCE_SECONDS = 300.0  # only against hanging


class Parts:
    """The running parts, and where their world can be changed."""

    def __init__(self, kubeconfig: Path, faults: Path, *, profile: str = "b580x2") -> None:
        self.events: list[DriverEvent] = []
        self.kube = HttpKubeApi(connect(kubeconfig), driver=A_DRIVER, node=A_NODE)
        self.faults = faults
        faults.write_text("devices: {}\n")  # it must be there when the driver starts
        options = SimulatedOptions(profile=profile, faults=str(faults))
        scans = InventoryFeed(SimulatedBackend(BackendContext(A_NODE, options)))
        inventory = NodeInventory({"simulated": scans})
        self.health = HealthFeed(inventory.current, A_POOL, age=inventory.age)
        inputs = PublisherInputs(inventory.known, frozenset, self.health.set_kept)
        self.publisher = Publisher(self.kube, inputs, place=A_PLACE, observe=self.events.append)
        inventory.subscribe(self.health.wake)
        inventory.subscribe(self.publisher.wake)
        self.runs = (scans.run, self.publisher.watch, self.publisher.run)

    @contextmanager
    def running(self) -> Iterator["Parts"]:
        stop = Event()
        threads = [Thread(target=run, args=(stop,), daemon=True) for run in self.runs]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            stop.set()
            self.publisher.wake()
            for thread in threads:
                thread.join(PATIENCE_SECONDS)
            self.kube.close()
            assert not any(thread.is_alive() for thread in threads)

    def health_of(self, name: str) -> HealthStatus | None:
        found = {entry.device: entry.health.status for entry in self.health.snapshot()[1]}
        return found.get(name)


def until(true: Callable[[], bool]) -> None:
    deadline = monotonic() + PATIENCE_SECONDS
    while not true():
        assert monotonic() < deadline, "it never came true"
        sleep(0.01)


def published(api: FakeApi) -> list[list[str]]:
    return [
        [device["name"] for device in found["spec"]["devices"]]
        for found in api.objects("resourceslices")
    ]


def claim_of(device: str) -> Object:
    result = {"request": "gpu", "driver": A_DRIVER, "pool": A_POOL, "device": device}
    return {
        "metadata": {"name": "used"},
        "spec": {"devices": {}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


@pytest.fixture(params=["v1", "v1beta2", "v1beta1"])
def api(request: pytest.FixtureRequest) -> Iterator[FakeApi]:
    with FakeApi((request.param,)) as server:
        server.put("nodes", {"metadata": {"name": A_NODE}})
        yield server


@pytest.fixture
def parts(api: FakeApi, tmp_path: Path) -> Parts:
    return Parts(api.kubeconfig(tmp_path / "kubeconfig"), tmp_path / "faults.yaml")


def test_what_the_node_has_stands_in_the_api_server_and_follows_every_change(
    api: FakeApi, parts: Parts
):
    with parts.running():
        assert parts.publisher.published_once.wait(PATIENCE_SECONDS)
        assert published(api) == [["gpu-0", "gpu-1"]]
        found = api.object("resourceslices", SLICE)["spec"]
        assert (found["nodeName"], found["pool"]) == (
            A_NODE,
            {"name": A_POOL, "generation": 1, "resourceSliceCount": 1},
        )
        assert found["devices"][0]["capacity"] == {"memory": {"value": "12216Mi"}}

        parts.faults.write_text("devices: {gpu-0: {unhealthy: 'too hot'}}")
        until(lambda: parts.health_of("gpu-0") is HealthStatus.UNHEALTHY)

        api.put("resourceclaims", claim_of("gpu-1"))
        parts.faults.write_text("devices: {gpu-0: {vanished: true}, gpu-1: {vanished: true}}")
        until(lambda: published(api) == [["gpu-1"]])
        until(lambda: parts.health_of("gpu-1") is HealthStatus.UNHEALTHY)

        api.remove("resourceclaims", "used")
        parts.publisher.released()
        until(lambda: published(api) == [[]])

        parts.faults.unlink()
        until(lambda: published(api) == [["gpu-0", "gpu-1"]])


def test_a_deleted_slice_comes_back_by_itself(api: FakeApi, parts: Parts):
    with parts.running():
        assert parts.publisher.published_once.wait(PATIENCE_SECONDS)
        before = api.object("resourceslices", SLICE)["metadata"]["uid"]
        api.remove("resourceslices", SLICE)
        api.wait_for("resourceslices", 1, timeout=PATIENCE_SECONDS)
        assert api.object("resourceslices", SLICE)["metadata"]["uid"] != before
        assert [type(event) for event in parts.events].count(SliceLost) == 1


def test_conflicts_resets_throttling_and_a_lost_watch_are_survived(api: FakeApi, parts: Parts):
    api.faults.status(429, verb="list", resource="resourceslices", retry_after=1)
    api.faults.status(409, verb="create", resource="resourceslices")
    api.faults.add(Reset(), verb="watch", resource="resourceslices")
    with parts.running():
        assert parts.publisher.published_once.wait(PATIENCE_SECONDS)
        api.compact()
        api.faults.status(410, verb="watch", resource="resourceslices")
        parts.faults.write_text("devices: {gpu-0: {vanished: true}}")
        until(lambda: published(api) == [["gpu-1"]])


def test_while_nothing_changes_no_request_but_the_watch_is_made(api: FakeApi, parts: Parts):
    with parts.running():
        assert parts.publisher.published_once.wait(PATIENCE_SECONDS)
        until(lambda: any(request.verb == "watch" for request in api.requests))
        before = len(api.requests)
        for _ in range(3):
            parts.publisher.wake()  # even looking again costs nothing
        sleep(0.5)
        assert [request.verb for request in api.requests[before:]] == []


@pytest.fixture
def outlives() -> Iterator[ExitStack]:
    """What outlives one API server; it ends with the test at the latest."""
    with ExitStack() as stack:
        yield stack


def test_an_api_server_that_restarts_empty_gets_the_slices_again(
    tmp_path: Path, outlives: ExitStack
):
    faults = tmp_path / "faults.yaml"
    with FakeApi() as api:
        api.put("nodes", {"metadata": {"name": A_NODE}})
        parts = Parts(api.kubeconfig(tmp_path / "kubeconfig"), faults)
        port = api.port
        outlives.enter_context(parts.running())
        assert parts.publisher.published_once.wait(PATIENCE_SECONDS)
    until(lambda: any(isinstance(event, PublishFailed) for event in parts.events))
    assert parts.publisher.published_once.is_set()
    with FakeApi(port=port) as again:
        again.put("nodes", {"metadata": {"name": A_NODE}})
        again.wait_for("resourceslices", 1, timeout=PATIENCE_SECONDS)
        outlives.close()
        assert published(again) == [["gpu-0", "gpu-1"]]


def test_fields_that_the_server_drops_are_told_once_and_cause_no_loop(tmp_path: Path):
    with FakeApi() as api:
        api.put("nodes", {"metadata": {"name": A_NODE}})
        api.drop_fields("spec.devices.*.capacity")
        parts = Parts(api.kubeconfig(tmp_path / "kubeconfig"), tmp_path / "faults.yaml")
        with parts.running():
            assert parts.publisher.published_once.wait(PATIENCE_SECONDS)
            parts.publisher.wake()
            sleep(0.3)
        dropped = [event for event in parts.events if isinstance(event, FieldsDropped)]
        assert dropped == [
            FieldsDropped(SLICE, ("devices.gpu-0.capacity.memory", "devices.gpu-1.capacity.memory"))
        ]
        writes = [request.verb for request in api.requests if request.verb in ("create", "update")]
        assert writes == ["create"]


def test_a_cluster_without_the_api_leaves_the_driver_up(tmp_path: Path):
    with FakeApi(versions=()) as api:
        parts = Parts(api.kubeconfig(tmp_path / "kubeconfig"), tmp_path / "faults.yaml")
        with parts.running():
            until(lambda: any(isinstance(event, PublishFailed) for event in parts.events))
        assert not parts.publisher.published_once.is_set()
        assert len(parts.events) == 1
