# SPDX-License-Identifier: Apache-2.0
"""What a cluster looked like at one moment, as far as devices and scheduling are concerned, and the file that keeps it.

The live reader and `dra-driver record` make a `ClusterState`; `dra-driver explain` reasons about one, wherever it came
from. What could not be read is part of the value, so that an answer can say what it rests on.

No secrets: a pod is known only as far as `dra_driver.model.api.core` goes (no environment, no volumes, no images), and
`without_secrets` takes out what may still hold some: annotations, the opaque parameters meant for drivers, and the messages of
conditions, but for those that an explanation quotes.
"""

import re
from collections.abc import Collection, Sequence
from typing import Literal, TypeVar

import msgspec

from dra_driver.errors import Permanent
from dra_driver.model.api.core import Namespace, Node, Pod
from dra_driver.model.api.meta import ApiValue, Condition, ObjectMeta
from dra_driver.model.api.resource_claim import (
    AllocatedDeviceStatus,
    DeviceClaim,
    DeviceClass,
    DeviceTaintRule,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from dra_driver.model.api.resource_slice import ResourceSlice

POD_SCHEDULED = "PodScheduled"
FORMAT = "dra-driver/record"
FORMAT_VERSION = 1
GATES_PATH = "/metrics"
"""What cannot be read of it is noted under this name: the API server's own word on its feature gates."""
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
_KEPT_ANNOTATIONS = (EXTENDED_RESOURCE_CLAIM,)
_MINOR = re.compile(r"[^.]*\.([0-9]{1,4})(?![0-9])")
_AGAIN = "write it again with `dra-driver record`"

NotReadReason = Literal["forbidden", "not_served", "malformed", "timeout", "failed"]


class NotRead(ApiValue, frozen=True):
    """Something that could not be read.

    `resource` as RBAC names it ("pods"), `name` only where one object is meant ("namespace/name" or "name"), `message`
    an operator's sentence.
    """

    resource: str
    reason: NotReadReason
    name: str = ""
    message: str = ""

    def __str__(self) -> str:
        return f"{self.resource} {self.name}".rstrip() + f": {self.message}"


class ClusterState(ApiValue, frozen=True):
    """One cluster at one moment. Objects are resource.k8s.io/v1, whatever the cluster serves.

    `kubernetes_version` as the server gives it ("v1.37.1"), empty when unknown. `feature_gates` holds only what is
    known; the rest follows the release's defaults (`dra_driver.model.gates`). `served` lists the versions of
    resource.k8s.io, the newest first. Of namespaces only name and labels are kept.
    """

    recorded_at: str = ""
    kubernetes_version: str = ""
    feature_gates: dict[str, bool] = msgspec.field(default_factory=dict)
    served: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    resource_slices: tuple[ResourceSlice, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
    resource_claim_templates: tuple[ResourceClaimTemplate, ...] = ()
    device_taint_rules: tuple[DeviceTaintRule, ...] = ()
    not_read: tuple[NotRead, ...] = ()

    @property
    def minor(self) -> int | None:
        """The 37 of "v1.37.1", or None when the version is unknown."""
        found = _MINOR.match(self.kubernetes_version)
        return int(found[1]) if found else None

    def unread(self, resource: str, name: str = "") -> NotRead | None:
        """Why a whole kind of object is missing here, or the one of that name, if it is."""
        return next(
            (gap for gap in self.not_read if gap.resource == resource and gap.name in ("", name)),
            None,
        )

    def gaps(self, resource: str) -> tuple[NotRead, ...]:
        """All that is missing of a kind: single objects too."""
        return tuple(gap for gap in self.not_read if gap.resource == resource)


class _Head(msgspec.Struct, rename="camel"):
    format: str = ""
    format_version: int = 0


class _Record(ApiValue, frozen=True):
    format: str
    format_version: int
    cluster: ClusterState


class NotARecord(Permanent):
    """A file that is no record of a cluster, or one of another version, or a damaged one."""


def encode(state: ClusterState) -> bytes:
    """The record file's content: one JSON document."""
    return msgspec.json.encode(_Record(format=FORMAT, format_version=FORMAT_VERSION, cluster=state))


def decode(content: bytes, *, source: str) -> ClusterState:
    """Read a record file; `source` names it in the message of NotARecord."""
    try:
        record = msgspec.json.decode(content, type=_Record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotARecord(_what_is_wrong(content, source, error)) from error
    if (record.format, record.format_version) != (FORMAT, FORMAT_VERSION):
        raise NotARecord(_other_format(record.format, record.format_version, source))
    return record.cluster


def _what_is_wrong(content: bytes, source: str, error: Exception) -> str:
    if not content.strip():
        return f"{source} is empty; {_AGAIN}"
    try:
        head = msgspec.convert(msgspec.json.decode(content), _Head)
    except msgspec.ValidationError:
        return _other_format("", 0, source)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as damage:
        return (
            f"{source} is no whole JSON document ({len(content)} bytes: {damage}); "
            f"it was cut off or damaged: copy it anew, or {_AGAIN}"
        )
    if (head.format, head.format_version) != (FORMAT, FORMAT_VERSION):
        return _other_format(head.format, head.format_version, source)
    return f"{source} holds something that is no cluster: {error}; correct that place, or {_AGAIN}"


def _other_format(found: str, version: int, source: str) -> str:
    if found != FORMAT:
        return (
            f'{source} is no record of a cluster: it has no "format": "{FORMAT}"; {_AGAIN}, '
            "or give manifests with -f"
        )
    return (
        f"{source} has version {version} of the record's format, this dra-driver reads version {FORMAT_VERSION}; "
        f"{_AGAIN} of this release, or use the release that wrote it"
    )


def without_secrets(state: ClusterState) -> ClusterState:
    """The same cluster without annotations (but for the one that marks claims made for extended resources), opaque parameters, and
    messages of conditions that nobody quotes."""
    return msgspec.structs.replace(
        state,
        nodes=tuple(_node(_plain(node)) for node in state.nodes),
        pods=tuple(_pod(_plain(pod)) for pod in state.pods),
        namespaces=tuple(_plain(namespace) for namespace in state.namespaces),
        device_classes=tuple(_class(_plain(device_class)) for device_class in state.device_classes),
        resource_slices=tuple(_plain(resource_slice) for resource_slice in state.resource_slices),
        resource_claims=tuple(_claim(_plain(claim)) for claim in state.resource_claims),
        resource_claim_templates=tuple(
            _template(_plain(t)) for t in state.resource_claim_templates
        ),
        device_taint_rules=tuple(_plain(rule) for rule in state.device_taint_rules),
    )


_Object = TypeVar(
    "_Object",
    Node,
    Pod,
    Namespace,
    DeviceClass,
    ResourceSlice,
    ResourceClaim,
    ResourceClaimTemplate,
    DeviceTaintRule,
)


def _plain(thing: _Object) -> _Object:
    metadata = _kept(thing.metadata)
    if metadata is thing.metadata:
        return thing
    return msgspec.structs.replace(thing, metadata=metadata)


def _kept(metadata: ObjectMeta) -> ObjectMeta:
    if not metadata.annotations:
        return metadata
    kept = {key: text for key, text in metadata.annotations.items() if key in _KEPT_ANNOTATIONS}
    return msgspec.structs.replace(metadata, annotations=kept or None)


def _node(node: Node) -> Node:
    if not node.status.conditions:
        return node
    status = msgspec.structs.replace(node.status, conditions=_quiet(node.status.conditions))
    return msgspec.structs.replace(node, status=status)


def _pod(pod: Pod) -> Pod:
    if not pod.status.conditions:
        return pod
    kept = _quiet(pod.status.conditions, (POD_SCHEDULED,))
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=kept))


def _quiet(
    conditions: Sequence[Condition] | None, quoted: Collection[str] = ()
) -> list[Condition] | None:
    """Without messages, which anybody writes and which may quote anything, but for those of these types."""
    return (
        None
        if conditions is None
        else [
            one
            if one.type in quoted or not one.message
            else msgspec.structs.replace(one, message="")
            for one in conditions
        ]
    )


def _class(device_class: DeviceClass) -> DeviceClass:
    if not device_class.spec.config:
        return device_class
    config = [
        msgspec.structs.replace(entry, opaque=_driver_only(entry.opaque))
        for entry in device_class.spec.config
    ]
    return msgspec.structs.replace(
        device_class, spec=msgspec.structs.replace(device_class.spec, config=config)
    )


def _driver_only(opaque: OpaqueDeviceConfiguration | None) -> OpaqueDeviceConfiguration | None:
    return opaque and OpaqueDeviceConfiguration(driver=opaque.driver)


def _devices(devices: DeviceClaim) -> DeviceClaim:
    if not devices.config:
        return devices
    config = [
        msgspec.structs.replace(entry, opaque=_driver_only(entry.opaque))
        for entry in devices.config
    ]
    return msgspec.structs.replace(devices, config=config)


def _claim(claim: ResourceClaim) -> ResourceClaim:
    allocation = claim.status.allocation
    if allocation is not None and allocation.devices.config:
        config = [
            msgspec.structs.replace(entry, opaque=_driver_only(entry.opaque))
            for entry in allocation.devices.config
        ]
        devices = msgspec.structs.replace(allocation.devices, config=config)
        allocation = msgspec.structs.replace(allocation, devices=devices)
    return msgspec.structs.replace(
        claim,
        spec=ResourceClaimSpec(devices=_devices(claim.spec.devices)),
        status=msgspec.structs.replace(
            claim.status, allocation=allocation, devices=_reports(claim)
        ),
    )


def _reports(claim: ResourceClaim) -> list[AllocatedDeviceStatus] | None:
    """What drivers and controllers say of the devices; why a binding failed is quoted."""
    allocation = claim.status.allocation
    results = (allocation.devices.results or ()) if allocation else ()
    failures = {name for result in results for name in result.binding_failure_conditions or ()}
    devices = claim.status.devices
    return (
        None
        if devices is None
        else [
            msgspec.structs.replace(one, conditions=_quiet(one.conditions, failures))
            for one in devices
        ]
    )


def _template(template: ResourceClaimTemplate) -> ResourceClaimTemplate:
    spec = ResourceClaimTemplateSpec(
        metadata=_kept(template.spec.metadata),
        spec=ResourceClaimSpec(devices=_devices(template.spec.spec.devices)),
    )
    return msgspec.structs.replace(template, spec=spec)
