# SPDX-License-Identifier: Apache-2.0
"""Which cluster does the command line mean, and what does it look like?

As kubectl does: --kubeconfig, else the variable KUBECONFIG (the first of its files that exists), else ~/.kube/config,
else the service account of the pod that this runs in.
"""

import argparse
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dra_driver.errors import Fatal
from dra_driver.kube.auth import connect, from_kubeconfig
from dra_driver.kube.cluster import read_cluster
from dra_driver.kube.connection import Connection
from dra_driver.kube.kubeconfig import load_kubeconfig
from dra_driver.model.cluster import ClusterState, without_secrets

DEFAULT_NAMESPACE = "default"


class NoneKnown(Fatal):
    """Nothing says which cluster is meant."""


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster, and the namespace that its context prefers."""

    connection: Connection
    namespace: str = DEFAULT_NAMESPACE


def target(chosen: argparse.Namespace, *, environment: Mapping[str, str] = os.environ) -> Target:
    """The cluster that the arguments and the environment mean. Raises Fatal."""
    path = _kubeconfig(chosen.kubeconfig, environment)
    if path is None:
        if not environment.get("KUBERNETES_SERVICE_HOST"):
            raise NoneKnown(
                "no API server is known: --kubeconfig and the variable KUBECONFIG are not given, there is no ~/.kube/config, "
                "and this is no pod; give --kubeconfig"
            )
        return Target(connect(None, environment=environment))
    config = load_kubeconfig(path, context=chosen.context)
    connection = from_kubeconfig(config, environment, time.monotonic)
    return Target(connection, config.namespace or DEFAULT_NAMESPACE)


def read(found: Target) -> ClusterState:
    """What the cluster looks like now, without secrets. Raises DriverError."""
    return without_secrets(read_cluster(found.connection))


def _kubeconfig(given: str | None, environment: Mapping[str, str]) -> Path | None:
    if given:
        return Path(given)
    named = [Path(text) for text in environment.get("KUBECONFIG", "").split(os.pathsep) if text]
    if named:
        return next((path for path in named if path.exists()), named[0])
    usual = Path(environment.get("HOME", "/")) / ".kube" / "config"
    return usual if usual.exists() else None
