# SPDX-License-Identifier: Apache-2.0
"""What a request takes of a capacity, under every kind of policy."""

from typing import Any

import msgspec
import pytest

from dra_driver.allocator.amounts import NANO, amount
from dra_driver.allocator.capacity import (
    consumed_capacity,
    exhausted_capacity,
    forbidden_capacity,
    missing_capacity,
    permitted,
    policy_in_words,
)
from dra_driver.allocator.failures import AllocationError
from dra_driver.model.api.resource_slice import DeviceCapacity

OUT_OF_RANGE = "capacity request cannot be represented in the device's range arithmetic"


def offered(policy: dict[str, Any] | None = None, value: str = "100") -> dict[str, DeviceCapacity]:
    return {
        "memory": msgspec.convert({"value": value, "requestPolicy": policy}, DeviceCapacity),
    }


def taken(
    policy: dict[str, Any] | None, request: str | None = None, *, fractional: bool = True
) -> str:
    requests = {} if request is None else {"memory": amount(request)}
    consumed = consumed_capacity(requests, offered(policy), fractional=fractional)
    return str(consumed["memory"])


def forbidden(
    policy: dict[str, Any] | None, request: str | None, *, fractional: bool = True
) -> bool:
    capacity = offered(policy)
    requests = {} if request is None else {"memory": amount(request)}
    consumed = consumed_capacity(requests, capacity, fractional=fractional)
    return forbidden_capacity(consumed, capacity, fractional=fractional) == "memory"


STEPS = {"validRange": {"min": "10", "max": "50", "step": "5"}}
FRACTIONS = {"validRange": {"min": "500m", "max": "4", "step": "250m"}}
VALUES = {"validValues": ["10", "20", "40"], "default": "20"}


@pytest.mark.parametrize(
    ("policy", "request_", "consumed"),
    [
        (None, None, "100"),
        (None, "30", "30"),
        ({"default": "7"}, None, "7"),
        ({"default": "7"}, "30", "30"),
        ({"validRange": {"min": "10"}}, None, "100"),
        ({"validRange": {"min": "10"}}, "3", "10"),
        ({"validRange": {"min": "10"}}, "13", "13"),
        ({"validRange": {"max": "10"}}, "13", "13"),
        (STEPS, "11", "15"),
        (STEPS, "15", "15"),
        (FRACTIONS, "600m", "750m"),
        (FRACTIONS, "1900m", "2"),
        (VALUES, None, "20"),
        (VALUES, "11", "20"),
        (VALUES, "41", "41"),
    ],
)
def test_a_request_is_rounded_up_as_the_policy_says(
    policy: dict[str, Any] | None, request_: str | None, consumed: str
) -> None:
    assert taken(policy, request_) == consumed


def test_without_fractions_steps_are_whole_numbers() -> None:
    policy = {"validRange": {"min": "1", "step": "2"}}
    assert taken(policy, "3500m", fractional=False) == "5"
    assert not forbidden(policy, "3500m", fractional=False)


@pytest.mark.parametrize(
    ("policy", "request_", "is_forbidden"),
    [
        (None, "3", False),
        ({"default": "7"}, "3", False),
        (STEPS, "11", False),
        (STEPS, "51", True),
        ({"validRange": {"min": "10", "max": "50"}}, "50", False),
        ({"validRange": {"min": "10", "step": "7"}}, None, True),  # all there is lies between steps
        ({"validRange": {"min": "10", "step": "9"}}, None, False),
        (FRACTIONS, "4100m", True),
        (VALUES, "41", True),
        (VALUES, "40", False),
        ({"validValues": []}, "3", False),
    ],
)
def test_a_policy_forbids_what_lies_outside(
    policy: dict[str, Any] | None, request_: str | None, is_forbidden: bool
) -> None:
    assert forbidden(policy, request_) is is_forbidden


def test_the_default_is_allowed_although_the_range_forbids_it() -> None:
    outside = {"default": "7", "validRange": {"min": "10", "step": "5"}}
    assert not forbidden(outside, None)


def test_a_default_that_is_kept_as_a_decimal_has_to_obey_the_range() -> None:
    assert forbidden({"default": "1.5Ki", "validRange": {"min": "1Ki", "max": "1.2Ki"}}, None)


def test_a_request_that_was_compared_with_a_decimal_is_no_default_any_more() -> None:
    assert not forbidden({"default": "1Mi", "validValues": ["1Ki"]}, "1Mi")
    assert forbidden({"default": "1Mi", "validValues": ["1.5Ki"]}, "1Mi")


def test_a_default_finer_than_thousandths_lies_between_steps() -> None:
    outside = {"default": "1.5u", "validRange": {"min": "500m", "step": "250m"}}
    assert forbidden({**outside, "default": "1u", "validValues": None}, None) is False
    assert forbidden({"validRange": FRACTIONS["validRange"]}, None)


@pytest.mark.parametrize(
    ("policy", "request_", "fractional", "problem"),
    [
        (STEPS, "1e19", False, f"{OUT_OF_RANGE}: request 10e18 exceeds MaxInt64"),
        (
            STEPS,
            "9223372036854775807",
            False,
            f"{OUT_OF_RANGE}: rounding request 9223372036854775807 up to the next step passes MaxInt64",
        ),
        (
            FRACTIONS,
            "1000001u",
            True,
            f"{OUT_OF_RANGE}: request 1000001u is not a representable milli value",
        ),
        (
            FRACTIONS,
            "9223372036854775807m",
            True,
            (
                f"{OUT_OF_RANGE}: rounding request 9223372036854775807m up to the next step"
                " passes the milli-value range"
            ),
        ),
        (
            {"validRange": {"min": "-500m", "step": "250m"}},
            "1",
            True,
            f"{OUT_OF_RANGE}: rounding request 1 up to the next step passes the milli-value range",
        ),
        (None, "-1", True, "capacity value is negative"),
        (
            {"validRange": {"min": "1", "step": "0"}},
            "2",
            True,
            "the step of the valid range is not positive, the driver must correct it",
        ),
    ],
)
def test_what_cannot_be_calculated_stops_the_pod(
    policy: dict[str, Any] | None, request_: str, fractional: bool, problem: str
) -> None:
    with pytest.raises(AllocationError) as caught:
        taken(policy, request_, fractional=fractional)
    assert str(caught.value) == f'capacity "memory": {problem}'


def test_a_minimum_below_zero_is_no_limit_of_the_arithmetic() -> None:
    capacity = offered({"validRange": {"min": "-1", "step": "2"}})
    wanted = {"memory": amount("9223372036854775807")}
    assert (
        consumed_capacity(wanted, capacity, fractional=False)["memory"].nanos == (2**63 - 1) * NANO
    )


def test_a_range_with_steps_from_nowhere_is_refused() -> None:
    with pytest.raises(AllocationError, match="has a step and no minimum"):
        forbidden({"validRange": {"step": "5"}}, "3")


def test_steps_downwards_divide_all_the_same() -> None:
    capacity = offered({"validRange": {"min": "0", "step": "-2"}})
    for taken_, problem in (("4", None), ("3", "memory")):
        consumed = {"memory": amount(taken_)}
        assert forbidden_capacity(consumed, capacity, fractional=True) == problem


def test_steps_of_nothing_are_refused() -> None:
    with pytest.raises(AllocationError, match="is not positive"):
        forbidden({"validRange": {"min": "0", "step": "0"}}, None)


def test_steps_finer_than_thousandths_are_counted_in_whole_numbers() -> None:
    fine = {"validRange": {"min": "1", "step": "1u"}}
    assert taken(fine, "2") == "2"
    assert not forbidden(fine, "2")


def test_a_request_between_thousandths_lies_between_steps() -> None:
    capacity = offered(FRACTIONS)
    consumed = {"memory": amount("1500001u")}
    assert forbidden_capacity(consumed, capacity, fractional=True) == "memory"


def test_a_capacity_that_the_device_does_not_have_is_named() -> None:
    assert missing_capacity({"memory": amount("1")}, offered()) is None
    assert missing_capacity({"cores": amount("1")}, offered()) == "cores"


def test_what_others_took_counts() -> None:
    consumed, total = {"memory": amount("30")}, {"memory": amount("100")}
    assert exhausted_capacity(consumed, total, {"memory": 70 * NANO}) is None
    assert exhausted_capacity(consumed, total, {"memory": 70 * NANO + 1}) == "memory"
    assert exhausted_capacity(consumed, total, {}) is None


@pytest.mark.parametrize(
    ("policy", "most", "words"),
    [
        (None, "30", ""),
        ({"default": "7"}, "30", ""),
        (VALUES, "20", "10, 20, 40"),
        ({"validValues": ["40"]}, None, "40"),
        ({"validRange": {"max": "50"}}, "30", "up to 50"),
        ({"validRange": {"max": "5"}}, "5", "up to 5"),
        ({"validRange": {"min": "40"}}, None, "from 40 upwards"),
        ({"validRange": {"min": "10", "step": "10"}}, "30", "from 10 upwards in steps of 10"),
        ({"validRange": {"min": "10", "step": "0"}}, "30", "from 10 upwards in steps of 0"),
        (
            {"validRange": {"min": "1", "max": "25", "step": "7"}},
            "22",
            "from 1 up to 25 in steps of 7",
        ),
    ],
)
def test_the_most_that_a_policy_permits(
    policy: dict[str, Any] | None, most: str | None, words: str
) -> None:
    capacity = offered(policy)["memory"]
    found = permitted(capacity, amount("30"))
    assert (None if found is None else str(found)) == most
    assert policy_in_words(capacity.request_policy) == words
