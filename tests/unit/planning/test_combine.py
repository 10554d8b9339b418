# SPDX-License-Identifier: Apache-2.0
"""Devices of several backends: each name belongs to the backend that had it first."""

from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from dra_driver.backends.simulated_config import GPU, LABEL
from dra_driver.model.api.resource_slice import Counter, CounterSet, DeviceCounterConsumption
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


def partitioned(prefix: str, *sets: str, **more: Any) -> Inventory:
    """A device for each set, which consumes one of its counters."""
    devices = []
    for number, name in enumerate(sets):
        device = a_device(f"{prefix}-{number}")
        uses = DeviceCounterConsumption(counter_set=name, counters={"slices": Counter(value="1")})
        devices.append(replace(device, api=structs.replace(device.api, consumes_counters=[uses])))
    made = (CounterSet(name=name, counters={"slices": Counter(value="7")}) for name in sets)
    return Inventory(tuple(devices), counter_sets=tuple(made), **more)


def test_counter_sets_of_all_backends_are_there() -> None:
    found = combine({"acme": partitioned("a", "set-a"), "other": partitioned("b", "set-b")}, {})
    assert [one.name for one in found.counter_sets] == ["set-a", "set-b"]
    assert owners(found) == [("a-0", "acme"), ("b-0", "other")]
    assert found.left_out == ()


def test_a_device_never_consumes_the_counters_of_another_backends_set() -> None:
    found = combine(
        {"acme": partitioned("a", "gpu-0"), "other": partitioned("b", "gpu-0", "gpu-1")}, {}
    )
    assert [one.name for one in found.counter_sets] == ["gpu-0", "gpu-1"]
    assert owners(found) == [("a-0", "acme"), ("b-1", "other")]
    assert [(problem.kind, problem.device) for problem in found.left_out] == [
        ("counter set", "gpu-0"),
        ("device", "b-0"),
    ]


def test_the_first_name_of_the_partition_type_counts() -> None:
    found = combine(
        {
            "acme": machine("a-0"),
            "one": partitioned("b", "set-b", partition_type_attribute="profile"),
            "same": partitioned("c", "set-c", partition_type_attribute="profile"),
            "other": partitioned("d", "set-d", partition_type_attribute="kind"),
        },
        {},
    )
    assert found.partition_type_attribute == "profile"
    assert [(problem.kind, problem.device) for problem in found.left_out] == [("backend", "other")]


@pytest.mark.parametrize(
    ("first", "second", "unneeded"),
    [
        (("a", "b"), ("b",), ("b",)),
        (("*",), ("b",), ("b",)),
        (("*",), ("*",), ("*",)),
        ((), ("*",), ()),
    ],
)
def test_a_call_is_unneeded_if_no_backend_needs_it(
    first: tuple[str, ...], second: tuple[str, ...], unneeded: tuple[str, ...]
) -> None:
    found = combine(
        {
            "acme": partitioned("a", "set-a", skip_node_operations=first),
            "other": partitioned("b", "set-b", skip_node_operations=second),
            "empty": Inventory(),
        },
        {},
    )
    assert found.skip_node_operations == unneeded
