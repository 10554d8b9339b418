# SPDX-License-Identifier: Apache-2.0
"""Whether the devices of a claim are prepared, as the scheduler sees it, and how long it waits for them."""

from typing import Any

import msgspec
import pytest

from dra_driver.explain.facts.binding import binding, is_said_of_binding
from dra_driver.explain.verdict import BindingConditionsPending, BindingFailed, BindingTimedOut
from dra_driver.model.api.resource_claim import ResourceClaim

DEVICE = {"driver": "d", "pool": "p", "device": "gpu-0"}
NEXT = {**DEVICE, "device": "gpu-1"}
BOUND = {"bindingConditions": ["Ready", "Attached"], "bindingFailureConditions": ["Broken", "Gone"]}
BEGIN, END = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"


def claim(
    *results: dict[str, Any], at: str | None = BEGIN, **conditions: list[str]
) -> ResourceClaim:
    """A claim with these devices, and the conditions that are True for each, by its name."""
    said = [
        {
            **DEVICE,
            "device": name.replace("_", "-"),
            "conditions": [{"type": one, "status": "True", "message": "m"} for one in true],
        }
        for name, true in conditions.items()
    ]
    allocation = {"devices": {"results": list(results)}, "allocationTimestamp": at}
    return msgspec.convert(
        {
            "metadata": {"name": "c", "namespace": "ns"},
            "status": {"allocation": allocation, "devices": said},
        },
        ResourceClaim,
    )


ONE = {**DEVICE, **BOUND}
TWO = (ONE, {**NEXT, **BOUND})
ALL = ["Ready", "Attached"]


def test_a_device_is_ready_when_each_of_its_conditions_is_true() -> None:
    assert list(binding(claim(ONE, gpu_0=ALL), BEGIN)) == []
    assert list(binding(claim(DEVICE), BEGIN)) == []
    assert list(binding(claim(ONE, gpu_0=["Ready"], gpu_9=ALL), BEGIN)) == [
        BindingConditionsPending("ns/c", ("Attached",), END)
    ]
    assert list(binding(claim(ONE), BEGIN)) == [
        BindingConditionsPending("ns/c", ("Ready", "Attached"), END)
    ]


def test_a_condition_that_is_not_true_is_no_condition() -> None:
    waiting = claim(ONE, gpu_0=ALL)
    assert waiting.status.devices is not None
    (device,) = waiting.status.devices
    assert device.conditions is not None
    device.conditions[1] = msgspec.structs.replace(device.conditions[1], status="False")
    assert list(binding(waiting, BEGIN)) == [BindingConditionsPending("ns/c", ("Attached",), END)]


def test_a_device_of_which_nothing_is_said_yet_waits() -> None:
    silent = claim(ONE)
    silent = msgspec.structs.replace(
        silent, status=msgspec.structs.replace(silent.status, devices=None)
    )
    assert list(binding(silent, BEGIN)) == [
        BindingConditionsPending("ns/c", ("Ready", "Attached"), END)
    ]


def test_the_first_failure_is_told_with_its_message() -> None:
    failed = [BindingFailed("ns/c", "Broken", "m")]
    assert list(binding(claim(ONE, gpu_0=[*ALL, "Broken", "Gone"]), BEGIN)) == failed
    assert list(binding(claim(ONE, gpu_0=["Broken"]), "2026-01-02T00:00:00Z")) == failed
    assert list(binding(claim(*TWO, gpu_0=ALL, gpu_1=["Broken"]), BEGIN)) == failed
    assert list(binding(claim(*TWO, gpu_0=["Broken"], gpu_1=[]), BEGIN)) == failed


def test_a_failure_behind_a_device_that_is_not_ready_is_not_seen_by_the_scheduler() -> None:
    both = claim(*TWO, gpu_0=["Ready"], gpu_1=["Ready", "Gone"])
    assert list(binding(both, BEGIN)) == [
        BindingConditionsPending("ns/c", ("Attached",), END, ("Gone",))
    ]
    assert list(binding(both, "2026-01-01T00:10:01Z")) == [
        BindingTimedOut("ns/c", ("Attached",), END)
    ]


def test_shares_of_a_device_are_not_told_apart() -> None:
    share = {**ONE, "shareID": "s"}
    assert list(binding(claim(share, gpu_0=ALL), BEGIN)) == []


@pytest.mark.parametrize(
    ("begin", "read_at", "over"),
    [
        (BEGIN, "2026-01-01T00:10:00+00:00", False),
        (BEGIN, "2026-01-01T00:10:01+00:00", True),
        (BEGIN, "2026-01-01T01:10:01+01:00", True),
        (BEGIN, "2026-01-01T01:10:00+01:00", False),
        (BEGIN, "2026-01-01T00:10:01", True),
        (BEGIN, "", False),
        (BEGIN, "some day", False),
    ],
)
def test_the_time_is_over_ten_minutes_after_the_allocation(
    begin: str, read_at: str, over: bool
) -> None:
    expected = (
        BindingTimedOut("ns/c", ("Ready", "Attached"), END)
        if over
        else BindingConditionsPending("ns/c", ("Ready", "Attached"), END)
    )
    assert list(binding(claim(ONE, at=begin), read_at)) == [expected]


@pytest.mark.parametrize("begin", [None, "", "some day", "9999-12-31T23:59:59Z"])
def test_without_the_time_of_the_allocation_nobody_knows_until_when(begin: str | None) -> None:
    assert list(binding(claim(ONE, at=begin), "2026-01-02T00:00:00Z")) == [
        BindingConditionsPending("ns/c", ("Ready", "Attached"))
    ]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ('running PreBind plugin "DynamicResources": device binding failed: claim=c', True),
        ('running PreBind plugin "DynamicResources": device binding timeout: claim=c', True),
        ('running PreBind plugin "DynamicResources": claim c binding timeout', True),
        ("0/3 nodes are available: 3 cannot allocate all claims.", False),
    ],
)
def test_the_scheduler_says_that_a_pod_had_a_node(message: str, said: bool) -> None:
    assert is_said_of_binding(message) == said
