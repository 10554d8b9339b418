# SPDX-License-Identifier: Apache-2.0
"""`kubectl dra version`: which versions do this program, the cluster and its resource.k8s.io have, and which drivers publish devices?"""

import argparse

from dra_driver import PROJECT, __version__
from dra_driver.cli import cluster, inputs, render
from dra_driver.cli.render_overview import sentence
from dra_driver.errors import DriverError
from dra_driver.model.cluster import ClusterState
from dra_driver.model.exit_codes import DONE, WITH_RESERVATION
from dra_driver.overview.versions import ClusterVersion, DriverOfCluster, version_of


def run(chosen: argparse.Namespace) -> int:
    """Print the versions. Without a cluster: that of this program. Returns the exit code."""
    problem = ""
    state = None
    try:
        if not chosen.client:
            state = _read(chosen)
    except DriverError as error:
        problem = str(error)
    found = version_of(__version__, state, problem)
    if chosen.output in render.DOCUMENTS:
        render.document(found, chosen.output)
    else:
        _show(found)
    if problem:
        render.error(f"the version of the cluster is not known: {problem}")
    for gap in found.not_read:
        render.error(sentence(gap))
    return WITH_RESERVATION if problem or found.not_read else DONE


def _read(chosen: argparse.Namespace) -> ClusterState:
    return inputs.record(chosen.record) if chosen.record else cluster.read(cluster.target(chosen))


def _show(found: ClusterVersion) -> None:
    render.line(f"client: {PROJECT} {found.client}")
    if not found.is_known:
        return
    render.line(render.plain(f"server: Kubernetes {found.server or 'of unknown version'}"))
    render.line(
        render.plain(
            f"resource.k8s.io: {', '.join(found.served) or 'not served; see docs/older-clusters.md'}"
        )
    )
    for driver in found.drivers:
        render.line(render.plain(f"driver: {_driver(driver)}"))
    if not found.drivers:
        render.line("driver: not known" if found.not_read else "driver: none publishes devices")


def _driver(one: DriverOfCluster) -> str:
    devices = f"{one.devices} device{'' if one.devices == 1 else 's'}"
    nodes = f"{one.nodes} node{'' if one.nodes == 1 else 's'}"
    return f"{one.name} ({devices}, slices of {nodes})" if one.nodes else f"{one.name} ({devices})"
