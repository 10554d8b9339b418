# SPDX-License-Identifier: Apache-2.0
"""Explanations of what a cluster has already, and of manifests of every kind."""

from typing import Any

import msgspec
import pytest

from dra_driver.cli.render_explain import text
from dra_driver.errors import Permanent
from dra_driver.explain.outcome import Report
from dra_driver.explain.remedy import fix
from dra_driver.explain.report import (
    ClaimSubject,
    ManifestSubject,
    PodSubject,
    TemplateSubject,
    explain,
)
from dra_driver.explain.verdict import (
    AdminAccessNotAllowed,
    ClaimAllocatedElsewhere,
    ClaimMissing,
    CouldNotTell,
    Fits,
    OtherCondition,
    TemplateMissing,
)
from dra_driver.explain.verdicts.pod import NAMED_IN_VAIN, NAMED_UNFIT, NO_SUCH_NODE
from dra_driver.model.api.core import Namespace, Pod
from dra_driver.model.api.resource_claim import ResourceClaim, ResourceClaimTemplate
from dra_driver.model.cluster import ClusterState, NotRead
from tests.e2e import fleet as words
from tests.e2e.fleet import HOME, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

ONE = resource_slice(devices(1))


def pod(*, of: dict[str, str] | None = None, **parts: Any) -> Pod:
    made = words.pod(of=of)
    made["metadata"] |= {"namespace": "ns", "uid": "u"}
    made["spec"] |= parts.pop("spec", {})
    return msgspec.convert({**made, **parts}, Pod)


def owned(*requests: dict[str, Any], **parts: Any) -> dict[str, Any]:
    made = words.claim(*requests, **parts)
    owner = {"kind": "Pod", "name": words.MINE, "uid": "u", "controller": True}
    made["metadata"] |= {"namespace": "ns", "ownerReferences": [owner]}
    return made


def with_pod(cluster: ClusterState, made: Pod, **fields: Any) -> ClusterState:
    return msgspec.structs.replace(cluster, pods=(made,), **fields)


def template() -> ResourceClaimTemplate:
    made = words.template()
    made["metadata"]["namespace"] = "ns"
    return msgspec.convert(made, ResourceClaimTemplate)


FROM_TEMPLATE = {"resourceClaimTemplateName": words.MINE}
MINE = PodSubject("ns", words.MINE)


def test_a_pod_that_has_its_node_is_told_with_its_devices() -> None:
    placed = with_pod(state(ONE, holder("gpu-0", words.MINE)), pod(spec={"nodeName": HOME}))
    report = explain(placed, MINE)
    (node,) = report.nodes
    assert (report.exit_code, report.summary) == (0, f"scheduled on node {HOME}")
    assert [str(one) for one in node.placement] == [f"{words.GPU}/{HOME}/gpu-0"]


NO_DEVICES = (
    "the pod never gets devices, because the scheduler does not see a pod with spec.nodeName: "
    f"{HOME}"
)


@pytest.mark.parametrize("status", [{}, {"phase": "Pending", "containerStatuses": [{}]}])
@pytest.mark.parametrize("live", [True, False])
def test_a_pod_that_names_its_node_gets_no_devices(status: Any, *, live: bool) -> None:
    """Nobody but the scheduler gives a claim devices, and it does not see such a pod."""
    there = state(ONE, owned(), words.node(words.FLEET[0]))
    subject: Any = MINE
    if live:
        there = with_pod(there, pod(spec={"nodeName": HOME}, status=status))
    else:
        named = words.pod()
        named["spec"]["nodeName"] = HOME
        subject = ManifestSubject((named,), "ns", "f.yaml")
    report = explain(there, subject)
    assert (report.exit_code, report.outcome) == (3, "devices fit, something else is in the way")
    assert report.summary == f"{NO_DEVICES}; without it, the devices fit on 1 of 2 nodes"
    assert list(map(str, report.verdicts)) == [NO_DEVICES]
    assert fix(report.verdicts[0]) == (
        "leave nodeName out; if it must be this node, require it by nodeAffinity with matchFields "
        f"metadata.name In {HOME}"
    )
    written = "\n".join(text(report, width=1000, color=False))
    assert written.count("the scheduler does not see") == 1
    assert "hostname" not in written


def test_a_pod_that_names_its_node_gets_no_devices_where_none_fit() -> None:
    report = explain(with_pod(state(owned()), pod(spec={"nodeName": HOME})), MINE)
    assert (report.exit_code, report.outcome) == (1, "devices do not fit")
    assert report.summary.startswith(
        f"{NAMED_UNFIT}: {HOME}; without it, the devices fit on no node"
    )
    from_template = pod(of=FROM_TEMPLATE, spec={"nodeName": HOME})
    report = explain(with_pod(state(ONE), from_template), MINE)
    assert (report.exit_code, report.summary.startswith(NO_DEVICES)) == (1, True)


@pytest.mark.parametrize(
    "parts",
    [
        {"status": {"phase": "Running"}},
        {"status": {"phase": "Succeeded"}},
        {"metadata": {"name": words.MINE, "namespace": "ns", "deletionTimestamp": "t"}},
    ],
)
def test_a_pod_that_runs_or_ends_is_on_its_node_whatever_its_claim_has(parts: Any) -> None:
    placed = with_pod(state(ONE, owned()), pod(spec={"nodeName": HOME}, **parts))
    assert explain(placed, MINE).summary == f"scheduled on node {HOME}"


OTHER = words.FLEET[0]
ALLOWED = {"key": "metadata.name", "operator": "In", "values": [HOME]}


def away(**parts: Any) -> ClusterState:
    """A cluster of two nodes, where the claim of the pod has its devices on the first."""
    there = holder("gpu-0", words.MINE)
    selector = {"nodeSelectorTerms": [{"matchFields": [ALLOWED]}]}
    there["status"]["allocation"]["nodeSelector"] = selector
    return state(ONE, there, words.node(OTHER), **parts)


def elsewhere(node: str = OTHER, **status: Any) -> Report:
    """Of a pod that names a node, and whose claim has its devices on another one."""
    return explain(with_pod(away(), pod(spec={"nodeName": node}, status=status)), MINE)


def of_file(cluster: ClusterState, node: str) -> Report:
    """The same of a pod that is not created yet. Nobody else uses its claim, so the scheduler would deallocate it."""
    named = words.pod()
    named["spec"]["nodeName"] = node
    return explain(cluster, ManifestSubject((named,), "ns", "f.yaml"))


@pytest.mark.parametrize(
    "report", [elsewhere(phase="Pending"), of_file(away(), OTHER)], ids=["live", "file"]
)
def test_a_pod_that_names_a_node_other_than_that_of_its_devices_is_told_so(report: Report):
    assert (report.exit_code, report.outcome) == (1, "devices do not fit")
    assert report.verdicts == (OtherCondition(NAMED_IN_VAIN, OTHER),)
    assert report.summary == f"{NAMED_IN_VAIN}: {OTHER}"
    reason = ClaimAllocatedElsewhere(f"ns/{words.MINE}", f"nodes with name={HOME}")
    assert report.nodes[0].devices == (reason,)
    written = "\n".join(text(report, width=1000, color=False))
    assert written.count("cannot be used on the node") == 1
    assert "leave nodeName out, and create the pod anew" in written
    assert "deallocates" not in written  # it does not see the pod
    assert "nodeSelector" not in written  # the pod has none


def test_a_pod_of_a_file_that_names_the_node_of_its_devices_fits_there():
    assert of_file(away(), HOME).exit_code == 0


def test_a_pod_that_names_a_node_that_does_not_exist_is_told_so():
    report = elsewhere("gone", phase="Pending")
    assert (report.exit_code, report.summary) == (3, f"{NO_SUCH_NODE}: gone")
    assert report.verdicts == (OtherCondition(NO_SUCH_NODE, "gone"),)
    assert report.nodes == ()
    assert fix(report.verdicts[0]).endswith("the scheduler takes a node that exists")
    assert of_file(away(), "gone").summary == report.summary


def test_where_the_devices_fit_is_not_asked_of_a_node_that_does_not_exist():
    cluster = with_pod(state(ONE, owned()), pod(spec={"nodeName": "gone"}))
    report = explain(cluster, MINE)
    assert (report.exit_code, report.verdicts) == (3, (OtherCondition(NO_SUCH_NODE, "gone"),))
    assert report.summary == (f"{NO_SUCH_NODE}: gone; without it, the devices fit on 1 of 1 nodes")
    assert [one.pod for one in report.nodes] == [()]


def test_a_node_that_could_not_be_read_may_exist():
    gap = {"resource": "nodes", "reason": "forbidden", "message": "m"}
    cluster = with_pod(away(notRead=[gap]), pod(spec={"nodeName": "gone"}))
    assert explain(cluster, MINE).summary == "scheduled on node gone"


def test_a_pod_that_has_started_is_not_told_that_it_cannot():
    assert elsewhere(phase="Running").exit_code == 0


def test_a_pending_pod_whose_devices_fit_quotes_the_scheduler() -> None:
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
    waiting = pod(status={"conditions": [{"type": "Ready", "status": "False"}, said]})
    report = explain(with_pod(state(ONE, owned()), waiting), MINE)
    assert report.exit_code == 3
    assert OtherCondition("Unschedulable", "m") in report.verdicts
    quiet = explain(with_pod(state(ONE, owned()), pod()), MINE)
    assert (quiet.exit_code, isinstance(quiet.verdicts[0], Fits)) == (0, True)


def test_a_claim_of_a_template_that_is_not_made_yet_is_judged_nevertheless() -> None:
    cluster = with_pod(state(ONE), pod(of=FROM_TEMPLATE), resource_claim_templates=(template(),))
    report = explain(cluster, MINE)
    (claim,) = report.claims
    assert (report.exit_code, claim.origin) == (3, "template ns/mine")
    assert isinstance(claim.verdicts[0], ClaimMissing)
    missing = explain(with_pod(state(ONE), pod(of=FROM_TEMPLATE)), MINE)
    assert missing.claims[0].verdicts == (TemplateMissing("ns/mine"),)


def in_namespace(name: str) -> dict[str, Any]:
    made = words.claim()
    made["metadata"]["namespace"] = name
    return made


def missing(cluster: ClusterState, of: dict[str, str] | None = None) -> tuple[str, str]:
    """What is said of the claim or template that the pod names, and what to do."""
    (found,) = explain(with_pod(cluster, pod(of=of)), MINE).claims[0].verdicts
    return str(found), fix(found)


def test_a_name_that_is_like_one_of_its_namespace_is_asked_for():
    there = msgspec.structs.replace(
        state(ONE, owned()),
        resource_claim_templates=(template(),),
        resource_claims=tuple(
            msgspec.convert(one, ResourceClaim)
            for one in (in_namespace("ns"), owned(name="mnie-x"))
        ),
    )
    by_name, by_template = {"resourceClaimName": "mnie"}, {"resourceClaimTemplateName": "mein"}
    assert missing(there, by_name)[0] == "claim ns/mnie does not exist (did you mean mine?)"
    assert missing(there, by_template)[0] == "template ns/mein does not exist (did you mean mine?)"
    # Nobody wrote the name of a claim that was made from a template.
    status = {"resourceClaimStatuses": [{"name": "devices", "resourceClaimName": "mnie"}]}
    waiting = pod(of=FROM_TEMPLATE, status=status)
    (found,) = explain(with_pod(there, waiting), MINE).claims[0].verdicts
    assert str(found) == "claim ns/mnie does not exist"


def test_a_template_is_no_claim_and_a_claim_is_no_template():
    there = msgspec.structs.replace(state(ONE), resource_claim_templates=(template(),))
    assert missing(there) == (
        "claim ns/mine does not exist",
        "there is a ResourceClaimTemplate of this name: write resourceClaimTemplateName in the pod",
    )
    assert missing(state(ONE, owned()), FROM_TEMPLATE) == (
        "template ns/mine does not exist",
        "there is a ResourceClaim of this name: write resourceClaimName in the pod",
    )


def test_a_pod_uses_claims_and_templates_of_its_own_namespace():
    assert missing(state(ONE, in_namespace("other")))[1] == (
        "there is one in the namespace other, and a pod uses those of its own namespace: create it in ns too"
    )
    made = words.template()
    made["metadata"]["namespace"] = "other"
    strange = msgspec.convert(made, ResourceClaimTemplate)
    both = msgspec.structs.replace(
        state(ONE, in_namespace("b"), in_namespace("a")), resource_claim_templates=(strange,)
    )
    assert missing(both)[1].startswith("there is one in the namespaces a, b, and")
    assert missing(both, FROM_TEMPLATE)[1].startswith("there is one in the namespace other, and")
    assert missing(state(ONE))[1].startswith("create the claim, or correct `resourceClaimName`")


def test_the_claim_that_was_made_from_the_template_is_found() -> None:
    others = {"name": "other", "resourceClaimName": "other"}
    mine = {"name": "devices", "resourceClaimName": words.MINE}
    status = {"resourceClaimStatuses": [others, mine]}
    made = pod(of=FROM_TEMPLATE, status=status)
    assert explain(with_pod(state(ONE, owned()), made), MINE).exit_code == 0
    stranger = owned()
    stranger["metadata"]["ownerReferences"] = []
    report = explain(with_pod(state(ONE, stranger), made), MINE)
    assert (report.exit_code, type(report.claims[0].verdicts[0])) == (1, ClaimMissing)
    without = {"resourceClaimStatuses": [{"name": "devices"}]}
    done = explain(with_pod(state(ONE), pod(of=FROM_TEMPLATE, status=without)), MINE)
    assert (done.exit_code, done.claims) == (0, ())


def test_claims_and_templates_are_explained_by_name() -> None:
    assert explain(state(ONE, owned()), ClaimSubject("ns", words.MINE)).exit_code == 0
    cluster = msgspec.structs.replace(state(ONE), resource_claim_templates=(template(),))
    assert explain(cluster, TemplateSubject("ns", words.MINE)).exit_code == 0
    allocated = explain(state(ONE, holder("gpu-0")), ClaimSubject("ns", "holder"))
    assert (allocated.exit_code, len(allocated.claims[0].allocated)) == (0, 1)


@pytest.mark.parametrize("subject", [MINE, ClaimSubject("ns", "x"), TemplateSubject("ns", "x")])
def test_what_is_not_there_is_a_sentence(subject: Any) -> None:
    with pytest.raises(Permanent, match=r"there is no .* in this cluster"):
        explain(state(), subject)


def gap(resource: str) -> NotRead:
    return NotRead(resource=resource, reason="forbidden", message=f"allow list on {resource}")


def test_what_may_not_be_read_is_said_and_never_guessed() -> None:
    blind = msgspec.structs.replace(state(), not_read=(gap("pods"),))
    with pytest.raises(Permanent, match="allow list on pods"):
        explain(blind, MINE)
    for resource, of in (("resourceclaims", None), ("resourceclaimtemplates", FROM_TEMPLATE)):
        cluster = with_pod(state(ONE), pod(of=of), not_read=(gap(resource),))
        report = explain(cluster, MINE)
        assert report.exit_code == 2
        assert isinstance(report.claims[0].verdicts[0], CouldNotTell)
    metrics = msgspec.structs.replace(state(ONE, owned()), not_read=(gap("/metrics"),))
    assert explain(metrics, ClaimSubject("ns", words.MINE)).exit_code == 0


def test_a_search_that_is_stopped_could_not_tell() -> None:
    report = explain(state(ONE, owned()), ClaimSubject("ns", words.MINE), cancelled=lambda: True)
    assert report.exit_code == 2
    assert any(isinstance(one, CouldNotTell) for one in report.verdicts)


def test_one_expression_that_takes_too_long_could_not_tell() -> None:
    """It is asked alone first, of each device; then the search begins and ends at once."""
    asked = iter(range(10**6))
    cluster = state(ONE, owned(request(cel="lists.range(200000).all(x, x >= 0)")))
    report = explain(cluster, ClaimSubject("ns", words.MINE), cancelled=lambda: next(asked) > 100)
    assert (report.exit_code, report.outcome) == (2, "could not tell")
    assert any(isinstance(one, CouldNotTell) and one.cause == "timeout" for one in report.verdicts)
    assert next(asked) < 150


def test_one_expression_that_takes_too_long_to_compile_could_not_tell() -> None:
    asked = iter(range(10**6))
    doubled = "optional.of(true)" + ".optMap(x, x)" * 9 + ".value()"
    cluster = state(ONE, owned(request(cel=doubled)))
    report = explain(cluster, ClaimSubject("ns", words.MINE), cancelled=lambda: next(asked) > 30)
    assert (report.exit_code, report.outcome) == (2, "could not tell")
    assert any(isinstance(one, CouldNotTell) and one.cause == "timeout" for one in report.verdicts)
    assert next(asked) < 60


def test_a_node_can_be_named() -> None:
    cluster = state(ONE, owned(), words.node("other"))
    subject = ClaimSubject("ns", words.MINE)
    assert explain(cluster, subject, node=HOME).exit_code == 0
    assert explain(cluster, subject, node="other").exit_code == 1
    with pytest.raises(Permanent, match="there is no node x"):
        explain(cluster, subject, node="x")


def test_a_cluster_without_nodes_says_so() -> None:
    empty = msgspec.structs.replace(state(ONE, owned()), nodes=())
    report = explain(empty, ClaimSubject("ns", words.MINE))
    assert report.exit_code == 1
    assert OtherCondition("the cluster has no nodes", "") in report.verdicts


ADMIN = ManifestSubject((words.claim(request(adminAccess=True)),), "ns", "f")


def namespace(**labels: str) -> Namespace:
    return msgspec.convert({"metadata": {"name": "ns", "labels": labels}}, Namespace)


def test_admin_access_needs_a_label_that_can_be_read() -> None:
    refused = explain(state(ONE), ADMIN)
    assert refused.claims[0].verdicts == (AdminAccessNotAllowed("ns"),)
    labelled = namespace(**{"resource.kubernetes.io/admin-access": "true"})
    allowed = msgspec.structs.replace(state(ONE), namespaces=(labelled,))
    assert explain(allowed, ADMIN).exit_code == 0
    blind = msgspec.structs.replace(state(ONE), not_read=(gap("namespaces"),))
    assert explain(blind, ADMIN).exit_code == 2
    older = msgspec.structs.replace(
        state(ONE, gates=("DRAAdminAccess",)), kubernetes_version="v1.32.0"
    )
    assert explain(older, ADMIN).exit_code == 0


def manifest(*documents: Any) -> ManifestSubject:
    return ManifestSubject(documents, "ns", "f.yaml")


def test_workloads_are_explained_by_their_pods() -> None:
    spec = words.pod()["spec"]
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ns"},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": spec},
        },
    }
    spec = spec | {"restartPolicy": "OnFailure"}
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c"},
        "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}},
    }
    for workload, name in ((deployment, "deployment ns/d"), (cron, "cronjob ns/c")):
        report = explain(
            state(ONE), manifest(words.claim(), workload, {"apiVersion": "v1", "kind": "Service"})
        )
        assert (report.exit_code, report.subject) == (0, name)
    with pytest.raises(Permanent, match=r"Deployment x: it has no spec\.template"):
        explain(
            state(),
            manifest({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}),
        )


def test_of_several_pods_the_first_that_is_not_served_is_told() -> None:
    listed = {"kind": "List", "items": [*words.user("a"), words.claim(request(count=2), name="b")]}
    report = explain(state(ONE), manifest(listed, words.pod("b")))
    assert (report.exit_code, report.subject) == (1, "pod ns/b")


def test_templates_and_older_versions_are_understood() -> None:
    assert explain(state(ONE), manifest(words.template())).exit_code == 0
    flat = {"name": "gpu", "deviceClassName": "gpu"}
    old = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
    }
    either = {"name": "x", "firstAvailable": [{"name": "y", "deviceClassName": "gpu"}]}
    spec = {"devices": {"requests": [flat, either]}}
    report = explain(state(resource_slice(devices(2))), manifest({**old, "spec": spec}))
    assert [one.name for one in report.claims[0].requests] == ["gpu", "x/y"]
    assert [one.asks for one in report.claims[0].requests] == ["1 x gpu", "1 x gpu"]
    nested = {
        **old,
        "kind": "ResourceClaimTemplate",
        "spec": {"spec": {"devices": {"requests": [flat]}}},
    }
    assert explain(state(ONE), manifest(nested)).exit_code == 0
    assert explain(state(ONE), manifest({**old, "spec": {"devices": {}}})).exit_code == 0
    assert explain(state(ONE), manifest(old)).exit_code == 0


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("text", "a document that is no object but 'text'"),
        ({"apiVersion": "v1", "kind": "ConfigMap"}, "there is nothing to explain"),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": 3},
            "Pod p is malformed: Expected `object`",
        ),
    ],
)
def test_a_bad_manifest_is_a_sentence(document: Any, message: str) -> None:
    with pytest.raises(Permanent, match=message):
        explain(state(), manifest(document))


def test_a_template_that_needs_both_kinds_of_devices_is_told_per_node() -> None:
    resource = f"{words.GPU}/whole"
    made = words.device_class("extended")
    made["spec"]["extendedResourceName"] = resource
    container = {"name": "c", "resources": {"requests": {resource: "1"}}}
    asking = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [container]},
    }
    plugin = words.node("plugin") | {"status": {"allocatable": {resource: "1", "pods": "9"}}}
    cluster = state(ONE, made, plugin)
    report = explain(cluster, manifest(asking))
    placed = {group.nodes[0]: len(group.placement) for group in report.nodes}
    assert (report.exit_code, placed) == (0, {HOME: 1, "plugin": 0})


def test_a_recorded_pod_that_only_has_limits_asks_for_them() -> None:
    resource = f"{words.GPU}/whole"
    made = words.device_class("extended")
    made["spec"]["extendedResourceName"] = resource
    limited = {"name": "c", "resources": {"limits": {resource: "2"}}}
    asking = pod(spec={"containers": [limited], "resourceClaims": []})
    one = explain(with_pod(state(ONE, made), asking), MINE, recorded=True)
    assert (one.exit_code, one.claims[0].origin) == (1, f"extended resources {resource}")
    two = explain(with_pod(state(resource_slice(devices(2)), made), asking), MINE, recorded=True)
    assert (two.exit_code, len(two.nodes[0].placement)) == (0, 2)


def test_a_node_that_is_not_the_pods_own_is_not_looked_at_and_that_is_said() -> None:
    elsewhere = words.FLEET[0]
    fleet = state(ONE, holder("gpu-0", words.MINE), words.node(elsewhere))
    placed = with_pod(fleet, pod(spec={"nodeName": HOME}))
    assert explain(placed, MINE, node=HOME).summary == f"scheduled on node {HOME}"
    assert explain(placed, MINE, node=elsewhere).summary == (
        f"scheduled on node {HOME}; node {elsewhere} was not looked at, for the pod stays there"
    )


def test_of_several_templates_one_that_does_not_fit_is_told() -> None:
    larger = words.template(request(count=2), name="larger")
    for documents, place in (((words.template(), larger), 2), ((larger, words.template()), 1)):
        report = explain(state(ONE), ManifestSubject(documents, "ns", "f.yaml"))
        assert (report.exit_code, report.subject) == (1, "template ns/larger")
        assert report.summary.startswith(f"this is number {place} of 2 in the file: ")


def test_binding_conditions_count_only_with_their_feature() -> None:
    result = {"bindingConditions": ["ready"]}
    for gates, code in ((True, 3), (False, 0)):
        cluster = state(
            ONE,
            holder("gpu-0", **result),
            featureGates={
                "DRADeviceBindingConditions": gates,
                "DRAResourceClaimDeviceStatus": gates,
            },
        )
        assert explain(cluster, ClaimSubject("ns", "holder")).exit_code == code


CONDITIONS = ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus")
TWO_CLAIMS = [
    {"name": "devices", "resourceClaimName": words.MINE},
    {"name": "more", "resourceClaimName": "more"},
]


def test_a_claim_that_waits_for_its_binding_has_devices() -> None:
    bound = holder("gpu-0", words.MINE, bindingConditions=["ready"])
    report = explain(with_pod(state(ONE, bound, gates=CONDITIONS), pod()), MINE)
    assert (report.exit_code, report.outcome) == (3, "devices fit, something else is in the way")
    assert report.summary == (
        "the devices fit on 1 of 1 nodes, but claim ns/mine waits for binding conditions ready "
        "(until when is not known, because its allocation has no time)"
    )


def test_what_helps_the_other_claims_is_told_while_one_waits_for_its_binding() -> None:
    bound = holder("gpu-0", words.MINE, bindingConditions=["ready"])
    more = {**words.claim(request(count=2), name="more")}
    more["metadata"] |= {"namespace": "ns"}
    cluster = state(resource_slice(devices(2)), bound, more, gates=CONDITIONS)
    report = explain(with_pod(cluster, pod(spec={"resourceClaims": TWO_CLAIMS})), MINE)
    assert report.exit_code == 1
    assert report.summary == "the devices fit on no node (1 looked at)"
    assert [one.what for one in report.changes] == [
        "request gpu of claim ns/more: ask for 1 instead of 2"
    ]
