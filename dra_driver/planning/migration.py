# SPDX-License-Identifier: Apache-2.0
"""How far is each node on the way from device plugins to this driver, what is in the way, and what comes next?

The scheduler decides for each node and resource: as long as the node has an allocatable amount of it, pods get it from the device plugin;
with 0 or nothing, a DeviceClass with that extendedResourceName gives them devices of this driver. The taint `held-by` in the slices is
what the driver on the node has found out about plugins of others. An API server that keeps no taints shows less: there the driver
publishes none of the devices that a plugin could give out, and its slice may have no device at all. On a cluster without claims nothing
can be moved.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from dra_driver.model.api.core import OVER, Container, Node, Pod
from dra_driver.model.api.meta import QuantityText
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.model.gates import is_on
from dra_driver.model.names import (
    DEVICES_READY_CONDITION,
    DOCUMENT_VERSION,
    HELD_BY_TAINT,
    MIGRATION_KIND,
)
from dra_driver.model.quantity import Quantity
from dra_driver.planning.guard import few, taint_value
from dra_driver.planning.neighbours import vendor_of
from dra_driver.planning.node_condition import Offer, condition_of
from dra_driver.planning.stale import patch_command
from dra_driver.planning.unrestricted import TAINTS

DECIDING = ("nodes", "pods", "resourceslices")
_NANOS = 10**9


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the document."""


class UsingPod(_Part, frozen=True, kw_only=True):
    """A pod that asks the device plugin for so many units."""

    namespace: str
    name: str
    count: int


class PluginResourceOfNode(_Part, frozen=True, kw_only=True):
    """An extended resource in the status of a node. `device_class` is the class that gives devices of DRA for it; "" if there is none.

    `stale`: the driver on the node finds no plugin that serves it, so somebody wrote it into the status.
    """

    resource: str
    capacity: int
    allocatable: int
    pods: tuple[UsingPod, ...]
    device_class: str
    stale: bool


class ClaimOfNode(_Part, frozen=True, kw_only=True):
    """A claim with devices of this driver on the node."""

    namespace: str
    name: str
    devices: tuple[str, ...]


class Step(_Part, frozen=True, kw_only=True):
    """What to do next; `command` is "" if it is a thing to wait for."""

    what: str
    command: str


class NodeMigration(_Part, frozen=True, kw_only=True):
    """One node. `slices` are the ResourceSlices of the driver for it: an installed driver has one even without devices. `stage` is "moved", "can move", "in use", "waiting", "no driver", "nothing to move" or, on a cluster without claims, "no claims". `kept` are devices that the driver keeps
    from its users, by the resource of the plugin that has them.
    """

    node: str
    stage: str
    resources: tuple[PluginResourceOfNode, ...]
    slices: int
    devices: int
    kept: dict[str, tuple[str, ...]]
    claims: tuple[ClaimOfNode, ...]
    blocked_by: tuple[str, ...]
    notes: tuple[str, ...]
    steps: tuple[Step, ...]


class Migration(_Part, frozen=True, kw_only=True):
    """The answer of `migration -o json`. `has_claims`: the cluster serves resource.k8s.io. `order` has the nodes in the order in which they can be moved with the least disturbance."""

    api_version: str = DOCUMENT_VERSION
    kind: str = MIGRATION_KIND
    driver: str
    has_claims: bool
    nodes: tuple[NodeMigration, ...]
    order: tuple[str, ...]
    not_read: tuple[str, ...]


_LISTED = condition_of(Offer(listed=1)).reason
_RANK = {"can move": 0, "waiting": 1, "in use": 2, "no driver": 3}


def plan_migration(state: ClusterState, driver: str, *, node: str = "") -> Migration:
    """Return what is known of all nodes, or of one."""
    classes = {
        one.spec.extended_resource_name: one.metadata.name
        for one in state.device_classes
        if one.spec.extended_resource_name
    }
    nodes = [
        _of_node(state, one, driver, classes)
        for one in sorted(state.nodes, key=lambda one: one.metadata.name)
        if node in ("", one.metadata.name)
    ]
    has_claims = not any(map(_no_claims, state.not_read))
    left = [one for one in nodes if one.stage in _RANK]
    left.sort(key=lambda one: (_RANK[one.stage], sum(len(r.pods) for r in one.resources), one.node))
    return Migration(
        driver=driver,
        has_claims=has_claims,
        nodes=tuple(nodes),
        order=tuple(one.node for one in left),
        not_read=tuple(
            str(gap) for gap in state.not_read if gap.resource in DECIDING and not _no_claims(gap)
        ),
    )


def _no_claims(gap: NotRead) -> bool:
    return (gap.resource, gap.reason) == ("resourceslices", "not_served")


def _of_node(
    state: ClusterState, node: Node, driver: str, classes: Mapping[str, str]
) -> NodeMigration:
    name = node.metadata.name
    slices = [
        one.spec
        for one in state.resource_slices
        if one.spec.driver == driver and one.spec.node_name == name
    ]
    devices = {device.name: device for one in slices for device in one.devices or ()}
    taints = is_on(TAINTS, state.minor, state.feature_gates)
    kept = _kept(devices.values())
    resources = tuple(
        _resource(state, node, resource, kept, classes, tells=taints and bool(devices))
        for resource in sorted({*(node.status.capacity or {}), *(node.status.allocatable or {})})
        if vendor_of(resource) or resource in classes
    )
    resources = tuple(one for one in resources if one.capacity or one.allocatable)
    found = NodeMigration(
        node=name,
        stage="",
        resources=resources,
        slices=len(slices),
        devices=len(devices),
        kept=kept,
        claims=_claims(state, name, driver),
        blocked_by=(),
        notes=(),
        steps=(),
    )
    if any(map(_no_claims, state.not_read)):
        return _without_claims(found, node)
    stage = _stage(found)
    found = msgspec.structs.replace(found, stage=stage)
    return msgspec.structs.replace(
        found,
        blocked_by=_blocked(found, taints=taints),
        notes=tuple(_notes(state, found)),
        steps=_steps(found, driver, taints=taints),
    )


def _without_claims(found: NodeMigration, node: Node) -> NodeMigration:
    listed = any(
        (one.type, one.status, one.reason) == (DEVICES_READY_CONDITION, "True", _LISTED)
        for one in node.status.conditions or ()
    )
    says = (
        f"the kubelet has a list of devices from this driver (condition {DEVICES_READY_CONDITION})"
        if listed
        else "the status of the node does not tell who serves them; `dra-driver devices` in the driver's pod does"
    )
    stage = "no claims" if found.resources else "nothing to move"
    return msgspec.structs.replace(found, stage=stage, notes=(says,) if found.resources else ())


def _notes(state: ClusterState, found: NodeMigration) -> Iterator[str]:
    """Yield what the steps do not solve."""
    if found.stage not in _RANK or any(one.resource == "deviceclasses" for one in state.not_read):
        return
    for one in found.resources:
        if not one.device_class:
            yield f"no DeviceClass has extendedResourceName {one.resource}: pods that ask for it will not start here"


def _kept(devices: Iterable[Device]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for device in devices:
        for taint in device.taints or ():
            if taint.key == HELD_BY_TAINT:
                found.setdefault(taint.value, []).append(device.name)
    return {value: tuple(sorted(names)) for value, names in sorted(found.items())}


def _resource(
    state: ClusterState,
    node: Node,
    name: str,
    kept: Mapping[str, tuple[str, ...]],
    classes: Mapping[str, str],
    *,
    tells: bool,
) -> PluginResourceOfNode:
    pods = tuple(
        UsingPod(namespace=pod.metadata.namespace, name=pod.metadata.name, count=count)
        for pod in state.pods
        if pod.spec.node_name == node.metadata.name and pod.status.phase not in OVER
        if (count := _asked(pod, name))
    )
    allocatable = _amount(node.status.allocatable, name)
    # If taints tell it, the driver on the node taints what a plugin could give out. Without a taint, and with no pod, it has found no plugin.
    stale = tells and bool(allocatable) and not pods and taint_value(name) not in kept
    return PluginResourceOfNode(
        resource=name,
        capacity=_amount(node.status.capacity, name),
        allocatable=allocatable,
        pods=pods,
        device_class=classes.get(name, ""),
        stale=stale,
    )


def _asked(pod: Pod, resource: str) -> int:
    """How many units of the plugin the pod has. What the scheduler took from DRA is not among them."""
    claimed = pod.status.extended_resource_claim_status
    by_claim = {
        one.container_name
        for one in (claimed and claimed.request_mappings) or ()
        if one.resource_name == resource
    }

    def count(containers: Iterable[Container] | None) -> list[int]:
        return [
            _amount(one.resources.requests or one.resources.limits, resource)
            for one in containers or ()
            if one.name not in by_claim
        ]

    return max(sum(count(pod.spec.containers)), *count(pod.spec.init_containers), 0)


def _amount(values: Mapping[str, QuantityText] | None, resource: str) -> int:
    try:
        return Quantity.parse(str((values or {}).get(resource, "0"))).nanos // _NANOS
    except ValueError:
        return 0


def _claims(state: ClusterState, node: str, driver: str) -> tuple[ClaimOfNode, ...]:
    found = []
    for claim in state.resource_claims:
        allocation = claim.status.allocation
        names = [
            result.device
            for result in (allocation.devices.results if allocation else None) or ()
            if (result.driver, result.pool) == (driver, node)
        ]
        if names:
            about = claim.metadata
            found.append(
                ClaimOfNode(namespace=about.namespace, name=about.name, devices=tuple(names))
            )
    return tuple(found)


def _stage(found: NodeMigration) -> str:
    if not found.resources and not found.kept:
        return "moved" if found.devices else "nothing to move"
    if not found.slices:
        return "no driver"
    if any(one.pods for one in found.resources):
        return "in use"
    served = [one for one in found.resources if one.allocatable and not one.stale]
    return "can move" if served or any(one.stale for one in found.resources) else "waiting"


def _blocked(found: NodeMigration, *, taints: bool) -> tuple[str, ...]:
    reasons = []
    for one in found.resources:
        if one.pods:
            names = few([f"{pod.namespace}/{pod.name}" for pod in one.pods])
            reasons.append(f"pods have {one.resource} from the device plugin: {names}")
        elif one.stale:
            hides = f", and hides DeviceClass {one.device_class}" if one.device_class else ""
            reasons.append(
                f"{one.resource} is in the status of the node, and no plugin of others serves it{hides}"
            )
        elif one.allocatable:
            reasons.append(f"a device plugin offers {one.allocatable} {one.resource}")
        else:
            reasons.append(
                f"the plugin of {one.resource} does not answer; the kubelet forgets it 5 minutes after its end"
            )
    listed = {taint_value(one.resource) for one in found.resources}
    for value, devices in found.kept.items():
        if value not in listed:
            reasons.append(
                f"{few(devices)}: a pod of the plugin {value} has not ended, or the plugin can come back"
            )
    if not found.slices and reasons:
        reasons.append("there is no ResourceSlice of this driver for the node")
    elif not found.devices and reasons:
        reasons.append(
            "the driver on the node publishes no device: it has found none"
            if taints
            else "the driver on the node publishes no device: this API server keeps no taints, so the driver publishes what a plugin could give "
            "out only when that plugin is gone"
        )
    return tuple(reasons)


def _steps(found: NodeMigration, driver: str, *, taints: bool) -> tuple[Step, ...]:
    name = found.node
    if found.stage in ("moved", "nothing to move"):
        return ()
    steps = []
    if found.stage == "no driver":
        steps.append(
            Step(
                what=f"install the driver on the node, and wait for its slices; it offers nothing that the plugin has ({driver})",
                command=f"kubectl get resourceslices --field-selector spec.nodeName={name}",
            )
        )
    stale = [one for one in found.resources if one.stale]
    for one in stale:
        command = patch_command(name, one.resource, fields=("capacity", "allocatable"))
        steps.append(
            Step(
                what=f"if this driver does not serve {one.resource} on the node either, remove it",
                command=command,
            )
        )
    if len(stale) < len(found.resources):
        steps += _of_plugin(found)
    until = f"no device has the taint {HELD_BY_TAINT}" if taints else "the slices have the devices"
    steps.append(
        Step(
            what=f"wait until {until} and allocatable is 0: up to 5 minutes after the plugin's end",
            command=f"kubectl dra migration --node {name}",
        )
    )
    if len(stale) < len(found.resources):
        steps.append(Step(what="let pods come again", command=f"kubectl uncordon {name}"))
    return tuple(steps)


def _of_plugin(found: NodeMigration) -> list[Step]:
    name = found.node
    steps = [Step(what="let no new pod come to the node", command=f"kubectl cordon {name}")]
    steps += [
        Step(
            what=f"end the pod that has {pod.count} {one.resource}, without force",
            command=f"kubectl delete pod --namespace {pod.namespace} {pod.name}",
        )
        for one in found.resources
        for pod in one.pods
    ]
    steps.append(
        Step(
            what="keep the plugin off the node; the label is that of NVIDIA's operator, for another plugin change its nodeSelector",
            command=f"kubectl label node {name} --overwrite nvidia.com/gpu.deploy.device-plugin=false",
        )
    )
    return steps
