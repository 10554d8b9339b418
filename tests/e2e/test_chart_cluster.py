# SPDX-License-Identifier: Apache-2.0
"""What does a real API server say to the chart's objects, without keeping any of them?"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.testbed.onenode.cluster import Cluster
from tests.e2e.rendering import EVERYTHING, daemonset, render

pytestmark = pytest.mark.real

NAMESPACE = "pod-security"
CLEANUP = "cleanup: {enabled: true, force: true}"


@pytest.mark.parametrize(
    "values",
    ["", EVERYTHING, CLEANUP, "deviceClasses: {enabled: false}"],
    ids=["defaults", "everything", "cleanup", "without classes"],
)
def test_everything_is_taken_to_the_last_field(
    cluster: Cluster, tmp_path: Path, values: str
) -> None:
    version = ("--kube-version", cluster.options.version)
    allowed = f"{values}\nallowDefaultNamespace: true"
    objects = render(tmp_path, *version, values=allowed, namespace="default")
    strict = ("--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts")
    said = cluster.kubectl("apply", *strict, "-f", "-", stdin=yaml.safe_dump_all(objects))
    assert len(said.splitlines()) == len(objects)


@pytest.fixture(scope="module")
def guarded(cluster: Cluster) -> Iterator[Cluster]:
    """A namespace in which a pod must be of the level `baseline`."""
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    metadata = {"name": NAMESPACE, "labels": labels}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.mark.parametrize(
    ("values", "volumes"),
    [
        ("", "plugin cgroups registry pod-resources cdi"),
        (CLEANUP, "plugins registry pod-resources cdi"),
    ],
    ids=["driver", "cleanup"],
)
def test_host_directories_are_all_that_makes_the_pods_privileged(
    guarded: Cluster, tmp_path: Path, values: str, volumes: str
) -> None:
    version = ("--kube-version", guarded.options.version)
    objects = render(tmp_path, *version, values=values, namespace=NAMESPACE)
    spec = daemonset(objects)["spec"]["template"]["spec"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "driver", "namespace": NAMESPACE},
        "spec": spec | {"serviceAccountName": "default"},
    }
    create = ["kubectl", "create", "--dry-run=server", "-f", "-"]
    environment = guarded.environment
    said = guarded.namespaces.run(create, env=environment, stdin=json.dumps(pod)).stderr
    violations = said.partition('violates PodSecurity "baseline:latest": ')[2].strip()
    assert re.sub('[",]', "", violations) == f"hostPath volumes (volumes {volumes})"
