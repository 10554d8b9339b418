# SPDX-License-Identifier: Apache-2.0
"""What does the user lack to see everything: which right, which part of the answer, and which ClusterRole of the chart gives it?

The chart has roles for people: `user` for the claims and pods of a namespace, `user-cluster` for the devices and classes of the cluster,
`explain` for all that these commands read, `admin` for those who change something.
"""

from collections.abc import Mapping

from dra_driver.model.api.resource_claim import GROUP
from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.overview.part import Gap

USER, USER_CLUSTER, EXPLAIN = "user", "user-cluster", "explain"
DEVICES, CLAIMS, FREE, USAGE, VERSION = "devices", "claims", "free", "usage", "version"
USAGE_OF_NODES = "usage of nodes"
"""`usage`, if the answer depends on the nodes of devices."""

_HOLDERS = "who has the devices, and so which are free"
_NODES = "which nodes are cordoned, and the nodes of devices with a node selector"
_USAGE = {
    "resourceclaims": "the claims",
    "resourceslices": "the memory and the product of devices",
}
_WHAT_LACKS: Mapping[str, Mapping[str, str]] = {
    DEVICES: {
        "resourceslices": "the devices",
        "resourceclaims": _HOLDERS,
        "nodes": _NODES,
        "devicetaintrules": "the taints of DeviceTaintRules",
    },
    CLAIMS: {
        "resourceclaims": "the claims",
        "resourceslices": "the nodes of devices that no pod uses",
        "pods": "the pods that wait for a claim, and the nodes of pods",
        "nodes": "the nodes of devices with a node selector",
    },
    FREE: {
        "deviceclasses": "the classes",
        "resourceslices": "the devices",
        "resourceclaims": _HOLDERS,
        "nodes": _NODES,
        "devicetaintrules": "the taints of DeviceTaintRules",
    },
    USAGE: _USAGE,
    USAGE_OF_NODES: {
        **_USAGE,
        "pods": "the nodes of pods",
        "nodes": "the nodes of devices with a node selector",
    },
    VERSION: {GROUP: "its versions, and the drivers", "resourceslices": "the drivers"},
}
"""The resources that each command needs, each with what its answer lacks without them."""
_WITHOUT_ONE: Mapping[str, str] = {
    "resourceslices": "the devices of this slice",
    "resourceclaims": "this claim, and that it has its devices",
    "deviceclasses": "this class",
    "pods": "this pod",
    "nodes": "this node",
    "devicetaintrules": "the taints of this rule",
}
"""What an answer lacks if one object cannot be read."""
_OF_CLUSTER = ("resourceslices", "deviceclasses")
_OF_NAMESPACES = ("resourceclaims", "pods")
_ABOUT_CLAIMS = (CLAIMS, USAGE, USAGE_OF_NODES)


def needed(topic: str) -> frozenset[str]:
    """Return the resources that the answer is made of. A topic is a command, or USAGE_OF_NODES."""
    return frozenset(_WHAT_LACKS[topic])


def forbidden(state: ClusterState) -> frozenset[str]:
    """Return the resources of which the user may read nothing, in no namespace."""
    return frozenset(
        gap.resource
        for gap in state.not_read
        if gap.reason == "forbidden" and not gap.name and not gap.only_namespace
    )


def not_whole(state: ClusterState) -> frozenset[tuple[str, str]]:
    """Return the resources of which not all could be read, each with the namespace whose objects were read; "" for none."""
    return frozenset((gap.resource, gap.only_namespace) for gap in state.not_read if not gap.name)


def nothing_served(state: ClusterState) -> NotRead | None:
    """Return the gap because of which nothing can be told about devices: no version of the group that is read is served, or it is not known which."""
    unknown = (gap for gap in state.gaps(GROUP) if gap.reason != "not_served")
    unserved = (gap for gap in state.gaps("resourceslices") if gap.reason == "not_served")
    return next(unknown, None) or next(unserved, None)


def gaps_of(state: ClusterState, topic: str, *, namespace: str = "") -> tuple[Gap, ...]:
    """Return what could not be read and matters for the answer, in the order of reading.

    `namespace` is the one that is asked about. What its own objects are enough for is no gap: the right for the whole cluster
    is then not needed.
    """
    lacks = _WHAT_LACKS[topic]
    return tuple(
        _gap(one, lacks[one.resource], own=bool(namespace) and topic in _ABOUT_CLAIMS)
        for one in state.not_read
        if one.resource in lacks and _matters(one, topic, namespace, state)
    )


def _matters(gap: NotRead, topic: str, namespace: str, state: ClusterState) -> bool:
    if topic == VERSION and not state.served:
        return (
            gap.reason != "not_served"
        )  # a cluster that serves nothing has no drivers, and nothing is missing
    if topic not in _ABOUT_CLAIMS:
        return True
    if gap.resource == "nodes":
        # A user may not read nodes. The slices say by themselves where most devices are.
        return any(
            one.spec.node_selector is not None
            or any(device.node_selector is not None for device in one.spec.devices or ())
            for one in state.resource_slices
        )
    # The objects of the namespace were read, and the question is about them alone.
    return not (gap.only_namespace and gap.only_namespace == namespace)


def _gap(found: NotRead, lacks: str, *, own: bool) -> Gap:
    """Return the gap. `own`: only the objects of one namespace are asked about, and the role of a user has the right for these."""
    role = EXPLAIN
    if found.resource in _OF_CLUSTER:
        role = USER_CLUSTER
    elif own and found.resource in _OF_NAMESPACES:
        role = USER
    if found.name:
        lacks = _WITHOUT_ONE[found.resource]
    elif found.only_namespace:
        lacks = f"{lacks}, but for what namespace {found.only_namespace} has of them"
    return Gap(
        verb="list",
        resource=found.resource,
        name=found.name,
        message=found.message,
        lacks=lacks,
        role=role if found.reason == "forbidden" and found.resource != GROUP else "",
    )
