# SPDX-License-Identifier: Apache-2.0
"""A small client for the fake scheduler, the demo and tests: the requests that a user sends with kubectl.

Objects are dicts in the form of v1; parameters that Python cannot hold are RawJson. The driver does not use this client: it has no
retries, no credentials and no older versions.
"""

from typing import Any, Self

import urllib3

from dra_driver.errors import Permanent
from dra_driver.testing.fake_api.raw import dumps, loads

Object = dict[str, Any]

CORE = frozenset(("pods", "nodes", "namespaces", "events"))
CLUSTER_WIDE = frozenset(("nodes", "namespaces", "deviceclasses", "resourceslices"))
PLURALS = {
    "DeviceClass": "deviceclasses",
    "Namespace": "namespaces",
    "Node": "nodes",
    "Pod": "pods",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "ResourceSlice": "resourceslices",
}
TIMEOUT_SECONDS = 10.0
GONE = 404
FIRST_ERROR = 400


class PlainClient:
    """Requests to one API server; leaving the `with` block closes its connections."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool = urllib3.PoolManager(timeout=TIMEOUT_SECONDS, retries=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_reason: object) -> None:
        self._pool.clear()

    def list(self, plural: str) -> list[Object]:
        """Return every object of a kind, in all namespaces.

        The server omits kind and apiVersion of the items; this method adds both.
        """
        answer = self._call("GET", _path(plural))
        head = {"apiVersion": answer["apiVersion"], "kind": answer["kind"].removesuffix("List")}
        return [{**head, **item} for item in answer["items"]]

    def get(self, plural: str, name: str, *, namespace: str = "default") -> Object | None:
        """Return one object, or None if it does not exist."""
        found = self._call("GET", _path(plural, name, namespace=namespace), missing_is_fine=True)
        return found or None

    def create(self, obj: Object) -> Object:
        """Create the object of a manifest (POST); without a namespace in `default`."""
        namespace = obj.get("metadata", {}).get("namespace", "default")
        return self._call("POST", _path(PLURALS[obj["kind"]], namespace=namespace), obj)

    def replace_status(self, obj: Object) -> Object:
        """Replace the status of an object (PUT)."""
        return self._call("PUT", _own_path(obj) + "/status", obj)

    def bind(self, pod: Object, node: str) -> None:
        """Bind the pod to a node, as a scheduler does."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        metadata = {"name": pod["metadata"]["name"]}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        self._call("POST", _own_path(pod) + "/binding", binding)

    def delete(self, obj: Object) -> None:
        """Delete an object. It is no error if the object does not exist."""
        self._call("DELETE", _own_path(obj), missing_is_fine=True)

    def _call(
        self, method: str, path: str, body: Object | None = None, *, missing_is_fine: bool = False
    ) -> Object:
        response = self._pool.request(
            method,
            self._url + path,
            body=None if body is None else dumps(body),
            headers={"Content-Type": "application/json"},
        )
        answer: Object = loads(response.data)
        if response.status == GONE and missing_is_fine:
            return {}
        if response.status >= FIRST_ERROR:
            raise Permanent(
                f"{method} {path} was refused with {response.status} {answer.get('reason', '')}:"
                f" {answer.get('message', '')}"
            )
        return answer


def _own_path(obj: Object) -> str:
    metadata = obj["metadata"]
    return _path(PLURALS[obj["kind"]], metadata["name"], namespace=metadata.get("namespace", ""))


def _path(plural: str, name: str = "", *, namespace: str = "") -> str:
    root = "/api/v1" if plural in CORE else "/apis/resource.k8s.io/v1"
    place = f"/namespaces/{namespace}" if namespace and plural not in CLUSTER_WIDE else ""
    return f"{root}{place}/{plural}" + (f"/{name}" if name else "")
