# SPDX-License-Identifier: Apache-2.0
"""Which devices may a server publish that does not know all of their fields?

An API server drops a field without an error if the field's feature gate is off, or if its release does not have the field. Some
fields restrict who gets the device: a taint, a binding condition, shared counters. Without such a field the scheduler would give the
device to anybody, so the device is withheld. Without any other field the device is published.

Nobody can read the gates of a server. `dra_driver.services.served_fields` finds out by dry runs with the probes of this module.

Source: dropDisabledFields in pkg/registry/resource/resourceslice of Kubernetes 1.33 to 1.37.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from dra_driver.model.api.resource_slice import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    DeviceTaint,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
)
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import SliceContent
from dra_driver.planning.counter_rules import amount

Gate = str
COUNTERS: Gate = "DRAPartitionableDevices"
TAINTS: Gate = "DRADeviceTaints"
_COUNTERS_APART = 35
_FEWER_TAINTS = 4
_NOTHING = Quantity(0)


class ServerRules(Struct, frozen=True):
    """What is known of the API server: its release 1.`minor` (None: not known), and for each gate that is off, how that shows."""

    minor: int | None = None
    off: Mapping[Gate, str] = field(default_factory=dict)

    @property
    def counters_with_devices(self) -> bool:
        """Whether counter sets must be in the slice of their devices. From 1.35 they must be in slices of their own."""
        return self.minor is not None and self.minor < _COUNTERS_APART


class Feature(Struct, frozen=True):
    """The fields of one feature gate.

    `without` returns the device without these fields; the device itself if it has none of them; None if they restrict who gets the
    device. `probe` is a small slice with the fields; `is_in` says whether a slice has them.
    """

    fields: str
    without: Callable[[Device], Device | None]
    probe: SliceContent
    of_slice: Callable[[SliceContent], bool] = lambda _content: False

    def is_in(self, content: SliceContent) -> bool:
        """Whether the slice, or a device of it, has the fields."""
        devices = content.devices or ()
        return self.of_slice(content) or any(self.without(one) is not one for one in devices)


def _without_taints(device: Device) -> Device | None:
    if not device.taints:
        return device
    return replace(device, taints=None) if not _keeping_away(device.taints) else None


def _keeping_away(taints: Iterable[DeviceTaint]) -> list[DeviceTaint]:
    return [taint for taint in taints if taint.effect != "None"]


def _without_counters(device: Device) -> Device | None:
    return None if device.consumes_counters else device


def _without_groups(device: Device) -> Device | None:
    groups = any(one.compatibility_groups for one in device.consumes_counters or ())
    return None if groups else device


def _without_binding(device: Device) -> Device | None:
    if device.binding_conditions or device.binding_failure_conditions:
        return None
    return device if device.binds_to_node is None else replace(device, binds_to_node=None)


def _without_shares(device: Device) -> Device | None:
    """A device without shares goes to one claim as a whole: that restricts it more, so it is published."""
    sizes = device.capacity or {}
    if device.allow_multiple_allocations is None and not any(
        size.request_policy for size in sizes.values()
    ):
        return device
    whole = {name: replace(size, request_policy=None) for name, size in sizes.items()}
    return replace(device, allow_multiple_allocations=None, capacity=whole or None)


def _without_lists(device: Device) -> Device | None:
    plain = {name: one for name, one in (device.attributes or {}).items() if not _is_list(one)}
    if len(plain) == len(device.attributes or {}):
        return device
    return replace(device, attributes=plain or None)


def _is_list(attribute: DeviceAttribute) -> bool:
    lists = ("int_values", "bool_values", "string_values", "version_values")
    return any(getattr(attribute, kind) is not None for kind in lists)


def _without_node_resources(device: Device) -> Device | None:
    return (
        replace(device, node_allocatable_resources=None)
        if device.node_allocatable_resources
        else device
    )


def _itself(device: Device) -> Device | None:
    return device


def _probe(**fields: object) -> SliceContent:
    return SliceContent(devices=[replace(Device(name="probe"), **fields)])


_ONE = {"one": Counter(value="1")}
_USES = DeviceCounterConsumption(counter_set="probe", counters=_ONE)
_TYPE = "example.com/type"
_PROBE = "example.com/probe"

FEATURES: Mapping[Gate, Feature] = {
    TAINTS: Feature(
        "taints",
        _without_taints,
        _probe(taints=[DeviceTaint(key=_PROBE, effect="NoSchedule")]),
    ),
    COUNTERS: Feature(
        "sharedCounters and consumesCounters",
        _without_counters,
        SliceContent(shared_counters=[CounterSet(name="probe", counters=_ONE)]),
        lambda content: bool(content.shared_counters),
    ),
    "DRADeviceCompatibilityGroups": Feature(
        "compatibilityGroups",
        _without_groups,
        _probe(consumes_counters=[replace(_USES, compatibility_groups=["probe"])]),
    ),
    "DRADeviceBindingConditions": Feature(
        "bindingConditions, bindingFailureConditions and bindsToNode",
        _without_binding,
        _probe(binding_conditions=["ready"], binding_failure_conditions=["failed"]),
    ),
    "DRAConsumableCapacity": Feature(
        "allowMultipleAllocations and requestPolicy",
        _without_shares,
        _probe(allow_multiple_allocations=True),
    ),
    "DRAListTypeAttributes": Feature(
        "attributes with lists",
        _without_lists,
        _probe(attributes={"list": DeviceAttribute(int_values=[1])}),
    ),
    "DRANodeAllocatableResources": Feature(
        "nodeAllocatableResources",
        _without_node_resources,
        _probe(
            node_allocatable_resources={
                "cpu": NodeAllocatableResource(overhead=NodeAllocatableOverhead(per_pod="1"))
            }
        ),
    ),
    "DRAPartitionableDevicesType": Feature(
        "partitionTypeAttribute",
        _itself,
        replace(
            _probe(
                consumes_counters=[_USES], attributes={_TYPE: DeviceAttribute(string_value="probe")}
            ),
            partition_type_attribute=_TYPE,
        ),
        lambda content: content.partition_type_attribute is not None,
    ),
    "DRAOptionalNodeOperations": Feature(
        "skipNodeOperations",
        _itself,
        SliceContent(devices=[], skip_node_operations=["NodeUnprepareResources"]),
        lambda content: bool(content.skip_node_operations),
    ),
}
"""Every feature gate that has fields in a slice."""


def without_idle_counters(
    devices: Iterable[Device], sets: Mapping[str, CounterSet], rules: ServerRules
) -> list[Device]:
    """Return the devices without counters that restrict nothing, for a server that would drop counters.

    If all devices together consume no more of a counter than its set has, the scheduler never refuses a device because of it. So a
    device all of whose counters are so is published without them. Two kinds of devices keep theirs: one of a compatibility group, which
    excludes others even if the counters suffice, and one with shares, because nobody knows how many claims get it.
    """
    found = list(devices)
    if COUNTERS not in rules.off:
        return found
    together: dict[tuple[str, str], Quantity] = {}
    for counter, size in (use for device in found for use in _uses(device)):
        before = together.get(counter, _NOTHING)
        together[counter] = Quantity(before.nanos + size.nanos)
    shared = {
        counter for one in found if one.allow_multiple_allocations for counter, _ in _uses(one)
    }

    def restricts(device: Device) -> bool:
        grouped = any(one.compatibility_groups for one in device.consumes_counters or ())
        return grouped or any(
            counter in shared or together[counter] > _in_set(counter, sets)
            for counter, _ in _uses(device)
        )

    return [
        one
        if restricts(one)
        else replace(one, consumes_counters=None)
        if one.consumes_counters
        else one
        for one in found
    ]


def _uses(device: Device) -> Iterator[tuple[tuple[str, str], Quantity]]:
    """Yield the counters that a device consumes, by the names of set and counter, and how much."""
    for one in device.consumes_counters or ():
        for name, counter in (one.counters or {}).items():
            yield (one.counter_set, name), amount(counter)


def _in_set(counter: tuple[str, str], sets: Mapping[str, CounterSet]) -> Quantity:
    name, key = counter
    return amount((sets[name].counters or {})[key])


def gates_of(device: Device) -> Iterator[Gate]:
    """Yield the gates whose fields the device has."""
    return (gate for gate, one in FEATURES.items() if one.without(device) is not device)


def gates_in(content: SliceContent) -> frozenset[Gate]:
    """Return the gates whose fields a slice has."""
    return frozenset(gate for gate, feature in FEATURES.items() if feature.is_in(content))


def allowed(device: Device, rules: ServerRules) -> Device | None:
    """Return the device without the fields that this server drops. None: it must be withheld, because they restrict who gets it."""
    left: Device | None = device
    for gate in rules.off:
        left = left and FEATURES[gate].without(left)
    return left


def wrong_for_release(device: Device, rules: ServerRules) -> str:
    """Return why a server of this release would refuse the device; empty if it would not. Before 1.35, taints were fewer."""
    taints = device.taints or ()
    if rules.minor is not None and rules.minor < _COUNTERS_APART and len(taints) > _FEWER_TAINTS:
        return f"more than the {_FEWER_TAINTS} taints that Kubernetes 1.{rules.minor} allows"
    return ""


def for_release(device: Device, rules: ServerRules) -> Device:
    """Return the device without taints of the effect None, which keep nobody away, if the release does not know this effect."""
    if not device.taints or rules.minor is None or rules.minor >= _COUNTERS_APART:
        return device
    return replace(device, taints=_keeping_away(device.taints) or None)
