# SPDX-License-Identifier: Apache-2.0
"""`dra-driver record`: what a cluster looks like, in a file that `dra-driver explain --from` reads.

Classes, slices, claims, templates, taint rules, nodes, pods and the labels of namespaces; no annotations, no opaque
parameters, and of pods only what scheduling looks at. What could not be read is said here and noted in the file.
"""

import argparse
import os
from pathlib import Path

from dra_driver.cli import cluster, render
from dra_driver.errors import Permanent
from dra_driver.model.cluster import ClusterState, encode

STANDARD_OUTPUT = "-"


def run(chosen: argparse.Namespace) -> int:
    """Read the cluster and write the file; answers the exit code."""
    state = cluster.read(cluster.target(chosen))
    content = encode(state)
    if chosen.file == STANDARD_OUTPUT:
        render.raw(content)
    else:
        _write(Path(chosen.file), content)
        render.line(f"{chosen.file}: {_summary(state)}")
    for gap in state.not_read:
        render.error(f"not in the record: {gap.resource} {gap.name}".rstrip() + f": {gap.message}")
    return 0


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise Permanent(
            f"cannot write {path}: {error}; choose a directory that this user may write to"
        ) from error


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
