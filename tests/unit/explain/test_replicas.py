# SPDX-License-Identifier: Apache-2.0
"""Of a workload every pod is placed and counted, and a file is judged as a whole."""

from typing import Any

import msgspec
import pytest

from dra_driver.errors import Permanent
from dra_driver.explain.outcome import PodCount, Report
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.model.cluster import ClusterState, NotRead
from tests.e2e import fleet as words
from tests.e2e.fleet import HOME, device, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

OTHER = words.FLEET[0]
TWO = resource_slice(devices(2))
FROM_TEMPLATE = {"resourceClaimTemplateName": words.MINE}
API = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


LABELS = {"app": "train"}


def workload(kind: str, *, pod: Any = None, **spec: Any) -> dict[str, Any]:
    inner = (pod or words.pod(of=FROM_TEMPLATE))["spec"]
    template: dict[str, Any] = {"metadata": {"labels": LABELS}, "spec": inner}
    if kind in ("Job", "CronJob"):
        template["spec"] = {"restartPolicy": "Never", **inner}
    elif kind == "ReplicationController":
        spec = {"selector": LABELS, **spec}
    else:
        spec = {"selector": {"matchLabels": LABELS}, **spec}
    spec = {"template": template, **spec}
    if kind == "CronJob":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": spec}}
    return {
        "apiVersion": API.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": {"name": "train"},
        "spec": spec,
    }


def answer(cluster: ClusterState, *documents: Any, **more: Any) -> Report:
    subject = ManifestSubject((words.template(), *documents), "ns", "f.yaml")
    return explain(cluster, subject, **more)


def told(report: Report) -> tuple[int, str, PodCount | None]:
    return report.exit_code, report.subject, report.pods


@pytest.mark.parametrize(
    ("kind", "spec", "wanted"),
    [
        ("Deployment", {"replicas": 3}, 3),
        ("StatefulSet", {"replicas": 3}, 3),
        ("ReplicaSet", {"replicas": 4}, 4),
        ("ReplicationController", {"replicas": 3}, 3),
        ("Job", {"parallelism": 3}, 3),
        ("Job", {"parallelism": 9, "completions": 3}, 3),
        ("CronJob", {"parallelism": 3}, 3),
    ],
)
def test_a_workload_does_not_fit_if_one_of_its_pods_does_not(
    kind: str, spec: Any, wanted: int
) -> None:
    report = answer(state(TWO), workload(kind, **spec))
    assert told(report) == (1, f"{kind.lower()} ns/train", PodCount(wanted=wanted, fit=2))
    assert report.summary == (
        f"2 of {wanted} pods fit; the third: the devices fit on no node (1 looked at)"
    )
    assert [change.what for change in report.changes] == [
        f"{kind.lower()} ns/train: 2 pods instead of {wanted}"
    ]


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Deployment", {"replicas": 2}),
        ("Deployment", {}),
        ("Job", {"parallelism": 2, "completions": 10}),
        ("Job", {"parallelism": 9, "completions": 1}),
        ("Job", {}),
        ("CronJob", {"parallelism": 2}),
    ],
)
def test_a_workload_fits_if_all_its_pods_do(kind: str, spec: Any) -> None:
    report = answer(state(TWO), workload(kind, **spec))
    wanted = report.pods.wanted if report.pods else 0
    assert told(report) == (0, f"{kind.lower()} ns/train", PodCount(wanted=wanted, fit=wanted))
    assert report.summary.startswith("all 2 pods fit: ") == (wanted == 2)


def test_a_workload_that_is_scaled_to_nothing_asks_for_nothing() -> None:
    report = answer(state(), workload("Deployment", replicas=0))
    assert told(report) == (0, "deployment ns/train", PodCount(wanted=0, fit=0))
    beside = answer(state(TWO), workload("Deployment", replicas=0), *words.user("a"))
    assert told(beside) == (0, "pod ns/a", None)


def test_pods_fill_one_node_after_the_other() -> None:
    far = resource_slice(devices(3), pool=OTHER)
    cluster = state(TWO, words.node(OTHER), far)
    assert told(answer(cluster, workload("Job", parallelism=5)))[0] == 0
    report = answer(cluster, workload("Job", parallelism=12))
    assert told(report)[2] == PodCount(wanted=12, fit=5)
    assert "the sixth: " in report.summary


def test_what_else_a_node_has_is_used_up_too() -> None:
    busy = words.pod(of=FROM_TEMPLATE, cpu="5")
    report = answer(state(TWO), workload("Job", pod=busy, parallelism=2))
    assert told(report) == (3, "job ns/train", PodCount(wanted=2, fit=1))
    assert "the second: the devices fit on 1 of 1 nodes, and none of these" in report.summary


def test_a_claim_that_all_pods_share_is_allocated_once() -> None:
    shared = words.pod(of={"resourceClaimName": words.MINE})
    report = answer(state(TWO), words.claim(), workload("Job", pod=shared, parallelism=5))
    assert told(report) == (0, "job ns/train", PodCount(wanted=5, fit=5))


def given_to(users: int) -> dict[str, Any]:
    """The claim, with its device and this many users."""
    made = holder("gpu-0", words.MINE)
    names = [f"u-{n}" for n in range(users)]
    made["status"]["reservedFor"] = [{"resource": "pods", "name": n, "uid": n} for n in names]
    return made


ROOM = {"status": {"allocatable": {"cpu": "8", "pods": "500"}}}
FULL = "claim ns/mine cannot be used: is reserved for 256 others, at most 256 can share it"


def test_a_claim_has_no_more_users_than_the_api_server_takes() -> None:
    wide = {**words.node(OTHER), **ROOM}
    cluster = state(wide, resource_slice(devices(1), pool=OTHER))
    shared = words.pod(of={"resourceClaimName": words.MINE})
    report = answer(cluster, words.claim(), workload("Job", pod=shared, parallelism=300))
    assert told(report) == (1, "job ns/train", PodCount(wanted=300, fit=256))
    assert report.summary == f"256 of 300 pods fit; pod number 257: {FULL}"


def test_the_pods_that_use_a_claim_already_count_as_well() -> None:
    shared = words.pod(of={"resourceClaimName": words.MINE})
    cluster = state(TWO, given_to(254))
    report = answer(cluster, workload("Job", pod=shared, parallelism=5))
    assert told(report) == (1, "job ns/train", PodCount(wanted=5, fit=2))
    assert report.summary == f"2 of 5 pods fit; the third: {FULL}"
    daemons = (words.node(OTHER), words.node("n3"))
    report = answer(state(TWO, *daemons, given_to(254)), workload("DaemonSet", pod=shared))
    assert told(report) == (1, "daemonset ns/train", PodCount(wanted=3, fit=2))


def test_each_pod_of_a_file_is_a_user_of_the_claim_that_it_names() -> None:
    named = {"resourceClaimName": words.MINE}
    report = answer(state(TWO, given_to(255)), words.pod("a", of=named), words.pod("b", of=named))
    assert (report.exit_code, report.pods) == (1, PodCount(wanted=2, fit=1))
    assert report.summary.endswith(FULL)


def test_a_pod_that_names_a_claim_twice_is_one_user() -> None:
    entries = [{"name": name, "resourceClaimName": words.MINE} for name in ("devices", "again")]
    twice = [words.pod(name, resourceClaims=entries) for name in ("a", "b")]
    report = answer(state(TWO, given_to(254)), *twice)
    assert (report.exit_code, report.pods) == (0, PodCount(wanted=2, fit=2))


def test_ending_other_claims_makes_no_room_in_a_claim_that_has_no_more() -> None:
    entries = [
        {"name": "devices", "resourceClaimName": words.MINE},
        {"name": "more", **FROM_TEMPLATE},
    ]
    pod = words.pod(resourceClaims=entries)
    cluster = state(resource_slice(devices(4)), given_to(254), holder("gpu-1", "other"))
    report = answer(cluster, workload("Job", pod=pod, parallelism=3))
    assert told(report)[2] == PodCount(wanted=3, fit=2)
    assert [one.what for one in report.changes] == ["job ns/train: 2 pods instead of 3"]


def test_pods_of_extended_resources_are_counted_as_well() -> None:
    resource = f"deviceclass.resource.kubernetes.io/{words.CLASS}"
    container = {"name": "c", "resources": {"requests": {resource: "1"}}}
    pod = {"spec": {"containers": [container]}}
    assert told(answer(state(TWO), workload("Job", pod=pod, parallelism=2)))[0] == 0
    assert told(answer(state(TWO), workload("Job", pod=pod, parallelism=3)))[0] == 1


def test_a_workload_is_served_beside_the_other_pods_of_the_file() -> None:
    report = answer(state(TWO), *words.user("a"), workload("Job", parallelism=2))
    assert (report.exit_code, report.pods) == (1, PodCount(wanted=3, fit=2))
    assert "2 of 3 pods of the file fit, in every order that was tried; " in report.summary
    three = state(resource_slice(devices(3)))
    whole = answer(three, *words.user("a"), workload("Job", parallelism=2))
    assert told(whole) == (0, "pod ns/a", PodCount(wanted=3, fit=3))


def test_a_search_that_is_stopped_could_not_tell_of_the_rest() -> None:
    many = state(resource_slice(devices(8)))
    asked = iter(range(1000))
    report = answer(many, workload("Job", parallelism=8), cancelled=lambda: next(asked) > 12)
    assert report.exit_code == 2
    assert report.pods is not None
    assert report.pods.fit < 8


# One pod for each node


def test_a_daemon_needs_its_devices_on_each_node_that_takes_it() -> None:
    fleet = (TWO, words.node(OTHER))
    report = answer(state(*fleet), workload("DaemonSet"))
    assert told(report) == (1, "daemonset ns/train", PodCount(wanted=2, fit=1))
    assert report.summary.startswith(f"1 of 2 pods fit; that on node {OTHER}: ")
    none = answer(state(words.node(OTHER)), workload("DaemonSet"))
    assert told(none) == (1, "daemonset ns/train", PodCount(wanted=2, fit=0))
    both = answer(state(*fleet, resource_slice(devices(1), pool=OTHER)), workload("DaemonSet"))
    assert told(both)[::2] == (0, PodCount(wanted=2, fit=2))


def test_a_daemon_leaves_out_nodes_that_repel_it_but_not_those_that_are_cordoned() -> None:
    tainted = answer(state(TWO, words.node(OTHER, taints=[TAINT])), workload("DaemonSet"))
    assert told(tainted)[::2] == (0, PodCount(wanted=1, fit=1))
    cordoned = answer(state(TWO, words.node(OTHER, unschedulable=True)), workload("DaemonSet"))
    assert told(cordoned)[::2] == (1, PodCount(wanted=2, fit=1))
    nowhere = words.pod(of=FROM_TEMPLATE, nodeSelector={"no": "where"})
    report = answer(state(TWO), workload("DaemonSet", pod=nowhere))
    assert report.exit_code == 3
    assert "no node takes a pod of it" in report.summary


def test_daemons_that_share_a_claim_fit_on_its_node_only() -> None:
    shared = words.pod(of={"resourceClaimName": words.MINE})
    fleet = (TWO, words.node(OTHER), resource_slice(devices(2), pool=OTHER))
    report = answer(state(*fleet), words.claim(), workload("DaemonSet", pod=shared))
    assert told(report)[::2] == (1, PodCount(wanted=2, fit=1))


# Several pods


def test_of_three_pods_one_is_held_by_a_taint_and_that_is_said() -> None:
    tainted = resource_slice([device("gpu-0")], pool=OTHER)
    fleet = state(TWO, words.node(OTHER, taints=[TAINT]), tainted)
    report = answer(fleet, *words.user("a"), *words.user("b"), *words.user("c"))
    assert told(report) == (3, "pod ns/c", PodCount(wanted=3, fit=2))
    assert report.outcome == "devices fit, something else is in the way"
    assert report.summary == (
        "2 of 3 pods of the file fit, in every order that was tried; pod ns/c: "
        "the devices fit on 1 of 2 nodes, and none of these takes the pod"
    )


def test_nodes_that_do_not_take_the_pod_are_told_apart() -> None:
    tainted = resource_slice([device("gpu-0")], pool=OTHER)
    fleet = state(TWO, words.node(OTHER, taints=[TAINT]), tainted, holder("gpu-1"))
    report = answer(fleet, *words.user("a"))
    assert (report.exit_code, report.summary) == (
        0,
        "the devices fit on 1 of 2 nodes (and on 1 more, which would not take the pod)",
    )


def test_a_pod_without_claims_asks_for_no_devices() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plain"},
        "spec": {"containers": [{"name": "c"}]},
    }
    report = answer(state(TWO), pod)
    assert (report.exit_code, report.summary) == (
        0,
        "the pod asks for no devices; 1 of 1 nodes would take it",
    )
    held = answer(state(words.node(HOME, taints=[TAINT])), pod)
    assert (held.exit_code, held.summary) == (
        3,
        "the pod asks for no devices; no node would take it",
    )


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (workload("Deployment", replicas=-1), "spec.replicas is -1, it must be a number from 0"),
        (workload("Deployment", replicas="3"), "spec.replicas is '3', it must be"),
        (workload("Job", parallelism=True), "spec.parallelism is True, it must be"),
        (
            workload("CronJob", completions=1.5),
            "spec.jobTemplate.spec.completions is 1.5, it must be",
        ),
        (workload("Deployment", replica=3), "spec has no field replica (did you mean replicas?)"),
        (
            workload("CronJob", parallelismm=3),
            "spec.jobTemplate.spec has no field parallelismm (did you mean parallelism?)",
        ),
        (
            workload("Job", pod=words.pod(nodeSelektor={})),
            "Job train, its pod template: spec has no field nodeSelektor (did you mean nodeSelector?)",
        ),
        *(
            (workload(kind, selector=None), "it has no spec.selector; give the labels of")
            for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
        ),
        (workload("Deployment", selector={}), "it has no spec.selector"),
        (
            workload("Deployment", selector={"matchLabels": {"app": "other"}}),
            "spec.selector does not match the labels of spec.template.metadata",
        ),
        *(
            (
                workload("ReplicaSet", selector={"matchExpressions": [expression]}),
                "spec.selector does not match",
            )
            for expression in (
                {"key": "app", "operator": "In", "values": ["a", "b"]},
                {"key": "app", "operator": "NotIn", "values": ["train"]},
                {"key": "app", "operator": "DoesNotExist"},
                {"key": "tier", "operator": "Exists"},
            )
        ),
        (workload("ReplicationController", selector={"app": "x"}), "spec.selector does not match"),
        (
            workload("ReplicationController", selector=None, template={"spec": {}}),
            "it has neither spec.selector nor labels in spec.template.metadata",
        ),
        (
            workload("Deployment", pod=words.pod(restartPolicy="Never")),
            "spec.template.spec.restartPolicy is 'Never', but a Deployment takes only Always",
        ),
        (
            workload("Job", pod=words.pod(restartPolicy=None)),
            "spec.template.spec.restartPolicy is missing: a Job takes OnFailure or Never",
        ),
        (
            workload("CronJob", pod=words.pod(restartPolicy="Always")),
            "spec.jobTemplate.spec.template.spec.restartPolicy is 'Always': a Job takes OnFailure or Never",
        ),
    ],
)
def test_what_the_api_server_refuses_of_a_workload_is_not_judged(document: Any, said: str) -> None:
    with pytest.raises(Permanent) as raised:
        answer(state(TWO), document)
    assert said in str(raised.value)


def test_fields_that_do_not_count_pods_are_no_typos() -> None:
    spec = {"strategy": {}, "minReadySeconds": 1, "notYetInvented": 1}
    assert told(answer(state(TWO), workload("Deployment", replicas=1, **spec)))[0] == 0
    assert told(answer(state(TWO), workload("Job", suspend=True, backoffLimit=1)))[0] == 0


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "app", "operator": "In", "values": ["train"]},
        {"key": "app", "operator": "NotIn", "values": ["other"]},
        {"key": "app", "operator": "Exists"},
        {"key": "tier", "operator": "DoesNotExist"},
        {"key": "tier", "operator": "NotIn", "values": ["x"]},
        {"key": "tier", "operator": "NotYetInvented"},
    ],
)
def test_a_selector_may_be_made_of_expressions(expression: Any) -> None:
    deployment = workload("Deployment", selector={"matchExpressions": [expression]})
    assert told(answer(state(TWO), deployment))[0] == 0


def test_a_replication_controller_may_leave_its_selector_to_the_api_server() -> None:
    controller = workload("ReplicationController", selector=None)
    assert told(answer(state(TWO), controller))[0] == 0


def test_time_that_is_over_before_a_pod_is_placed_leaves_the_answer_open() -> None:
    def answered(calls: int) -> Report:
        left = iter(range(calls))
        deployment = workload("Deployment", replicas=2)
        return answer(state(TWO), deployment, cancelled=lambda: next(left, None) is None)

    placing = [one for one in map(answered, range(30)) if "the devices fit on 1" in one.summary]
    open_ones = [one for one in placing if one.exit_code]
    assert told(placing[-1]) == (0, "deployment ns/train", PodCount(wanted=2, fit=2))
    assert {(one.outcome, one.summary) for one in open_ones} == {
        ("could not tell", "0 of 2 pods fit; the first: the devices fit on 1 of 1 nodes"),
    }


def test_one_node_is_asked_for_all_pods() -> None:
    fleet = state(TWO, words.node(OTHER), resource_slice(devices(3), pool=OTHER))
    assert told(answer(fleet, workload("Job", parallelism=3), node=HOME))[0] == 1
    assert told(answer(fleet, workload("Job", parallelism=3), node=OTHER))[0] == 0
    assert told(answer(fleet, words.claim(request(count=2)), node=HOME))[0] == 0


@pytest.mark.parametrize("resource", ["pods", "nodes"])
def test_pods_are_not_counted_on_a_node_of_which_nobody_knows_what_is_free(resource: str) -> None:
    """One pod has room on the other node for certain, whatever is in use here."""
    unknown = NotRead(
        resource=resource, reason="malformed", name="x", message="m", only_nodes=(OTHER,)
    )
    two = state(
        words.node(OTHER), resource_slice(devices(1)), resource_slice(devices(1), pool=OTHER)
    )
    blind = msgspec.structs.replace(two, not_read=(unknown,))
    pod = words.pod(of=FROM_TEMPLATE, cpu="2")
    found = [answer(blind, workload("Deployment", replicas=count, pod=pod)) for count in (1, 2)]
    found.append(answer(blind, workload("DaemonSet", pod=pod)))
    assert [one.exit_code for one in found] == [0, 2, 2]
    assert found[1].summary == (
        f"1 of 2 pods fit; the second: could not tell (malformed): {resource} x: m"
    )
    assert found[2].summary == (
        f"1 of 2 pods fit; that on node {OTHER}: could not tell (malformed): {resource} x: m"
    )
    assert answer(two, workload("Deployment", replicas=2, pod=pod)).exit_code == 0
