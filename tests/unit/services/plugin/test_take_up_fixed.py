# SPDX-License-Identifier: Apache-2.0
"""A reboot after which GPUs have other names, and the kubelet has kept device files: no other pod gets the GPU that such a file is now."""

import json
from collections.abc import Iterator
from dataclasses import replace as changed
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.model.cdi import ContainerEdits, DeviceNode
from dra_driver.model.events import DeviceHealthChanged, DriverEvent
from dra_driver.model.ids import ShareId, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Lease
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import ContainerAnswer, PluginResource, Strategy, Unit
from dra_driver.model.state import Phase
from dra_driver.planning.plugin.answer import answer_of
from dra_driver.services.health_changes import HealthChanges
from dra_driver.services.moved import MovedDevices
from dra_driver.services.plugin.allocate import Answers
from dra_driver.testing.builders import a_device
from tests.support.local_node import ManualClock
from tests.support.plugin_node import GPU, PluginNode

KEY = "cdi.k8s.io/a-test"


def answers(strategy: Strategy) -> Answers:
    return Answers(
        lambda edits, cdi_ids, _uid: answer_of(edits, cdi_ids, strategy, annotation_key=KEY),
        hooks=strategy is not Strategy.EDITS,
    )


def opens_its_file(lease: Lease) -> object:
    """As with NVIDIA's GPUs, the name has the minor number, and so has the file."""
    path = f"/dev/nvidia{lease.device.removeprefix('gpu-')}"
    return ContainerEdits(device_nodes=(DeviceNode(path, "c", 195, 0, "rw", path),))


def find(node: PluginNode, *numbers: int | str, shared: bool = False) -> None:
    """The GPUs that the kernel finds, in the order of their names."""
    uuids = [f"uuid-gpu-{number}" for number in numbers]
    devices = [
        replace(a_device(f"gpu-{n}", shared=shared), uuid=uuid) for n, uuid in enumerate(uuids)
    ]
    units = [Unit(UnitId(one.uuid), one.name) for one in devices]
    if shared:
        units = [Unit(UnitId(f"{one.uuid}::0"), one.name, ShareId("replica-0")) for one in devices]
    node.inventory = Inventory(tuple(devices))
    node.resource = PluginResource(GPU, tuple(units), "a test")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PluginNode]:
    found = PluginNode(tmp_path, clock=ManualClock())
    found.configure = opens_its_file
    found.answers = answers(Strategy.EDITS)
    find(found, 0, 1)
    yield found
    assert found.violations() == []
    found.close()


def start(node: PluginNode, pod: str, unit: str) -> ContainerAnswer:
    answer = node.admit(pod, unit)
    assert isinstance(answer, ContainerAnswer)
    node.run(pod)
    node.look()
    return answer


def forget_how(node: PluginNode) -> None:
    """As in a row of a driver that did not note how it answered."""
    rows = node.rows()
    with node.store.transaction("started") as transaction:
        for row in rows:
            devices = tuple(changed(one, by_name=False) for one in row.devices)
            transaction.start(replace(row, devices=devices))


def files_of(node: PluginNode, answer: ContainerAnswer | Refusal) -> set[str]:
    """The device files that a container with this answer opens now: the answer's, and those in the CDI files that it names."""
    assert isinstance(answer, ContainerAnswer)
    found = {one.path for one in answer.device_nodes}
    for file in (node.directory / "cdi").iterdir():
        document = json.loads(file.read_text())
        for one in document["devices"]:
            name = f"{document['kind']}={one['name']}"
            if name in (*answer.cdi_ids, *answer.annotations.get(KEY, "").split(",")):
                edits = (one["containerEdits"], document.get("containerEdits", {}))
                found |= {each["path"] for some in edits for each in some.get("deviceNodes", ())}
    return found


WAYS = {
    "edits": (Strategy.EDITS, False),
    "unknown": (Strategy.CDI, True),
    "cdi": (Strategy.CDI, False),
    "annotations": (Strategy.CDI_ANNOTATIONS, False),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("now", "other"), [((1, 0), "uuid-gpu-1"), (("new", 1), "uuid-gpu-new")], ids=["swap", "new"]
)
def test_no_other_pod_gets_the_gpu_of_a_file_that_the_kubelet_kept(
    node: PluginNode, way: str, now: tuple[int | str, ...], other: str
) -> None:
    strategy, unknown = WAYS[way]
    node.answers = answers(strategy)
    first = start(node, "pod-a", "uuid-gpu-0")
    if unknown:
        forget_how(node)
    find(node, *now)
    node.reboot()
    assert node.taking_up.once()
    is_fixed = way in ("edits", "unknown")
    if is_fixed or now == (1, 0):
        assert files_of(node, first) == {"/dev/nvidia0" if is_fixed else "/dev/nvidia1"}
    node.run("pod-a")
    node.look()
    second = node.admit("pod-b", other)
    if not is_fixed:
        assert files_of(node, second) == {"/dev/nvidia0"}
        assert not files_of(node, first) & files_of(node, second)
        return
    assert isinstance(second, Refusal)
    assert node.owned() == ({"gpu-0", "gpu-1"} if now == (1, 0) else {"gpu-0"})
    # With the pod it ends.
    node.end("pod-a")
    node.look()
    assert node.owned() == set()
    assert files_of(node, start(node, "pod-b", other))


def test_units_that_another_plugin_gave_out_keep_their_names_too(node: PluginNode) -> None:
    node.write("pod-a", "uuid-gpu-0")
    node.run("pod-a")
    assert node.taking_up.once()
    find(node, 1, 0)
    node.reboot()
    assert node.taking_up.once()
    # The other plugin may have told a file, or a UUID.
    assert node.owned() == {"gpu-0", "gpu-1"}
    node.run("pod-a")
    node.look()
    assert isinstance(node.admit("pod-b", "uuid-gpu-1"), Refusal)
    node.end("pod-a")
    node.look()
    assert node.owned() == set()


def test_a_pod_on_another_gpu_than_its_units_is_told(
    node: PluginNode, capsys: pytest.CaptureFixture[str]
) -> None:
    start(node, "pod-a", "uuid-gpu-0")
    find(node, 1, 0)
    node.reboot()
    assert node.taking_up.once()
    said = capsys.readouterr().out
    assert "unit_on_another_device" in said
    assert "gpu-0 is another device now (UUID uuid-gpu-1)" in said


@pytest.mark.parametrize("units", [("uuid-gpu-0",), ("uuid-gpu-0", "uuid-gpu-1")])
def test_a_restart_after_the_reboot_tells_no_device_gone(
    node: PluginNode, units: tuple[str, ...]
) -> None:
    """The rows have names with the UUIDs of their units."""
    for unit in units:
        start(node, f"pod-{unit}", unit)
    find(node, 1, 0)
    node.reboot()
    assert node.taking_up.once()
    assert next(one.uuid for row in sorted_rows(node) for one in row.devices) == "uuid-gpu-0"
    node.restart(boot_id=node.boot_id)
    events: list[DriverEvent] = []
    remembered = MovedDevices(node.store, node.place.pool).uuids
    changes = HealthChanges(lambda: node.inventory, events.append, remembered=remembered)
    changes()
    told = [one for one in events if isinstance(one, DeviceHealthChanged)]
    assert [(one.device, one.status) for one in told] == [
        ("gpu-0", "unknown"),
        ("gpu-1", "unknown"),
    ]
    # The spare device is told by its UUID.
    node.inventory, before = Inventory((node.inventory.devices[0],)), len(told)
    changes()
    (gone,) = [one for one in events if isinstance(one, DeviceHealthChanged)][before:]
    assert (gone.device, gone.status) == ("gpu-1", "gone")
    assert "UUID uuid-gpu-0" in gone.message


def test_two_pods_that_exchange_gpus_both_run_alone(node: PluginNode) -> None:
    start(node, "pod-a", "uuid-gpu-0")
    start(node, "pod-b", "uuid-gpu-1")
    find(node, 1, 0)
    node.reboot()
    assert node.taking_up.once()
    for pod in ("pod-a", "pod-b"):
        node.run(pod)
    node.look()
    assert [[one.device for one in row.devices] for row in sorted_rows(node)] == [
        ["gpu-0"],
        ["gpu-1"],
    ]
    node.end("pod-b")
    node.look()
    # pod-a opens /dev/nvidia0, which is the GPU of this unit.
    assert isinstance(node.admit("pod-c", "uuid-gpu-1"), Refusal)


def sorted_rows(node: PluginNode):
    assert all(row.boot_id == node.boot_id for row in node.rows())
    return sorted(node.rows(), key=lambda row: row.devices[0].device)


def test_after_a_dead_gpu_the_others_files_are_the_next_ones_and_stay_reserved(
    node: PluginNode, capsys: pytest.CaptureFixture[str]
) -> None:
    find(node, 0, 1, 2)
    start(node, "pod-a", "uuid-gpu-1")
    start(node, "pod-b", "uuid-gpu-2")
    find(node, 1, 2)
    node.reboot()
    # No GPU has the file of pod-b.
    assert not node.taking_up.once()
    assert "no device has this name now" in capsys.readouterr().out
    states = {row.devices[0].device: (row.phase, row.boot_id) for row in node.rows()}
    assert states["gpu-1"] == (Phase.PREPARED, node.boot_id)
    assert states["gpu-2"][1] != node.boot_id
    assert node.owned() == {"gpu-0", "gpu-1", "gpu-2"}
    node.run("pod-a")
    for unit in ("uuid-gpu-1", "uuid-gpu-2"):
        assert isinstance(node.admit("pod-c", unit), Refusal)


def test_a_pod_with_cdi_names_waits_for_a_gpu_whose_file_another_pod_has(node: PluginNode) -> None:
    start(node, "pod-a", "uuid-gpu-0")
    node.answers = answers(Strategy.CDI)
    second = start(node, "pod-b", "uuid-gpu-1")
    find(node, 1, 0)
    node.reboot()
    assert not node.taking_up.once()
    assert files_of(node, second) == set()
    node.containers = tuple(one for one in node.containers if one.pod != "pod-a")
    node.end("pod-a")
    assert node.clock is not None
    node.clock.now += 200
    node.look()
    assert node.taking_up.once()
    assert files_of(node, second) == {"/dev/nvidia0"}


def test_after_another_reboot_with_the_first_names_all_is_as_before(node: PluginNode) -> None:
    start(node, "pod-a", "uuid-gpu-0")
    for now, owned in (((1, 0), {"gpu-0", "gpu-1"}), ((0, 1), {"gpu-0"}), ((1, 0), None)):
        find(node, *now)
        node.reboot()
        assert node.taking_up.once()
        assert node.owned() == (owned or {"gpu-0", "gpu-1"})


def test_a_share_of_a_gpu_keeps_its_name(node: PluginNode) -> None:
    find(node, 0, 1, shared=True)
    start(node, "pod-a", "uuid-gpu-0::0")
    find(node, 1, 0, shared=True)
    node.reboot()
    assert node.taking_up.once()
    node.run("pod-a")
    assert [(one.device, one.share_id) for row in node.rows() for one in row.devices] == [
        ("gpu-0", "replica-0"),
        ("gpu-1", "replica-0"),
    ]
    assert isinstance(node.admit("pod-b", "uuid-gpu-1::0"), Refusal)


def test_if_one_container_got_cdi_names_and_the_next_one_files_the_row_is_fixed(
    node: PluginNode,
) -> None:
    node.answers = answers(Strategy.CDI)
    assert isinstance(node.allocate("uuid-gpu-0"), ContainerAnswer)
    node.write("pod-a", "uuid-gpu-0", container="init")
    assert [row.is_fixed for row in node.rows()] == [False]
    assert isinstance(node.allocate("uuid-gpu-0"), ContainerAnswer)
    assert [row.is_fixed for row in node.rows()] == [False]
    node.answers = answers(Strategy.EDITS)
    (before,) = node.rows()
    assert files_of(node, node.allocate("uuid-gpu-0")) == {"/dev/nvidia0"}
    assert [row.is_fixed for row in node.rows()] == [True]
    assert node.rows() == (before,)  # else as it was
    node.answers = answers(Strategy.CDI)
    assert isinstance(node.allocate("uuid-gpu-0"), ContainerAnswer)
    assert [row.is_fixed for row in node.rows()] == [True]
    node.write("pod-a", "uuid-gpu-0")
    find(node, 1, 0)
    node.reboot()
    assert node.taking_up.once()
    assert node.owned() == {"gpu-0", "gpu-1"}
