# SPDX-License-Identifier: Apache-2.0
"""A reboot after which GPUs have other names: each pod gets the GPU that the kubelet counts for it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.errors import Temporary
from dra_driver.model.ids import ShareId, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Lease
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import ContainerAnswer, PluginResource, Unit
from dra_driver.model.state import Phase
from dra_driver.planning.plugin.listed import Listing
from dra_driver.planning.plugin.rows import units_of
from dra_driver.testing.builders import a_claim, a_device, a_result
from tests.support.local_node import ManualClock
from tests.support.plugin_node import GPU, PluginNode

REPLICAS = 4


def find(node: PluginNode, *numbers: int | str, shared: bool = False) -> None:
    """The GPUs that the kernel finds, in the order of their names."""
    uuids = [f"uuid-gpu-{number}" for number in numbers]
    devices = [
        replace(a_device(f"gpu-{n}", shared=shared), uuid=uuid) for n, uuid in enumerate(uuids)
    ]
    node.inventory = Inventory(tuple(devices))
    if shared:
        units = tuple(
            Unit(UnitId(f"{one.uuid}::{n}"), one.name, ShareId(f"replica-{n}"))
            for one in devices
            for n in range(REPLICAS)
        )
    else:
        units = tuple(Unit(UnitId(one.uuid), one.name) for one in devices)
    node.resource = PluginResource(GPU, units, "a test")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PluginNode]:
    found = PluginNode(tmp_path, clock=ManualClock())
    find(found, 0, 1, 2)
    yield found
    assert found.violations() == []
    found.close()


def start(node: PluginNode, *units: str) -> None:
    """A pod for each unit, with the unit's name."""
    for unit in units:
        assert isinstance(node.admit(unit, unit), ContainerAnswer)
        node.run(unit)
    node.look()


def got(node: PluginNode) -> dict[str, tuple[str, str, str]]:
    """Of each unit that is set up: the device's name and UUID, and the hardware that is set up."""
    return {
        unit: (row.devices[0].device, row.devices[0].uuid, row.leases[0].parent)
        for row in node.rows()
        for unit in units_of(row)
        if row.phase is Phase.PREPARED and row.boot_id == node.boot_id and row.leases
    }


def healthy(node: PluginNode) -> set[str]:
    assert node.resource is not None
    with node.store.reading() as state:
        rows, occupied = state.all_claims(), state.occupied(node.place.pool)
    listed = Listing(node.inventory, rows, occupied, node.place.pool).of(node.resource)
    return {unit.id for unit in listed if unit.healthy}


def test_if_the_first_gpu_is_dead_the_pods_of_the_others_keep_theirs(node: PluginNode) -> None:
    start(node, "uuid-gpu-1", "uuid-gpu-2")
    find(node, 1, 2)
    node.reboot()
    node.backend_calls.clear()
    assert node.taking_up.once()
    assert got(node) == {
        "uuid-gpu-1": ("gpu-0", "uuid-gpu-1", "uuid-gpu-1"),
        "uuid-gpu-2": ("gpu-1", "uuid-gpu-2", "uuid-gpu-2"),
    }
    assert sorted(call[:2] for call in node.backend_calls) == [
        ("configure", "gpu-0"),
        ("configure", "gpu-1"),
    ]
    assert len(node.disk().files) == 2


@pytest.mark.parametrize("late", ["gpu-0", "gpu-1"])
def test_two_pods_whose_gpus_exchange_names_both_start_whichever_is_first(
    node: PluginNode, late: str
) -> None:
    start(node, "uuid-gpu-0", "uuid-gpu-1")
    find(node, 1, 0)
    node.reboot()

    def fails(lease: Lease) -> object:
        if lease.device == late:
            raise Temporary("not yet")
        return None

    node.configure = fails
    assert not node.taking_up.once()
    assert len(got(node)) == 1
    node.configure = lambda _lease: None
    node.restart(boot_id=node.boot_id)
    node.recover()
    assert node.taking_up.once()
    assert got(node) == {
        "uuid-gpu-0": ("gpu-1", "uuid-gpu-0", "uuid-gpu-0"),
        "uuid-gpu-1": ("gpu-0", "uuid-gpu-1", "uuid-gpu-1"),
    }
    assert len(node.disk().files) == 2


def test_a_pod_whose_gpu_was_replaced_is_told_and_leaves_the_new_one(
    node: PluginNode, capsys: pytest.CaptureFixture[str]
) -> None:
    start(node, "uuid-gpu-0", "uuid-gpu-1")
    find(node, "new", 1)
    node.reboot()
    assert node.taking_up.once()
    assert got(node).keys() == {"uuid-gpu-1"}
    said = capsys.readouterr().out
    assert "units_not_taken_up" in said
    assert "gpu-0 is another device now (uuid-gpu-new)" in said
    assert isinstance(node.admit("pod-n", "uuid-gpu-new"), ContainerAnswer)


def test_a_pod_whose_gpu_is_not_found_gets_it_when_it_is(node: PluginNode) -> None:
    start(node, "uuid-gpu-2")
    find(node, 0, 1)
    node.reboot()
    assert not node.taking_up.once()
    find(node, 0, 1, 2)
    assert node.taking_up.once()
    assert got(node).keys() == {"uuid-gpu-2"}


def test_a_name_that_a_claim_has_is_waited_for(node: PluginNode) -> None:
    start(node, "uuid-gpu-0")
    (ref,) = node.add(a_claim(results=[a_result("gpu-1")]))
    assert not isinstance(node.prepare(ref)[ref.uid], Refusal)
    find(node, 1, 0)
    node.reboot()
    assert not node.taking_up.once()
    assert node.owned() == {"gpu-0", "gpu-1"}
    node.unprepare(ref)
    assert node.taking_up.once()
    assert got(node) == {"uuid-gpu-0": ("gpu-1", "uuid-gpu-0", "uuid-gpu-0")}


def test_a_row_that_somebody_works_on_gets_its_name_later(node: PluginNode) -> None:
    start(node, "uuid-gpu-0")
    find(node, 1, 0)
    node.reboot()
    (row,) = node.rows()
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with node.lock([f"claim-{row.ref.uid}"], 1e9, "a test"):
            entered.set()
            leave.wait(10)

    worker = threading.Thread(target=work)
    worker.start()
    assert entered.wait(10)
    try:
        assert not node.taking_up.once()
    finally:
        leave.set()
        worker.join()
    assert node.rows()[0].devices[0].device == "gpu-0"
    assert node.taking_up.once()
    assert got(node).keys() == {"uuid-gpu-0"}


def test_the_free_shares_of_gpus_that_exchange_names_can_be_given_out(node: PluginNode) -> None:
    find(node, 0, 1, shared=True)
    start(node, "uuid-gpu-0::0")
    find(node, 1, 0, shared=True)
    node.reboot()
    assert node.taking_up.once()
    node.run("uuid-gpu-0::0")
    node.look()
    assert got(node) == {"uuid-gpu-0::0": ("gpu-1", "uuid-gpu-0", "uuid-gpu-0")}
    assert healthy(node) == {f"uuid-gpu-{gpu}::{n}" for gpu in (0, 1) for n in range(REPLICAS)}
    assert isinstance(node.allocate("uuid-gpu-1::3"), ContainerAnswer)
    assert isinstance(node.allocate("uuid-gpu-0::3"), ContainerAnswer)


def test_the_shares_of_a_gpu_that_was_replaced_can_be_given_out(node: PluginNode) -> None:
    find(node, 0, shared=True)
    start(node, "uuid-gpu-0::0")
    find(node, "new", shared=True)
    node.reboot()
    assert node.taking_up.once()
    assert healthy(node) == {f"uuid-gpu-new::{n}" for n in range(REPLICAS)}
    assert isinstance(node.allocate("uuid-gpu-new::0"), ContainerAnswer)
