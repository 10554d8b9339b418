# SPDX-License-Identifier: Apache-2.0
"""The backend starts nothing on a node without GPUs, catches up with what comes later, and passes events on."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import msgspec
import pytest
from msgspec.structs import replace

from dra_driver.backends.base import BackendContext, policy_reader_of
from dra_driver.backends.nvidia import backend as module
from dra_driver.backends.nvidia.backend import NvidiaBackend
from dra_driver.backends.nvidia.facts import HardwareEvent, Node, Process, Usage
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.backends.nvidia.recorded import RecordedHardware
from dra_driver.errors import Permanent, Temporary
from dra_driver.model.health import HealthStatus
from dra_driver.model.lease import InUse
from dra_driver.model.plugin_policy import MigStrategy
from tests.support.nvidia_node import facts_of

XID = 79  # the GPU fell off the bus


class Scripted(RecordedHardware):
    """Hardware that counts looks, and whose events are given."""

    def __init__(self, node: Node, *events: HardwareEvent | Exception | None) -> None:
        super().__init__(node)
        self.looks = 0
        self.script = events
        self.node = node

    def look(self) -> Node:
        self.looks += 1
        return self.node

    def events(self, stop: Event) -> Iterator[HardwareEvent | None]:
        for event in self.script:
            if isinstance(event, Exception):
                raise event
            yield event
        stop.set()


def backend_of(hardware: Scripted, sysfs: Path | None = None) -> NvidiaBackend:
    return NvidiaBackend(
        BackendContext("node-1", NvidiaOptions()), hardware=hardware, sysfs=sysfs, clock=lambda: 0.0
    )


def plug_in(sysfs: Path, address: str, vendor: str, pci_class: str) -> None:
    place = sysfs / "bus" / "pci" / "devices" / address
    place.mkdir(parents=True)
    (place / "vendor").write_text(vendor)
    (place / "class").write_text(pci_class)


def test_a_node_without_gpus_asks_no_hardware_until_one_is_plugged_in(tmp_path: Path):
    hardware = Scripted(facts_of("t4x2"))
    backend = backend_of(hardware, tmp_path)
    plug_in(tmp_path, "0000:01:00.0", "0x10de\n", "0x020000\n")  # a network card of the same maker
    plug_in(tmp_path, "0000:02:00.0", "0x8086\n", "0x030000\n")
    assert backend.scan().devices == ()
    assert hardware.looks == 0
    plug_in(tmp_path, "0000:3b:00.0", "0x10de\n", "0x030200\n")
    assert [one.name for one in backend.scan().devices] == ["gpu-0", "gpu-1"]


def test_a_backend_for_the_real_node_starts_nothing_when_it_is_made():
    made = NvidiaBackend(BackendContext("node-1", NvidiaOptions()), sysfs=Path("/nowhere"))
    assert made.scan().devices == ()


def test_a_wrong_host_root_is_told_and_a_host_without_pci_is_none(tmp_path: Path):
    backend = backend_of(Scripted(facts_of("t4x2")), tmp_path / "sys")
    (wrong,) = backend.scan().left_out
    assert str(wrong).startswith(f"backend nvidia: hostRoot: there is no folder {tmp_path}/sys/bus")
    assert wrong.action.startswith("set the option hostRoot to the folder where the host's / is")
    with pytest.raises(
        Permanent, match=r"nothing to record: there is no folder .*; set the option"
    ):
        backend.snapshot()
    (tmp_path / "sys" / "bus").mkdir(parents=True)
    assert backend.scan().left_out == ()


def test_a_node_whose_kernel_driver_comes_later_catches_up():
    ready = facts_of("t4x2")
    hardware = Scripted(
        replace(ready, gpus=(), problem="the kernel module nvidia is not loaded; load it")
    )
    backend = backend_of(hardware)
    found = backend.scan()
    assert found.devices == ()
    assert "the node has 2 GPUs: the kernel module nvidia is not loaded" in str(found.left_out[0])
    hardware.node = ready
    found = backend.scan()
    assert (len(found.devices), found.left_out) == (2, ())


def test_each_event_is_noted_and_makes_a_scan_due():
    node = facts_of("t4x2")
    event = HardwareEvent(uuid=node.gpus[1].uuid, type=8, data=XID)
    backend = backend_of(Scripted(node, event, None))
    assert [one.health.status for one in backend.scan().devices] == [HealthStatus.HEALTHY] * 2
    stop = Event()
    assert list(backend.watch(stop)) == [None, None]
    first, second = backend.scan().devices
    assert first.health.status is HealthStatus.HEALTHY
    assert second.health.status is HealthStatus.UNHEALTHY
    assert "79" in second.health.message
    assert second.errors
    assert second.api.taints


def test_an_application_s_errors_cost_no_look_and_are_counted_at_the_next_one():
    node = facts_of("t4x2")
    storm = [HardwareEvent(uuid=node.gpus[0].uuid, type=8, data=31)] * 500
    fault = HardwareEvent(uuid=node.gpus[1].uuid, type=8, data=XID)
    backend = backend_of(Scripted(node, *storm, fault))
    assert list(backend.watch(Event())) == [None]
    first, second = backend.scan().devices
    assert first.errors == {"xid-31": 500}
    assert first.health.status is HealthStatus.HEALTHY
    assert second.health.status is HealthStatus.UNHEALTHY


def test_a_watch_that_fails_begins_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "ABSENT_SECONDS", 0.0)
    hardware = Scripted(facts_of("t4x2"), None, Temporary("the process ended"))
    seen = 0
    stop = Event()
    for _ in backend_of(hardware).watch(stop):
        seen += 1
        if seen == 3:
            stop.set()
    assert seen == 3


def test_a_watch_on_a_node_without_gpus_ends_when_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    stop = Event()
    hardware = Scripted(facts_of("t4x2"))
    backend = backend_of(hardware, tmp_path)
    monkeypatch.setattr(stop, "wait", lambda _seconds: stop.set())
    assert list(backend.watch(stop)) == []
    assert hardware.looks == 0


def test_a_process_on_a_gpu_that_no_claim_has_is_told():
    node = facts_of("t4x2")
    memory = node.gpus[0].memory
    assert memory is not None
    busy = replace(
        node.gpus[0], memory=replace(memory, used=3 * 2**30), processes=(Process(pid=4711),)
    )
    hardware = Scripted(node)
    hardware.node = hardware._node = replace(node, gpus=(busy, node.gpus[1]))
    first, second = backend_of(hardware).scan().devices
    assert "4711" in first.not_clean
    assert second.not_clean == ""
    played = NvidiaBackend.recorded(
        BackendContext("node-1"), msgspec.json.decode(msgspec.json.encode(hardware.node))
    )
    assert {one.not_clean for one in played.scan().devices} == {""}
    assert played.in_use(first.name) is InUse.NO


def test_a_snapshot_has_the_facts_and_needs_a_gpu(tmp_path: Path):
    node = facts_of("t4x2")
    found = backend_of(Scripted(node)).snapshot()
    assert (found.backend, found.redacted) == ("nvidia", False)
    again = NvidiaBackend.recorded(BackendContext("node-1"), found.facts)
    assert again.scan() == backend_of(Scripted(node)).scan()
    (tmp_path / "bus").mkdir()
    with pytest.raises(Permanent, match="there is nothing to record: no PCI device of NVIDIA in"):
        backend_of(Scripted(node), tmp_path).snapshot()


def test_while_the_kernel_driver_is_replaced_its_gpus_stay_as_ill_ones():
    ready = facts_of("t4x2")
    hardware = Scripted(ready)
    backend = backend_of(hardware)
    backend.scan()
    problem = "the kernel module nvidia is not loaded; load it"
    hardware.node = replace(ready, gpus=(), mig_profiles={}, pci=ready.pci[1:], problem=problem)
    [left] = backend.scan().devices
    assert (left.name, left.health.status) == ("gpu-1", HealthStatus.UNHEALTHY)
    assert problem in left.health.message
    hardware.node = ready
    assert [one.name for one in backend.scan().devices] == ["gpu-0", "gpu-1"]


def test_the_variables_of_nvidias_device_plugin_count(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DP_DISABLE_HEALTHCHECKS", f"31,{XID}")
    monkeypatch.setenv("MIG_STRATEGY", "mixed")
    backend = backend_of(Scripted(Node(), HardwareEvent("GPU-0", 8, XID)))
    assert list(backend.watch(Event())) == []  # this XID says nothing now
    reader = policy_reader_of(backend)
    assert reader is not None
    assert reader.read({}, {}).policy.mig_strategy is MigStrategy.MIXED
    assert reader.place == ""
    assert policy_reader_of(object()) is None


def test_usage_is_that_of_the_devices_of_the_last_scan(tmp_path: Path):
    hardware = Scripted(facts_of("t4x2"))
    backend = backend_of(hardware)
    assert backend.usage() == {}
    backend.scan()
    found = backend.usage()
    assert found.keys() == {"gpu-0", "gpu-1"}
    assert found["gpu-0"].memory_total_bytes
    nobody = backend_of(hardware, tmp_path)
    nobody.scan()
    assert nobody.usage() == {}


def test_a_recording_measures_nothing_of_a_gpu_that_it_does_not_have():
    assert RecordedHardware(facts_of("t4x2")).usage("GPU-none") == Usage()
