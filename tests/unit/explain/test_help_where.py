# SPDX-License-Identifier: Apache-2.0
"""What would help, and where: only on nodes that take the pod, and there where the least has to end."""

from typing import Any

import msgspec
import pytest

from dra_driver.explain.outcome import Report
from dra_driver.explain.remedy import fix
from dra_driver.explain.report import ClaimSubject, ManifestSubject, NewNode, PodSubject, explain
from dra_driver.explain.verdict import CouldNotTell, NodeTainted
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.policy import PodDisruptionBudget
from dra_driver.model.api.resource_claim import ResourceClaimTemplate
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, HOME, device, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

TIME = "2026-11-20T10:00:00Z"
OTHER, THIRD = "n2", "n3"
GONE = {"deletionTimestamp": TIME}


def of(name: str, device_: str, pool: str = HOME, pods: tuple[str, ...] = ("",)) -> dict[str, Any]:
    """A claim that has a device of a node, used by the pod of its name or by these."""
    made = holder(device_, name, pool=pool)
    users = [pod or f"p-{name}" for pod in pods]
    made["status"]["reservedFor"] = [{"resource": "pods", "name": p, "uid": p} for p in users]
    return made


def pods(cluster: ClusterState, **metadata: dict[str, Any]) -> ClusterState:
    """The cluster with these pods of the namespace; `status` and `metadata` are given together."""
    made = [
        {"metadata": {"name": name, "namespace": "ns", **more.pop("metadata", {})}, **more}
        for name, more in metadata.items()
    ]
    return msgspec.structs.replace(cluster, pods=tuple(msgspec.convert(made, list[Pod])))


def asking(cluster: ClusterState, *requests: dict[str, Any], **more: Any) -> Report:
    spec = more.pop("spec", None)
    documents = [words.claim(*requests, **more)]
    if spec is not None:
        documents.append(words.pod(**spec))
    return explain(cluster, ManifestSubject(tuple(documents), "ns", "f.yaml"))


def helps(report: Report) -> list[tuple[str, str, str]]:
    return [(one.kind, one.what, one.on) for one in report.changes]


def two_nodes(count: int = 1, *claims: dict[str, Any], **other: Any) -> ClusterState:
    return state(
        words.node(OTHER, labels={"zone": "b"}, **other),
        resource_slice(devices(count)),
        resource_slice(devices(count), pool=OTHER),
        *claims,
    )


IN_B = {"nodeSelector": {"zone": "b"}}


def test_only_what_is_on_a_node_that_takes_the_pod_is_ended() -> None:
    cluster = two_nodes(1, of("a", "gpu-0"), of("b", "gpu-0", OTHER))
    assert helps(asking(cluster, spec=IN_B)) == [("end", "end claim ns/b, used by ns/p-b", OTHER)]
    assert helps(asking(cluster, spec={}))[0] == ("end", "end claim ns/a, used by ns/p-a", HOME)


def test_nobody_is_told_to_ask_for_what_only_another_node_has() -> None:
    cluster = state(
        words.node(OTHER, labels={"zone": "b"}),
        resource_slice(devices(3)),
        resource_slice(devices(1), pool=OTHER),
    )
    [change] = helps(asking(cluster, request(count=4), spec=IN_B))
    assert change == ("ask for less", "request gpu of claim ns/mine: ask for 1 instead of 4", OTHER)


def test_devices_that_are_free_where_the_pod_may_not_be_do_not_end_the_search() -> None:
    cluster = two_nodes(1, of("b", "gpu-0", OTHER))
    report = asking(cluster, spec=IN_B)
    assert report.outcome == "devices fit, something else is in the way"
    assert helps(report) == [("end", "end claim ns/b, used by ns/p-b", OTHER)]


def test_if_no_node_takes_the_pod_and_the_devices_fit_nothing_is_tried() -> None:
    report = asking(two_nodes(), spec={"nodeSelector": {"zone": "c"}})
    assert (report.outcome, report.changes) == ("devices fit, something else is in the way", ())


def test_if_no_node_takes_the_pod_every_node_counts() -> None:
    cluster = two_nodes(1, of("a", "gpu-0"), of("b", "gpu-0", OTHER))
    [change] = helps(asking(cluster, spec={"nodeSelector": {"zone": "c"}}))
    also = "let the pod's nodeSelector zone=c match the node"
    assert change == ("edit", f"end claim ns/a, used by ns/p-a; {also}", HOME)


def test_of_nodes_with_the_same_devices_that_one_is_named_on_which_less_has_to_end() -> None:
    claims = [of(f"a{n}", f"gpu-{n}") for n in range(2)]
    big = of("big", "gpu-0", OTHER)
    results = big["status"]["allocation"]["devices"]["results"]
    results.append({**results[0], "device": "gpu-1"})
    report = asking(two_nodes(2, *claims, big), request(count=2))
    assert helps(report) == [("end", "end claim ns/big, used by ns/p-big", OTHER)]


def test_of_nodes_with_the_same_devices_that_one_is_waited_for_which_is_freeing_itself() -> None:
    claims = [of(f"{pool}{n}", f"gpu-{n}", pool) for pool in (HOME, OTHER) for n in range(2)]
    ending = {f"p-{OTHER}{n}": {"metadata": dict(GONE)} for n in range(2)}
    report = asking(pods(two_nodes(2, *claims), **ending), request(count=2))
    assert [(kind, on) for kind, _, on in helps(report)] == [("wait", OTHER), ("end", HOME)]


def test_of_devices_that_must_go_together_only_those_claims_end_that_are_in_the_way() -> None:
    listed = [device(f"gpu-{n}", numa=n // 4) for n in range(8)]
    claims = [of(f"h{n}", f"gpu-{n}") for n in (0, 1, 2, 4, 5)]
    together = [{"matchAttribute": f"{GPU}/numa"}]
    wanted = (request("a", count=2), request("b"))
    report = asking(state(resource_slice(listed), *claims), *wanted, constraints=together)
    found = helps(report)
    assert [(kind, on) for kind, _, on in found] == [("end", HOME), ("edit", HOME)]
    assert found[0][1] in {f"end claim ns/h{n}, used by ns/p-h{n}" for n in (4, 5)}


def test_a_pod_that_may_be_evicted_ends_before_one_that_a_budget_protects() -> None:
    cluster = pods(
        two_nodes(1, of("a", "gpu-0"), of("b", "gpu-0", OTHER)),
        **{"p-a": {"metadata": {"labels": {"app": "x"}}}, "p-b": {}},
    )
    budget = {
        "metadata": {"name": "pdb", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 0},
    }
    protected = msgspec.structs.replace(
        cluster, pod_disruption_budgets=(msgspec.convert(budget, PodDisruptionBudget),)
    )
    assert helps(asking(cluster))[0][2] == HOME
    assert helps(asking(protected))[0][1:] == ("end claim ns/b, used by ns/p-b", OTHER)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_is_over_uses_no_claim(phase: str) -> None:
    cluster = state(resource_slice(devices(1)), of("h", "gpu-0"))
    over = pods(cluster, **{"p-h": {"status": {"phase": phase}}})
    assert helps(asking(cluster))[0][1] == "end claim ns/h, used by ns/p-h"
    assert helps(asking(over))[0][1] == "end claim ns/h"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"status": {"phase": "Failed"}}, "its phase is Failed"),
        ({"metadata": dict(GONE)}, f"it is being deleted since {TIME}"),
    ],
)
def test_a_pod_that_the_scheduler_does_not_place_any_more_is_told_so(
    more: dict[str, Any], why: str
) -> None:
    wanted = words.claim()
    wanted["metadata"]["namespace"] = "ns"
    spec = words.pod()["spec"]
    cluster = pods(state(resource_slice(devices(1)), wanted), p={"spec": spec, **more})
    report = explain(cluster, PodSubject("ns", "p"))
    assert report.outcome == "devices fit, something else is in the way"
    [told] = [one for one in report.verdicts if str(one).startswith("the scheduler does not place")]
    assert str(told) == f"the scheduler does not place this pod any more: {why}"
    assert fix(told).startswith("create the pod anew")
    alive = pods(state(resource_slice(devices(1)), wanted), p={"spec": spec})
    assert explain(alive, PodSubject("ns", "p")).outcome == "devices fit"


def new_node(driver: str = GPU) -> NewNode:
    published = resource_slice(devices(2), driver=driver, pool="new")
    return NewNode(
        "big", Node(metadata=ObjectMeta(name="new")), (msgspec.convert(published, ResourceSlice),)
    )


def test_for_several_pods_an_added_node_is_told_with_how_many_fit_then() -> None:
    pod = words.pod(of={"resourceClaimTemplateName": words.MINE})["spec"]
    labels = {"app": "train"}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "train"},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    documents = (words.template(), workload)
    subject = ManifestSubject(documents, "ns", "f.yaml")
    report = explain(state(resource_slice(devices(2))), subject, added=new_node())
    assert [one.what for one in report.changes] == [
        "add a node like big: at least 3 pods fit then",
        "deployment ns/train: 2 pods instead of 4",
    ]


def test_a_node_of_a_driver_that_nothing_here_has_is_told_to_be_one() -> None:
    cluster = state(resource_slice(devices(1)))
    subject = ManifestSubject((words.claim(request(count=2)),), "ns", "f.yaml")
    assert explain(cluster, subject, added=new_node("other.example.com")).no_help == (
        "a node like big would not help (its devices would be of the driver other.example.com, which publishes none here; "
        "PROFILE:DRIVER names another)"
    )


def test_no_claim_is_ended_while_an_error_on_another_node_stops_the_pod() -> None:
    """To end the claim would free a device, but the scheduler would still give up."""
    lacking = device("part-0")
    lacking["attributes"] = {}
    cluster = state(
        words.node(OTHER),
        resource_slice(devices(1)),
        resource_slice([lacking], pool=OTHER),
        of("a", "gpu-0"),
    )
    cel = f'device.attributes["{GPU}"].model == "H100"'
    report = asking(cluster, request(cel=cel))
    assert report.summary.startswith("the scheduler gives up on all nodes")
    guarded = f'has(device.attributes["{GPU}"].model) && '
    told = (
        f"request gpu of claim ns/mine: put {guarded}before {cel}; end claim ns/a, used by ns/p-a"
    )
    assert helps(report) == [("correct", told, HOME)]


H100, MISTYPED = (f'device.attributes["{GPU}"].model == "{one}"' for one in ("H100", "H10O"))
CORRECT = f"request gpu of claim ns/mine: write {H100} instead of {MISTYPED}"
TAINT = {"key": "gpu", "value": "here", "effect": "NoSchedule"}
TOLERATE = "tolerate the node's taint gpu=here:NoSchedule in the pod (spec.tolerations)"


def only(**spec: Any) -> ClusterState:
    """A cluster with one node, which has a device."""
    cluster = state(resource_slice(devices(1)))
    node = {"metadata": {"name": HOME}, "status": {"allocatable": {"pods": "9"}}, "spec": spec}
    return msgspec.structs.replace(cluster, nodes=[msgspec.convert(node, Node)])


@pytest.mark.parametrize(
    ("node", "pod", "kind", "also"),
    [
        ({}, {}, "correct", ""),
        ({"taints": [TAINT]}, {}, "tolerate", f"; {TOLERATE}"),
        ({"unschedulable": True}, {}, "edit", "; uncordon the node"),
        ({}, IN_B, "edit", "; let the pod's nodeSelector zone=b match the node"),
        (
            {"taints": [TAINT]},
            IN_B,
            "edit",
            f"; {TOLERATE}; let the pod's nodeSelector zone=b match the node",
        ),
        (
            {"taints": [TAINT]},
            {"overhead": {"cpu": "2"}},
            "edit",
            f"; {TOLERATE}; make room on the node (cpu: 2 needed, 0 free)",
        ),
    ],
)
def test_a_change_names_what_else_keeps_the_pod_off_the_node(
    node: dict[str, Any], pod: dict[str, Any], kind: str, also: str
) -> None:
    report = asking(only(**node), request(cel=MISTYPED), spec=pod)
    assert helps(report)[0] == (kind, f"{CORRECT}{also}", HOME)


UNFIT = [
    ("node.kubernetes.io/not-ready", "NoSchedule"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule"),
    ("ToBeDeletedByClusterAutoscaler", "NoSchedule"),
    ("DeletionCandidateOfClusterAutoscaler", "NoSchedule"),
    ("karpenter.sh/disrupted", "NoSchedule"),
    ("cloud.google.com/impending-node-termination", "NoSchedule"),
    ("aws-node-termination-handler/spot-itn", "NoSchedule"),
    ("startup-taint.cluster-autoscaler.kubernetes.io/gpu", "NoSchedule"),
    ("status-taint.cluster-autoscaler.kubernetes.io/gpu", "NoSchedule"),
    ("ignore-taint.cluster-autoscaler.kubernetes.io/gpu", "NoSchedule"),
    ("node.cilium.io/agent-not-ready", "NoSchedule"),
    ("ebs.csi.aws.com/agent-not-ready", "NoExecute"),
]


@pytest.mark.parametrize(("key", "effect"), UNFIT)
def test_nobody_is_told_to_tolerate_that_a_node_is_ill_or_goes_away(key: str, effect: str) -> None:
    unfit = {"taints": [{"key": key, "value": "1", "effect": effect}]}
    assert helps(asking(only(**unfit), request(cel=MISTYPED), spec={})) == []
    advice = fix(NodeTainted(f"{key}=1:{effect}"))
    assert "use another node, or wait until the taint is gone" in advice
    assert "toleration" not in advice


def test_of_a_node_that_ends_other_pods_the_admin_is_asked() -> None:
    """It is not told to be ill, and nobody is told to tolerate the taint."""
    dedicated = {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoExecute"}]}
    assert helps(asking(only(**dedicated), request(cel=MISTYPED), spec={})) == []
    assert fix(NodeTainted("dedicated=ml:NoExecute")) == (
        "an admin keeps other pods off this node, and ends those that run there: ask whether this "
        "pod may tolerate the taint, or use another node"
    )


def test_a_taint_for_some_pods_is_tolerated() -> None:
    assert fix(NodeTainted("nvidia.com/gpu:NoSchedule")).startswith("add a toleration to the pod")


def test_nothing_is_changed_on_a_node_of_which_it_is_not_known_what_keeps_the_pod_off() -> None:
    """The pod's affinity for the node is malformed."""
    terms = [{"matchExpressions": [{"key": "a", "operator": "Odd", "values": ["b"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    report = asking(only(), request(cel=MISTYPED), spec={"affinity": {"nodeAffinity": required}})
    assert [type(group.pod[0]) for group in report.nodes] == [CouldNotTell]
    assert helps(report) == []


def test_beside_a_node_without_devices_a_change_on_a_tainted_node_is_told() -> None:
    """The node that takes the pod has nothing to propose."""
    cluster = state(words.node(OTHER, taints=[TAINT]), resource_slice(devices(1), pool=OTHER))
    report = asking(cluster, request(cel=MISTYPED), spec={})
    assert helps(report)[0] == ("tolerate", f"{CORRECT}; {TOLERATE}", OTHER)
    chosen = asking(
        cluster, request(cel=MISTYPED), spec={"nodeSelector": {"kubernetes.io/hostname": HOME}}
    )
    assert helps(chosen) == []


def test_a_change_on_a_tainted_node_is_told_before_one_that_costs_more() -> None:
    other = device("gpu-0")
    other["attributes"]["model"] = {"string": "A100"}
    cluster = state(
        words.node(OTHER, taints=[TAINT]),
        resource_slice([other]),
        resource_slice(devices(1), pool=OTHER),
    )
    report = asking(cluster, request(cel=MISTYPED), spec={})
    assert [(kind, on) for kind, _, on in helps(report)] == [("tolerate", OTHER), ("edit", HOME)]


def test_a_toleration_does_not_help_if_an_error_on_another_tainted_node_then_stops_the_pod() -> (
    None
):
    """Both nodes have the taint. The change removes no error: it ends a claim."""
    lacking = device("part-0")
    lacking["attributes"] = {}
    claimed = of("a", "gpu-0", OTHER)
    fine = [words.node(OTHER, taints=[TAINT]), resource_slice(devices(1), pool=OTHER), claimed]
    broken = [words.node(THIRD, taints=[TAINT]), resource_slice([lacking], pool=THIRD)]
    told = f"end claim ns/a, used by ns/p-a; {TOLERATE}"
    assert [what for _, what, _ in helps(asking(state(*fine), request(cel=H100), spec={}))] == [
        told
    ]
    report = asking(state(*fine, *broken), request(cel=H100), spec={})
    assert all(
        what.startswith("request gpu of claim ns/mine: put has(") for _, what, _ in helps(report)
    )
    assert len(report.changes) == 1


def test_a_change_of_a_claim_that_the_api_server_refuses_says_what_it_needs_besides() -> None:
    taken = state(
        resource_slice(devices(2)), of("a", "gpu-0"), namespaces=[{"metadata": {"name": "ns"}}]
    )
    report = asking(taken, request(count=3, adminAccess=True))
    label = 'label namespace ns with resource.kubernetes.io/admin-access: "true"'
    fewer = "request gpu of claim ns/mine: ask for 2 instead of 3"
    assert helps(report) == [("ask for less", f"{fewer}; {label}", HOME)]
    labels = {"resource.kubernetes.io/admin-access": "true"}
    allowed = state(
        resource_slice(devices(2)), namespaces=[{"metadata": {"name": "ns", "labels": labels}}]
    )
    report = asking(allowed, request(count=3, adminAccess=True))
    assert helps(report) == [("ask for less", fewer, HOME)]


def test_no_change_helps_a_claim_that_is_being_deleted() -> None:
    mine = words.claim(request(count=2))
    mine["metadata"] |= {"namespace": "ns", **GONE}
    there = state(resource_slice(devices(1)), mine)
    report = explain(there, ClaimSubject("ns", words.MINE))
    assert (report.exit_code, report.changes) == (1, ())


def test_a_claim_that_is_not_made_from_its_template_yet_is_waited_for() -> None:
    spec = words.pod(of={"resourceClaimTemplateName": words.MINE})["spec"]
    template = msgspec.convert(words.template(), ResourceClaimTemplate)
    template = msgspec.structs.replace(
        template, metadata=ObjectMeta(name=words.MINE, namespace="ns")
    )
    cluster = pods(state(resource_slice(devices(1))), p={"spec": spec})
    cluster = msgspec.structs.replace(cluster, resource_claim_templates=(template,))
    (late,) = explain(cluster, PodSubject("ns", "p")).claims[0].verdicts
    assert fix(late).startswith("wait a moment; ")


def test_the_constraint_that_makes_the_end_of_a_claim_useless_is_named() -> None:
    """To wait for the claim on numa 1 would cost least, but the free device is of numa 0."""
    listed = [device("gpu-0", numa=0), device("gpu-1", numa=1), device("gpu-2", numa=0)]
    claims = [of("busy", "gpu-0"), of("ends", "gpu-1")]
    cluster = state(resource_slice(listed), *claims)
    cluster = pods(cluster, **{"p-ends": {"metadata": dict(GONE)}})
    together = [{"matchAttribute": f"{GPU}/numa"}]
    report = asking(cluster, request(count=2), constraints=together)
    assert helps(report)[0] == ("end", "end claim ns/busy, used by ns/p-busy", HOME)
    told = f"matchAttribute {GPU}/numa"
    assert report.no_help == f"wait until pod ns/p-ends is gone: not enough, because of {told}"
    assert report.claims[0].constraints == (told,)
    free = asking(cluster, request(count=2))
    assert helps(free)[0] == ("wait", "wait until pod ns/p-ends is gone", HOME)
    assert (free.no_help, free.claims[0].constraints) == ("", ())


def test_a_constraint_is_not_blamed_where_there_are_too_few_devices_without_it() -> None:
    listed = [device("gpu-0", numa=0), device("gpu-1", numa=1)]
    cluster = state(resource_slice(listed), of("ends", "gpu-1"))
    cluster = pods(cluster, **{"p-ends": {"metadata": dict(GONE)}})
    report = asking(cluster, request(count=3), constraints=[{"matchAttribute": f"{GPU}/numa"}])
    assert "not enough, because of" not in report.no_help
