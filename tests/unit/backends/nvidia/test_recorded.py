# SPDX-License-Identifier: Apache-2.0
"""Facts of a snapshot answer like hardware: processes by device, and modes that stay set."""

from threading import Event

import pytest
from msgspec.structs import replace

from dra_driver.backends.nvidia.facts import Node, Process
from dra_driver.backends.nvidia.recorded import RecordedHardware
from tests.support.nvidia_node import facts_of


@pytest.fixture
def node() -> Node:
    """A GPU as a whole with a process, and one with three MIG devices, two of which have processes."""
    found = facts_of("h100-mig")
    whole, divided = found.gpus
    mig = divided.mig
    assert mig is not None
    first, second = (one.gpu_instance for one in mig.devices[:2])
    processes = (
        Process(pid=2, gpu_instance=first, compute_instance=0),
        Process(pid=3, gpu_instance=first),
        Process(pid=4, gpu_instance=first, compute_instance=7),
        Process(pid=5, gpu_instance=second, compute_instance=0),
    )
    gpus = (
        replace(whole, processes=(Process(pid=1),)),
        replace(divided, processes=processes),
    )
    return replace(found, gpus=gpus)


def pids(node: Node, uuid: str) -> list[int]:
    return [one.pid for one in RecordedHardware(node).processes(uuid)]


def test_a_gpu_has_all_of_its_processes_and_a_mig_device_its_own(node: Node):
    whole, divided = node.gpus
    mig = divided.mig
    assert mig is not None
    assert pids(node, whole.uuid) == [1]
    assert pids(node, divided.uuid) == [2, 3, 4, 5]
    assert [pids(node, one.uuid) for one in mig.devices] == [[2, 3], [5], []]
    assert pids(node, "GPU-unknown") == []
    silent = replace(node, gpus=(replace(whole, processes=None),))
    assert pids(silent, whole.uuid) == []


def test_a_mode_that_was_set_is_seen_by_the_next_look(node: Node):
    hardware = RecordedHardware(node)
    assert hardware.look() == node
    hardware.set_compute_mode(node.gpus[1].uuid, 3)
    hardware.set_time_slice(node.gpus[1].uuid, 2)
    assert [gpu.compute_mode for gpu in hardware.look().gpus] == [0, 3]
    hardware.let_go()
    hardware.set_compute_mode(node.gpus[1].uuid, 0)
    assert hardware.look() == node


def test_nothing_happens_in_a_recording():
    stop = Event()
    stop.set()
    assert list(RecordedHardware(Node()).events(stop)) == []
