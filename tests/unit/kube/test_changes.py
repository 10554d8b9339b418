# SPDX-License-Identifier: Apache-2.0
"""A change in the cluster is noticed, also where watches break or are forbidden."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.kube import changes
from dra_driver.kube.auth import from_kubeconfig
from dra_driver.kube.changes import Changes, deciding, next_pause
from dra_driver.kube.connection import Connection
from dra_driver.kube.kubeconfig import load_kubeconfig
from dra_driver.testing.fake_api import Answer, CutWatch, FakeApi, WatchLine, refusal

PODS = [("pods", "/api/v1/pods")]
BOTH = [*PODS, ("nodes", "/api/v1/nodes")]
LONG = 30.0


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.setattr(changes, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(changes, "LONGEST_PAUSE_SECONDS", 0.02)
    with FakeApi() as server:
        yield server


@pytest.fixture
def connection(api: FakeApi, tmp_path: Path) -> Connection:
    config = load_kubeconfig(api.kubeconfig(tmp_path / "config"), context="")
    return from_kubeconfig(config, {}, time.monotonic)


def changed(watched: Changes, change: Callable[[], object] | None = None) -> bool:
    """Whether a wait ends, after the change that another thread makes."""
    waiting = threading.Thread(target=watched.wait, kwargs={"rest": 0.0}, daemon=True)
    waiting.start()
    if change:
        change()
    waiting.join(LONG if change else 0.3)
    return not waiting.is_alive()


def test_what_decides_is_watched_in_the_version_that_is_served() -> None:
    assert deciding(()) == [(name, f"/api/v1/{name}") for name in ("nodes", "pods", "namespaces")]
    served = ("v1beta2", "v1beta1", "v1alpha3")
    rules = [path for name, path in deciding(served) if name == "devicetaintrules"]
    assert rules == [
        f"/apis/resource.k8s.io/{version}/devicetaintrules" for version in ("v1beta2", "v1alpha3")
    ]
    found = dict(deciding(served, ["Deployment", "ReplicationController"], "a/b"))
    assert found["resourceslices"] == "/apis/resource.k8s.io/v1beta2/resourceslices"
    assert found["replicasets"] == "/apis/apps/v1/namespaces/a%2Fb/replicasets"
    assert found["replicationcontrollers"] == "/api/v1/namespaces/a%2Fb/replicationcontrollers"


def test_a_change_ends_the_wait_and_an_earlier_one_does_not(
    api: FakeApi, connection: Connection
) -> None:
    api.put("pods", {"metadata": {"name": "before"}})
    with Changes(connection, BOTH, tell=pytest.fail) as watched:
        assert not changed(watched)
        api.put("nodes", {"metadata": {"name": "n"}})
    with Changes(connection, BOTH, tell=pytest.fail) as watched:
        assert changed(watched, lambda: api.put("pods", {"metadata": {"name": "after"}}))
    assert {one.resource for one in api.requests} == {"pods", "nodes"}


def test_the_rest_comes_before_the_wait(api: FakeApi, connection: Connection) -> None:
    with Changes(connection, PODS, tell=pytest.fail) as watched:
        api.put("pods", {"metadata": {"name": "p"}})
        begun = time.monotonic()
        watched.wait(rest=0.2)
        assert time.monotonic() - begun >= 0.2


@pytest.mark.parametrize("clean", [True, False])
def test_a_watch_that_breaks_counts_as_a_change_and_begins_again(
    api: FakeApi, connection: Connection, *, clean: bool
) -> None:
    api.faults.add(CutWatch(clean=clean), verb="watch", resource="pods")
    with Changes(connection, PODS, tell=pytest.fail) as watched:
        assert changed(watched, lambda: api.put("pods", {"metadata": {"name": "p"}}))
        assert changed(watched, lambda: api.put("pods", {"metadata": {"name": "q"}}))


def test_a_version_that_is_too_old_counts_as_a_change(api: FakeApi, connection: Connection) -> None:
    api.faults.status(410, verb="watch")
    with Changes(connection, PODS, tell=pytest.fail) as watched:
        assert changed(watched, lambda: None)


def test_an_object_that_cannot_be_read_has_changed_too(
    api: FakeApi, connection: Connection
) -> None:
    line = b'{"type":"MODIFIED","object":{"metadata":{"name":"\\ud800"}}}\n'
    api.faults.add(WatchLine(line), verb="watch")
    with Changes(connection, PODS, tell=pytest.fail) as watched:
        assert changed(watched, lambda: api.put("pods", {"metadata": {"name": "p"}}))


def test_a_server_that_does_not_answer_is_asked_again(api: FakeApi, connection: Connection) -> None:
    api.faults.add(refusal(500), verb="list", times=3)
    with Changes(connection, PODS, tell=pytest.fail) as watched:
        assert changed(watched, lambda: None)
        assert changed(watched, lambda: api.put("pods", {"metadata": {"name": "p"}}))


def test_what_is_not_served_cannot_change(api: FakeApi, connection: Connection) -> None:
    paths = [*PODS, ("devicetaintrules", "/apis/resource.k8s.io/v1beta1/devicetaintrules")]
    with Changes(connection, paths, tell=pytest.fail) as watched:
        assert not changed(watched)
        assert changed(watched, lambda: api.put("pods", {"metadata": {"name": "p"}}))


@pytest.mark.parametrize("verb", ["watch", "list"])
def test_without_the_right_to_watch_a_change_is_assumed_now_and_then_and_told(
    api: FakeApi, connection: Connection, verb: str
) -> None:
    api.faults.status(403, verb=verb, resource="pods")
    told: list[str] = []
    with Changes(connection, BOTH, tell=told.append, unwatched_seconds=0.05) as watched:
        assert changed(watched, lambda: None)
        assert changed(watched, lambda: None)
    (said,) = told
    assert f"{verb} pods" in said
    assert said.endswith("; so it is looked at every 0.05 s")


def test_the_objects_of_the_namespace_are_watched_where_those_of_all_are_forbidden(
    api: FakeApi, connection: Connection
) -> None:
    pod = {"metadata": {"name": "p"}}
    api.faults.status(403, verb="list", resource="pods")
    with Changes(connection, PODS, tell=pytest.fail, namespace="team") as watched:
        assert changed(watched, lambda: api.put("pods", pod, namespace="team"))
    paths = [one.path.partition("?")[0] for one in api.requests if one.verb == "watch"]
    assert paths == ["/api/v1/namespaces/team/pods"]


def test_where_all_may_be_read_and_only_the_watch_is_forbidden_all_is_looked_at(
    api: FakeApi, connection: Connection
) -> None:
    """The answer has the objects of all namespaces: to watch one of them would miss the changes in others."""
    told: list[str] = []
    api.faults.status(403, verb="watch", resource="pods")
    with Changes(
        connection, PODS, tell=told.append, namespace="team", unwatched_seconds=0.05
    ) as watched:
        while not told:
            time.sleep(0.01)
        watched.wait(rest=0.0)
        assert changed(watched, lambda: None)
    assert [one.partition(" at ")[0] for one in told] == ["watch pods"]
    (path,) = (one.path.partition("?")[0] for one in api.requests if one.verb == "watch")
    assert path == "/api/v1/pods"


def test_where_the_namespace_is_forbidden_too_or_there_is_none_it_is_told(
    api: FakeApi, connection: Connection
) -> None:
    told: list[str] = []
    api.faults.status(403, verb="list", resource="*", times=3)
    with Changes(connection, BOTH, tell=told.append, namespace="team", unwatched_seconds=0.05):
        assert sorted(one.partition(" at ")[0] for one in told) == ["list nodes", "list pods"]


def test_a_resource_that_is_not_served_any_more_counts_as_a_change(
    api: FakeApi, connection: Connection
) -> None:
    paths = [("resourceslices", "/apis/resource.k8s.io/v1/resourceslices")]
    api.faults.add(CutWatch(), verb="watch", resource="resourceslices")
    with Changes(connection, paths, tell=pytest.fail) as watched:
        api.serve("v1beta1")
        api.put("resourceslices", {"metadata": {"name": "s"}, "spec": {"driver": "d"}})
        assert changed(watched, lambda: None)
        assert changed(watched, lambda: None)


def test_a_change_that_is_assumed_ends_the_wait(api: FakeApi, connection: Connection) -> None:
    with Changes(connection, PODS, tell=pytest.fail) as watched:
        assert changed(watched, watched.assume_change)


def test_a_watch_that_ends_at_once_begins_again_later_and_later(
    api: FakeApi, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [next_pause(1.0, lasted) for lasted in (0.0, 1.0, 1.5)] == [0.02, 0.02, 0.01]
    monkeypatch.setattr(changes, "LONGEST_PAUSE_SECONDS", 30.0)
    assert [next_pause(pause, 0.0) for pause in (1.0, 8.0, 16.0, 30.0)] == [2.0, 16.0, 30.0, 30.0]
    pauses: list[float] = []

    def recorded(pause: float, _lasted: float) -> float:
        pauses.append(pause)
        return pause + 0.001

    monkeypatch.setattr(changes, "next_pause", recorded)
    api.faults.add(Answer(200, body=b""), verb="watch", times=5)
    with Changes(connection, PODS, tell=pytest.fail) as watched:
        while len(pauses) < 5:
            watched.assume_change()
            watched.wait(rest=0.01)
    assert pauses[:5] == pytest.approx([0.01, 0.011, 0.012, 0.013, 0.014])
