# SPDX-License-Identifier: Apache-2.0
"""What does the user lack to see everything: which right, which part of the answer, and which ClusterRole of the chart gives it?

The chart has roles for people: `user` for the claims and pods of a namespace, `user-cluster` for the devices and classes of the cluster,
`explain` for all that these commands read, `admin` for those who change something.
"""

from collections.abc import Mapping

from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.overview.part import Gap

USER, USER_CLUSTER, EXPLAIN = "user", "user-cluster", "explain"
DEVICES, CLAIMS, FREE, USAGE, VERSION = "devices", "claims", "free", "usage", "version"

_CLAIMS_OF_OTHERS = "the claims of other namespaces"
_WHAT_LACKS: Mapping[str, Mapping[str, str]] = {
    DEVICES: {
        "resourceslices": "the devices",
        "resourceclaims": "who has the devices, and so which are free",
        "nodes": "the nodes of devices with a node selector",
        "devicetaintrules": "the taints of DeviceTaintRules",
    },
    CLAIMS: {
        "resourceclaims": _CLAIMS_OF_OTHERS,
        "resourceslices": "the nodes of devices that no pod uses",
        "pods": "the pods that wait for a claim, and the nodes of pods",
    },
    FREE: {
        "deviceclasses": "the classes",
        "resourceslices": "the devices",
        "resourceclaims": "who has the devices, and so which are free",
        "nodes": "which nodes are cordoned",
        "devicetaintrules": "the taints of DeviceTaintRules",
    },
    USAGE: {
        "resourceclaims": _CLAIMS_OF_OTHERS,
        "resourceslices": "the memory and the product of devices",
        "pods": "the nodes of pods",
    },
    VERSION: {"resourceslices": "the drivers"},
}
"""The resources that each command needs, each with what its answer lacks without them."""
_OF_CLUSTER = ("resourceslices", "deviceclasses")
_OF_NAMESPACES = ("resourceclaims", "pods")
ALWAYS = "resource.k8s.io"
"""The name of the gap if the API server does not say which versions it serves."""


def needed(command: str) -> frozenset[str]:
    """Return the resources that the answer of the command is made of."""
    return frozenset(_WHAT_LACKS[command])


def gaps_of(state: ClusterState, command: str, *, namespace: str = "") -> tuple[Gap, ...]:
    """Return what could not be read and matters for the command, in the order of reading.

    `namespace` is the one that is asked about. What its own objects are enough for is no gap: the right for the whole cluster
    is then not needed.
    """
    lacks = {**_WHAT_LACKS[command], ALWAYS: "everything"}
    return tuple(
        _gap(one, lacks[one.resource], own=bool(namespace) and command in (CLAIMS, USAGE))
        for one in state.not_read
        if one.resource in lacks and not _is_enough(one, command, namespace)
    )


def _is_enough(gap: NotRead, command: str, namespace: str) -> bool:
    """Return whether the objects of the namespace were read, and the command is about them alone."""
    return (
        command in (CLAIMS, USAGE) and bool(gap.only_namespace) and gap.only_namespace == namespace
    )


def _gap(found: NotRead, lacks: str, *, own: bool) -> Gap:
    """Return the gap. `own`: only the objects of one namespace are asked about, and the role of a user has the right for these."""
    role = EXPLAIN
    if found.resource in _OF_CLUSTER:
        role = USER_CLUSTER
    elif own and found.resource in _OF_NAMESPACES:
        role = USER
    return Gap(
        verb="list",
        resource=found.resource,
        name=found.name,
        message=found.message,
        lacks=lacks,
        role=role if found.reason == "forbidden" else "",
    )
