# SPDX-License-Identifier: Apache-2.0
"""What does a real API server say to the chart's objects, without keeping any of them?"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.testbed.onenode import helm
from hack.testbed.onenode.cluster import Cluster
from tests.e2e.rendering import EVERYTHING, daemonset, render

pytestmark = pytest.mark.real

NAMESPACE = "pod-security"
PRIVILEGED = " privileged (container hardware must not set securityContext.privileged=true)"
CLEANUP = "cleanup: {enabled: true, force: true}"
DEFAULT = ("--set", "allowDefaultNamespace=true")
PLATFORMS = list(yaml.safe_load((helm.CHART / "platforms.yaml").read_text()))
NVIDIA = "{driverName: gpu.nvidia.com, deviceClasses: {nvidia: {migProfiles: [1g.5gb+me]}}}"


@pytest.mark.parametrize(
    "values",
    ["", EVERYTHING, CLEANUP, "deviceClasses: {enabled: false}", NVIDIA],
    ids=["defaults", "everything", "cleanup", "without classes", "nvidia"],
)
def test_everything_is_taken_to_the_last_field(
    cluster: Cluster, tmp_path: Path, values: str
) -> None:
    version = ("--kube-version", cluster.options.version)
    objects = render(tmp_path, *version, *DEFAULT, values=values, namespace="default")
    strict = ("--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts")
    said = cluster.kubectl("apply", *strict, "-f", "-", stdin=yaml.safe_dump_all(objects))
    assert len(said.splitlines()) == len(objects)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_each_platforms_objects_are_taken_to_the_last_field(
    cluster: Cluster, tmp_path: Path, platform: str
) -> None:
    """OpenShift's own object has its schema in test_chart_rights.py: this API server does not serve it."""
    served = ("--api-versions", "security.openshift.io/v1")
    version = ("--kube-version", cluster.options.version)
    rendered = render(
        tmp_path, *version, *served, *DEFAULT, values=f"platform: {platform}", namespace="default"
    )
    objects = [one for one in rendered if one["kind"] != "SecurityContextConstraints"]
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


DRIVERS = "device-plugins cgroups registry pod-resources cdi features"


@pytest.mark.parametrize(
    ("values", "volumes", "more"),
    [
        ("hardware: {container: never}", f"plugin {DRIVERS}", ""),
        ("", f"host dev plugin {DRIVERS}", PRIVILEGED),
        (CLEANUP, "plugins cgroups registry pod-resources cdi features", ""),
    ],
    ids=["driver", "hardware", "cleanup"],
)
def test_host_directories_and_one_container_are_all_that_makes_the_pods_privileged(
    guarded: Cluster, tmp_path: Path, values: str, volumes: str, more: str
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
    assert re.sub('[",]', "", violations) == f"hostPath volumes (volumes {volumes}){more}"
