# SPDX-License-Identifier: Apache-2.0
"""An API server to hold the contract against: the fake one, and with `-m real` a kube-apiserver.

The real one is named by KUBE_CONTRACT_KUBECONFIG; its user must be an admin. Every test has a Node, a driver name and a
claim name of its own and removes what it made, so that a shared cluster is left as it was found.
"""

import json
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import urllib3

from dra_driver.kube.auth import connect
from dra_driver.kube.connection import Connection
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_api.kinds import convert
from tests.support.served_version import served_version

Object = dict[str, Any]
VARIABLE = "KUBE_CONTRACT_KUBECONFIG"


@dataclass
class ApiServer:
    """One API server and, on it, the playground of one test."""

    connection: Connection
    pool: urllib3.PoolManager
    driver: DriverName = field(
        default_factory=lambda: DriverName(f"{uuid.uuid4().hex[:8]}.example.com")
    )
    node: NodeName = field(default_factory=lambda: NodeName(f"contract-{uuid.uuid4().hex[:8]}"))

    def __post_init__(self) -> None:
        self.kube = HttpKubeApi(self.connection, driver=self.driver, node=self.node)
        self.group = f"/apis/resource.k8s.io/{served_version(self.kube)}"

    def call(
        self, method: str, path: str, body: Object | bytes | None = None, *, accept: str = ""
    ) -> tuple[int, Object]:
        """One raw request: status and JSON object."""
        headers = {**self.connection.credentials.headers(), "Content-Type": "application/json"}
        headers |= {"Accept": accept} if accept else {}
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        answer = self.pool.request(
            method, self.connection.server + path, body=data, headers=headers, retries=False
        )
        return answer.status, answer.json()

    def made(self, path: str, obj: Object) -> Object:
        """Create an object, given in v1 form; its metadata and spec in the served form."""
        status, answer = self.call("POST", path, self.served(obj))
        assert status == 201, answer
        return answer

    def changed(self, path: str, change: Callable[[Object], None], part: str = "") -> None:
        """Write an object as `change` leaves it; anew where somebody else, like a controller, wrote in between."""
        for _attempt in range(10):
            _status, found = self.call("GET", path)
            change(found)
            status, answer = self.call("PUT", path + part, found)
            if status != 409:
                break
        assert status == 200, answer

    def served(self, obj: Object) -> Object:
        """An object of resource.k8s.io, given in v1 form, in the served version."""
        if not obj["apiVersion"].startswith("resource.k8s.io/"):
            return obj
        return convert(obj, served_version(self.kube), direction="serve")

    def slice(self, name: str, **spec: Any) -> Object:
        """A ResourceSlice in v1 form: a valid one of this node, but for `spec`."""
        content = {
            "driver": self.driver,
            "nodeName": self.node,
            "pool": {"name": self.node, "generation": 1, "resourceSliceCount": 1},
            **spec,
        }
        present = {key: value for key, value in content.items() if value is not None}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": present,
        }

    def clean(self) -> None:
        """Remove everything of this test."""
        selector = f"fieldSelector=spec.driver%3D{self.driver}"
        self.call("DELETE", f"{self.group}/resourceslices?{selector}")
        self.call(
            "DELETE",
            f"{self.group}/namespaces/default/resourceclaims?labelSelector=test%3D{self.node}",
        )
        events = f"fieldSelector=involvedObject.name%3D{self.node}"
        self.call("DELETE", f"/api/v1/namespaces/default/events?{events}")
        self.call("DELETE", f"/api/v1/nodes/{self.node}")
        self.kube.close()


@pytest.fixture(params=["v1", "v1beta1", pytest.param("real", marks=pytest.mark.real)])
def server(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    """The fake API server with the newest and the oldest wire version, and the real one."""
    if request.param != "real":
        with FakeApi([request.param]) as api:
            api.put("namespaces", {"metadata": {"name": "default"}})
            yield from _prepared(Connection(api.url))
        return
    yield from _real()


@pytest.fixture
def real_server() -> Iterator[ApiServer]:
    """The real API server, for tests about rules that the fake one does not have."""
    yield from _real()


def _real() -> Iterator[ApiServer]:
    path = os.environ.get(VARIABLE)
    assert path, f"{VARIABLE} must name the kubeconfig of an admin of a real cluster"
    yield from _prepared(connect(Path(path)))


def _prepared(connection: Connection) -> Iterator[ApiServer]:
    secure = connection.server.startswith("https")
    options: Object = {"ssl_context": connection.tls.current()} if secure else {}
    with urllib3.PoolManager(**options) as pool:
        server = ApiServer(connection, pool)
        server.made(
            "/api/v1/nodes",
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": server.node}},
        )
        yield server
        server.clean()
