# SPDX-License-Identifier: Apache-2.0
"""Which cluster does the command line mean, and what is in it?

The search order is almost the same as in kubectl: --kubeconfig, the variable KUBECONFIG, ~/.kube/config, the service account of
the pod. The difference: kubectl merges all files that KUBECONFIG names, and this command uses the first one that exists.
"""

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from dra_driver.errors import Fatal
from dra_driver.model.cluster import ClusterState, without_secrets

# `kube` is imported where it is called: a record needs no HTTP client, and its import takes as long as the answer about a small one.
if TYPE_CHECKING:
    from dra_driver.kube.connection import Connection

DEFAULT_NAMESPACE = "default"


class NoneKnown(Fatal):
    """No flag, variable, file or service account names a cluster."""


class Target(Struct, frozen=True):
    """The connection to a cluster, and the default namespace of the kubeconfig context."""

    connection: "Connection"
    namespace: str = DEFAULT_NAMESPACE


def target(chosen: argparse.Namespace, *, environment: Mapping[str, str] = os.environ) -> Target:
    """Return the cluster that the arguments and the environment name. Raises Fatal if they name none or a file cannot be read."""
    from dra_driver.kube.auth import connect, from_kubeconfig  # noqa: PLC0415  see above
    from dra_driver.kube.kubeconfig import load_kubeconfig  # noqa: PLC0415

    path = kubeconfig(chosen.kubeconfig, environment)
    if path is None:
        if not environment.get("KUBERNETES_SERVICE_HOST"):
            raise NoneKnown(
                "no API server is known: --kubeconfig and the variable KUBECONFIG are not set, there is no ~/.kube/config, "
                "and this process does not run in a pod; give --kubeconfig"
            )
        return Target(connect(None, environment=environment))
    config = load_kubeconfig(path, context=chosen.context)
    connection = from_kubeconfig(config, environment, time.monotonic)
    return Target(connection, config.namespace or DEFAULT_NAMESPACE)


def read(
    found: Target,
    *,
    namespace: str = "",
    workloads: Sequence[str] = (),
    waiting_pods: bool = False,
) -> ClusterState:
    """Read everything in the cluster that `explain` needs, without secrets. Raises DriverError if the cluster cannot be read.

    Without the right to read all namespaces only `namespace` counts. `workloads` are the kinds of workloads that are needed.
    `waiting_pods`: only pods without a node are asked about.
    """
    from dra_driver.kube.cluster import Scope, read_cluster  # noqa: PLC0415  see above

    scope = Scope(namespace, tuple(workloads), waiting_pods)
    return without_secrets(read_cluster(found.connection, scope=scope))


def kubeconfig(given: str | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the kubeconfig that a flag or the environment names; None if there is none."""
    if given:
        return Path(given)
    named = [Path(text) for text in environment.get("KUBECONFIG", "").split(os.pathsep) if text]
    if named:
        return next((path for path in named if path.exists()), named[0])
    usual = Path(environment.get("HOME", "/")) / ".kube" / "config"
    return usual if usual.exists() else None
