# SPDX-License-Identifier: Apache-2.0
"""`dra-driver record`: save the state of a cluster to a file that `dra-driver explain --from` reads.

The file has DeviceClasses, ResourceSlices, claims, claim templates, taint rules, nodes, pods, PodDisruptionBudgets, and the labels of
namespaces. It has no annotations, no opaque parameters, only those condition messages that `explain` quotes, and only those fields of
pods that the scheduler uses. If some objects could not be read, the command says so, and the file notes it.
"""

import argparse

from dra_driver.cli import cluster, render
from dra_driver.cli.destination import Destination
from dra_driver.cli.rights import HINT, lacking_rights
from dra_driver.model.cluster import GATES_PATH, ClusterState, NotRead, encode
from dra_driver.model.exit_codes import DONE, WITH_RESERVATION


def run(chosen: argparse.Namespace) -> int:
    """Read the cluster and write the file. Returns the exit code."""
    destination = Destination.of(chosen.file, force=chosen.force)
    state = cluster.read(cluster.target(chosen))
    destination.write(encode(state))
    if not destination.is_standard_output:
        render.line(render.plain(f"{chosen.file}: {_summary(state)}"))
    for gap in state.not_read:
        render.error(f"not in the record: {gap.resource} {gap.name}".rstrip() + f": {gap.message}")
    if lacking_rights(state):
        render.error(HINT)
    return WITH_RESERVATION if any(map(_decides, state.not_read)) else DONE


def _decides(gap: NotRead) -> bool:
    """Return whether the unread object can change an answer of `explain`.

    It cannot if the cluster does not serve the resource at all. Unread feature gates cannot either: `explain` then assumes the
    defaults of the release.
    """
    return gap.reason != "not_served" and gap.resource != GATES_PATH


def _summary(state: ClusterState) -> str:
    counts = {
        "nodes": state.nodes,
        "slices": state.resource_slices,
        "classes": state.device_classes,
        "claims": state.resource_claims,
        "pods": state.pods,
    }
    shown = ", ".join(f"{len(objects)} {name}" for name, objects in counts.items())
    return f"Kubernetes {state.kubernetes_version or 'of unknown version'}: {shown}"
