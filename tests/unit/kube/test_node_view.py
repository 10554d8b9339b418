# SPDX-License-Identifier: Apache-2.0
"""What `doctor` asks about one node, at the fake API server."""

import json
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from dra_driver.kube.auth import connect
from dra_driver.kube.base import Forbidden
from dra_driver.kube.node_view import NodeView
from dra_driver.model.ids import NodeName
from dra_driver.model.rights import Right
from dra_driver.testing.fake_api import Answer, FakeApi, refusal


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as found:
        info = {"kubeletVersion": "v1.37.0", "containerRuntimeVersion": "containerd://2.1.0"}
        found.put("nodes", {"metadata": {"name": "n"}, "status": {"nodeInfo": info}})
        yield found


@pytest.fixture
def view(api: FakeApi, tmp_path: Path) -> Iterator[NodeView]:
    connection = connect(api.kubeconfig(tmp_path / "config"))
    with closing(NodeView(connection, NodeName("n"))) as found:
        yield found


def named(view: NodeView) -> list[str]:
    return [one.metadata.name for one in view.cluster().nodes]


def test_the_cluster_has_no_secrets(api: FakeApi, view: NodeView) -> None:
    api.put("nodes", {"metadata": {"name": "m", "annotations": {"a": "secret"}}})
    assert "secret" not in str(view.cluster())
    assert named(view) == ["m", "n"]


def test_who_may_not_list_nodes_sees_the_own_one(api: FakeApi, view: NodeView) -> None:
    api.faults.add(refusal(403), verb="list", resource="nodes", times=2)
    state = view.cluster()
    assert [one.metadata.name for one in state.nodes] == ["n"]
    assert state.unread("nodes") is None
    api.faults.add(refusal(403), verb="get", resource="nodes", times=1)
    state = view.cluster()
    gap = state.unread("nodes")
    assert (state.nodes, gap and gap.reason) == ((), "forbidden")


def test_without_the_name_of_a_node_there_is_no_own_one(api: FakeApi, tmp_path: Path) -> None:
    api.faults.add(refusal(403), verb="list", resource="nodes", times=1)
    connection = connect(api.kubeconfig(tmp_path / "config"))
    with closing(NodeView(connection, NodeName(""))) as view:
        assert view.cluster().nodes == ()


def test_the_container_runtime(view: NodeView) -> None:
    assert view.runtime_version() == "containerd://2.1.0"


def test_the_pods_of_the_node_alone(api: FakeApi, view: NodeView) -> None:
    for name, where in (("here", "n"), ("there", "m")):
        env = [{"name": "TOKEN", "value": "secret"}]
        spec = {"nodeName": where, "containers": [{"name": "c", "env": env}]}
        api.put("pods", {"metadata": {"name": name}, "spec": spec})
    bad = {"nodeName": "n", "containers": [{"name": 7}]}
    api.put("pods", {"metadata": {"name": "bad"}, "spec": bad})
    pods, unreadable = view.pods()
    assert [one.metadata.name for one in pods] == ["here"]
    assert unreadable == 1
    assert "secret" not in str(pods)


RIGHTS = (Right("list", "pods"), Right("patch", "nodes/status", namespace="x", name="y"))


def answers(api: FakeApi, *allowed: object) -> None:
    for one in allowed:
        body = json.dumps({"status": {"allowed": one}}).encode()
        api.faults.add(Answer(201, {}, body), verb="create", resource="discovery", times=1)


def test_rights(api: FakeApi, view: NodeView) -> None:
    answers(api, True, False)
    assert view.missing_rights(RIGHTS, "") == RIGHTS[1:]
    answers(api, "yes", None)
    assert view.missing_rights(RIGHTS, "system:serviceaccount:a:b") == RIGHTS
    assert [one.path.rpartition("/")[2] for one in api.requests if one.verb == "create"] == [
        *["selfsubjectaccessreviews"] * 2,
        *["subjectaccessreviews"] * 2,
    ]
    api.faults.add(refusal(403), verb="create", resource="discovery", times=1)
    with pytest.raises(Forbidden):
        view.missing_rights(RIGHTS, "system:serviceaccount:a:b")


class _Reviews(BaseHTTPRequestHandler):
    """Allows everything, and keeps what it was asked."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = b'{"status": {"allowed": true}}'
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        pass


def test_what_is_asked_about_a_right(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), _Reviews) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
        config = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "config").write_text(json.dumps(config))
        with closing(NodeView(connect(tmp_path / "config"), NodeName("n"))) as view:
            assert view.missing_rights(RIGHTS[1:], "") == ()
            assert view.missing_rights(RIGHTS[1:], "system:serviceaccount:a:b") == ()
        server.shutdown()
    attributes = {
        "verb": "patch",
        "group": "",
        "resource": "nodes",
        "subresource": "status",
        "namespace": "x",
        "name": "y",
    }
    groups = ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]
    user = {"user": "system:serviceaccount:a:b", "groups": groups}
    assert [(one["kind"], one["spec"]) for one in _Reviews.asked] == [
        ("SelfSubjectAccessReview", {"resourceAttributes": attributes}),
        ("SubjectAccessReview", {"resourceAttributes": attributes, **user}),
    ]
