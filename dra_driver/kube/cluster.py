# SPDX-License-Identifier: Apache-2.0
"""What decides about devices in this cluster? All of it is read once, with the rights that the user has.

A kind may be forbidden, not served, or fail; a single object may be unreadable. Each such gap is noted in
`ClusterState.not_read`, and the rest is still read. The parameters for drivers are left out: no scheduler reads them. The only
error is an API server that cannot be reached at all, or not any more.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from dra_driver.errors import DriverError
from dra_driver.kube.base import (
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    NotServed,
    Unreachable,
)
from dra_driver.kube.connection import Connection
from dra_driver.kube.decode import Found, Identity
from dra_driver.kube.discovery import (
    DISCOVERY_PATH,
    WIRES,
    WITHOUT_CLAIMS,
    it_serves,
    versions_of,
)
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.lists import Listing
from dra_driver.kube.transport import Exchange, Transport
from dra_driver.kube.wire.objects import Unreadable, load, without_parameters
from dra_driver.model.api.core import Namespace, Node, Pod
from dra_driver.model.api.meta import ApiValue, ObjectMeta
from dra_driver.model.api.policy import PodDisruptionBudget
from dra_driver.model.api.resource_claim import (
    GROUP,
    TAINT_RULE_VERSIONS,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
)
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.model.api.workload import PLURALS, StoredWorkload, with_parts
from dra_driver.model.cluster import GATES_PATH, ClusterState, NotRead, NotReadReason

BUDGETS_PATH = "/apis/policy/v1/poddisruptionbudgets"
LIST_RETRIES = 2
NAMESPACED = ("pods", "resourceclaims", "resourceclaimtemplates")
"""The resources that somebody without rights for the whole cluster may still read in a namespace."""
METRICS_BYTES = 64 * 1024 * 1024
OPAQUE_CONTENT = "opaque content of {resource}"
"""The name of this gap: an object was read, but its opaque content was not. The scheduler does not look at it either."""
NAMED_OPAQUE = 100
"""So many objects of a kind with unreadable opaque content are named. Anybody may create thousands of them."""

_GATE = re.compile(rb'^kubernetes_feature_enabled\{name="(\w+)",[^}]*\} ([01])$', re.MULTILINE)

Listed = TypeVar("Listed", bound=ApiValue)
_Name = tuple[type[ApiValue], str, str]
"""An object's kind, namespace and name."""


class Scope(Struct, frozen=True):
    """The namespace that the user asks about, if it is one; and the kinds of workloads that are read there, with what makes their pods.

    `waiting_pods`: only pods without a node are asked about. Then of claims and templates only what decides about those pods is kept in
    memory: what they name, and claims that have devices. Anybody may create any number of others, each with more than a MiB.
    """

    namespace: str = ""
    workloads: tuple[str, ...] = ()
    waiting_pods: bool = False


WHOLE_CLUSTER = Scope()


def read_cluster(
    connection: Connection,
    *,
    scope: Scope = WHOLE_CLUSTER,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> ClusterState:
    """The cluster as it is now. Raises DriverError if its API server cannot be reached."""
    transport = Transport(connection)
    try:
        return _Reader(transport, scope).read(now().isoformat(timespec="seconds"))
    finally:
        transport.close()


class _Reader:
    """Reads a cluster once, and collects what could not be read. Make a new one for each reading."""

    def __init__(self, transport: Transport, scope: Scope) -> None:
        self._transport = transport
        self._scope = scope
        self._not_read: list[NotRead] = []
        self._opaque: Counter[str] = Counter()
        self._named: frozenset[_Name] = frozenset()
        """What the pods without a node name."""
        self._found = ""  # for a message

    def read(self, recorded_at: str) -> ClusterState:
        # Everybody may read /version. If this fails, the API server cannot be reached, and this is an error.
        version = self._transport.request(Exchange(ApiCall("get", "/version"), "GET", "/version"))
        served = self._served()
        wire = next((wire.version for wire in WIRES if wire.version in served), "")
        self._found = it_serves(served)
        nodes, pods = self._list("nodes", Node), self._list("pods", Pod)
        self._named = frozenset(
            name for pod in pods if not pod.spec.node_name for name in _named(pod)
        )
        return ClusterState(
            recorded_at=recorded_at,
            kubernetes_version=str(version.get("gitVersion") or ""),
            feature_gates=self._feature_gates(),
            served=tuple(served),
            nodes=nodes,
            pods=pods,
            namespaces=self._list("namespaces", Namespace),
            device_classes=self._resources("deviceclasses", DeviceClass, wire),
            resource_slices=self._resources("resourceslices", ResourceSlice, wire),
            resource_claims=self._resources("resourceclaims", ResourceClaim, wire),
            resource_claim_templates=self._resources(
                "resourceclaimtemplates", ResourceClaimTemplate, wire
            ),
            device_taint_rules=self._taint_rules(served),
            workloads=tuple(self._workloads()),
            pod_disruption_budgets=self._budgets(),
            not_read=tuple(self._not_read),
        )

    def _served(self) -> tuple[str, ...]:
        """The served versions of resource.k8s.io; none if the cluster does not have the group."""
        try:
            call = ApiCall("get", f"group {GROUP}")
            group = self._transport.request(Exchange(call, "GET", DISCOVERY_PATH))
        except Unreachable:
            raise
        except DriverError as error:
            self._note(GROUP, error)
            return ()
        return versions_of(group)

    def _feature_gates(self) -> dict[str, bool]:
        """The feature gates as the API server reports them in /metrics; empty without the right to read it."""
        try:
            call = ApiCall("get", GATES_PATH)
            exchange = Exchange(call, "GET", GATES_PATH, largest_bytes=METRICS_BYTES)
            text = self._transport.fetch(exchange)
        except Unreachable:
            raise
        except DriverError as error:
            self._note(GATES_PATH, error)
            return {}
        return {name.decode(): state == b"1" for name, state in _GATE.findall(text)}

    def _taint_rules(self, served: tuple[str, ...]) -> tuple[DeviceTaintRule, ...]:
        """The DeviceTaintRules. Many clusters have them off, so "not served" is no gap here."""
        for version in TAINT_RULE_VERSIONS:
            if version not in served:
                continue
            before = len(self._not_read)
            rules = self._list("devicetaintrules", DeviceTaintRule, version=version)
            gaps = self._not_read[before:]
            if not any(gap.reason == "not_served" for gap in gaps):
                return rules
            del self._not_read[before:]
        return ()

    def _workloads(self) -> Iterator[StoredWorkload]:
        for kind in with_parts(self._scope.workloads):
            group, plural = PLURALS[kind]
            root = f"/apis/{group}/v1" if group else "/api/v1"
            path = in_namespace(f"{root}/{plural}", self._scope.namespace)
            for found in self._list(plural, StoredWorkload, path=path):
                yield msgspec.structs.replace(found, kind=kind)

    def _budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """The PodDisruptionBudgets; none without the right to read them. They decide nothing, so this is no gap."""
        before = len(self._not_read)
        found = self._list("poddisruptionbudgets", PodDisruptionBudget, path=BUDGETS_PATH)
        del self._not_read[before:]
        return found

    def _resources(self, resource: str, kind: type[Listed], version: str) -> tuple[Listed, ...]:
        if version:
            return self._list(resource, kind, version=version)
        spoken = ", ".join(wire.version for wire in WIRES)
        message = f"the API server serves {resource} in none of the versions {spoken} of {GROUP}: {self._found}; {WITHOUT_CLAIMS}"
        self._not_read.append(NotRead(resource=resource, reason="not_served", message=message))
        return ()

    def _list(
        self, resource: str, kind: type[Listed], *, version: str = "", path: str = ""
    ) -> tuple[Listed, ...]:
        usual = f"{DISCOVERY_PATH}/{version}/{resource}" if version else f"/api/v1/{resource}"
        path = path or usual
        before = len(self._not_read)
        for _ in range(LIST_RETRIES):
            listing = Listing(self._transport, ApiCall("list", resource), path, self._unreadable)
            try:
                return tuple(
                    found
                    for item in listing.objects()
                    if (found := self._loaded(resource, kind, item, version)) is not None
                )
            except Expired:
                del self._not_read[before:]
                continue  # the version of the first page expired before the last page: start again
            except Unreachable:
                raise
            except DriverError as error:
                return self._of_namespace(resource, kind, path, version, error)
        message = f"list {resource}: the list changed between its pages {LIST_RETRIES} times"
        self._not_read.append(NotRead(resource=resource, reason="failed", message=message))
        return ()

    def _of_namespace(
        self, resource: str, kind: type[Listed], path: str, version: str, error: DriverError
    ) -> tuple[Listed, ...]:
        """Note that the objects of the whole cluster could not be read. If the right is missing: return those of the namespace alone."""
        found: tuple[Listed, ...] = ()
        message, reason, only_namespace = str(error), _reason(error), ""
        if isinstance(error, Forbidden) and self._scope.namespace and resource in NAMESPACED:
            before = len(self._not_read)
            there = in_namespace(path, self._scope.namespace)
            if there != path:
                found = self._list(resource, kind, version=version, path=there)
                inner = next((gap for gap in self._not_read[before:] if not gap.name), None)
                if inner is not None:
                    del self._not_read[before:]
                    if inner.reason != "forbidden":
                        message, reason = f"{message}; {inner.message}", inner.reason
                else:
                    only_namespace = self._scope.namespace
                    message += f"; only those of namespace {only_namespace} were read"
        gap = NotRead(
            resource=resource, reason=reason, message=message, only_namespace=only_namespace
        )
        self._not_read.append(gap)
        return found

    def _loaded(
        self, resource: str, kind: type[Listed], item: Found, version: str
    ) -> Listed | None:
        for defect in item.defects[:1]:
            if not defect.is_opaque:
                self._unreadable(resource, item.identity, str(defect))
                return None
            # The object itself was read. So this gap has a name of its own and is no gap in the list of this kind.
            self._opaque[resource] += 1
            if self._opaque[resource] <= NAMED_OPAQUE:
                part = OPAQUE_CONTENT.format(resource=resource)
                self._unreadable(part, item.identity, str(defect))
        try:
            found = load(kind, without_parameters(kind, item.content), version=version)
        except Unreadable as error:
            self._unreadable(resource, item.identity, str(error))
            return None
        return _short(found) if self._decides(found) else None

    def _decides(self, found: ApiValue) -> bool:
        """Return whether the object may decide about what is asked."""
        if not self._scope.waiting_pods:
            return True
        if isinstance(found, ResourceClaim) and found.status.allocation is None:
            return (ResourceClaim, found.metadata.namespace, found.metadata.name) in self._named
        if isinstance(found, ResourceClaimTemplate):
            kind, metadata = ResourceClaimTemplate, found.metadata
            return (kind, metadata.namespace, metadata.name) in self._named
        return True

    def _unreadable(self, resource: str, who: Identity, why: str) -> None:
        self._not_read.append(
            NotRead(resource=resource, reason="malformed", name=who.full_name, message=why)
        )

    def _note(self, resource: str, error: DriverError) -> None:
        self._not_read.append(NotRead(resource=resource, reason=_reason(error), message=str(error)))


def in_namespace(path: str, namespace: str) -> str:
    """Return the path of the same resource in the namespace alone."""
    root, _, plural = path.rpartition("/")
    if root.rpartition("/")[0].endswith("/namespaces"):
        return path
    return f"{root}/namespaces/{quote(namespace, safe='')}/{plural}"


def _reason(error: DriverError) -> NotReadReason:
    match error:
        case Invalid():
            return "forbidden"
        case NotServed() | NotFound():
            return "not_served"
        case _:
            return "failed"


def _named(pod: Pod) -> Iterator[_Name]:
    """Yield the claims and templates that the pod names."""
    namespace = pod.metadata.namespace
    entries, made = pod.spec.resource_claims or (), pod.status.resource_claim_statuses or ()
    extended = pod.status.extended_resource_claim_status
    for claim in (*entries, *made, *((extended,) if extended else ())):
        yield ResourceClaim, namespace, claim.resource_claim_name or ""
    for entry in entries:
        yield ResourceClaimTemplate, namespace, entry.resource_claim_template_name or ""


def _short(found: Listed) -> Listed:
    """Of a namespace only name and labels, which is all that anything reads; any other object as it is."""
    if isinstance(found, Namespace):
        kept = ObjectMeta(name=found.metadata.name, labels=found.metadata.labels)
        return msgspec.structs.replace(found, metadata=kept)
    return found
