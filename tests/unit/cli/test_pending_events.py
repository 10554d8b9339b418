# SPDX-License-Identifier: Apache-2.0
"""`dra-driver pending-events`: which pods get an Event, what it says, and how often."""

import itertools
import json
import os
import re
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from dra_driver.cli import cluster, pending_events
from dra_driver.cli.cluster import Target
from dra_driver.cli.limits import TookTooLong
from dra_driver.cli.main import main
from dra_driver.cli.pending_events import Watch
from dra_driver.explain import several
from dra_driver.explain.explanation import Limits
from dra_driver.explain.facts import fleet
from dra_driver.explain.outcome import Report
from dra_driver.explain.readable import readable
from dra_driver.explain.several import explain_pods
from dra_driver.explain.turns import Time
from dra_driver.kube.connection import Connection
from dra_driver.kube.pod_events import PodEvents, Written
from dra_driver.model.cluster import ClusterState
from dra_driver.testing.fake_api import Answer, FakeApi
from tests.support.pending_controller import (
    LARGE,
    Controller,
    Object,
    devices,
    node,
    pod,
    request,
)


@pytest.fixture
def controller() -> Iterator[Controller]:
    """A cluster with one device of 80Gi, and templates for one of 80Gi and of 90Gi."""
    with FakeApi() as api:
        api.tell_gates({})
        api.put("namespaces", {"metadata": {"name": "default"}})
        api.put("nodes", node("n1"))
        api.put("resourceslices", devices("80Gi"))
        api.put("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        for name, memory in (("large", "90Gi"), ("small", "80Gi")):
            api.put(
                "resourceclaimtemplates",
                {"metadata": {"name": name}, "spec": {"spec": request(memory)}},
            )
        yield Controller(api)


def test_a_pod_that_waits_for_devices_gets_an_event_with_the_first_line_of_explain(
    controller: Controller,
) -> None:
    stored = controller.api.put("pods", pod("train"))
    controller.look()
    (event,) = controller.events()
    metadata = event.pop("metadata")
    stamp = controller.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "train",
            "uid": stored["metadata"]["uid"],
        },
        "type": "Warning",
        "reason": "WaitingForDevices",
        "message": LARGE,
        "source": {"component": "dra-driver"},
        "reportingComponent": "dra-driver",
        "reportingInstance": "controller-0",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
    assert metadata["namespace"] == "default"
    assert metadata["name"].startswith("train.")


def test_nothing_is_said_twice_and_a_restart_repeats_nothing(controller: Controller) -> None:
    controller.api.put("pods", pod("train"))
    for _ in range(3):
        controller.look(minutes=10)
        controller.start()
    assert controller.said() == [("train", LARGE)]
    assert controller.metric('dra_driver_pending_events_total{result="written"}') == 1


def test_one_more_node_is_no_news(controller: Controller) -> None:
    controller.api.put("pods", pod("train"))
    controller.look()
    controller.api.put("nodes", node("n2"))
    controller.look(minutes=10)
    assert controller.said() == [("train", LARGE)]


def test_another_answer_is_said_after_five_minutes_and_the_first_one_again_in_its_event(
    controller: Controller,
) -> None:
    controller.api.put("pods", pod("train"))
    controller.look()
    controller.api.put("resourceslices", devices("40Gi"))
    controller.look(minutes=4)
    assert controller.said() == [("train", LARGE)]
    controller.look(minutes=2)
    smaller = LARGE.replace("80Gi", "40Gi")
    assert controller.said() == [("train", LARGE), ("train", smaller)]
    controller.api.put("resourceslices", devices("80Gi"))
    controller.look(minutes=6)
    assert controller.said() == [("train", smaller), ("train", LARGE)]
    assert [one["count"] for one in controller.events()] == [1, 2]


def test_each_pod_of_a_replica_set_gets_an_event_and_they_are_explained_once(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    explained: list[int] = []
    whole = pending_events.message_of
    monkeypatch.setattr(
        pending_events, "message_of", lambda report: explained.append(1) or whole(report)
    )
    for number in range(40):
        controller.api.put("pods", pod(f"train-{number:02}"))
    controller.look()
    assert controller.said() == [(f"train-{number:02}", LARGE) for number in range(40)]
    assert len(explained) == 1


def test_a_look_writes_a_hundred_events_and_the_next_look_the_others(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_events, "MOST_EVENTS", 3)
    for number in range(5):
        controller.api.put("pods", pod(f"train-{number}"))
    controller.look()
    assert len(controller.events()) == 3
    controller.look()
    assert sorted(controller.said()) == [(f"train-{number}", LARGE) for number in range(5)]


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeName": "n1"},
        {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
        {"resourceClaims": []},
    ],
)
def test_a_pod_that_does_not_wait_for_devices_gets_none_and_the_cluster_is_not_read(
    controller: Controller, spec: Object
) -> None:
    controller.api.put("pods", pod("train", **spec))
    controller.look()
    assert controller.events() == []
    assert {one.path.partition("?")[0] for one in controller.api.requests} == {"/api/v1/pods"}


def test_a_pod_that_waits_for_a_short_time_gets_none(controller: Controller) -> None:
    controller.api.put("pods", pod("train"))
    controller.look(minutes=-2)
    assert controller.events() == []
    controller.look(minutes=2)
    assert len(controller.events()) == 1


def test_a_pod_whose_devices_fit_and_that_waits_for_something_else_is_not_blamed_on_devices(
    controller: Controller,
) -> None:
    controller.api.put("pods", pod("fits", "small", nodeSelector={"zone": "nowhere"}))
    controller.look()
    assert controller.events() == []
    other = 'dra_driver_pending_pods{outcome="devices fit, something else is in the way"}'
    assert controller.metric(other) == 1
    assert controller.metric('dra_driver_pending_pods{outcome="devices do not fit"}') == 0


def test_without_a_right_nothing_is_said_but_in_the_log_once_and_in_the_metrics(
    controller: Controller,
) -> None:
    controller.api.put("pods", pod("train"))
    controller.api.faults.status(403, verb="list", resource="resourceslices", times=2)
    controller.look()
    controller.look()
    assert controller.events() == []
    (line,) = controller.log.calls
    assert line.kwargs["event"] == "not_read"
    assert "list resourceslices" in line.kwargs["error"]
    assert controller.metric("dra_driver_pending_kinds_not_read") == 1
    assert controller.metric('dra_driver_pending_pods{outcome="could not tell"}') == 1


def test_without_the_right_to_read_events_nothing_is_written(
    controller: Controller,
) -> None:
    controller.api.put("pods", pod("train"))
    controller.api.faults.status(403, verb="list", resource="events", times=2)
    controller.look()
    controller.look()
    assert controller.events() == []
    (line,) = controller.log.calls
    assert line.kwargs["event"] == "look_failed"
    assert controller.metric('dra_driver_pending_looks_total{result="failed"}') == 2
    assert len(controller.watch.problems()) == 1
    controller.look()
    assert controller.watch.problems() == ()


def test_an_event_that_is_refused_keeps_no_other_pod_from_its_event(
    controller: Controller,
) -> None:
    controller.api.put("pods", pod("a"))
    controller.api.put("pods", pod("b"))
    controller.api.faults.status(403, verb="create", resource="events")
    controller.look()
    assert len(controller.events()) == 1
    assert controller.metric('dra_driver_pending_events_total{result="refused"}') == 1
    controller.look()
    assert sorted(controller.said()) == [("a", LARGE), ("b", LARGE)]


def test_a_namespace_that_is_being_terminated_costs_only_itself(controller: Controller) -> None:
    for namespace in ("going", "staying"):
        controller.api.put("namespaces", {"metadata": {"name": namespace}})
        template = {"metadata": {"name": "large", "namespace": namespace}, "spec": {"spec": request("90Gi")}}  # fmt: skip
        controller.api.put("resourceclaimtemplates", template)
        waiting = pod("train")
        waiting["metadata"]["namespace"] = namespace
        controller.api.put("pods", waiting)
    causes = [{"reason": "NamespaceTerminating", "message": "it is", "field": "metadata.namespace"}]
    said = {
        "kind": "Status",
        "status": "Failure",
        "reason": "Forbidden",
        "code": 403,
        "message": "unable to create new content in namespace going because it is being terminated",
        "details": {"kind": "events", "causes": causes},
    }
    refused = Answer(403, {}, json.dumps(said).encode())
    gone = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404, "message": 'namespaces "going" not found', "details": {"kind": "namespaces", "name": "going"}}  # fmt: skip
    for answer in (refused, Answer(404, {}, json.dumps(gone).encode())):
        controller.api.faults.add(answer, verb="create", resource="events")
        controller.look()
    assert len(controller.events()) == 1
    assert controller.watch.problems() == ()
    assert controller.metric('dra_driver_pending_events_total{result="refused"}') == 2
    written = [one.kwargs["event"] for one in controller.log.calls]
    assert written.count("event_written") == 1


def test_a_webhook_that_fails_for_one_pod_keeps_no_other_from_its_event(
    controller: Controller,
) -> None:
    for name in ("a", "b", "c", "d"):
        controller.api.put("pods", pod(name))
    controller.api.faults.status(500, verb="create", resource="events", times=2)
    controller.look()
    assert len(controller.events()) == 2
    assert controller.watch.problems() == ()


def test_a_server_that_fails_for_all_is_left_alone(controller: Controller) -> None:
    for number in range(9):
        controller.api.put("pods", pod(f"p{number}"))
    controller.api.faults.status(500, verb="create", resource="events", times=9)
    controller.look()
    tried = [one for one in controller.api.requests if one.verb == "create"]
    assert len(tried) == pending_events.MOST_FAILURES
    assert len(controller.watch.problems()) == 1


def test_two_controllers_that_look_at_the_same_time_say_it_once(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read that nothing was said, before either writes."""
    controller.api.put("pods", pod("train"))
    first = controller.watch
    controller.start()
    other, written = controller.watch, PodEvents.written

    def overtaken(self: PodEvents, pods: Any) -> tuple[Written, ...]:
        found = written(self, pods)
        monkeypatch.setattr(PodEvents, "written", written)
        first.look()
        return found

    monkeypatch.setattr(PodEvents, "written", overtaken)
    other.look()
    creates = [one for one in controller.api.requests if one.verb == "create"]
    assert len(creates) == 2
    assert [(one["message"], one["count"]) for one in controller.events()] == [(LARGE, 1)]
    assert (first.problems(), other.problems()) == ((), ())


def test_a_clock_that_goes_wrong_doubles_nothing(controller: Controller) -> None:
    """Ahead of the API server's clock: Events come early. Then set back: the Event gets the right time."""
    controller.api.put("pods", pod("train"))
    controller.look(minutes=60)
    assert controller.said() == [("train", LARGE)]
    controller.look(minutes=-60)
    controller.look()
    assert controller.said() == [("train", LARGE)]
    (event,) = controller.events()
    assert event["lastTimestamp"] == controller.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    controller.api.put("resourceslices", devices("70Gi"))
    controller.look(minutes=4)
    assert len(controller.events()) == 1
    controller.look(minutes=2)
    assert len(controller.events()) == 2


def forged(namespace: str, pod: Object, at: datetime) -> Object:
    """An Event of somebody else under the controller's name."""
    return {
        "metadata": {"name": "forged", "namespace": namespace},
        "involvedObject": {
            "kind": "Pod",
            "namespace": namespace,
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        },
        "reason": "WaitingForDevices",
        "reportingComponent": "dra-driver",
        "message": "nothing",
        "lastTimestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


@pytest.mark.parametrize(
    ("namespace", "minutes"), [("aaa", 0), ("default", 6), ("default", 500_000_000)]
)
def test_an_event_of_another_namespace_or_of_the_future_mutes_no_pod(
    controller: Controller, namespace: str, minutes: int
) -> None:
    stored = controller.api.put("pods", pod("train"))
    at = controller.now + timedelta(minutes=minutes)
    controller.api.put("events", forged(namespace, stored, at))
    controller.look()
    assert ("train", LARGE) in controller.said()
    controller.look(minutes=10)
    assert len(controller.events()) == 2


def test_a_clock_that_is_behind_says_it_later(controller: Controller) -> None:
    controller.api.put("pods", pod("train"))
    controller.look(minutes=-60)
    assert controller.events() == []
    controller.look(minutes=60)
    assert controller.said() == [("train", LARGE)]


def test_a_pod_with_the_longest_name_and_a_long_answer_gets_an_event_that_the_api_takes(
    controller: Controller,
) -> None:
    spec = request("90Gi")
    (selector,) = spec["devices"]["requests"][0]["exactly"]["selectors"]
    selector["cel"]["expression"] = f"'{'x' * 3000}' == 'y'"
    template = {"metadata": {"name": "odd"}, "spec": {"spec": spec}}
    controller.api.put("resourceclaimtemplates", template)
    name = f"{'a' * 235}-{'b' * 17}"
    controller.api.put("pods", pod(name, "odd"))
    controller.look()
    (event,) = controller.events()
    assert event["involvedObject"]["name"] == name
    assert len(event["metadata"]["name"]) <= 253
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]+)*", event["metadata"]["name"])
    assert len(event["message"].encode()) <= 1024
    assert event["message"].endswith(" …")
    # It is known again by what it says.
    controller.look()
    assert [one["count"] for one in controller.events()] == [1]


def test_two_controllers_write_one_event(controller: Controller) -> None:
    stored = controller.api.put("pods", pod("train"))
    controller.look()
    other = PodEvents(Connection(controller.api.url, source="this test"), instance="other")
    (waiting,) = other.pods_without_node()
    assert waiting.metadata.uid == stored["metadata"]["uid"]
    other.create(waiting.metadata, LARGE, controller.now)
    (event,) = controller.events()
    assert (event["count"], event["reportingInstance"]) == (1, "controller-0")


def test_pods_for_which_there_was_no_time_come_first_in_the_next_look(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_events, "MOST_EVENTS", 1)
    controller.api.put("pods", pod("a"))
    controller.api.put("pods", pod("b", priority=1))
    whole = pending_events.message_of

    def slow(report: Any) -> str:
        controller.seconds += pending_events.SEARCH_SECONDS
        return whole(report)

    monkeypatch.setattr(pending_events, "message_of", slow)
    controller.look()
    controller.look()
    assert sorted(controller.said()) == [("a", LARGE), ("b", LARGE)]


def test_a_look_that_does_not_end_is_seen_by_the_liveness_probe(controller: Controller) -> None:
    assert controller.watch.stuck() == ()
    controller.seconds = 901.0
    assert controller.watch.stuck() == ("the last look began 901 s ago",)


def test_the_long_rest_after_a_long_look_does_not_fail_the_liveness_probe(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> None:
        controller.seconds += 120.0
        found.append(controller.watch.stuck())

    class Stop(Event):
        def wait(self, timeout: float | None = None) -> bool:
            controller.seconds += timeout or 0.0
            found.append(controller.watch.stuck())
            if len(found) == 4:
                self.set()
            return True

    found: list[tuple[str, ...]] = []
    monkeypatch.setattr(controller.watch, "_look", look)
    controller.watch.run(Stop())
    assert controller.seconds == 2 * (120.0 + 1080.0)
    assert found == [()] * 4


def test_it_ends_when_it_is_told_and_rests_between_looks(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []

    class Stop(Event):
        def wait(self, timeout: float | None = None) -> bool:
            rests.append(timeout or 0.0)
            if len(rests) == 2:
                self.set()
            return True

    took = iter((0.0, 10.0))
    monkeypatch.setattr(
        controller.watch,
        "_look",
        lambda: setattr(controller, "seconds", controller.seconds + next(took)),
    )
    controller.watch.run(Stop())
    assert rests == [30.0, 90.0]


@pytest.mark.parametrize("address", ["127.0.0.1:0", ""])
def test_the_command_looks_serves_and_ends(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    controller.api.put("pods", pod("train"))
    controller.api.kubeconfig(tmp_path / "config")
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    whole = Watch.look

    def once(watch: Watch) -> float:
        os.kill(os.getpid(), signal.SIGTERM)
        return whole(watch)

    monkeypatch.setattr(Watch, "look", once)
    config = str(tmp_path / "config")
    words = ["--kubeconfig", config, "--after", "0", "--http-address", address]
    try:
        assert main(["pending-events", *words]) == 0
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    assert controller.said() == [("train", LARGE)]


def held(namespace: str, name: str) -> Object:
    """A claim that has the only device, and a pod that uses it."""
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": request("80Gi"),
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "secret-project-0", "uid": "u"}],
        },
    }


@pytest.mark.parametrize("mode", ["ExactCount", "All"])
def test_an_event_does_not_name_claims_and_pods_of_other_namespaces(
    controller: Controller, mode: str
) -> None:
    asked = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": mode}}
    controller.api.put(
        "resourceclaimtemplates",
        {"metadata": {"name": "any"}, "spec": {"spec": {"devices": {"requests": [asked]}}}},
    )
    controller.api.put("resourceclaims", held("team-b", "merger"))
    controller.api.put("pods", pod("train", "any"))
    controller.look()
    ((_, message),) = controller.said()
    assert "held by another namespace, used by another namespace" in message
    assert not {"team-b", "merger", "secret"} & set(re.split(r"[/\s,-]", message))


def test_with_the_right_of_the_admin_an_event_names_them(controller: Controller) -> None:
    controller.api.put("resourceclaims", held("team-b", "merger"))
    controller.api.put("pods", pod("train", "small"))
    controller.start(names_of_others=True)
    controller.look()
    ((_, message),) = controller.said()
    assert "held by team-b/merger, used by team-b/secret-project-0" in message


def test_an_event_names_claims_of_the_pods_own_namespace(controller: Controller) -> None:
    controller.api.put("resourceclaims", held("default", "mine"))
    controller.api.put("pods", pod("train", "small"))
    controller.look()
    ((_, message),) = controller.said()
    assert "held by default/mine, used by default/secret-project-0" in message


def test_claims_that_no_waiting_pod_names_stay_out_of_memory(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[ClusterState] = []
    whole = pending_events.readable
    monkeypatch.setattr(
        pending_events, "readable", lambda state: states.append(state) or whole(state)
    )
    for number in range(3):
        unused = {"metadata": {"name": f"unused-{number}"}, "spec": request("80Gi")}
        controller.api.put("resourceclaims", unused)
    controller.api.put("pods", pod("train"))
    controller.look()
    assert controller.said() == [("train", LARGE)]
    assert states[0].resource_claims == ()


def in_namespace(namespace: str, name: str, **spec: Any) -> Object:
    return {**pod(name, **spec), "metadata": {"name": name, "namespace": namespace}}


def test_many_pods_of_one_namespace_keep_no_other_namespace_from_its_event(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_events, "MOST_EVENTS", 3)
    large = {"metadata": {"name": "large", "namespace": "aaa"}, "spec": {"spec": request("90Gi")}}
    controller.api.put("resourceclaimtemplates", large)
    for number in range(9):
        controller.api.put("pods", in_namespace("aaa", f"many-{number}"))
    controller.api.put("pods", pod("train"))
    controller.look()
    assert [name for name, _ in controller.said()].count("train") == 1


def two_tenants(controller: Controller) -> None:
    """Two pods of a namespace that comes first, and one of another; none asks for the same."""
    large = {"metadata": {"name": "large", "namespace": "aaa"}, "spec": {"spec": request("90Gi")}}
    controller.api.put("resourceclaimtemplates", large)
    controller.api.put("pods", in_namespace("aaa", "slow-0", priority=1))
    controller.api.put("pods", in_namespace("aaa", "slow-1", priority=2))
    controller.api.put("pods", pod("train"))


def test_pods_that_are_slow_to_explain_keep_no_other_namespace_from_its_turn(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_tenants(controller)
    slow_to_explain(controller, monkeypatch)
    controller.look()
    assert ("train", LARGE) in controller.said()


def slow_to_explain(controller: Controller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a pod with "slow" in its name goes on until it is stopped; a look without one takes a second."""
    whole, read = several.answer, cluster.read

    def answer(subjects: Any, limits: Limits, fleet: Any) -> Report:
        while "slow" in subjects[0].title and not limits.stop():
            controller.seconds += 0.5
        return whole(subjects, limits, fleet)

    def slowly(target: Target, **scope: Any) -> ClusterState:
        controller.seconds += 1.0
        return read(target, **scope)

    monkeypatch.setattr(several, "answer", answer)
    monkeypatch.setattr(pending_events.cluster, "read", slowly)


def test_only_the_namespace_of_slow_pods_rests_for_the_time_that_they_took(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_tenants(controller)
    slow_to_explain(controller, monkeypatch)
    assert controller.watch.look() == 1.0
    slow = controller.seconds - 1.0
    assert 30.0 < slow <= 61.0
    unsure = 'dra_driver_pending_pods{outcome="could not tell"}'
    assert controller.metric(unsure) == 2
    # While the namespace rests, others are looked at, and its pods are counted.
    controller.api.put("pods", pod("other", priority=1))
    controller.now += timedelta(seconds=60)
    controller.seconds += 30.0
    assert controller.watch.look() == 1.0
    assert controller.said() == [("train", LARGE), ("other", LARGE)]
    assert controller.metric(unsure) == 2
    before = controller.seconds
    controller.seconds += 9 * slow
    assert controller.watch.look() == 1.0
    assert controller.seconds - before - 9 * slow > 30.0


def test_what_a_large_cluster_takes_is_charged_to_no_namespace(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.api.put("pods", pod("train"))
    whole = fleet.pools_of

    def slowly(*all_: Any) -> Any:
        controller.seconds += 40.0
        return whole(*all_)

    monkeypatch.setattr(fleet, "pools_of", slowly)
    assert controller.watch.look() == 40.0
    assert controller.said() == [("train", LARGE)]


def test_if_all_that_waits_rests_the_cluster_is_not_read(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller.api.put("pods", pod("slow"))
    slow_to_explain(controller, monkeypatch)
    assert controller.watch.look() == 1.0
    assert controller.watch.look() == 0.0
    assert controller.metric('dra_driver_pending_pods{outcome="could not tell"}') == 1


@pytest.mark.parametrize("part", ["answer", "message"])
def test_a_bug_costs_its_pod_the_event_and_no_other(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    two_tenants(controller)
    where, name = (several, "answer") if part == "answer" else (pending_events, "message_of")
    whole = getattr(where, name)

    def broken(what: Any, *more: Any) -> Any:
        if "slow" in (what.subject if isinstance(what, Report) else what[0].title):
            raise IndexError("list index out of range")
        return whole(what, *more)

    monkeypatch.setattr(where, name, broken)
    controller.look()
    controller.look()
    assert controller.said() == [("train", LARGE)]
    assert controller.watch.problems() == ()
    (bug,) = (one.kwargs["error"] for one in controller.log.calls if one.kwargs["event"] == "bug")
    assert "pod aaa/slow-0 could not be explained" in bug
    assert "IndexError: list index out of range" in bug


def test_a_search_that_hangs_costs_no_other_namespace_its_event(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_tenants(controller)
    whole = pending_events.explain_pods

    def hanging(state: Any, pods: Any, *, begins: Any, **more: Any) -> Any:
        for one in pods:
            begins([one])
            if one.metadata.namespace == "aaa":
                controller.seconds += 90.0
                raise TookTooLong
            yield from whole(state, [one], begins=begins, **more)

    monkeypatch.setattr(pending_events, "explain_pods", hanging)
    failed = 'dra_driver_pending_looks_total{result="failed"}'
    assert controller.watch.look() == 0.0
    assert controller.metric(failed) == 1
    controller.look()
    assert controller.said() == [("train", LARGE)]
    assert controller.metric(failed) == 1
    controller.seconds += 9 * 90.0
    controller.look()
    assert controller.metric(failed) == 2


@pytest.mark.parametrize("hangs", [False, True])
def test_a_namespace_whose_pods_take_long_to_be_compared_rests(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    two_tenants(controller)
    whole = several.grouped

    def slow(known: Any, pods: Any, begins: Any) -> Any:
        for one in pods:
            begins(one)
            if one.metadata.namespace == "aaa":
                controller.seconds += pending_events.SEARCH_SECONDS
                if hangs:
                    raise TookTooLong
        return whole(known, pods)

    monkeypatch.setattr(several, "grouped", slow)
    assert controller.watch.look() == 0.0
    controller.look()
    assert controller.said() == [("train", LARGE)]
    assert controller.seconds < 5 * pending_events.SEARCH_SECONDS


def test_a_turn_that_was_cut_leaves_nothing_behind_for_pods_that_ask_for_the_same(
    controller: Controller,
) -> None:
    numbers = str(list(range(60)))
    spec = request("90Gi")
    (selector,) = spec["devices"]["requests"][0]["exactly"]["selectors"]
    selector["cel"]["expression"] = (
        f"{numbers}.all(a, {numbers}.all(b, a + b >= 0)) && {selector['cel']['expression']}"
    )
    for namespace in ("aaa", "default"):
        metadata = {"name": "large", "namespace": namespace}
        controller.api.put("resourceclaimtemplates", {"metadata": metadata, "spec": {"spec": spec}})
        controller.api.put("pods", in_namespace(namespace, "train"))
    state = readable(cluster.read(controller.watch._target))
    pods = sorted(state.pods, key=lambda one: one.metadata.namespace)
    turns: list[str] = []
    looks = itertools.count()

    def now() -> float:
        """The first turn is over as soon as its search has begun."""
        return 5.0 if len(turns) > 1 or next(looks) > 6 else 0.0

    found = explain_pods(
        state, pods, time=Time(now, 20.0), begins=lambda of: turns.append(of[0].metadata.namespace)
    )
    first, second = found
    assert turns == ["aaa", "default", "aaa"]
    assert [one.pods[0].metadata.namespace for one in (first, second)] == ["default", "aaa"]
    for one in (first, second):
        assert one.report.outcome == "devices do not fit"
        assert "too long" not in str(one.report)
