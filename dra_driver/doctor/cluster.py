# SPDX-License-Identifier: Apache-2.0
"""Judge what the API server says of a node: versions, rights, slices, other drivers, capacity, pods that see every GPU."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from dra_driver.doctor.findings import Finding, finding, fine, unknown
from dra_driver.model.api.core import Node
from dra_driver.model.api.pod_access import PodAccess
from dra_driver.model.api.resource_claim import GROUP
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.model.cluster import ClusterState
from dra_driver.model.device import plain
from dra_driver.model.rights import Right
from dra_driver.model.vocabulary import PCI_BUS_ID
from dra_driver.planning.migration import plan_migration
from dra_driver.planning.neighbours import vendor_of
from dra_driver.planning.stale import patch_of, stale_resources

FIRST_WITH_CLAIMS, FIRST_LISTING = 32, 34
ENDED = ("Succeeded", "Failed")
RIGHTS = (
    *(Right(verb, "resourceclaims", GROUP) for verb in ("get", "list", "watch")),
    *(
        Right(verb, "resourceslices", GROUP)
        for verb in ("get", "list", "watch", "create", "update", "delete")
    ),
    Right("get", "nodes"),
    Right("create", "events", namespace="default"),
)
"""What the driver needs wherever the API server serves claims (the chart's ClusterRole without what an admin may choose)."""
_ALL_DEVICES = re.compile(r"/|/dev|/dev/nvidia\w*|/dev/(dri|kfd|accel)|/proc|/host")
_SAME_HARDWARE = (PCI_BUS_ID, "uuid")
_MINOR = re.compile(r"v?1\.(\d{1,4})")


def judge_api(state: ClusterState) -> Iterator[Finding]:
    """Yield what is found about the API server itself. A kind that could not be read is told by the checks that need it."""
    version = state.kubernetes_version or "of unknown version"
    for gap in state.not_read:
        if (gap.resource == GROUP and gap.reason != "not_served") or gap.name:
            yield unknown("api", f"{gap.resource} {gap.name}".rstrip(), gap.message)
    gates = sum(state.feature_gates.values())
    known = f"{gates} feature gates are on" if gates else "its feature gates could not be read"
    if state.served:
        yield fine("api", version, f"it serves {GROUP} {', '.join(state.served)}; {known}")
    elif state.unread(GROUP) is None or _lacks_claims(state):
        yield finding("claims-not-served", version, f"it serves no version of {GROUP}")


def _lacks_claims(state: ClusterState) -> bool:
    gap = state.unread(GROUP)
    return gap is not None and gap.reason == "not_served"


def judge_versions(state: ClusterState, node: str) -> Iterator[Finding]:
    """Yield what is found about the kubelet's version."""
    found = _node(state, node)
    if isinstance(found, str):
        yield unknown("versions", node, found)
        return
    if found is None:
        yield finding("node-not-found", node, "the API server has no Node of this name")
        return
    info = found.status.node_info
    version = info.kubelet_version if info else ""
    match = _MINOR.match(version)
    if match is None:
        yield unknown("versions", node, f"its kubelet's version is {version or 'not there'!r}")
    elif int(match[1]) < FIRST_WITH_CLAIMS:
        yield finding("kubelet-too-old", node, f"kubelet {version}", node=node)
    elif int(match[1]) < FIRST_LISTING:
        yield finding("kubelet-does-not-list-claims", node, f"kubelet {version}", node=node)
    else:
        yield fine("versions", node, f"kubelet {version}")


def judge_kept_fields(off: Mapping[str, str], dropped: str) -> Iterator[Finding]:
    """Yield the fields that the API server drops: `off` has the feature gates and how each shows; `dropped` means that it was tried."""
    not_tried: dict[str, list[str]] = {}
    for gate, why in off.items():
        if why == dropped:
            yield finding("field-dropped", gate, why, gate=gate)
        else:
            not_tried.setdefault(why, []).append(gate)
    for why, gates in not_tried.items():
        yield unknown("kept-fields", ", ".join(gates), why)
    if not off:
        yield fine("kept-fields", "ResourceSlice", "the API server keeps every field of a slice")


def judge_rights(missing: Iterable[Right], account: str) -> Iterator[Finding]:
    """Yield each right that the driver needs and does not have; `account` is whose rights they are."""
    none = True
    for right in missing:
        none = False
        resource = f"{right.resource}.{right.group}".rstrip(".")
        where = f" in namespace {right.namespace}" if right.namespace else ""
        yield finding(
            "right-missing",
            account,
            f"{right.verb} {resource}{where} is not allowed",
            verb=right.verb,
            resource=resource,
            account=account,
        )
    if none:
        yield fine("rights", account, "it has every right that the driver needs")


def judge_slices(state: ClusterState, driver: str, node: str) -> Iterator[Finding]:
    """Yield what is found about the driver's slices of the node."""
    if gap := state.unread("resourceslices"):
        yield unknown("slices", node, gap.message)
        return
    ours = [one for one in _slices_of(state, node) if one.spec.driver == driver]
    if not ours:
        yield finding("slices-missing", node, f"there is none of driver {driver}", node=node)
        return
    newest = max(one.spec.pool.generation for one in ours)
    current = [one for one in ours if one.spec.pool.generation == newest]
    wanted = max(one.spec.pool.resource_slice_count for one in current)
    if len(current) != wanted:
        said = f"{len(current)} of {wanted} slices of generation {newest} are there"
        yield finding("slices-incomplete", node, said, node=node)
    devices = [device for one in current for device in one.spec.devices or ()]
    tainted = sorted(device.name for device in devices if device.taints)
    if tainted:
        yield finding("devices-tainted", node, ", ".join(tainted), node=node)
    if not devices:
        yield finding("no-devices-published", node, f"driver {driver} has a slice without devices")
    elif len(current) == wanted:
        yield fine("slices", node, f"devices published: {len(devices)}")


def judge_other_drivers(state: ClusterState, driver: str, node: str) -> Iterator[Finding]:
    """Yield the drivers that publish devices of the node too, and the hardware that two drivers publish."""
    if gap := state.unread("resourceslices"):
        yield unknown("other-drivers", node, gap.message)
        return
    slices = _slices_of(state, node)
    hardware: dict[str, dict[str, str]] = {}
    for one in slices:
        for device in one.spec.devices or ():
            for name, value in (device.attributes or {}).items():
                # A driver may write the domain of its own attributes in front, or leave it out.
                known = name.removeprefix(f"{one.spec.driver}/")
                if known in _SAME_HARDWARE:
                    drivers = hardware.setdefault(f"{known} {plain(value)}", {})
                    drivers.setdefault(one.spec.driver, device.name)
    twice = {what: who for what, who in hardware.items() if len(who) > 1}
    for what, who in sorted(twice.items()):
        said = ", ".join(f"{device} of {owner}" for owner, device in sorted(who.items()))
        yield finding("published-twice", what, said, node=node)
    others = sorted({one.spec.driver for one in slices} - {driver})
    for other in others:
        count = sum(len(one.spec.devices or ()) for one in slices if one.spec.driver == other)
        yield finding("other-driver", other, f"devices published: {count}", node=node)
    if not others:
        yield fine("other-drivers", node, "no other driver publishes devices of it")


def judge_capacity(
    state: ClusterState, driver: str, node: str, served: Collection[str] | None
) -> Iterator[Finding]:
    """Yield extended resources in the Node's status; `served` are those of plugins that the kubelet knows, None if it was not asked."""
    found = _node(state, node)
    if found is None or isinstance(found, str):
        yield unknown("stale-capacity", node, found or "there is no Node of this name")
        return
    capacity, allocatable = found.status.capacity or {}, found.status.allocatable or {}
    if served is None:
        (planned,) = plan_migration(state, driver, node=node).nodes
        stale = tuple(one.resource for one in planned.resources if one.stale)
    else:
        stale = stale_resources(capacity, served)
    for name in stale:
        fields = ["capacity", *(["allocatable"] if name in allocatable else [])]
        said = f"capacity {capacity[name]}"
        yield finding("stale-capacity", name, said, node=node, patch=patch_of(name, fields))
    rest = [name for name in sorted(capacity) if vendor_of(name) and name not in stale]
    for name in rest:
        yield finding("capacity-of-plugin", name, f"capacity {capacity[name]}", node=node)
    if not stale and not rest:
        yield fine("stale-capacity", node, "no extended resource of accelerators is in its status")


def judge_pods(pods: Iterable[PodAccess], unreadable: int, node: str) -> Iterator[Finding]:
    """Yield the pods that see every GPU. Those of DaemonSets and of the node itself are part of the node: they are only named."""
    found: dict[str, list[str]] = {}
    seen = False
    for pod in pods:
        why = _sees_all(pod)
        if not why or pod.status.phase in ENDED:
            continue
        seen = True
        namespace, name = pod.metadata.namespace, pod.metadata.name
        if _is_part_of_node(pod):
            found.setdefault(why, []).append(f"{namespace}/{name}")
        else:
            yield finding(
                "pod-sees-every-gpu", f"pod {namespace}/{name}", why, namespace=namespace, pod=name
            )
    for why, names in found.items():
        yield finding("node-pods-see-every-gpu", ", ".join(sorted(names)), why)
    if unreadable:
        yield unknown("privileged-pods", node, f"pods that cannot be read: {unreadable}")
    elif not seen:
        yield fine("privileged-pods", node, "no pod sees every GPU without a claim")


def _sees_all(pod: PodAccess) -> str:
    spec = pod.spec
    containers = chain(
        spec.containers or (), spec.init_containers or (), spec.ephemeral_containers or ()
    )
    privileged = [
        one.name for one in containers if one.security_context and one.security_context.privileged
    ]
    if privileged:
        return "it is privileged"
    paths = [one.host_path.path for one in spec.volumes or () if one.host_path]
    whole = next((path for path in paths if _ALL_DEVICES.fullmatch(path.rstrip("/") or "/")), "")
    return f"it mounts {whole}" if whole else ""


def _is_part_of_node(pod: PodAccess) -> bool:
    owners = pod.metadata.owner_references or ()
    return any(one.kind in ("DaemonSet", "Node") for one in owners)


def _node(state: ClusterState, name: str) -> Node | str | None:
    """Return the Node; None if there is none of this name, or why it is not known."""
    found = next((one for one in state.nodes if one.metadata.name == name), None)
    gap = state.unread("nodes", name)
    return gap.message if found is None and gap else found


def _slices_of(state: ClusterState, node: str) -> list[ResourceSlice]:
    return [one for one in state.resource_slices if one.spec.node_name == node]
