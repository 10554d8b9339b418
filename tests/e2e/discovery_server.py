# SPDX-License-Identifier: Apache-2.0
"""As much of an API server as helm asks before it renders a chart: versions, and lists of objects.

A real cluster is one release with kubelets of the same; this one is whatever a test says. It stores nothing.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Object = dict[str, Any]
# What the chart installs, by API version: plural -> kind.
KINDS: Mapping[str, Mapping[str, str]] = {
    "v1": {
        "configmaps": "ConfigMap",
        "nodes": "Node",
        "serviceaccounts": "ServiceAccount",
        "services": "Service",
    },
    "apps/v1": {"daemonsets": "DaemonSet"},
    "rbac.authorization.k8s.io/v1": {
        "clusterroles": "ClusterRole",
        "clusterrolebindings": "ClusterRoleBinding",
        "roles": "Role",
        "rolebindings": "RoleBinding",
    },
    "admissionregistration.k8s.io/v1": {
        "validatingadmissionpolicies": "ValidatingAdmissionPolicy",
        "validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding",
    },
}
DRA = {"resourceclaims": "ResourceClaim", "deviceclasses": "DeviceClass"}
CLUSTER_WIDE = ("Node", "Cluster", "Validating", "DeviceClass")


def _resources(version: str, kinds: Mapping[str, str]) -> Object:
    listed = [
        {
            "name": plural,
            "kind": kind,
            "namespaced": not kind.startswith(CLUSTER_WIDE),
            "verbs": ["get", "list"],
        }
        for plural, kind in kinds.items()
    ]
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version}
    return {**head, "resources": listed}


def _group(name: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def pages(kubernetes: str, served: list[str], objects: Mapping[str, list[Object]]) -> Object:
    """What to answer by path: a Kubernetes of that version, which serves these versions of resource.k8s.io."""
    major, minor, _ = kubernetes.split(".", 2)
    kinds = {**KINDS, **{f"resource.k8s.io/{version}": DRA for version in served}}
    others = [name.partition("/")[0] for name in KINDS if "/" in name]
    groups = [_group(name, ["v1"]) for name in others]
    groups += [_group("resource.k8s.io", served)] if served else []
    found: Object = {
        "/version": {"major": major, "minor": minor, "gitVersion": f"v{kubernetes}"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
    }
    for version, listed in kinds.items():
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        found[path] = _resources(version, listed)
        for plural, kind in listed.items():
            items = objects.get(plural, [])
            found[f"{path}/{plural}"] = _list(version, f"{kind}List", items)
    return found


def _list(version: str, kind: str, items: list[Object]) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {}, "items": items}


@contextmanager
def serving(answers: Mapping[str, Object]) -> Iterator[str]:
    """The URL of a server with these answers, and 404 for everything else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
            body = json.dumps(answer or missing).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
