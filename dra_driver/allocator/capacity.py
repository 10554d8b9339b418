# SPDX-License-Identifier: Apache-2.0
"""How much of a device's capacity does a request take, and is there as much left?

A request consumes a part of every capacity of the device, also of a capacity that the request does not name. For such
a capacity it consumes the default of the request policy, or the full capacity if there is no default. The policy rounds
up the requested amount: to the next step above the minimum, or to the next valid value. The same checks apply to a
device that does not allow multiple allocations, but its result has no consumed capacity.

Upstream rounds with 64-bit integers. If a request does not fit into 64 bits, the error stops the whole pod; the
allocator does not try the next device.
Source: k8s.io/dynamic-resource-allocation/structured/internal/experimental/consumable_capacity.go.
"""

from collections.abc import Mapping

from dra_driver.allocator.amounts import MAX_INT64, MILLI, NANO, Amount, amount
from dra_driver.allocator.failures import AllocationError
from dra_driver.model.api.meta import QuantityText
from dra_driver.model.api.resource_slice import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    DeviceCapacity,
)

CapacityRequests = Mapping[str, Amount]
Consumed = dict[str, Amount]

_NOT_REPRESENTABLE = "capacity request cannot be represented in the device's range arithmetic"


def missing_capacity(
    requests: CapacityRequests, capacity: Mapping[str, DeviceCapacity]
) -> str | None:
    """Return the first capacity that the request names and the device does not have, or None."""
    for name in requests:
        if name not in capacity:
            return name
    return None


def consumed_capacity(
    requests: CapacityRequests, capacity: Mapping[str, DeviceCapacity], *, fractional: bool
) -> Consumed:
    """Return the amount of each capacity that the request consumes. Raises AllocationError if an amount cannot be calculated."""
    consumed: Consumed = {}
    for name, offered in capacity.items():
        try:
            taken = _consumed(requests.get(name), offered, fractional=fractional)
        except AllocationError as error:
            raise AllocationError(f'capacity "{name}": {error}') from error
        if taken.nanos < 0:
            raise AllocationError(f'capacity "{name}": capacity value is negative')
        consumed[name] = taken
    return consumed


def forbidden_capacity(
    consumed: Consumed, capacity: Mapping[str, DeviceCapacity], *, fractional: bool
) -> str | None:
    """Return the first capacity whose request policy does not allow the consumed amount, or None."""
    return next(
        (
            name
            for name, offered in capacity.items()
            if offered.request_policy is not None
            and _violates(consumed[name], offered.request_policy, fractional=fractional)
        ),
        None,
    )


def permitted(offered: DeviceCapacity, most: Amount) -> Amount | None:
    """Return the largest amount up to `most` that the request policy of the capacity allows. None if there is none."""
    policy = offered.request_policy
    if policy is None:
        return most
    valid = policy.valid_range
    if valid is None:
        values = [amount(value) for value in policy.valid_values or ()]
        fitting = [value for value in values if value.nanos <= most.nanos]
        return max(fitting, key=lambda one: one.nanos, default=None if values else most)
    least = amount(valid.min or "0").nanos
    bounds = (most, amount(valid.max)) if valid.max is not None else (most,)
    bound = min(bounds, key=lambda one: one.nanos)
    if bound.nanos < least:
        return None
    step = amount(valid.step).nanos if valid.step is not None else 0
    if step <= 0 or (bound.nanos - least) % step == 0:
        return bound
    return Amount(bound.nanos - (bound.nanos - least) % step, bound.format)


def policy_in_words(policy: CapacityRequestPolicy | None) -> str:
    """Return the request policy as text: "10Gi, 20Gi" or "from 1Gi up to 40Gi in steps of 1Gi". "" without a policy."""
    valid = policy.valid_range if policy else None
    if valid is None:
        return ", ".join(map(str, (policy.valid_values if policy else None) or ()))
    words = f"from {valid.min} " if valid.min is not None else ""
    words += f"up to {valid.max}" if valid.max is not None else "upwards"
    return words + (f" in steps of {valid.step}" if valid.step is not None else "")


def exhausted_capacity(
    consumed: Consumed, capacity: Mapping[str, Amount], taken: Mapping[str, int]
) -> str | None:
    """Return the first capacity with too little left for the request, or None.

    `taken` is the amount of each capacity that shares consume, in billionths.
    """
    for name, wanted in consumed.items():
        if taken.get(name, 0) + wanted.nanos > capacity[name].nanos:
            return name
    return None


def _consumed(requested: Amount | None, offered: DeviceCapacity, *, fractional: bool) -> Amount:
    policy = offered.request_policy
    if requested is None:
        default = policy.default if policy is not None else None
        return amount(offered.value if default is None else default)
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _round_up(requested, policy.valid_range, fractional=fractional)
    if policy.valid_values is not None:
        values = [amount(value) for value in policy.valid_values]
        return next(
            (value for value in values if requested.nanos <= value.nanos),
            _compared(requested, *values),
        )
    return requested


def _round_up(requested: Amount, valid: CapacityRequestPolicyRange, *, fractional: bool) -> Amount:
    minimum = _bound(valid.min)
    if requested.nanos < minimum.nanos:
        return minimum
    if valid.step is None:
        return _compared(requested, minimum)
    step = amount(valid.step)
    if fractional and _in_milli(valid):
        return _round_up_in_milli(requested, minimum, step)
    if requested.nanos > MAX_INT64 * NANO:
        raise AllocationError(f"{_NOT_REPRESENTABLE}: request {requested} exceeds MaxInt64")
    whole = _next_step(requested.whole(), minimum.whole(), step.whole())
    if minimum.nanos >= 0 and whole > MAX_INT64:
        raise AllocationError(
            f"{_NOT_REPRESENTABLE}: rounding request {requested} up to the next step passes MaxInt64"
        )
    return Amount(whole * NANO, step.format)


def _compared(requested: Amount, *others: Amount) -> Amount:
    """Return the requested amount as it is after Go compared it with the others.

    Go's `requested.Cmp(other)` changes `requested` to the decimal form if `other` has this form. The result of `_violates` depends
    on the form.
    """
    if any(other.scale is None for other in others):
        return requested._replace(scale=None)
    return requested


def _round_up_in_milli(requested: Amount, minimum: Amount, step: Amount) -> Amount:
    wanted = requested.milli()
    if wanted is None:
        raise AllocationError(
            f"{_NOT_REPRESENTABLE}: request {requested} is not a representable milli value"
        )
    milli = _next_step(wanted, minimum.nanos // MILLI, step.nanos // MILLI)
    # roundUpRange checks for an overflow with `n > (MaxInt64 - minimum) / step`. For a negative minimum the subtraction
    # itself overflows, so every such request is an error. The integer path above does not have this bug.
    if minimum.nanos < 0 or milli > MAX_INT64:
        raise AllocationError(
            f"{_NOT_REPRESENTABLE}: rounding request {requested} up to the next step passes the milli-value range"
        )
    return Amount(milli * MILLI, step.format, 0 if milli % 1000 == 0 else -3)


_NO_STEP = "the step of the valid range is not positive, the driver must correct it"


def _next_step(wanted: int, minimum: int, step: int) -> int:
    if step <= 0:
        raise AllocationError(_NO_STEP)
    return minimum + -(-(wanted - minimum) // step) * step


def _violates(taken: Amount, policy: CapacityRequestPolicy, *, fractional: bool) -> bool:
    if policy.default is not None:
        # Upstream compares the structs here (`*requestedVal == *policy.Default`), so the form must be equal, too. The default
        # itself is always allowed, even if it is no valid value.
        default = amount(policy.default)
        if taken == default and default.scale is not None:
            return False
    if policy.valid_range is not None:
        return _outside(taken, policy.valid_range, fractional=fractional)
    if policy.valid_values:
        return all(taken.nanos != amount(value).nanos for value in policy.valid_values)
    return False


def _outside(taken: Amount, valid: CapacityRequestPolicyRange, *, fractional: bool) -> bool:
    if valid.max is not None and taken.nanos > amount(valid.max).nanos:
        return True
    if valid.step is None:
        return False
    step, minimum = amount(valid.step), _bound(valid.min)
    if fractional and _in_milli(valid):
        milli = taken.milli()
        return milli is None or _between_steps(milli, minimum.nanos // MILLI, step.nanos // MILLI)
    return _between_steps(taken.whole(), minimum.whole(), step.whole())


def _between_steps(taken: int, minimum: int, step: int) -> bool:
    if step == 0:
        raise AllocationError(_NO_STEP)
    return (taken - minimum) % step != 0


def _bound(minimum: QuantityText | None) -> Amount:
    if minimum is None:
        raise AllocationError(
            "the valid range has a step and no minimum, the driver must correct it"
        )
    return amount(minimum)


def _in_milli(valid: CapacityRequestPolicyRange) -> bool:
    bounds = (valid.min, valid.max, valid.step)
    if any(bound is not None and amount(bound).milli() is None for bound in bounds):
        return False
    return valid.step is None or amount(valid.step).nanos >= MILLI
