# SPDX-License-Identifier: Apache-2.0
"""Judge what the API server says of a node: versions, rights, slices, other drivers, capacity, pods that see every GPU."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from dra_driver.doctor.findings import Finding, finding, fine, unknown
from dra_driver.model.api.core import Node
from dra_driver.model.api.pod_access import PodAccess
from dra_driver.model.api.resource_claim import GROUP
from dra_driver.model.api.resource_slice import Device, ResourceSlice
from dra_driver.model.cluster import ClusterState
from dra_driver.model.device import plain
from dra_driver.model.names import LOST_TAINT, NOT_CLEAN_TAINT, UNHEALTHY_TAINT, VANISHED_TAINT
from dra_driver.model.plugin import Path
from dra_driver.model.rights import Right
from dra_driver.model.vocabulary import PCI_BUS_ID
from dra_driver.planning.migration import plan_migration
from dra_driver.planning.neighbours import vendor_of
from dra_driver.planning.path import PathFacts, choose_path, minor_version
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
_ILL = (UNHEALTHY_TAINT, VANISHED_TAINT, LOST_TAINT, NOT_CLEAN_TAINT)
"""Somebody must look at a device with one of these. The other taints are part of the work, or say only what to watch."""
_GRANULAR_STATUS = (1, 36)
"""The first release that asks for a right of its own for a driver's entries in the status of claims."""
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


def judge_versions(state: ClusterState, node: str, wish: Path | None) -> Iterator[Finding]:
    """Yield what is found about the kubelet's version. `wish`: the API that the admin chose for devices; None if the driver chooses."""
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
    elif int(match[1]) < FIRST_WITH_CLAIMS and wish is Path.DRA:
        said = f"kubelet {version}, and the configuration says path: dra"
        yield finding("kubelet-too-old", node, said, node=node)
    elif int(match[1]) < FIRST_WITH_CLAIMS:
        yield finding("kubelet-without-claims", node, f"kubelet {version}", node=node)
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


def rights_of_settings(
    *,
    node_labels: str,
    node_condition: str,
    startup_taint: str,
    device_status: str,
    driver: str,
    kubernetes: str,
) -> Mapping[Right, str]:
    """Return the rights that these settings need beside RIGHTS, each with the setting. `kubernetes` is the API server's version; "" if unknown."""
    found: dict[Right, str] = {}
    if node_labels == "patch":
        found[Right("patch", "nodes")] = "--node-labels patch"
    if startup_taint:
        found.setdefault(Right("patch", "nodes"), "--startup-taint")
    if node_condition == "write":
        found[Right("patch", "nodes/status")] = "--node-condition write"
    if device_status == "write":
        setting = "--device-status write"
        found[Right("patch", "resourceclaims/status", GROUP)] = setting
        if (minor_version(kubernetes) or _GRANULAR_STATUS) >= _GRANULAR_STATUS:
            own = Right("associated-node:patch", "resourceclaims/driver", GROUP, name=driver)
            found[own] = setting
    return found


def judge_rights(
    missing: Iterable[Right], account: str, of_settings: Mapping[Right, str]
) -> Iterator[Finding]:
    """Yield each right that the driver needs and does not have; `account` is whose rights they are, `of_settings` those that a setting needs."""
    none = True
    for right in missing:
        none = False
        plain_name, _, subresource = right.resource.partition("/")
        resource = f"{plain_name}.{right.group}".rstrip(".")
        where = f" in namespace {right.namespace}" if right.namespace else ""
        if setting := of_settings.get(right):
            named = f"{resource}/{right.name}" if right.name else resource
            yield finding(
                "setting-right-missing",
                account,
                f"{right.verb} {resource}{'/' if subresource else ''}{subresource} is not allowed, and {setting} needs it",
                verb=right.verb,
                resource=named,
                subresource=subresource,
                account=account,
            )
        else:
            yield finding(
                "right-missing",
                account,
                f"{right.verb} {resource}{where} is not allowed",
                verb=right.verb,
                resource=resource,
                account=account,
            )
    if none:
        more = ", ".join(dict.fromkeys(of_settings.values()))
        also = f", and those of {more}" if more else "; no setting that was given here needs more"
        yield fine("rights", account, f"it has the rights that every install needs{also}")


def judge_slices(
    state: ClusterState, driver: str, node: str, wish: Path | None
) -> Iterator[Finding]:
    """Yield what is found about the driver's slices of the node. `wish`: the API that the admin chose for devices; None if the driver chooses."""
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
    ill = [one for one in devices if any(taint.key in _ILL for taint in one.taints or ())]
    tainted = [one for one in devices if one.taints and one not in ill]
    if ill:
        yield finding("devices-ill", node, _with_taints(ill))
    if tainted:
        yield finding("devices-tainted", node, _with_taints(tainted), node=node)
    if not devices and (why := _offered_by_plugin(state, node, wish)):
        yield fine("slices", node, f"there is a slice without devices, as it should be: {why}")
    elif not devices:
        yield finding("no-devices-published", node, f"driver {driver} has a slice without devices")
    elif len(current) == wanted:
        yield fine("slices", node, f"devices published: {len(devices)}")


def _with_taints(devices: Iterable[Device]) -> str:
    """Return the devices by name, each with its taints and when they came."""
    told = {
        one.name: ", ".join(
            f"{taint.key}={taint.value}"
            + (f" since {taint.time_added}" if taint.time_added else "")
            for taint in one.taints or ()
        )
        for one in devices
    }
    return "; ".join(f"{name}: {taints}" for name, taints in sorted(told.items()))


def _offered_by_plugin(state: ClusterState, node: str, wish: Path | None) -> str:
    """Return why the driver offers the node's devices by the device plugin API; "" if it does not, as far as an API server shows it."""
    found = _node(state, node)
    info = found.status.node_info if isinstance(found, Node) else None
    version = info.kubelet_version if info else ""
    facts = PathFacts(served=True, registered=True, kubelet_version=version)
    choice = choose_path(facts, wish)
    return choice.reason if choice.path is Path.DEVICE_PLUGIN else ""


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
