# SPDX-License-Identifier: Apache-2.0
"""The state of a cluster at one moment, as far as it matters for devices and scheduling; and its file format.

`kube/cluster.py` reads a `ClusterState` from a live cluster, and `dra-driver record` writes it to a file. `dra-driver explain` works
with either. The value also lists what could not be read, so that an answer can name its gaps.

The file must not contain secrets. A pod has only the fields of `dra_driver.model.api.core`: no environment, no volumes, no images.
`without_secrets` removes what may still contain a secret: annotations, opaque parameters, and messages of conditions that an
explanation does not quote.
"""

import re
from collections.abc import Collection, Sequence
from typing import Literal, TypeVar

import msgspec

from dra_driver.errors import Permanent
from dra_driver.model.api.core import Namespace, Node, Pod
from dra_driver.model.api.meta import ApiValue, Condition, ObjectMeta
from dra_driver.model.api.policy import PodDisruptionBudget
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
from dra_driver.model.api.shared_parts import SharedParts
from dra_driver.model.api.workload import StoredWorkload
from dra_driver.model.names import CLUSTER_RECORD_KIND, DOCUMENT_VERSION

POD_SCHEDULED = "PodScheduled"
FORMAT = "dra-driver/record"
FORMAT_VERSION = 1
GATES_PATH = "/metrics"
"""The path where the API server shows its feature gates. If it cannot be read, this is the name of the gap."""
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
LARGE = 8 * 1024 * 1024
"""Of a record with fewer bytes, equal parts are not shared: that would take time, and the memory does not matter."""
_KEPT_ANNOTATIONS = (EXTENDED_RESOURCE_CLAIM,)
_MINOR = re.compile(r"[^.]*\.([0-9]{1,4})(?![0-9])")
_AGAIN = "write it again with `dra-driver record`"

NotReadReason = Literal["forbidden", "not_served", "malformed", "timeout", "failed"]


class NotRead(ApiValue, frozen=True):
    """A kind of object, or one object, that could not be read.

    `resource` is the name in RBAC ("pods"). `name` is "namespace/name" or "name" for one object, and empty for the whole kind.
    `message` is for an operator. `only_nodes` are the nodes on which the object may change something, null if that is not known.
    `only_namespace` is the namespace whose objects were read, if the right is missing for all others only.
    """

    resource: str
    reason: NotReadReason
    name: str = ""
    message: str = ""
    only_namespace: str = ""
    only_nodes: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"{self.resource} {self.name}".rstrip() + f": {self.message}"


class ClusterState(ApiValue, frozen=True):
    """One cluster at one moment. The objects are of resource.k8s.io/v1, whatever version the cluster serves.

    `kubernetes_version` is the API server's ("v1.37.1"), empty if unknown. `feature_gates` has only the gates whose state is
    known; for the others the defaults of the release count (`dra_driver.model.gates`). Without the right to read them, there are no
    `pod_disruption_budgets`: they only say more about an advice. `served` lists the versions of resource.k8s.io, the newest first.
    Namespaces have only name and labels. `workloads` has only what the user asks about; a record has none.
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
    workloads: tuple[StoredWorkload, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    not_read: tuple[NotRead, ...] = ()

    @property
    def minor(self) -> int | None:
        """The minor version, 37 for "v1.37.1"; None if the version is unknown."""
        found = _MINOR.match(self.kubernetes_version)
        return int(found[1]) if found else None

    def unread(self, resource: str, name: str = "") -> NotRead | None:
        """The gap of a whole kind, or of the object of this name; None if it was read."""
        return next(
            (gap for gap in self.not_read if gap.resource == resource and gap.name in ("", name)),
            None,
        )

    def gaps(self, resource: str, name: str = "") -> tuple[NotRead, ...]:
        """All gaps of a kind: the whole kind, and single objects of it; with `name` those of that object alone."""
        return tuple(
            gap
            for gap in self.not_read
            if gap.resource == resource and (not name or gap.name == name)
        )


class _Head(msgspec.Struct, rename="camel"):
    format: str = ""
    format_version: int = 0


class Record(ApiValue, frozen=True, kw_only=True):
    """The document of a record file. Files of the first releases have no `apiVersion` and no `kind`."""

    api_version: str = ""
    kind: str = ""
    format: str
    format_version: int
    cluster: ClusterState


class NotARecord(Permanent):
    """The file is no record of a cluster, or has another version, or is damaged."""


def encode(state: ClusterState) -> bytes:
    """The content of a record file: one JSON document."""
    return msgspec.json.encode(
        Record(
            api_version=DOCUMENT_VERSION,
            kind=CLUSTER_RECORD_KIND,
            format=FORMAT,
            format_version=FORMAT_VERSION,
            cluster=state,
        )
    )


def decode(content: bytes, *, source: str) -> ClusterState:
    """Read the content of a record file. Raises NotARecord; `source` is the file's name for the message."""
    try:
        record = _decoded(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotARecord(_what_is_wrong(content, source, error)) from error
    if (record.format, record.format_version) != (FORMAT, FORMAT_VERSION):
        raise NotARecord(_other_format(record.format, record.format_version, source))
    return record.cluster


class _Undecoded(ClusterState, frozen=True):
    """A cluster whose slices and claims are still JSON."""

    resource_slices: tuple[msgspec.Raw, ...] = ()  # type: ignore[assignment]
    resource_claims: tuple[msgspec.Raw, ...] = ()  # type: ignore[assignment]


class _UndecodedRecord(Record, frozen=True, kw_only=True):
    cluster: _Undecoded


def _decoded(content: bytes) -> Record:
    """Return the whole record. Of a large one, equal parts are shared object by object: all objects at once would take twice the memory."""
    if len(content) < LARGE:
        return msgspec.json.decode(content, type=Record)
    read = msgspec.json.decode(content, type=_UndecodedRecord)
    shared = SharedParts()
    slices, claims = msgspec.json.Decoder(ResourceSlice), msgspec.json.Decoder(ResourceClaim)
    fields = {name: getattr(read.cluster, name) for name in ClusterState.__struct_fields__}
    try:
        fields["resource_slices"] = tuple(
            shared.of_slice(slices.decode(one)) for one in read.cluster.resource_slices
        )
        fields["resource_claims"] = tuple(
            shared.of_claim(claims.decode(one)) for one in read.cluster.resource_claims
        )
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(content, type=Record)  # its error says the place in the file
    return Record(
        api_version=read.api_version,
        kind=read.kind,
        format=read.format,
        format_version=read.format_version,
        cluster=ClusterState(**fields),
    )


_YAML = re.compile(rb"^(?:apiVersion|kind): ", re.MULTILINE)
"""A line that each Kubernetes object in YAML has, and no JSON."""


def _what_is_wrong(content: bytes, source: str, error: Exception) -> str:
    if not content.strip():
        return f"{source} is empty; {_AGAIN}"
    try:
        head = msgspec.convert(msgspec.json.decode(content), _Head)
    except msgspec.ValidationError:
        return _other_format("", 0, source)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as damage:
        if _YAML.search(content):
            return f"{source} is YAML, and a record of a cluster is JSON: give manifests with -f, or {_AGAIN}"
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
    """The same cluster without annotations, opaque parameters, and messages of conditions that no explanation quotes.

    One annotation stays: the one that marks a claim that the scheduler made for extended resources.
    """
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
        workloads=tuple(_plain(workload) for workload in state.workloads),
        pod_disruption_budgets=tuple(_plain(one) for one in state.pod_disruption_budgets),
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
    StoredWorkload,
    PodDisruptionBudget,
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
    """The conditions without messages, except for these types. Any controller may write a message, and it may quote anything."""
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
    """The status of devices without driver data. The message of a failed binding condition stays: explain quotes it."""
    allocation = claim.status.allocation
    results = (allocation.devices.results or ()) if allocation else ()
    failures = {name for result in results for name in result.binding_failure_conditions or ()}
    devices = claim.status.devices
    return (
        None
        if devices is None
        else [
            msgspec.structs.replace(
                one, conditions=_quiet(one.conditions, failures), data=None, network_data=None
            )
            for one in devices
        ]
    )


def _template(template: ResourceClaimTemplate) -> ResourceClaimTemplate:
    spec = ResourceClaimTemplateSpec(
        metadata=_kept(template.spec.metadata),
        spec=ResourceClaimSpec(devices=_devices(template.spec.spec.devices)),
    )
    return msgspec.structs.replace(template, spec=spec)
