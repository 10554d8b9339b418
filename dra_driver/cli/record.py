# SPDX-License-Identifier: Apache-2.0
"""`dra-driver record`: what a cluster looks like, in a file that `dra-driver explain --from` reads.

Classes, slices, claims, templates, taint rules, nodes, pods and the labels of namespaces; no annotations, no opaque
parameters, no messages of conditions that `explain` does not quote, and of pods only what scheduling looks at. What could
not be read is said here and noted in the file.

Exit codes: 0 written, and everything that decides could be read; 1 nothing was written; 3 written, but something that
decides could not be read.
"""

import argparse

from dra_driver.cli import cluster, render
from dra_driver.cli.destination import Destination
from dra_driver.model.cluster import GATES_PATH, ClusterState, NotRead, encode

WITH_GAPS = 3


def run(chosen: argparse.Namespace) -> int:
    """Read the cluster and write the file; answers the exit code."""
    destination = Destination.of(chosen.file, force=chosen.force)
    state = cluster.read(cluster.target(chosen))
    destination.write(encode(state))
    if not destination.is_standard_output:
        render.line(render.plain(f"{chosen.file}: {_summary(state)}"))
    for gap in state.not_read:
        render.error(f"not in the record: {gap.resource} {gap.name}".rstrip() + f": {gap.message}")
    return WITH_GAPS if any(map(_decides, state.not_read)) else 0


def _decides(gap: NotRead) -> bool:
    """Whether the cluster has something that the record lacks; without the gates the defaults of its release are assumed."""
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
