# SPDX-License-Identifier: Apache-2.0
"""New devices that are hardware of a prepared claim under another name are published with a taint."""

from threading import Event, Semaphore, Thread

import pytest

from dra_driver.errors import Temporary
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.services import publish
from tests.support.publishing_node import FIRST, Node

OCCUPIED, VANISHED = "gpu.dra-driver.dev/occupied", "gpu.dra-driver.dev/vanished"
GPU = DeviceName("gpu-0")
WHOLE, PART = Hardware("GPU-0"), Hardware("GPU-0", ("0",))


def of(**hardware: Hardware) -> Inventory:
    return Inventory(
        tuple(
            AllocatableDevice(Device(name=name.replace("_", "-")), f"uuid-{name}", hardware=one)
            for name, one in hardware.items()
        )
    )


def owned(node: Node, *names: DeviceName) -> None:
    node.prepared = frozenset(names)
    node.occupied = dict.fromkeys(names, WHOLE.pieces)


def test_mig_mode_that_is_switched_on_under_a_claim_taints_the_mig_devices_until_it_ends():
    node = Node()
    node.inventory = of(gpu_0=WHOLE)
    node.follow(node.step)
    owned(node, GPU)
    node.finds(of(gpu_0_mig_0=PART))()
    assert node.taints() == {"gpu-0-mig-0": [OCCUPIED], "gpu-0": [VANISHED]}
    owned(node)
    node.publisher.released()
    node.step()
    assert node.taints() == {"gpu-0-mig-0": []}


def test_an_owner_that_another_process_released_is_noticed_within_a_minute():
    node = Node()
    node.inventory = of(gpu_0_mig_0=PART)
    node.occupied = {GPU: WHOLE.pieces}
    node.follow(node.step)
    assert node.taints() == {"gpu-0-mig-0": [OCCUPIED]}
    node.occupied = {}
    node.after(60)()
    assert node.taints() == {"gpu-0-mig-0": []}


def test_a_claim_that_is_prepared_is_published_only_if_other_devices_are_its_hardware():
    node = Node()
    node.inventory = of(gpu_0=WHOLE, gpu_0_again=WHOLE, gpu_1=Hardware("GPU-1"))
    node.publisher.prepared()
    node.after(1)()  # nothing was planned yet
    node.follow(node.step)
    decisions = len(node.kept)
    node.occupied = {DeviceName("gpu-1"): Hardware("GPU-1").pieces}
    node.publisher.prepared()
    node.after(1)()
    assert len(node.kept) == decisions
    node.occupied |= {GPU: WHOLE.pieces}
    node.publisher.prepared()
    node.after(1)()
    assert node.taints() == {"gpu-0": [], "gpu-0-again": [OCCUPIED], "gpu-1": []}
    decisions = len(node.kept)
    node.publisher.prepared()
    node.after(1)()
    assert len(node.kept) == decisions
    assert node.writes() == [f"create {FIRST}", f"update {FIRST}"]


def test_a_prepare_call_reads_no_owners_itself_and_many_calls_are_one_look():
    node = Node()
    node.inventory = of(gpu_0=WHOLE, gpu_0_again=WHOLE)
    node.follow(node.step)
    asked = node.occupied_asked
    node.publisher.prepared()
    node.step()
    node.publisher.prepared()
    assert node.occupied_asked == asked
    node.after(1)()
    node.step()
    assert node.occupied_asked == asked + 1


def test_an_owner_that_was_known_before_the_first_plan_is_planned_with():
    node = Node()
    node.inventory = of(gpu_0_mig_0=PART)
    node.occupied = {GPU: WHOLE.pieces}
    node.publisher.prepared()
    node.now += 1
    node.follow(node.step)
    assert node.taints() == {"gpu-0-mig-0": [OCCUPIED]}


def test_while_the_state_cannot_be_read_the_taints_stay():
    node = Node()
    node.inventory = of(gpu_0_mig_0=PART)
    node.occupied = {GPU: WHOLE.pieces}
    node.follow(node.step)
    node.occupied_unknown = Temporary("disk full")
    node.publisher.prepared()
    node.now += 1
    node.looks()
    assert node.taints() == {"gpu-0-mig-0": [OCCUPIED]}


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("call", ["released", "prepared", "wake"])
def test_a_call_wakes_the_thread_that_publishes(
    call: str, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the look after the call would wait for the next one that is due; `early`: the thread is not waiting yet."""
    monkeypatch.setattr(publish, "_STOP_SECONDS", 600.0)
    monkeypatch.setattr(publish, "_OWNERS_SECONDS", 0.0)
    publisher = Node().publisher
    steps, step, stop = Semaphore(0), publisher.step, Event()
    calls = [getattr(publisher, call)]

    def counted() -> None:
        step()
        if early and calls:
            calls.pop()()
        steps.release()

    monkeypatch.setattr(publisher, "step", counted)
    thread = Thread(target=publisher.run, args=(stop,), daemon=True)
    thread.start()
    assert steps.acquire(timeout=30)
    if not early:
        calls.pop()()
    assert steps.acquire(timeout=30)
    stop.set()
    publisher.wake()
    thread.join(30)
    assert not thread.is_alive()
