# SPDX-License-Identifier: Apache-2.0
"""Devices of several backends: each name belongs to the backend that had it first."""

from dra_driver.backends.simulated_config import GPU, LABEL
from dra_driver.model.inventory import Inventory
from dra_driver.model.slices import Problem
from dra_driver.planning.combine import combine
from dra_driver.testing.builders import a_device

WRONG = Problem("bad", "uuid", "None", "correct it")
ACTION = (
    "the device was left out, all others are published; let one of the two backends name its devices in another way, or choose only one "
    "of them"
)


def machine(*names: str) -> Inventory:
    return Inventory(tuple(a_device(name) for name in names))


def owners(found: Inventory) -> list[tuple[str, str]]:
    return [(device.name, device.backend) for device in found.devices]


def test_every_device_knows_its_backend_whatever_the_backend_wrote() -> None:
    found = combine({"acme": machine("a-0"), "other": machine("b-0")}, {})
    assert owners(found) == [("a-0", "acme"), ("b-0", "other")]
    assert (found.scanned, found.unanswered, found.left_out) == (True, (), ())
    assert found.had == {"a-0": "acme", "b-0": "other"}


def test_no_backend_is_a_node_without_devices() -> None:
    assert combine({}, {}) == Inventory()


def test_a_name_stays_with_the_backend_that_had_it_first() -> None:
    both = {"acme": machine("gpu-0", "gpu-1"), "other": machine("gpu-1", "gpu-2")}
    first = combine(both, {})
    assert owners(first) == [("gpu-0", "acme"), ("gpu-1", "acme"), ("gpu-2", "other")]
    assert first.left_out == (
        Problem(
            "gpu-1",
            "name",
            "backend other has a device of this name, and backend acme had the name first",
            ACTION,
        ),
    )
    again = combine(both, {"gpu-1": "other"})
    assert owners(again) == [("gpu-0", "acme"), ("gpu-1", "other"), ("gpu-2", "other")]


def test_a_device_that_vanished_keeps_its_name_from_the_others() -> None:
    found = combine({"acme": machine(), "other": machine("gpu-0")}, {"gpu-0": "acme"})
    assert owners(found) == []
    assert [problem.device for problem in found.left_out] == ["gpu-0"]


def test_a_backend_that_is_not_chosen_any_more_keeps_no_name() -> None:
    found = combine({"other": machine("gpu-0")}, {"gpu-0": "acme", "gpu-1": "acme"})
    assert owners(found) == [("gpu-0", "other")]
    assert found.had == {"gpu-0": "other", "gpu-1": ""}


def test_what_a_backend_left_out_stays_told() -> None:
    found = combine({"acme": Inventory(left_out=(WRONG,)), "other": machine("b-0")}, {})
    assert found.left_out == (WRONG,)


def test_a_backend_that_has_not_answered_may_have_its_devices() -> None:
    had = {"a-0": "acme", "b-0": "other", "old": ""}
    found = combine({"acme": Inventory(scanned=False), "other": machine("b-1")}, had)
    assert (found.scanned, found.unanswered) == (True, ("acme",))
    assert {name: found.may_exist(name) for name in ("a-0", "b-0", "b-1", "old", "new")} == {
        "a-0": True,
        "b-0": False,  # its backend answered: it vanished
        "b-1": False,  # it is there
        "old": True,  # nobody knows whose it was
        "new": True,
    }
    assert found.awaited() == ("a-0", "old")


def test_before_any_answer_nothing_is_known() -> None:
    found = combine({"acme": Inventory(scanned=False)}, {})
    assert (found.scanned, found.unanswered) == (False, ("acme",))
    assert not machine("a").may_exist("b")


def test_each_device_reads_the_kinds_of_its_backend() -> None:
    kinds = {"acme": (LABEL,), "other": (GPU, LABEL)}
    parts = {name: machine(f"{name}-0", f"{name}-1") for name in ("acme", "other", "third")}
    found = combine(parts, {}, kinds)
    assert [device.config_kinds for device in found.devices[::2]] == [(LABEL,), (GPU, LABEL), ()]
    assert found.config_kinds() == (LABEL, GPU)
