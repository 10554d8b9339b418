# SPDX-License-Identifier: Apache-2.0
"""Several subjects at once: a report for each, the worst outcome of all, and equal pods only once."""

import itertools
from typing import Any

import msgspec
import pytest

from dra_driver.errors import Permanent
from dra_driver.explain import several
from dra_driver.explain.explanation import CUT, Limits
from dra_driver.explain.facts import fleet
from dra_driver.explain.outcome import Report
from dra_driver.explain.remedy import fix
from dra_driver.explain.several import explain_pods, explain_several, settled
from dra_driver.explain.subject.subject import (
    ClaimSubject,
    PendingSubject,
    PodSubject,
    TemplateSubject,
    WorkloadSubject,
)
from dra_driver.explain.turns import ENDLESS, Time
from dra_driver.explain.verdict import CouldNotTell, NotEnoughDevices
from dra_driver.model.api.core import Pod
from dra_driver.model.api.resource_claim import ResourceClaimTemplate
from dra_driver.model.api.workload import StoredWorkload
from dra_driver.model.cluster import ClusterState, NotRead
from tests.e2e import fleet as words
from tests.e2e.fleet import HOME, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

Object = dict[str, Any]
NEVER = request(cel="false")
JOB = WorkloadSubject("Job", "ns", "train")


def claim(name: str, *requests: Object, pod: str = "", **more: Any) -> Object:
    made = words.claim(*requests, name=name)
    owner = {"kind": "Pod", "name": pod, "uid": f"uid-{pod}", "controller": True}
    made["metadata"] |= {"namespace": "ns", **({"ownerReferences": [owner]} if pod else {}), **more}
    return made


def template(name: str, *requests: Object) -> ResourceClaimTemplate:
    made = words.template(*requests, name=name)
    made["metadata"]["namespace"] = "ns"
    return msgspec.convert(made, ResourceClaimTemplate)


def pod(name: str, of: Object, owner: str = "", **parts: Any) -> Pod:
    made = words.pod(of=of)
    made["metadata"] |= {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    if owner:
        reference = {"kind": "Job", "name": owner, "uid": f"uid-{owner}", "controller": True}
        made["metadata"]["ownerReferences"] = [reference]
    made["spec"] |= parts.pop("spec", {})
    return msgspec.convert({**made, **parts}, Pod)


def cluster(*pods: Pod, claims: tuple[Object, ...] = (), **fields: Any) -> ClusterState:
    known = state(resource_slice(devices(1)), *claims)
    templates = (template("never", NEVER), template("fits"))
    return msgspec.structs.replace(known, pods=pods, resource_claim_templates=templates, **fields)


def subjects_of(cluster: ClusterState, *subjects: Any, **more: Any) -> dict[str, int]:
    found = explain_several(cluster, subjects, **more)
    return {one.subject: one.exit_code for one in found.items}


BY_NAME = {"resourceClaimName": "one"}
FITS = {"resourceClaimTemplateName": "fits"}
NEVER_FITS = {"resourceClaimTemplateName": "never"}


def test_the_outcome_is_the_worst_and_each_subject_has_its_report() -> None:
    known = cluster(
        pod("a", BY_NAME), pod("b", NEVER_FITS), claims=(claim("one"), claim("two", NEVER))
    )
    found = explain_several(
        known, [PodSubject("ns", "a"), ClaimSubject("ns", "two"), PodSubject("ns", "none")]
    )
    assert [one.exit_code for one in found.items] == [0, 1, 2]
    assert (found.outcome, found.exit_code) == ("devices do not fit", 1)
    assert found.subject == "pod ns/a, claim ns/two, pod ns/none"
    assert found.summary == "devices do not fit: 1; could not tell: 1; devices fit: 1"
    assert "there is no pod ns/none in this cluster" in found.items[2].summary
    assert found.cluster == "v1.37.1"


@pytest.mark.parametrize(
    ("subjects", "code"),
    [
        (["a", "a-gated"], 3),
        (["a", "none", "a-gated"], 2),
        (["none", "b"], 1),
        (["a", "a"], 0),
    ],
)
def test_a_certain_no_is_worse_than_not_knowing(subjects: list[str], code: int) -> None:
    gated = pod("a-gated", BY_NAME, spec={"schedulingGates": [{"name": "g"}]})
    known = cluster(pod("a", BY_NAME), pod("b", NEVER_FITS), gated, claims=(claim("one"),))
    assert explain_several(known, [PodSubject("ns", one) for one in subjects]).exit_code == code


def test_what_could_not_be_read_is_said_once() -> None:
    gap = NotRead(resource="resourceclaims", reason="malformed", name="ns/x", message="bad")
    known = cluster(pod("a", NEVER_FITS), pod("b", FITS), not_read=(gap,))
    found = explain_several(known, [PendingSubject("ns")])
    assert found.not_read == (gap,)
    assert [one.not_read for one in found.items] == [(), ()]


def test_all_pending_pods_are_explained_and_none_is_an_answer() -> None:
    known = cluster(pod("a", BY_NAME), pod("b", NEVER_FITS), claims=(claim("one"),))
    found = explain_several(known, [PendingSubject("")])
    assert [one.subject for one in found.items] == ["pod ns/a", "pod ns/b"]
    assert found.subject == "pending pods of all namespaces"
    assert found.summary == (
        "2 pods that ask for devices wait for a node; devices do not fit: 1; devices fit: 1"
    )
    none = explain_several(cluster(), [PendingSubject("")])
    assert (none.exit_code, none.items) == (0, ())
    assert none.summary == "no pod that asks for devices waits for a node"


def test_pods_that_ask_for_the_same_are_explained_once() -> None:
    pods = [pod(f"train-{number}", NEVER_FITS, "train") for number in range(3)]
    other = pod("train-3", NEVER_FITS, "train", spec={"nodeSelector": {"a": "b"}})
    known = cluster(*pods, other, pod("x", NEVER_FITS), pod("y", FITS))
    found = explain_several(known, [PendingSubject("ns")])
    assert {one.subject: one.alike for one in found.items} == {
        "pod ns/train-0": ("ns/train-1", "ns/train-2", "ns/x"),
        "pod ns/train-3": (),
        "pod ns/y": (),
    }
    assert found.summary.endswith(
        "devices do not fit: 5; devices fit, something else is in the way: 1"
    )


def made(
    name: str, *requests: Object, status: Object | None = None, **more: Any
) -> tuple[Pod, Object]:
    """A pod of a Job, and the claim that the controller made for it."""
    entry = {"name": "devices", "resourceClaimName": f"{name}-gpu"}
    said = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", **(status or {})}
    ]
    owner = pod(
        name,
        {"resourceClaimTemplateName": "fits"},
        "train",
        status={"resourceClaimStatuses": [entry], "conditions": said, "phase": "Pending"},
    )
    return owner, claim(f"{name}-gpu", *requests, **{"pod": name, **more})


@pytest.mark.parametrize(
    "second",
    [
        made("b", NEVER),
        made("b", pod="somebody"),
        made("b", deletionTimestamp="2026-01-01T00:00:00Z"),
        made("b", status={"message": "another"}),
    ],
    ids=["spec", "owner", "deleted", "condition"],
)
def test_pods_with_another_answer_are_not_alike(second: tuple[Pod, Object]) -> None:
    first, equal = made("a"), made("c")
    both = cluster(first[0], equal[0], claims=(first[1], equal[1]))
    (only,) = explain_several(both, [PendingSubject("ns")]).items
    assert only.alike == ("ns/c",)
    known = cluster(first[0], second[0], claims=(first[1], second[1]))
    assert [one.alike for one in explain_several(known, [PendingSubject("ns")]).items] == [(), ()]


def test_a_pod_that_has_a_full_claim_already_is_not_like_one_that_comes_too_late() -> None:
    users = [{"resource": "pods", "name": f"p{n}", "uid": f"uid-p{n}"} for n in range(256)]
    full = holder("gpu-0", "one")
    full["status"]["reservedFor"] = users
    known = cluster(pod("p0", BY_NAME), pod("late", BY_NAME), claims=(full,))
    alone = {
        name: explain_several(known, [PodSubject("ns", name)]).outcome for name in ("p0", "late")
    }
    assert len(set(alone.values())) == 2
    found = explain_several(known, [PendingSubject("ns")]).items
    assert {one.subject: (one.outcome, one.alike) for one in found} == {
        f"pod ns/{name}": (outcome, ()) for name, outcome in alone.items()
    }


def test_a_pod_that_only_owns_its_claim_is_not_like_one_whose_claim_was_made_for_it() -> None:
    (first, its), (second, other) = made("a"), made("b")
    del other["metadata"]["ownerReferences"][0]["controller"]
    known = cluster(first, second, claims=(its, other))
    assert [one.alike for one in explain_several(known, [PendingSubject("ns")]).items] == [(), ()]


def test_the_words_about_a_workload_are_in_the_summary() -> None:
    pods = (
        pod("t-0", NEVER_FITS, "train"),
        pod("t-1", NEVER_FITS, "train", spec={"nodeName": HOME}, status={"phase": "Running"}),
    )
    stored = {"kind": "Job", "metadata": {"name": "train", "namespace": "ns", "uid": "uid-train"}}
    known = cluster(*pods, workloads=(workload := convert(stored, parallelism=3),))
    found = explain_several(known, [JOB])
    assert found.summary.startswith("1 of 2 pods wait for a node; devices do not fit: 1; could not")
    assert [one.exit_code for one in found.items] == [1, 2]
    assert found.items[1].subject == "job ns/train"
    assert "it wants 3 pods and has 2" in found.items[1].summary
    several = explain_several(known, [JOB, PodSubject("ns", "t-0")])
    assert several.summary.startswith("job ns/train: 1 of 2 pods wait for a node; ")
    assert not settled(known, [JOB])
    assert workload.wanted == 3


def convert(stored: Object, **spec: Any) -> StoredWorkload:
    return msgspec.convert({**stored, "spec": spec}, StoredWorkload)


def test_what_cannot_be_found_is_an_error_if_it_is_all_that_is_asked() -> None:
    with pytest.raises(Permanent, match="there is no job ns/train in this cluster"):
        explain_several(cluster(), [JOB])
    assert subjects_of(cluster(), JOB, JOB) == {"job ns/train": 2}
    with pytest.raises(Permanent, match="there is no node nope in the record: it has"):
        explain_several(cluster(), [JOB], node="nope", recorded=True)


def test_one_node_and_the_end_of_the_time_hold_for_each_pod() -> None:
    known = cluster(pod("a", BY_NAME), claims=(claim("one"),))
    (found,) = explain_several(known, [PendingSubject("ns")], node=HOME).items
    assert [node.nodes for node in found.nodes] == [(HOME,)]
    over = Time(lambda: 1.0, 0.0)
    (late,) = explain_several(known, [PendingSubject("ns")], time=over).items
    assert late.exit_code == 2
    assert late.verdicts == (CouldNotTell("timeout", late.summary),)
    assert late.nodes == ()


@pytest.mark.parametrize("looks", range(2, 9))
def test_pods_that_come_after_one_that_took_too_long_have_an_answer(looks: int) -> None:
    """The clock jumps at one of the first looks at it, so that the turn of the first pod is cut there."""
    elsewhere = {"nodeSelector": {"a": "b"}}
    pods = [pod("slow", NEVER_FITS), *(pod(name, NEVER_FITS, spec=elsewhere) for name in "ab")]
    left, begun = itertools.count(looks, -1), []

    def now() -> float:
        return 2.0 if len(begun) == 1 and next(left) <= 0 else float(len(begun) > 1)

    answers = explain_pods(cluster(*pods), pods, time=Time(now, 8.0), begins=begun.append)
    found = [(one.report.exit_code, [each.metadata.name for each in one.pods]) for one in answers]
    assert sorted(found) == [(1, ["a", "b"]), (1, ["slow"])]


def slow_if(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[float]:
    """Let the search for pods and claims of these names go on until it is stopped. Returns the clock."""
    clock, whole = [0.0], several.answer

    def answer(subjects: Any, limits: Limits, fleet: Any) -> Report:
        while subjects[0].title.endswith(names) and not limits.stop():
            clock[0] += 0.25
        return whole(subjects, limits, fleet)

    monkeypatch.setattr(several, "answer", answer)
    return clock


def test_a_slow_pod_keeps_no_other_from_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = [pod(f"a{n}slow", NEVER_FITS, spec={"nodeSelector": {"a": str(n)}}) for n in range(9)]
    known = cluster(*slow, pod("z", BY_NAME), claims=(claim("one"),))
    clock = slow_if(monkeypatch, "slow")
    time = Time(lambda: clock[0], 54.0)
    found = explain_several(known, [PendingSubject("")], time=time).items
    assert [one.subject for one in found] == [f"pod ns/{one.metadata.name}" for one in known.pods]
    assert [one.exit_code for one in found] == [2] * 9 + [0]
    assert 40.0 < clock[0] < 56.0


def test_a_slow_subject_keeps_no_other_from_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    known = cluster(pod("slow", NEVER_FITS), claims=(claim("one"), claim("two", NEVER)))
    clock = slow_if(monkeypatch, "slow")
    subjects = [PodSubject("ns", "slow"), ClaimSubject("ns", "one"), ClaimSubject("ns", "two")]
    found = explain_several(known, subjects, time=Time(lambda: clock[0], 54.0))
    assert [one.exit_code for one in found.items] == [2, 0, 1]


def broken_if(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the search for pods and claims of these names raise what no search should."""
    whole = several.answer

    def answer(subjects: Any, limits: Limits, fleet: Any) -> Report:
        if subjects[0].title.endswith(names):
            raise IndexError("list index out of range")
        return whole(subjects, limits, fleet)

    monkeypatch.setattr(several, "answer", answer)


def test_a_bug_costs_its_pod_the_answer_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [pod("a", NEVER_FITS), pod("broken", FITS), pod("z", BY_NAME)]
    known = cluster(*pods, claims=(claim("one"),))
    broken_if(monkeypatch, "broken")
    told: list[str] = []

    def bug(title: str, error: Exception) -> None:
        told.append(f"{title}: {error}")

    found = explain_several(known, [PendingSubject("")], bug=bug).items
    assert [one.exit_code for one in found] == [1, 2, 0]
    assert found[1].summary == str(found[1].verdicts[0])
    assert "a bug in dra-driver (IndexError)" in found[1].summary
    assert fix(found[1].verdicts[0]).startswith("report it with what is on standard error")
    each = explain_pods(known, pods, time=ENDLESS, begins=lambda _: None, bug=bug)
    assert sorted(one.report.exit_code for one in each) == [0, 1, 2]
    assert told == ["pod ns/broken: list index out of range"] * 2
    with pytest.raises(IndexError):
        explain_several(known, [PendingSubject("")])


def test_what_pods_share_stops_with_the_turn_that_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pod's turn is over long before the second one's; the second one may use what the first has begun."""
    pods = [pod("a", NEVER_FITS), pod("b", BY_NAME)]
    known = cluster(*pods, claims=(claim("one"),))
    whole, clock = several.answer, [0.0]
    given: list[Any] = []
    over: list[bool] = []

    def answer(subjects: Any, limits: Limits, fleet: Any) -> Report:
        given.append(limits.stop)
        over.append(given[0]())
        return whole(subjects, limits, fleet)

    def begins(_: Any) -> None:
        clock[0] += 9.0 if given else 0.0

    monkeypatch.setattr(several, "answer", answer)
    list(explain_pods(known, pods, time=Time(lambda: clock[0], 100.0), begins=begins))
    assert over == [False, False]


def test_what_pods_share_is_found_out_once_and_before_any_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if the turn of the first one is cut: its answers are thrown away, and not what the cluster offers."""
    pods = [pod("slow", NEVER_FITS), pod("a", BY_NAME)]
    known = cluster(*pods, claims=(claim("one"),))
    clock, done = slow_if(monkeypatch, "slow"), list[str]()
    whole = fleet.pools_of
    monkeypatch.setattr(fleet, "pools_of", lambda *all_: done.append("pools") or whole(*all_))
    answers = explain_pods(
        known,
        pods,
        time=Time(lambda: clock[0], 54.0),
        compares=lambda one: done.append(f"compares {one.metadata.name}"),
        begins=lambda ones: done.append(f"begins {ones[0].metadata.name}"),
    )
    assert sorted(one.report.exit_code for one in answers) == [0, 2]
    begins = ["begins slow", "begins a", "begins slow"]
    assert done == ["pools", "compares slow", "compares a", *begins]


def test_a_cluster_that_cannot_be_looked_at_is_told_of_each_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pods = [pod("a", NEVER_FITS), pod("b", BY_NAME)]
    monkeypatch.setattr(fleet, "pools_of", lambda *_: {}["gone"])
    told: list[str] = []
    answers = explain_pods(
        cluster(*pods, claims=(claim("one"),)),
        pods,
        time=ENDLESS,
        begins=lambda _: None,
        bug=lambda title, _: told.append(title),
    )
    assert [one.report.exit_code for one in answers] == [2, 2]
    assert told == ["pod ns/a", "pod ns/b"]


def test_without_pods_the_cluster_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    monkeypatch.setattr(fleet, "pools_of", lambda *all_: looked.append(all_))
    assert not [*explain_pods(cluster(), (), time=ENDLESS, begins=lambda _: None)]
    assert not looked


def test_without_its_changes_a_report_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [pod("a", BY_NAME)]
    known = cluster(*pods, claims=(claim("one"), holder("gpu-0")))
    (whole,) = explain_several(known, [PendingSubject("")]).items
    (told,) = explain_pods(known, pods, time=ENDLESS, begins=lambda _: None)
    assert whole.changes
    assert told.report == msgspec.structs.replace(whole, changes=())


@pytest.mark.parametrize(
    ("subject", "is_settled"),
    [
        (PodSubject("ns", "waits"), False),
        (PodSubject("ns", "runs"), True),
        (PodSubject("ns", "named"), False),
        (PodSubject("ns", "gone"), True),
        (ClaimSubject("ns", "one"), False),
        (ClaimSubject("ns", "holder"), True),
        (ClaimSubject("ns", "gone"), True),
        (TemplateSubject("ns", "fits"), False),
        (TemplateSubject("ns", "gone"), True),
        (PendingSubject("ns"), False),
        (JOB, True),
    ],
)
def test_what_has_its_devices_or_is_gone_is_settled(subject: Any, *, is_settled: bool) -> None:
    runs = pod("runs", BY_NAME, spec={"nodeName": HOME}, status={"phase": "Running"})
    named = pod("named", BY_NAME, spec={"nodeName": HOME})
    pods = (pod("waits", BY_NAME), runs, named)
    known = cluster(*pods, claims=(claim("one"), holder("gpu-0")))
    assert settled(known, [subject]) is is_settled


@pytest.mark.parametrize(
    ("subject", "resource"),
    [
        (PodSubject("ns", "gone"), "pods"),
        (ClaimSubject("ns", "gone"), "resourceclaims"),
        (TemplateSubject("ns", "gone"), "resourceclaimtemplates"),
        (JOB, "jobs"),
        (JOB, "pods"),
        (WorkloadSubject("Deployment", "ns", "web"), "replicasets"),
    ],
)
def test_what_could_not_be_read_is_not_settled(subject: Any, resource: str) -> None:
    gap = NotRead(resource=resource, reason="failed", message="no answer")
    assert not settled(cluster(not_read=(gap,)), [subject])
    other = NotRead(resource="/metrics", reason="forbidden", message="no")
    assert settled(cluster(not_read=(other,)), [subject])


@pytest.mark.parametrize("looks", range(1, 400, 7))
def test_what_is_said_after_the_time_is_over_is_as_true_as_before(looks: int) -> None:
    """Wherever the search is cut: no reason is given that the whole search does not give, unless the report says that it was cut."""
    pair = claim("pair", request("a"), request("b"), request("c", cel="true"))
    pods = [pod("p", {"resourceClaimName": "pair"})]
    known = cluster(*pods, claims=(pair,))
    left = itertools.count(looks, -1)
    (whole,) = explain_pods(known, pods, time=ENDLESS, begins=lambda _: None)
    time = Time(lambda: float(next(left) <= 0), 0.5)
    (cut,) = explain_pods(known, pods, time=time, begins=lambda _: None)
    assert whole.report.outcome == "devices do not fit"
    if cut.report.outcome != "could not tell":
        same = msgspec.structs.replace(cut.report, verdicts=whole.report.verdicts) == whole.report
        assert CUT in cut.report.verdicts or same
        reasons = [one for node in cut.report.nodes for one in node.devices]
        assert not any(isinstance(one, NotEnoughDevices) for one in reasons)
