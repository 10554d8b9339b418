# SPDX-License-Identifier: Apache-2.0
"""Which fields does a slice have beside its devices and counters?

A backend says them once for its whole inventory. A bad one is left out, and the devices are published without it: neither field
restricts who gets a device.

Source: validatePartitionTypeAttribute, validateSkipNodeOperations in pkg/apis/resource/validation of Kubernetes 1.37.
"""

from collections.abc import Callable

from msgspec.structs import replace

from dra_driver.model.api.resource_slice import Device
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.slices import Problem, SliceContent
from dra_driver.planning.device_values import wrong_name
from dra_driver.planning.unrestricted import ServerRules

OPERATIONS = ("NodePrepareResources", "NodeUnprepareResources", "*")
TYPE = "partitionTypeAttribute"
SKIP = "skipNodeOperations"

_LEFT_OUT = "the slices were written without it, with all devices; correct it in the backend"

Report = Callable[[Problem], None]


def slice_fields(inventory: Inventory, driver: str, report: Report) -> SliceContent:
    """Return the good fields, in a content without devices."""
    kind, skipped = inventory.partition_type_attribute, inventory.skip_node_operations
    fields = SliceContent()
    if wrong := _wrong_type(kind):
        report(_problem(TYPE, wrong))
    elif kind:
        name = kind if "/" in kind else f"{driver}/{kind}"
        fields = replace(fields, partition_type_attribute=name)
    if wrong := _wrong_skip(skipped):
        report(_problem(SKIP, wrong))
    elif skipped:
        fields = replace(fields, skip_node_operations=list(skipped))
    return fields


def _problem(field: str, found: str) -> Problem:
    return Problem(DeviceName(field), "value", found, _LEFT_OUT, "field")


def _wrong_type(kind: object) -> str:
    if not isinstance(kind, str):
        return f"a {type(kind).__name__} is no name of an attribute"
    return wrong_name(kind) if kind else ""


def _wrong_skip(skipped: object) -> str:
    if not isinstance(skipped, tuple | list):
        return f"a {type(skipped).__name__} is no tuple of operations"
    for one in skipped:
        if one not in OPERATIONS:
            return f"{one!a:.80} is none of {', '.join(OPERATIONS)}"
        if skipped.count(one) > 1:
            return f"{one!a} is there twice"
    if "NodePrepareResources" in skipped and len(skipped) == 1:
        return "NodePrepareResources needs NodeUnprepareResources or * beside it"
    return ""


def with_fields(
    content: SliceContent, fields: SliceContent, driver: str, report: Report
) -> SliceContent:
    """Return a slice with the fields that the API server accepts in it. A slice of counter sets has none."""
    if content.devices is None:
        return content
    kind = fields.partition_type_attribute
    parts = [device for device in content.devices if device.consumes_counters]
    if not kind or not parts:
        return replace(content, skip_node_operations=fields.skip_node_operations)
    without = next((device for device in parts if not _has_text(device, kind, driver)), None)
    if without is not None:
        found = f"the device consumes counters and has no string attribute {kind}"
        report(Problem(DeviceName(without.name), TYPE, found, _LEFT_OUT))
        kind = None
    return replace(
        content,
        partition_type_attribute=kind,
        skip_node_operations=fields.skip_node_operations,
    )


def _has_text(device: Device, name: str, driver: str) -> bool:
    attributes = device.attributes or {}
    # An attribute without a domain is in the driver's: it is not the attribute of this name in another domain.
    found = attributes.get(name) or attributes.get(name.removeprefix(f"{driver}/"))
    return found is not None and found.string_value is not None


def without_gates(fields: SliceContent, rules: ServerRules) -> SliceContent:
    """Return the fields that this server keeps."""
    if "DRAPartitionableDevicesType" in rules.off:
        fields = replace(fields, partition_type_attribute=None)
    if "DRAOptionalNodeOperations" in rules.off:
        fields = replace(fields, skip_node_operations=None)
    return fields
