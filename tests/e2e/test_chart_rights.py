# SPDX-License-Identifier: Apache-2.0
"""What do the pods of the chart get, and does OpenShift's own object allow exactly that? By the real helm."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import rendering
from tests.e2e.rendering import EVERYTHING, Object, container, daemonset, of_kind

pytestmark = pytest.mark.real

CLEANUP = "cleanup: {enabled: true}"
OPENSHIFT = "openshift: {securityContextConstraints: true}"
SERVED = ("--api-versions", "security.openshift.io/v1")
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
# The schema of security.openshift.io/v1: every field by its type; these must be there, and these may be null.
BOOLEANS = {
    "allowHostDirVolumePlugin", "allowHostIPC", "allowHostNetwork", "allowHostPID", "allowHostPorts",
    "allowPrivilegeEscalation", "allowPrivilegedContainer", "readOnlyRootFilesystem",
}  # fmt: skip
LISTS = {
    "allowedCapabilities", "allowedUnsafeSysctls", "defaultAddCapabilities", "groups",
    "requiredDropCapabilities", "seccompProfiles", "users", "volumes",
}  # fmt: skip
STRATEGIES = {
    "fsGroup": {"MustRunAs", "RunAsAny"},
    "runAsUser": {"MustRunAs", "MustRunAsNonRoot", "MustRunAsRange", "RunAsAny"},
    "seLinuxContext": {"MustRunAs", "RunAsAny"},
    "supplementalGroups": {"MustRunAs", "RunAsAny"},
}
REQUIRED = (BOOLEANS - {"allowPrivilegeEscalation"}) | {
    "allowedCapabilities", "defaultAddCapabilities", "priority", "requiredDropCapabilities", "volumes",
}  # fmt: skip


@pytest.fixture
def render(tmp_path: Path) -> Any:
    return partial(rendering.render, tmp_path)


def cleanup_pod(render: Any) -> Object:
    spec: Object = daemonset(render(values=CLEANUP))["spec"]["template"]["spec"]
    return spec


def mounts(one: Object) -> list[str]:
    return [mount["mountPath"] for mount in one.get("volumeMounts", [])]


def test_only_the_container_that_cleans_has_the_token(render: Any) -> None:
    spec = cleanup_pod(render)
    (cleaning,), (waiting,) = spec["initContainers"], spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert TOKEN in mounts(cleaning)
    assert mounts(waiting) == []
    (volume,) = [found for found in spec["volumes"] if found["name"] == "token"]
    sources = volume["projected"]["sources"]
    # The files that the driver looks for, by the names that the kubelet itself gives them.
    assert [next(iter(source)) for source in sources] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    token, authorities, namespace = (next(iter(source.values())) for source in sources)
    assert token["path"] == "token"
    assert (authorities["name"], authorities["items"][0]["path"]) == ("kube-root-ca.crt", "ca.crt")
    assert namespace["items"][0]["path"] == "namespace"


def test_only_the_container_that_talks_to_the_api_server_has_the_token(render: Any) -> None:
    objects = render()
    spec = daemonset(objects)["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert [TOKEN in mounts(one) for one in spec["containers"]] == [True, False]
    assert [one["name"] for one in spec["containers"]] == ["driver", "hardware"]


def test_the_container_that_waits_is_nobody(render: Any) -> None:
    context = cleanup_pod(render)["containers"][0]["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (
        65534,
        65534,
        True,
    )


def constraints(render: Any, values: str = OPENSHIFT) -> Object:
    (found,) = of_kind(render(*SERVED, values=values), "SecurityContextConstraints")
    return found


def test_openshifts_object_fits_its_schema(render: Any) -> None:
    found = constraints(render)
    assert found["apiVersion"] == "security.openshift.io/v1"
    fields = found.keys() - {"apiVersion", "kind", "metadata"}
    assert fields <= BOOLEANS | LISTS | STRATEGIES.keys() | {"priority"}
    assert fields >= REQUIRED
    assert [name for name in fields & BOOLEANS if not isinstance(found[name], bool)] == []
    for name in fields & LISTS:
        assert all(isinstance(one, str) for one in found[name]), name
    for name, kinds in STRATEGIES.items():
        assert found[name]["type"] in kinds
        assert found[name].keys() == {"type"}
    assert found["priority"] is None
    assert "namespace" not in found["metadata"]  # it is the cluster's


def volume_kinds(spec: Object) -> set[str]:
    return {kind for volume in spec["volumes"] for kind in volume if kind != "name"}


@pytest.mark.parametrize("more", ["hardware: {container: never}", EVERYTHING, CLEANUP])
def test_openshift_takes_the_pods_and_nothing_beyond(render: Any, more: str) -> None:
    objects = render(*SERVED, values=f"{OPENSHIFT}\n{more}")
    (allowed,) = of_kind(objects, "SecurityContextConstraints")
    spec = daemonset(objects)["spec"]["template"]["spec"]
    account = f"system:serviceaccount:dra:{spec['serviceAccountName']}"
    assert (allowed["users"], allowed["groups"]) == ([account], [])
    assert volume_kinds(spec) <= {*allowed["volumes"]}
    for one in (*spec.get("initContainers", []), *spec["containers"]):
        context = one["securityContext"]
        assert context["capabilities"] == {"drop": allowed["requiredDropCapabilities"]}
        assert context["seccompProfile"]["type"] == "RuntimeDefault"
        assert context["readOnlyRootFilesystem"] is allowed["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is allowed["allowPrivilegeEscalation"] is False
    assert allowed["seccompProfiles"] == ["runtime/default"]
    forbidden = BOOLEANS - {
        "allowHostDirVolumePlugin",
        "readOnlyRootFilesystem",
        "allowPrivilegeEscalation",
    }
    assert [name for name in forbidden if allowed[name]] == []
    assert {*allowed["allowedCapabilities"], *allowed["defaultAddCapabilities"]} == set()
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert "ports" not in one or all("hostPort" not in port for port in one["ports"])


def test_openshift_takes_the_privileged_container_where_there_is_one(render: Any) -> None:
    objects = render(*SERVED, values="platform: openshift")
    (allowed,) = of_kind(objects, "SecurityContextConstraints")
    assert allowed["allowPrivilegedContainer"] is allowed["allowPrivilegeEscalation"] is True
    assert (
        allowed["requiredDropCapabilities"] == []
    )  # OpenShift would put them into the privileged one
    spec = daemonset(objects)["spec"]["template"]["spec"]
    assert volume_kinds(spec) <= {*allowed["volumes"]}
    assert container(objects)["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    beyond = BOOLEANS - {
        "allowHostDirVolumePlugin",
        "readOnlyRootFilesystem",
        "allowPrivilegeEscalation",
        "allowPrivilegedContainer",
    }
    assert [name for name in beyond if allowed[name]] == []


def test_other_clusters_get_no_such_object_and_are_told_why(render: Any, tmp_path: Path) -> None:
    assert of_kind(render(*SERVED), "SecurityContextConstraints") == []
    for values in (OPENSHIFT, "platform: openshift"):
        code, _, wrong = rendering.template(tmp_path, values=values)
        assert code == 1
    assert "openshift.securityContextConstraints is for OpenShift" in wrong
    assert "--api-versions security.openshift.io/v1" in wrong
    assert container(render())["securityContext"]["runAsUser"] == 0
