# SPDX-License-Identifier: Apache-2.0
"""A claim with a time slice on a real state file: held while a process or a mode stays, over crashes and restarts, and then free."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.backends.base import config_kinds_of
from dra_driver.backends.nvidia.facts import Process
from dra_driver.errors import Permanent, Temporary
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import DevicesHeld
from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import InUse
from dra_driver.model.plan import Refusal
from dra_driver.planning.combine import combine
from dra_driver.services.route import Route
from dra_driver.testing.builders import a_claim, a_config
from tests.support.local_node import LocalNode, ManualClock
from tests.support.watched_nvidia import GIB, WatchedHardware, a_backend, a_node

GPU = DeviceName("gpu-0")
LONG = {
    "apiVersion": "resource.nvidia.com/v1beta1",
    "kind": "GpuConfig",
    "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
}


class GpuNode(LocalNode):
    """A node whose devices are NVIDIA's."""

    def __init__(self, folder: Path) -> None:
        (folder / "gpus").mkdir()
        self.hardware: WatchedHardware = a_node(folder / "gpus")
        super().__init__(folder / "driver", clock=ManualClock())
        self.begin()

    def begin(self) -> None:
        """A driver process begins."""
        self.backend = a_backend(self.hardware)
        route = Route({"nvidia": self.backend}, lambda _device: "nvidia")
        self.configure, self.reset = route.configure, route.reset
        self.scan()

    def scan(self) -> Inventory:
        kinds = {"nvidia": config_kinds_of(self.backend)}
        self.inventory = combine({"nvidia": self.backend.scan()}, {}, kinds)
        self.used = {GPU} if self.backend.in_use(GPU) is InUse.YES else set()
        return self.inventory

    def left(self) -> str:
        return self.scan().by_name[GPU].not_clean

    def interval(self) -> int:
        return self.hardware.modes().get("GPU-0 slice", 0)

    def owned(self) -> bool:
        with self.store.reading() as state:
            return GPU in state.owned_devices(self.place.pool)

    def asks(self, **more: object) -> ClaimRef:
        """A claim for the GPU with this configuration."""
        (ref,) = self.add(a_claim(configs=[a_config({**LONG, **more})]))
        return ref


@pytest.fixture
def node(tmp_path: Path) -> Iterator[GpuNode]:
    (tmp_path / "driver").mkdir()
    found = GpuNode(tmp_path)
    yield found
    assert found.violations() == []
    found.close()


def refused(answers: object, uid: ClaimUid) -> str:
    assert isinstance(answers, dict)
    answer = answers[uid]
    assert isinstance(answer, Refusal)
    return answer.reason


def test_a_claim_sets_the_time_slice_and_its_end_puts_it_back(node: GpuNode) -> None:
    ref = node.asks()
    node.prepare(ref)
    assert node.interval() == 3
    assert node.unprepare(ref) == {ref.uid: None}
    assert (node.interval(), node.owned()) == (0, False)


def test_a_process_that_stays_holds_the_gpu_and_then_its_memory_taints_it(node: GpuNode) -> None:
    ref = node.asks()
    node.prepare(ref)
    node.hardware.uses(3 * GIB)
    node.hardware.runs(Process(pid=4711))
    assert node.left() == ""
    node.unprepare(ref)
    assert (node.owned(), node.interval()) == (True, 3)
    node.hardware.runs()
    node.scan()
    node.look_at_held()
    assert (node.owned(), node.interval()) == (False, 0)
    assert node.left() == "about 3 GiB of its memory are used, and no process is seen that does"
    node.hardware.uses(0)
    assert node.left() == ""


def test_a_mode_that_cannot_be_put_back_holds_the_gpu_and_says_why(node: GpuNode) -> None:
    ref = node.asks()
    node.prepare(ref)
    node.hardware.refuses["set_time_slice"] = Temporary("nvidia-smi did not end within 10 s")
    assert node.unprepare(ref) == {ref.uid: None}
    assert (node.owned(), node.interval()) == (True, 3)
    held = DevicesHeld(ref, "node-1/gpu-0", "nvidia-smi did not end within 10 s")
    assert [event for event in node.events if isinstance(event, DevicesHeld)] == [held]
    node.look_at_held()
    assert (node.owned(), node.interval()) == (True, 3)
    node.hardware.refuses.clear()
    node.look_at_held()
    assert (node.owned(), node.interval()) == (False, 0)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_driver_that_was_restarted_puts_back_what_another_process_set(
    node: GpuNode, is_lost: bool
) -> None:
    ref = node.asks()
    node.prepare(ref)
    if is_lost:
        node.lose_state()
    else:
        node.restart()
    node.begin()
    node.recover()
    if is_lost:
        node.sweep()
    node.delete(ref)
    node.unprepare(ref)
    node.sweep()
    node.look_at_held()
    assert (node.owned(), node.interval()) == (False, 0)


def test_a_node_without_nvidia_smi_refuses_the_claim_and_gives_the_gpu_to_the_next(
    node: GpuNode,
) -> None:
    ref = node.asks()
    node.hardware.refuses["set_time_slice"] = Permanent("the driver root / has no nvidia-smi")
    assert "the driver root / has no nvidia-smi" in refused(node.prepare(ref), ref.uid)
    assert node.unprepare(ref) == {ref.uid: None}
    assert not node.owned()


def test_mps_costs_its_own_claim(node: GpuNode) -> None:
    ref = node.asks(sharing={"strategy": "MPS"})
    assert "use NVIDIA's DRA driver" in refused(node.prepare(ref), ref.uid)
    assert node.unprepare(ref) == {ref.uid: None}
    assert node.hardware.changes() == []


def test_a_config_for_another_type_costs_its_own_claim(node: GpuNode) -> None:
    (ref,) = node.add(
        a_claim(
            configs=[
                a_config({**LONG, "kind": "MigDeviceConfig", "sharing": None}, requests=["gpu"])
            ]
        )
    )
    said = refused(node.prepare(ref), ref.uid)
    assert 'cannot apply MigDeviceConfig to device "gpu-0" of type "gpu" (request: gpu)' in said
    assert not node.owned()
