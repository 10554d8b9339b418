# SPDX-License-Identifier: Apache-2.0
"""A GPU gets the modes that its claim asks for and no other call; both go back; and what a claim leaves behind is seen."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore
from typing import Any

import pytest
from msgspec import structs

from dra_driver.backends.nvidia.config import GPU, MIG, GpuConfig, MigDeviceConfig
from dra_driver.backends.nvidia.devices import inventory
from dra_driver.backends.nvidia.facts import DeviceFile, Gpu, MigProfile, Node, Process
from dra_driver.backends.nvidia.leases import Leases, Place
from dra_driver.errors import Permanent, Temporary
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.decoding import decode
from dra_driver.model.ids import ClaimUid, DeviceName, ShareId
from dra_driver.model.lease import InUse, Lease
from tests.support.watched_nvidia import (
    GIB,
    INSTALLATION,
    NODE,
    WatchedHardware,
    a_backend,
    a_node,
)

WHOLE = DeviceName("gpu-0")
PART = DeviceName("gpu-1-mig-3g40gb-9-0")
OTHER_PART = DeviceName("gpu-1-mig-3g40gb-9-4")
COMPUTE = Process(pid=4711)


def config(interval: str = "Long") -> DeviceConfig:
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}
    return GPU.config(decode({"sharing": sharing}, GpuConfig)[0])


SLICED = Lease(ClaimUid("uid"), "main", WHOLE, config=config(), parent="GPU-0")
PLAIN = dataclasses.replace(SLICED, config=DeviceConfig())
ON_PART = Lease(ClaimUid("uid"), "main", PART, parent="GPU-1", parts=("memory-slice-0",))
LOST = Lease(ClaimUid("uid"), "", WHOLE)
SET = [("set_compute_mode", "GPU-0", 0), ("set_time_slice", "GPU-0", 3)]
BACK = [("set_compute_mode", "GPU-0", 0), ("set_time_slice", "GPU-0", 0)]


@pytest.fixture
def hardware(tmp_path: Path) -> WatchedHardware:
    return a_node(tmp_path)


@pytest.fixture
def leases(hardware: WatchedHardware) -> Leases:
    found = Leases(hardware)
    found.in_use(WHOLE)  # it has looked
    hardware.calls.clear()
    return found


def test_a_device_without_configuration_costs_no_call(
    leases: Leases, hardware: WatchedHardware
) -> None:
    edits = leases.configure(PLAIN)
    assert "/dev/nvidia0" in [node.path for node in edits.device_nodes]
    leases.configure(dataclasses.replace(PLAIN, config=GPU.config(GpuConfig())))
    leases.reset(PLAIN)
    leases.reset(dataclasses.replace(PLAIN, config=GPU.config(GpuConfig())))
    assert hardware.calls == []


def test_time_slicing_sets_the_compute_mode_and_the_interval_and_puts_both_back(
    leases: Leases, hardware: WatchedHardware
) -> None:
    leases.configure(SLICED)
    assert hardware.calls == SET
    assert hardware.modes() == {"GPU-0 slice": 3}
    hardware.calls.clear()
    leases.reset(SLICED)
    assert hardware.calls == BACK


def test_admins_and_running_containers_change_nothing(
    leases: Leases, hardware: WatchedHardware
) -> None:
    edits = leases.configure(SLICED)
    hardware.calls.clear()
    assert leases.configure(dataclasses.replace(SLICED, may_run=True)) == edits
    assert leases.configure(dataclasses.replace(SLICED, admin_access=True)) == edits
    assert hardware.calls == []


def test_a_mig_device_has_no_modes(leases: Leases, hardware: WatchedHardware) -> None:
    sharing = decode({"sharing": {"strategy": "TimeSlicing"}}, MigDeviceConfig)[0]
    for one in (ON_PART, dataclasses.replace(ON_PART, config=MIG.config(sharing))):
        edits = leases.configure(one)
        assert "/dev/nvidia1" in [node.path for node in edits.device_nodes]
        leases.reset(one)
        leases.reset(dataclasses.replace(one, request="", parent="", parts=()))
    assert hardware.changes() == []


def test_a_mig_device_is_looked_up_anew_because_its_gpu_may_be_divided_anew(
    leases: Leases, hardware: WatchedHardware
) -> None:
    node = hardware.look()
    whole = tuple(structs.replace(gpu, mig=None) for gpu in node.gpus)
    hardware.become(structs.replace(node, gpus=whole))
    hardware.calls.clear()
    with pytest.raises(Temporary, match="is not found any more"):
        leases.configure(ON_PART)
    assert hardware.calls == [("look",)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"strategy": "MPS"}, "strategy MPS: this driver runs no MPS daemon"),
        ({"strategy": "Fair"}, "unknown GPU sharing strategy: Fair"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_touched(
    leases: Leases, hardware: WatchedHardware, fields: dict[str, Any], said: str
) -> None:
    value = decode({"sharing": fields}, GpuConfig)[0]
    refused = dataclasses.replace(SLICED, config=GPU.config(value))
    with pytest.raises(Permanent) as caught:
        leases.configure(refused)
    assert str(caught.value).startswith(
        f"configuration of device gpu-0 refused (request: main): {said}"
    )
    leases.reset(refused)
    assert hardware.calls == []
    assert leases.leased() == frozenset()


def test_a_configuration_that_cannot_be_read_any_more_may_have_set_the_modes(
    leases: Leases, hardware: WatchedHardware
) -> None:
    newer = DeviceConfig("resource.nvidia.com/v2", "GpuConfig", None)
    leases.reset(dataclasses.replace(SLICED, config=newer))
    assert hardware.calls == BACK


def test_a_node_that_cannot_set_time_slices_says_so_once_and_lets_the_device_go(
    leases: Leases, hardware: WatchedHardware
) -> None:
    hardware.refuses["set_time_slice"] = Permanent("the driver root / has no nvidia-smi")
    with pytest.raises(Permanent) as caught:
        leases.configure(SLICED)
    assert str(caught.value) == (
        "cannot set the time slice Long of GPU GPU-0: the driver root / has no nvidia-smi; remove timeSlicingConfig and strategy "
        "TimeSlicing from the claim or its DeviceClass (several containers of a claim share its GPU without them too), or choose "
        "other nodes"
    )
    leases.reset(SLICED)
    assert leases.leased() == frozenset()


def test_what_hangs_now_is_tried_again(leases: Leases, hardware: WatchedHardware) -> None:
    for call in ("set_compute_mode", "set_time_slice"):
        hardware.refuses = {call: Temporary("no answer for 10 s")}
        for act in (leases.configure, leases.reset):
            with pytest.raises(Temporary, match="no answer for 10 s"):
                act(SLICED)
        assert leases.leased() == {WHOLE}
    hardware.refuses = {}
    leases.reset(SLICED)
    assert leases.leased() == frozenset()


def test_a_compute_mode_that_stays_keeps_the_device(
    leases: Leases, hardware: WatchedHardware
) -> None:
    leases.configure(SLICED)
    hardware.set_compute_mode("GPU-0", 3)
    hardware.refuses["set_compute_mode"] = Permanent("no permission")
    with pytest.raises(Temporary) as caught:
        leases.reset(SLICED)
    assert str(caught.value) == (
        "GPU GPU-0 is in compute mode EXCLUSIVE_PROCESS, and cannot be put back to DEFAULT: no permission; the driver tries again. If "
        "this stays, run `nvidia-smi -i GPU-0 -c DEFAULT` on the node"
    )
    hardware.refuses = {}
    hardware.set_compute_mode("GPU-0", 0)
    hardware.refuses["set_compute_mode"] = Permanent("not supported")
    leases.reset(SLICED)


def test_a_compute_mode_that_no_mode_is_told_by_its_number(
    leases: Leases, hardware: WatchedHardware
) -> None:
    hardware.set_compute_mode("GPU-0", 9)
    hardware.refuses["set_compute_mode"] = Permanent("not supported")
    with pytest.raises(Temporary, match="is in compute mode 9"):
        leases.reset(SLICED)


def test_a_gpu_that_has_gone_keeps_no_mode(leases: Leases, hardware: WatchedHardware) -> None:
    leases.configure(SLICED)
    hardware.become(structs.replace(NODE, gpus=NODE.gpus[1:]))
    leases.reset(SLICED)
    a_backend(hardware).reset(SLICED)
    a_backend(hardware).reset(LOST)


def test_a_gpu_that_does_not_answer_since_the_start_keeps_its_modes(
    hardware: WatchedHardware,
) -> None:
    def becomes(code: int | None) -> None:
        silent = Gpu(index=0, problem="no answer", problem_code=code)
        hardware.become(structs.replace(NODE, gpus=(silent, *NODE.gpus[1:])))

    becomes(None)
    with pytest.raises(Temporary) as caught:
        a_backend(hardware).reset(SLICED)
    assert str(caught.value) == (
        "the modes of device gpu-0 cannot be put back now: it may be the GPU with index 0, which does not answer: no answer; the driver "
        "tries again"
    )
    a_backend(hardware).reset(PLAIN)
    a_backend(hardware).reset(dataclasses.replace(LOST, parent="GPU-1", parts=("memory-slice-0",)))
    becomes(15)
    a_backend(hardware).reset(SLICED)


def test_a_kernel_driver_without_its_library_keeps_the_modes(hardware: WatchedHardware) -> None:
    hardware.become(Node(problem="libnvidia-ml.so.1 is missing", installation=INSTALLATION))
    with pytest.raises(Temporary) as caught:
        a_backend(hardware).reset(SLICED)
    assert str(caught.value) == (
        "the modes of device gpu-0 cannot be put back now: libnvidia-ml.so.1 is missing; the driver tries again"
    )
    a_backend(hardware).reset(PLAIN)
    unloaded = structs.replace(INSTALLATION, kernel_version="")
    hardware.become(Node(problem="the kernel driver is not loaded", installation=unloaded))
    a_backend(hardware).reset(SLICED)


def test_a_restarted_driver_puts_back_what_the_lease_says(
    leases: Leases, hardware: WatchedHardware
) -> None:
    leases.configure(SLICED)
    a_backend(hardware).reset(SLICED)
    assert hardware.modes() == {}


def test_another_gpu_that_has_the_name_by_now_is_not_touched(
    leases: Leases, hardware: WatchedHardware
) -> None:
    leases.configure(SLICED)
    swapped = tuple(structs.replace(one, minor=1 - (one.minor or 0)) for one in NODE.gpus)
    hardware.become(structs.replace(NODE, gpus=swapped))
    hardware.calls.clear()
    a_backend(hardware).reset(SLICED)
    assert hardware.changes() == BACK


def test_the_last_share_puts_back_what_any_of_them_may_have_set(
    leases: Leases, hardware: WatchedHardware
) -> None:
    one = dataclasses.replace(SLICED, share_id=ShareId("a"))
    other = dataclasses.replace(PLAIN, share_id=ShareId("b"))
    leases.configure(one)
    leases.configure(dataclasses.replace(other, is_alone=False))
    hardware.calls.clear()
    leases.reset(dataclasses.replace(one, is_alone=False))
    assert hardware.calls == []
    assert leases.leased() == {WHOLE}
    leases.reset(other)
    assert hardware.changes() == BACK
    assert leases.leased() == frozenset()


def test_a_device_that_is_not_there_is_not_set_up(leases: Leases) -> None:
    with pytest.raises(Temporary, match="device gpu-9 is not found any more"):
        leases.configure(dataclasses.replace(PLAIN, device=DeviceName("gpu-9")))


def test_a_process_uses_its_gpu_or_mig_device(leases: Leases, hardware: WatchedHardware) -> None:
    desktop = Process(pid=800, kind="graphics")
    hardware.runs(desktop)
    hardware.runs(structs.replace(COMPUTE, gpu_instance=7, compute_instance=0), on="GPU-1")
    found = {name: leases.in_use(name) for name in (WHOLE, PART, OTHER_PART)}
    assert found == {WHOLE: InUse.NO, PART: InUse.YES, OTHER_PART: InUse.NO}
    assert leases.in_use(DeviceName("gpu-9")) is InUse.CANNOT_TELL
    hardware.refuses["processes"] = Temporary("no answer")
    assert leases.in_use(WHOLE) is InUse.CANNOT_TELL


def test_a_look_that_fails_says_nothing_about_use(hardware: WatchedHardware) -> None:
    hardware.refuses["look"] = Temporary("no answer")
    assert Leases(hardware).in_use(WHOLE) is InUse.CANNOT_TELL


# What is left behind.


def left(hardware: WatchedHardware, backend: Any) -> dict[str, str]:
    hardware.calls.clear()
    return {one.name: one.not_clean for one in backend.scan().devices if one.not_clean}


def test_an_idle_node_is_clean_and_costs_no_question(hardware: WatchedHardware) -> None:
    assert left(hardware, a_backend(hardware)) == {}
    assert hardware.calls == [("look",)]


def test_a_process_that_stays_is_seen_when_its_claim_is_over_until_the_memory_is_free(
    hardware: WatchedHardware,
) -> None:
    backend = a_backend(hardware)
    backend.scan()
    backend.configure(SLICED)
    hardware.uses(3 * GIB)
    hardware.runs(COMPUTE)
    assert left(hardware, backend) == {}
    assert hardware.calls == [("look",)]
    assert backend.in_use(WHOLE) is InUse.YES  # so the device is held, and not reset
    backend.reset(SLICED)  # an admin has released it
    assert left(hardware, backend) == {WHOLE: "process 4711 uses it"}
    hardware.runs()
    assert backend.in_use(WHOLE) is InUse.NO
    assert left(hardware, backend) == {
        WHOLE: "about 3 GiB of its memory are used, and no process is seen that does"
    }
    hardware.uses(4 * 2**20)
    assert left(hardware, backend) == {}


def test_a_look_that_began_during_the_lease_says_nothing_about_the_time_after(
    hardware: WatchedHardware,
) -> None:
    leases = Leases(hardware)
    leases.configure(PLAIN)
    hardware.uses(3 * GIB)
    hardware.runs(COMPUTE)
    leased, node = leases.leased(), hardware.look()
    leases.reset(PLAIN)
    found = leases.judged(node, inventory(node, {}), leased)
    assert found.by_name[WHOLE].not_clean == ""
    found = leases.judged(node, inventory(node, {}), leases.leased())
    assert found.by_name[WHOLE].not_clean == "process 4711 uses it"


def test_a_restarted_driver_says_what_it_sees_and_the_state_whose_it_is(
    hardware: WatchedHardware,
) -> None:
    a_backend(hardware).configure(SLICED)
    hardware.uses(3 * GIB)
    hardware.runs(COMPUTE)
    assert left(hardware, a_backend(hardware)) == {WHOLE: "process 4711 uses it"}


def test_mig_devices_have_their_own_processes_for_one_question(hardware: WatchedHardware) -> None:
    backend = a_backend(hardware)
    hardware.uses(3 * GIB, on="GPU-1")
    hardware.runs(structs.replace(COMPUTE, gpu_instance=8, compute_instance=0), on="GPU-1")
    assert left(hardware, backend) == {OTHER_PART: "process 4711 uses it"}
    assert hardware.calls == [("look",), ("processes", "GPU-1")]


@pytest.mark.parametrize("problem", ["", "it fell off the bus"])
def test_a_gpu_that_does_not_answer_is_not_called_unclean(
    hardware: WatchedHardware, problem: str
) -> None:
    hardware.uses(3 * GIB)
    if problem:
        gpus = tuple(structs.replace(one, problem=problem) for one in hardware.look().gpus)
        hardware.become(structs.replace(NODE, gpus=gpus))
        hardware.runs(COMPUTE)
    else:
        hardware.refuses["processes"] = Temporary("no answer")
    assert left(hardware, a_backend(hardware)) == {}


def test_a_node_without_gpus_is_asked_nothing(hardware: WatchedHardware, tmp_path: Path) -> None:
    backend = a_backend(hardware, sysfs=tmp_path)
    backend.reset(LOST)
    assert backend.in_use(WHOLE) is InUse.CANNOT_TELL
    assert backend.scan().devices == ()
    assert hardware.calls == []


@pytest.mark.parametrize(("profile", "has"), [(10, True), (2, False)])
def test_a_mig_device_has_drm_files_if_its_profile_has_graphics(
    hardware: WatchedHardware, profile: int, has: bool
) -> None:
    node = hardware.look()
    gpus = tuple(structs.replace(gpu, drm=("card7",)) for gpu in node.gpus)
    kind = MigProfile(profile=profile, id=9, slices=3, instances=2, memory_mib=40448)
    kinds = {gpu.name: (kind,) for gpu in node.gpus}
    card = DeviceFile(path="/dev/dri/card7", major=226, minor=7)
    files = (*node.installation.device_files, card)
    installation = structs.replace(node.installation, device_files=files)
    hardware.become(structs.replace(node, gpus=gpus, mig_profiles=kinds, installation=installation))
    found = inventory(hardware.look(), {}).devices
    (name,) = (one.name for one in found if one.name.endswith("-9-0"))
    edits = Leases(hardware).configure(dataclasses.replace(ON_PART, device=name))
    assert (card.path in [node.path for node in edits.device_nodes]) == has


def test_the_mig_devices_of_a_claim_share_a_look(hardware: WatchedHardware) -> None:
    asked = Semaphore(0)

    class Slow(WatchedHardware):
        """Answers the first look when all four have asked."""

        def look(self) -> Node:
            for _ in range(0 if self.calls else 4):
                asked.acquire(timeout=60)
            return super().look()

    class Watched(Leases):
        def _place(self, device: DeviceName) -> Place | None:
            asked.release()
            return super()._place(device)

    slow = Slow(hardware.folder)
    leases = Watched(slow)
    leases.judged(hardware.look(), inventory(hardware.look(), {}), ())
    with ThreadPoolExecutor(4) as workers:
        edits = list(workers.map(leases.configure, [ON_PART] * 4))
    assert len({str(one) for one in edits}) == 1
    # One that asked after the first look had begun needs a second one, and shares that.
    assert len(slow.calls) in (1, 2)
