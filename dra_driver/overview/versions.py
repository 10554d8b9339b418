# SPDX-License-Identifier: Apache-2.0
"""Which versions does a cluster have, and which drivers publish devices in it?"""

from collections import Counter

from dra_driver.model.cluster import ClusterState
from dra_driver.model.names import CLUSTER_VERSION_KIND, DOCUMENT_VERSION
from dra_driver.overview.cluster import Overview
from dra_driver.overview.part import Gap, Part
from dra_driver.overview.rights import VERSION, gaps_of


class DriverOfCluster(Part, frozen=True, kw_only=True):
    """A driver that publishes ResourceSlices: so many devices; so many nodes have slices of their own."""

    name: str
    devices: int
    nodes: int


class ClusterVersion(Part, frozen=True, kw_only=True):
    """The answer of `kubectl dra version -o json`.

    `client` is the version of this program. If no cluster was asked, or it did not answer, `isKnown` is false, and `problem` says why.
    `served` are the versions of resource.k8s.io, the newest first.
    """

    api_version: str = DOCUMENT_VERSION
    kind: str = CLUSTER_VERSION_KIND
    client: str
    is_known: bool
    problem: str
    server: str
    served: tuple[str, ...]
    drivers: tuple[DriverOfCluster, ...]
    not_read: tuple[Gap, ...]


def version_of(client: str, state: ClusterState | None, problem: str = "") -> ClusterVersion:
    """Return the versions; `state` is None if there is no cluster."""
    known = state or ClusterState()
    return ClusterVersion(
        client=client,
        is_known=state is not None,
        problem=problem,
        server=known.kubernetes_version,
        served=known.served,
        drivers=_drivers(known),
        not_read=gaps_of(known, VERSION),
    )


def _drivers(state: ClusterState) -> tuple[DriverOfCluster, ...]:
    overview = Overview(state)
    nodes: dict[str, set[str]] = {name: set() for name in sorted(overview.fleet.drivers)}
    for published in overview.fleet.slices:
        nodes[published.spec.driver] |= {published.spec.node_name or ""} - {""}
    devices = Counter(one.id.driver for one in overview.devices)
    return tuple(
        DriverOfCluster(name=name, devices=devices[name], nodes=len(there))
        for name, there in nodes.items()
    )
