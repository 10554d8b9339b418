# SPDX-License-Identifier: Apache-2.0
"""Names that clusters refer to: taint keys, labels, annotations, condition types and Event reasons of the driver.

Manifests, alerts and autoscalers use these names, so a name that was released never changes. All of them are constants of this
module, and none depends on `--driver-name`: an admin writes one DeviceTaintRule or alert for all installations of the driver.
`docs/reference/names.md` is generated from the tables. The names of attributes and capacities are in `model/vocabulary.py`.
"""

from msgspec import Struct

DOMAIN = "gpu.dra-driver.dev"
"""The domain of all names of this module, of the configuration kinds, and the default driver name."""

DOCUMENT_VERSION = f"{DOMAIN}/v1"
"""The `apiVersion` of the documents that commands print or write for programs."""
CHECK_KIND = "Check"
CLUSTER_CLAIMS_KIND = "ClusterClaims"
CLUSTER_DEVICES_KIND = "ClusterDevices"
CLUSTER_RECORD_KIND = "ClusterRecord"
CLUSTER_VERSION_KIND = "ClusterVersion"
DEMO_KIND = "Demo"
DEVICE_USAGE_KIND = "DeviceUsage"
EXPLANATION_KIND = "Explanation"
EXPLANATION_LIST_KIND = "ExplanationList"
FREE_DEVICES_KIND = "FreeDevices"
HARDWARE_SNAPSHOT_KIND = "HardwareSnapshot"
MIGRATION_KIND = "Migration"
NODE_DEVICES_KIND = "NodeDevices"
NODE_BUNDLE_KIND = "NodeBundle"
NODE_DIAGNOSIS_KIND = "NodeDiagnosis"

VANISHED_TAINT = f"{DOMAIN}/vanished"
VANISHED_REASON = "not-found-on-node"
UNHEALTHY_TAINT = f"{DOMAIN}/unhealthy"
UNHEALTHY_REASON = "reported-by-backend"
HELD_TAINT = f"{DOMAIN}/held"
HELD_REASON = "in-use-after-unprepare"
NOT_CLEAN_TAINT = f"{DOMAIN}/not-clean"
NOT_CLEAN_REASON = "in-use-without-claim"
OCCUPIED_TAINT = f"{DOMAIN}/occupied"
OCCUPIED_REASON = "in-use-as-other-device"
HELD_BY_TAINT = f"{DOMAIN}/held-by"
OWN_TAINTS = frozenset(
    {
        VANISHED_TAINT,
        UNHEALTHY_TAINT,
        HELD_TAINT,
        NOT_CLEAN_TAINT,
        OCCUPIED_TAINT,
        HELD_BY_TAINT,
    }
)
"""The taints that the driver sets itself, each with the effect NoSchedule: no new claim gets the device, and no pod is evicted."""
XID_TAINT = f"{DOMAIN}/xid"
LOST_TAINT = f"{DOMAIN}/lost"
RECOVERY_TAINT = f"{DOMAIN}/recovery-action"
MEMORY_TAINT = f"{DOMAIN}/memory"
TEMPERATURE_TAINT = f"{DOMAIN}/temperature"
FABRIC_TAINT = f"{DOMAIN}/fabric"

PRODUCT_LABEL = f"{DOMAIN}/product"
MEMORY_MIB_LABEL = f"{DOMAIN}/memory-mib"
GENERATION_LABEL = f"{DOMAIN}/generation"
COUNT_LABEL = f"{DOMAIN}/count"

DEVICES_READY_CONDITION = "DevicesReady"
READY_CONDITION = "Ready"
"""The type that Kubernetes defines for the entries of `status.devices`, so it has no domain."""

CGROUPS_NOT_FOUND = "CgroupsNotFound"
DEVICE_NOT_CLEAN = "DeviceNotClean"
DEVICE_ATTRIBUTE_DROPPED = "DeviceAttributeDropped"
DEVICE_STATUS_FORBIDDEN = "DeviceStatusForbidden"
DEVICE_GIVEN_TWICE = "DeviceGivenTwice"
DEVICE_PLUGIN_BESIDE = "DevicePluginBeside"
DEVICE_RECOVERED = "DeviceRecovered"
DEVICE_RENAMED = "DeviceRenamed"
DEVICE_UNHEALTHY = "DeviceUnhealthy"
DEVICE_VANISHED = "DeviceVanished"
DEVICES_HELD = "DevicesHeld"
FOREIGN_PLUGIN = "ForeignPlugin"
HARDWARE_NOT_READY = "HardwareNotReady"
NODE_WRITE_REFUSED = "NodeWriteRefused"
PUBLISH_FAILED = "PublishFailed"
SECOND_OWNER_REFUSED = "SecondOwnerRefused"
SLICE_NAME_TAKEN = "SliceNameTaken"
STALE_CAPACITY = "StaleCapacity"
WAITING_FOR_DEVICES = "WaitingForDevices"
"""The only reason of Events on pods."""


class FixedName(Struct, frozen=True):
    """One name, and what it means. A reserved name is not written by this release; no other meaning will be given to it."""

    name: str
    meaning: str
    reserved: bool = False


TAINTS = (
    FixedName(
        VANISHED_TAINT,
        f"the device is not found on the node any more (or not under this name), and a claim still owns it; value `{VANISHED_REASON}`, effect NoSchedule",
    ),
    FixedName(
        UNHEALTHY_TAINT,
        f"the backend reports that the device is unhealthy; value `{UNHEALTHY_REASON}`, effect NoSchedule",
    ),
    FixedName(
        HELD_TAINT,
        f"no claim needs the device, but a process of an ended pod may still use it; value `{HELD_REASON}`, effect NoSchedule",
    ),
    FixedName(
        NOT_CLEAN_TAINT,
        f"no claim has the device, and the hardware shows a process on it, or memory in use; value `{NOT_CLEAN_REASON}`, effect "
        f"NoSchedule; an Event {DEVICE_NOT_CLEAN} on the Node says what is found",
    ),
    FixedName(
        OCCUPIED_TAINT,
        f"a claim has hardware of the device under the name of another device, and no counters in the slices say so: the GPU was partitioned "
        f"again, or its MIG mode was switched, under the claim; value `{OCCUPIED_REASON}`, effect NoSchedule",
    ),
    FixedName(
        HELD_BY_TAINT,
        "a device plugin of somebody else has given the device to a pod, or could; the value is the plugin's resource with `_` for `/` "
        "(`nvidia.com_gpu`), effect NoSchedule; it goes when the pod has ended and the plugin is gone, or the node is divided "
        "(`devicePlugin.foreign`)",
    ),
    FixedName(
        XID_TAINT,
        "an NVIDIA GPU reported an error that is no application's; the value is the XID number; effect NoSchedule, or None if nothing must be done",
    ),
    FixedName(LOST_TAINT, "the hardware does not answer; value `no-answer`, effect NoSchedule"),
    FixedName(
        RECOVERY_TAINT,
        "the hardware asks for an action before it can be used again; value `gpu-reset`, `node-reboot`, `drain-p2p`, `drain-and-reset`, or the "
        "number of an action that the driver does not know; effect NoSchedule",
    ),
    FixedName(
        MEMORY_TAINT,
        "the device's memory has errors; values with the effect NoSchedule: `query-failed`, `ecc-uncorrected`, `retired-pages-pending`, "
        "`row-remap-failed`; with the effect None: `row-remap-pending`",
    ),
    FixedName(
        TEMPERATURE_TAINT,
        "the device is hotter than its limit; value `over-limit`, effect NoSchedule",
    ),
    FixedName(
        FABRIC_TAINT,
        "the links between devices (NVLink) have errors; values with the effect NoSchedule: `registration-failed`, `unhealthy`, `route-unhealthy`, `wrong-configuration`; with the "
        "effect None: `limited-capacity`, `degraded-bandwidth`, `route-recovery`, `access-timeout`, `manager-disconnected`, `not-ready`",
    ),
)
FAULT_TAINTS = frozenset(one.name for one in TAINTS)
"""Each of these taints says that the device does not work, or that somebody has it: no claim should tolerate one."""
LABELS = (
    FixedName(
        PRODUCT_LABEL, "of a Node: the product, if all accelerators of the node are the same"
    ),
    FixedName(
        MEMORY_MIB_LABEL, "of a Node: the memory of its smallest accelerator in MiB, for `Gt`"
    ),
    FixedName(
        GENERATION_LABEL,
        "of a Node: the attribute `architecture` in small letters, if it is the same for all",
    ),
    FixedName(COUNT_LABEL, "of a Node: how many accelerators it has; partitions do not count"),
)
ANNOTATIONS: tuple[FixedName, ...] = ()
CONDITIONS = (
    FixedName(
        DEVICES_READY_CONDITION,
        "of a Node: True once its devices are published and the API server has shown them; False with the reason `Starting`, "
        "`DevicesUnknown`, `NoDevices`, `PublishFailed` or `SlicesIncomplete`",
    ),
    FixedName(
        READY_CONDITION,
        "in `status.devices` of a claim: True (reason `Prepared`): the device is set up for the claim; False (`Unhealthy`, "
        "`Vanished`): it was set up, and is ill or not found now",
    ),
)
EVENT_REASONS = (
    FixedName(
        CGROUPS_NOT_FOUND,
        "the driver cannot find the cgroups of pods, so nothing proves that a pod has ended, and devices stay held",
    ),
    FixedName(
        DEVICE_ATTRIBUTE_DROPPED,
        "the API would refuse a part of a device, so that part or the device was left out of the slices",
    ),
    FixedName(
        DEVICE_NOT_CLEAN,
        "no claim has the device, and something uses it: a process of an ended pod, or one that was started on the node; it gets a taint",
    ),
    FixedName(
        DEVICE_GIVEN_TWICE,
        "a device plugin of somebody else gave a pod a device that a pod already has through this driver; the driver cannot prevent this call",
    ),
    FixedName(
        DEVICE_PLUGIN_BESIDE, "a device plugin on this node offers devices of the same vendor"
    ),
    FixedName(
        DEVICE_RECOVERED,
        "a device that was unhealthy is healthy again, or one that was gone is found again",
    ),
    FixedName(
        DEVICE_RENAMED,
        "a device is found under another name than before; the message has both names, its UUID, and what to do",
    ),
    FixedName(
        DEVICE_STATUS_FORBIDDEN,
        "the driver may not write `status.devices` of claims; a right is missing, or an admission policy forbids it",
    ),
    FixedName(
        DEVICE_UNHEALTHY, "a device is unhealthy; the message says what was found and what to do"
    ),
    FixedName(
        DEVICE_VANISHED,
        "the driver had a device, and does not find it any more; the message has its UUID and what to do",
    ),
    FixedName(DEVICES_HELD, "no claim needs the devices, but something may still use them"),
    FixedName(FOREIGN_PLUGIN, "another plugin answers the kubelet under the driver's name"),
    FixedName(
        HARDWARE_NOT_READY,
        "the node has hardware that a backend cannot offer yet: the kernel driver or its libraries are missing, or do not match",
    ),
    FixedName(
        NODE_WRITE_REFUSED,
        "the driver may not write labels, the condition or the startup taint of its Node; a right is missing, or an admission policy forbids it",
    ),
    FixedName(PUBLISH_FAILED, "the ResourceSlices could not be written; the driver tries again"),
    FixedName(
        SECOND_OWNER_REFUSED,
        "the scheduler allocated a device to a claim that another claim owns on this node",
    ),
    FixedName(
        SLICE_NAME_TAKEN,
        "an object of somebody else has the name of a slice; the driver uses another name",
    ),
    FixedName(
        STALE_CAPACITY,
        "the Node has a capacity of an extended resource that no device plugin serves; the message has the command that removes it",
    ),
    FixedName(
        WAITING_FOR_DEVICES,
        "of a pod: no node has the devices that it asks for; the message says what is nearest in the way (`pendingEvents.enabled`)",
    ),
)
