# SPDX-License-Identifier: Apache-2.0
"""Would the API server accept these fields of a device?

The API server refuses a whole slice, with up to 64 devices, for one bad value. So the driver checks the values before it writes a
slice. Each rule yields the errors of one field. If a feature gate changes a rule, the driver uses the stricter setting.

Source: validateDevice and what it calls, in pkg/apis/resource/validation of Kubernetes 1.37.
"""

from collections.abc import Callable, Collection, Iterator, Mapping

from dra_driver.model.api.resource_slice import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceCapacity,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
)
from dra_driver.model.dns_names import is_label_key
from dra_driver.model.quantity import Quantity
from dra_driver.planning.counter_rules import wrong_consumption
from dra_driver.planning.taints import wrong_taints

BINDING_CONDITIONS = 4
POLICY_VALUES = 10

_ONE = 10**9  # of the billionths in which a Quantity counts
_MILLI = 10**6
_INT64 = 2**63 - 1

Capacities = Collection[str]
Rule = Callable[[Device, Capacities], Iterator[str]]


def wrong_field(field: str, device: Device, capacities: Capacities) -> str:
    """Return the first error of a field of the device; empty if the field is good. The field has the right type already.

    `field` is the field's name in Python. `capacities` are the names of the published capacities.
    """
    rule = _RULES.get(field)
    if rule is None or getattr(device, field) is None:
        return ""
    return next(rule(device, capacities), "")


def wrong_policy(size: DeviceCapacity, *, shared: bool) -> str:
    """Return the first error of a capacity's requestPolicy; empty if it is good. `shared`: several claims may get the device."""
    if size.request_policy is None:
        return ""
    if not shared:
        return "requestPolicy: only a device with allowMultipleAllocations may have one"
    try:
        return next(_wrong_policy(_nanos(size.value), size.request_policy), "")
    except ValueError as error:
        return f"requestPolicy: {error}"


def _taints(device: Device, _capacities: Capacities) -> Iterator[str]:
    yield from wrong_taints(device.taints or ())


def _binding_conditions(device: Device, _capacities: Capacities) -> Iterator[str]:
    conditions = device.binding_conditions or []
    yield from _conditions(conditions)
    if conditions and not device.binding_failure_conditions:
        yield "bindingFailureConditions must be set too"


def _binding_failure_conditions(device: Device, _capacities: Capacities) -> Iterator[str]:
    conditions = device.binding_failure_conditions or []
    yield from _conditions(conditions)
    if conditions and not device.binding_conditions:
        yield "bindingConditions must be set too"
    for both in sorted({*conditions} & {*(device.binding_conditions or ())}):
        yield f"{both!a} is one of the bindingConditions too"


def _conditions(conditions: list[str]) -> Iterator[str]:
    if len(conditions) > BINDING_CONDITIONS:
        yield f"more than {BINDING_CONDITIONS} conditions"
    for condition in conditions:
        if not is_label_key(condition):
            yield f"{condition[:80]!a} is no label key"
        if conditions.count(condition) > 1:
            yield f"{condition!a} is there twice"


def _own_node(_device: Device, _capacities: Capacities) -> Iterator[str]:
    yield "the slice is for this node already, so its devices may not name nodes"


def _consumes_counters(device: Device, _capacities: Capacities) -> Iterator[str]:
    yield from wrong_consumption(device)


def _node_allocatable(device: Device, capacities: Capacities) -> Iterator[str]:
    for name, entry in (device.node_allocatable_resources or {}).items():
        if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
            yield f"{name[:80]!a} is none of cpu, memory and hugepages-<size>"
        try:
            yield from (f"[{name}].{wrong}" for wrong in _resource(entry, capacities))
        except ValueError as error:
            yield f"[{name}]: {error}"


def _resource(entry: NodeAllocatableResource, capacities: Capacities) -> Iterator[str]:
    if entry.mapping is None and entry.overhead is None:
        yield "mapping or overhead must be set"
    if entry.mapping is not None:
        yield from _mapping(entry.mapping, capacities)
    if entry.overhead is not None:
        yield from _overhead(entry.overhead)


def _mapping(mapping: NodeAllocatableMapping, capacities: Capacities) -> Iterator[str]:
    if (mapping.capacity_key is None) == (mapping.device_multiplier is None):
        yield "mapping: exactly one of capacityKey and deviceMultiplier must be set"
    if (mapping.capacity_key is None) != (mapping.capacity_multiplier is None):
        yield "mapping: capacityKey and capacityMultiplier must be set together"
    if mapping.capacity_key is not None and mapping.capacity_key not in capacities:
        yield f"mapping.capacityKey: the device publishes no capacity {mapping.capacity_key[:80]!a}"
    for name, factor in (
        ("capacityMultiplier", mapping.capacity_multiplier),
        ("deviceMultiplier", mapping.device_multiplier),
    ):
        if factor is not None and _nanos(factor) <= 0:
            yield f"mapping.{name}: {factor} is not positive"


def _overhead(overhead: NodeAllocatableOverhead) -> Iterator[str]:
    amounts = {"perPod": overhead.per_pod, "perContainer": overhead.per_container}
    if set(amounts.values()) == {None}:
        yield "overhead: perPod or perContainer must be set"
    for name, amount in amounts.items():
        if amount is not None and _nanos(amount) < 0:
            yield f"overhead.{name}: {amount} is negative"


_RULES: Mapping[str, Rule] = {
    "taints": _taints,
    "binding_conditions": _binding_conditions,
    "binding_failure_conditions": _binding_failure_conditions,
    "node_name": _own_node,
    "node_selector": _own_node,
    "all_nodes": _own_node,
    "consumes_counters": _consumes_counters,
    "node_allocatable_resources": _node_allocatable,
}


def _wrong_policy(size: int, policy: CapacityRequestPolicy) -> Iterator[str]:
    values, limits = policy.valid_values or [], policy.valid_range
    if values and limits is not None:
        yield "requestPolicy: only one of validValues and validRange may be set"
    default = None if policy.default is None else _nanos(policy.default)
    if default is None:
        if values or limits is not None:
            yield "requestPolicy.default must be set"
    elif limits is None and not values and default > size:
        yield "requestPolicy.default is larger than the capacity: a claim that names no amount would never get the device"
    elif limits is not None:
        yield from _wrong_range(size, default, limits)
    elif values:
        yield from _wrong_values(size, default, [_nanos(value) for value in values])


def _wrong_values(size: int, default: int, values: list[int]) -> Iterator[str]:
    path = "requestPolicy.validValues"
    if len(values) > POLICY_VALUES:
        yield f"{path}: more than {POLICY_VALUES} values"
    # Without the feature gate DRAFractionalCapacityRange the API server rounds up before it compares.
    whole = [_rounded_up(value) for value in values]
    if values != sorted(values) or len(set(whole)) < len(whole):
        yield f"{path}: the values must ascend, with different whole numbers"
    if max(values) > size:
        yield f"{path}: a value is larger than the capacity"
    if default not in values:
        yield f"{path}: the default is not among the values"


def _wrong_range(size: int, default: int, limits: CapacityRequestPolicyRange) -> Iterator[str]:
    path = "requestPolicy.validRange"
    if limits.min is None:
        yield f"{path}.min must be set"
    else:
        wanted = [default] if limits.max is None else [default, _nanos(limits.max)]
        least = _nanos(limits.min)
        step = None if limits.step is None else _nanos(limits.step)
        numbers = [least, *wanted] if step is None else [least, *wanted, step]
        yield from (f"{path}{wrong}" for wrong in _wrong_limits(size, least, wanted))
        if not all(map(_is_milli, numbers)) and any(number % _ONE for number in numbers):
            yield f"{path}: limits with fractions must be multiples of 1m, and less than 2^63 of them"
        if step is not None:
            yield from (f"{path}.step: {wrong}" for wrong in _wrong_step(size, least, step, wanted))


def _is_milli(number: int) -> bool:
    """Whether the number is a multiple of 1m and fits into 64 bits. The API server calculates in 1m if a number has a fraction."""
    return number % _MILLI == 0 and abs(number) <= _INT64 * _MILLI


def _wrong_limits(size: int, least: int, wanted: list[int]) -> Iterator[str]:
    """Yield the errors of the limits. `wanted` are the default and, if it is set, the maximum."""
    if least > size:
        yield ".min: it is larger than the capacity"
    if [least, *wanted] != sorted([least, *wanted]):
        yield ": min, default and max must ascend"
    if len(wanted) > 1 and wanted[-1] > size:
        yield ".max: it is larger than the capacity"


def _wrong_step(size: int, least: int, step: int, wanted: list[int]) -> Iterator[str]:
    if step <= 0:
        yield "it is not positive"
    elif least + step > size:
        yield "min and one step are larger than the capacity"
    elif not all(0 <= number <= _INT64 * _ONE for number in (least, step, *wanted)):
        yield "all limits must be from 0 to 2^63-1"
    # Without the feature gate DRAFractionalCapacityRange the API server rounds up before it calculates.
    elif any(
        (number - least) % step or (_rounded_up(number) - _rounded_up(least)) % _rounded_up(step)
        for number in wanted
    ):
        yield "default and max must be whole steps from min"


def _rounded_up(nanos: int) -> int:
    return -(-nanos // _ONE)


def _nanos(quantity: object) -> int:
    """Return the value of a quantity in billionths. Raises ValueError."""
    return Quantity.parse(str(quantity)).nanos
