# SPDX-License-Identifier: Apache-2.0
"""Does the witness of NVIDIA's mocked hardware see what must not happen there?"""

from pathlib import Path

import pytest

from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.testing.nvml import boards, machine
from dra_driver.testing.nvml.control import Control
from tests.support.hardware import Use
from tests.support.nvidia_hardware import NOBODY, NvidiaRuntime, NvidiaWitness, Seen
from tests.support.nvidia_names import uuids

FACTS = machine.node(boards.A100_40, 2, mig={1: "3g.20gb 2g.10gb"})
NAMES = uuids(FACTS)
WHOLE, LARGE, MEDIUM = "gpu-0", "gpu-1-mig-3g20gb-9-4", "gpu-1-mig-2g10gb-14-0"
ASKED = {"one": 3, "other": 0}


def use(device: str, claim: str) -> Use:
    return Use(DeviceName(device), ClaimUid(claim))


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return Control(tmp_path)


@pytest.fixture
def runtime(control: Control) -> NvidiaRuntime:
    return NvidiaRuntime(control, FACTS, lambda uid, _devices: ASKED[uid])


@pytest.fixture
def witness(control: Control) -> NvidiaWitness:
    return NvidiaWitness(control, FACTS)


def told(control: Control, what: str, value: int) -> None:
    """What the mock writes when somebody changes a setting."""
    with (control.state / "journal").open("a") as journal:
        journal.write(f"4711 {what} {NAMES[WHOLE]} {value}\n")


def test_the_names_of_devices_are_those_of_nvidias_driver() -> None:
    assert sorted(NAMES) == [WHOLE, MEDIUM, LARGE]


def test_a_claim_that_is_set_up_used_and_put_back_is_no_misuse(
    control: Control, runtime: NvidiaRuntime, witness: NvidiaWitness
) -> None:
    told(control, "compute-mode", 0)
    told(control, "time-slice", 3)
    assert witness.look().configured == {use(WHOLE, "setting 1")}
    runtime.opened("p1", [use(WHOLE, "one")])
    assert [line.split()[1] for line in control.lines()] == ["process"]
    told(control, "time-slice", 3)
    runtime.closed("p1")
    assert control.lines() == []
    told(control, "time-slice", 0)
    runtime.opened("p2", [use(WHOLE, "other")])
    seen = witness.look()
    assert (seen.misuse, seen.overridden, seen.configured) == ([], [], set())
    assert (seen.wrong_modes(), seen.without_mode()) == ([], set())


def test_a_setting_is_not_changed_under_a_container(
    control: Control, runtime: NvidiaRuntime, witness: NvidiaWitness
) -> None:
    told(control, "time-slice", 3)
    runtime.opened("p1", [use(WHOLE, "one")])
    told(control, "time-slice", 0)
    assert witness.look().misuse == [
        "gpu-0 got time slice 0 under container p1, whose claim asks for 3"
    ]


def test_a_container_finds_the_time_slice_that_its_claim_asks_for(
    runtime: NvidiaRuntime, witness: NvidiaWitness
) -> None:
    runtime.opened("p1", [use(WHOLE, "one")])
    [found] = witness.look().overridden
    assert found.before == use(WHOLE, NOBODY)
    assert "gpu-0 of claim one was given with time slice 0 instead of 3" in str(found)


def test_no_gpu_refuses_a_second_process(control: Control, witness: NvidiaWitness) -> None:
    told(control, "compute-mode", 3)
    assert witness.look().misuse == ["gpu-0 was put into compute mode 3"]


def test_a_device_is_in_the_hands_of_one_claim(
    runtime: NvidiaRuntime, witness: NvidiaWitness
) -> None:
    runtime.opened("p1", [use(LARGE, "other")])
    runtime.opened("p2", [use(MEDIUM, "other")])
    runtime.opened("p3", [use(LARGE, "other")])  # of the same claim
    assert witness.look().misuse == []
    runtime.opened("p4", [use(LARGE, "one")])
    runtime.opened("admin", [use(LARGE, "one")], admin=True)
    found = witness.look().misuse
    assert [one.split(" while ")[1].split()[0] for one in found] == ["p1", "p3"]


def test_what_no_claim_has_is_set_as_usual(control: Control, witness: NvidiaWitness) -> None:
    told(control, "time-slice", 2)
    seen = witness.look()
    assert seen.unowned([use(WHOLE, "one")]) == set()
    assert seen.unowned([use(MEDIUM, "one")]) == {use(WHOLE, "setting 1")}


def test_a_boot_ends_everything(
    control: Control, runtime: NvidiaRuntime, witness: NvidiaWitness
) -> None:
    told(control, "time-slice", 3)
    (control.state / f"time-slice-{NAMES[WHOLE]}").write_text("3\n")
    runtime.opened("p1", [use(WHOLE, "one")])
    runtime.booted()
    seen = witness.look()
    assert (seen.open, seen.configured, seen.misuse) == ({}, set(), [])
    assert control.time_slice(NAMES[WHOLE]) is None
    assert control.lines() == []


def test_a_gpu_that_was_gone_is_set_as_usual(
    control: Control, runtime: NvidiaRuntime, witness: NvidiaWitness
) -> None:
    told(control, "time-slice", 3)
    (control.state / f"time-slice-{NAMES[WHOLE]}").write_text("3\n")
    control.attached_anew(NAMES[WHOLE])
    runtime.opened("p1", [use(WHOLE, "one")])
    seen = witness.look()
    assert control.time_slice(NAMES[WHOLE]) is None
    assert (seen.configured, seen.overridden) == (set(), [])
    told(control, "time-slice", 2)
    assert len(witness.look().misuse) == 1
    runtime.closed("p1")
    runtime.opened("p2", [use(WHOLE, "one")])
    assert len(witness.look().overridden) == 1


def test_a_line_that_nobody_writes_is_an_error() -> None:
    with pytest.raises(ValueError, match="nobody writes"):
        Seen({}).take(["fan-speed", "GPU-0", "3"])
