# SPDX-License-Identifier: Apache-2.0
"""One event of the hardware is a taint, the kubelet's health, an Event, a log line and a metric at once; and so is the recovery."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import structlog
from prometheus_client import generate_latest

from dra_driver.backends.nvidia.facts import Gpu, HardwareEvent, Memory, Node
from dra_driver.backends.nvidia.health import HealthBook
from dra_driver.daemon.metrics import Metrics
from dra_driver.kube.base import NodeEvent
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.events import DriverEvent, Leading
from dra_driver.model.ids import PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.planning.slices import plan_pool
from dra_driver.services.health_changes import HealthChanges
from dra_driver.services.inventory import InventoryFeed
from dra_driver.services.node_inventory import NodeInventory
from dra_driver.services.tell import Teller
from dra_driver.services.watch_health import HealthFeed


class OneGpu:
    """A backend with one GPU, whose health a real HealthBook judges."""

    def __init__(self, clock: Any) -> None:
        self.book = HealthBook(clock=clock)
        self.gpu = Gpu(index=0, uuid="GPU-0", memory=Memory(total=80), recovery_action=0)

    def scan(self) -> Inventory:
        verdict = self.book.judge(Node(gpus=(self.gpu,)))["GPU-0"]
        api = Device(name="gpu-0", taints=list(verdict.taints) or None)
        return Inventory((AllocatableDevice(api, "GPU-0", verdict.health, errors=verdict.errors),))

    def watch(self, stop: Event) -> Iterator[None]:
        return iter(())


class Bench:
    """The parts of a daemon that tell of health, in their order, with one clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[str] = []
        self.backend = OneGpu(lambda: self.now)
        log = structlog.get_logger()
        clock = lambda: self.now  # noqa: E731
        self.feed = InventoryFeed(self.backend, log=log, clock=clock)
        inventory = NodeInventory({"nvidia": self.feed}, log=log)
        self.metrics, self.teller = Metrics(), Teller(log, clock=clock)
        self.teller(Leading(leads=True))
        self.inventory = inventory
        self.stream = HealthFeed(inventory.current, PoolName("n"), age=inventory.age, clock=clock)
        inventory.subscribe(self.stream.wake)
        inventory.subscribe(lambda: self.told.append(f"publish {self.taints()}"))
        inventory.subscribe(HealthChanges(inventory.current, self.observe))
        self.look()

    def observe(self, event: DriverEvent) -> None:
        self.told.append(type(event).__name__)
        self.metrics(event)
        self.teller(event)

    def look(self, seconds: float = 0.0) -> list[str]:
        """Scan after this time. Returns who was told, in this order."""
        self.now += seconds
        self.told.clear()
        self.feed.scan()
        return list(self.told)

    def taints(self) -> list[str]:
        (content,) = plan_pool(self.inventory.current(), kept=()).slices
        (device,) = content.devices or ()
        return [taint.key.partition("/")[2] for taint in device.taints or ()]

    def metric(self, name: str) -> str:
        lines = generate_latest(self.metrics.registry).decode().splitlines()
        return next(
            line.rpartition(" ")[2] for line in lines if line.startswith(f"dra_driver_{name}")
        )

    def events(self) -> list[NodeEvent]:
        written: list[NodeEvent] = []
        self.teller.once(written.append)
        return written

    def health(self) -> str:
        (one,) = self.stream.snapshot()[1]
        return one.health.status.name


def test_an_event_of_the_hardware_is_told_to_all_by_one_look_and_so_is_the_recovery() -> None:
    bench = Bench()
    assert (bench.taints(), bench.health(), bench.metric("device_healthy")) == (
        [],
        "HEALTHY",
        "1.0",
    )
    version, _ = bench.stream.snapshot()

    bench.backend.book.note(HardwareEvent(uuid="GPU-0", type=8, data=79))
    assert bench.look(1.0) == [
        "publish ['xid', 'unhealthy']",
        "DeviceHealthChanged",
        "DeviceErrors",
    ]
    assert (bench.health(), bench.stream.snapshot()[0]) == ("UNHEALTHY", version + 1)
    assert bench.metric("device_healthy") == "0.0"
    assert bench.metric('device_errors_total{device="gpu-0",error="xid-79"}') == "1.0"
    (event,) = bench.events()
    assert event.reason == "DeviceUnhealthy"
    assert "XID 79" in event.message

    assert bench.look(10.0) == bench.look(59.0) == []
    assert bench.look(1.0) == ["publish []", "DeviceHealthChanged"]
    assert (bench.health(), bench.metric("device_healthy")) == ("HEALTHY", "1.0")
    assert [event.reason for event in bench.events()] == ["DeviceRecovered"]


def test_an_error_of_an_application_is_only_counted() -> None:
    bench = Bench()
    bench.backend.book.note(HardwareEvent(uuid="GPU-0", type=8, data=31))
    assert bench.look(1.0) == ["publish []", "DeviceErrors"]
    assert (bench.health(), bench.events()) == ("HEALTHY", [])
    assert bench.metric('device_errors_total{device="gpu-0",error="xid-31"}') == "1.0"


def test_a_gpu_that_flaps_has_one_taint_and_one_event() -> None:
    bench = Bench()
    lost = "it fell off the bus"
    for round_ in range(20):
        bench.backend.gpu = Gpu(index=0, uuid="GPU-0", problem=lost if round_ % 2 else "")
        told = bench.look(30.0)
        assert told == (
            ["publish ['lost', 'unhealthy']", "DeviceHealthChanged"] if round_ == 1 else []
        )
    assert [event.reason for event in bench.events()] == ["DeviceUnhealthy"]
