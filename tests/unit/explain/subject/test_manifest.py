# SPDX-License-Identifier: Apache-2.0
"""Manifests: what the API server would refuse, what it would make of them, and several pods in one file."""

from typing import Any

import msgspec
import pytest

from dra_driver.check.check import check
from dra_driver.check.given import Given, Known
from dra_driver.errors import Permanent
from dra_driver.explain.outcome import PodCount, Report
from dra_driver.explain.remedy import fix
from dra_driver.explain.report import ClaimSubject, ManifestSubject, explain
from dra_driver.explain.subject.applied import FROM_FILE, IN_PLACE_OF
from dra_driver.explain.verdict import ClassMissing, CouldNotTell, FeatureOff, HeldByClaim
from dra_driver.model.api.core import Namespace, Pod
from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.model.yaml_documents import NOWHERE
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, HOME, device, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

ONE = resource_slice(devices(1))
TWO = resource_slice(devices(2))
ADMIN = {"resource.kubernetes.io/admin-access": "true"}


def answer(cluster: ClusterState, *documents: Any) -> Report:
    return explain(cluster, ManifestSubject(documents, "ns", "f.yaml"))


def refused(*documents: Any) -> str:
    with pytest.raises(Permanent) as raised:
        answer(state(TWO), *documents)
    return str(raised.value)


# Fields


def test_a_field_that_nobody_knows_is_named_with_its_place_and_what_was_meant() -> None:
    typo = words.claim(request(selector=[{"cel": {"expression": "false"}}]))
    assert refused(typo) == (
        "f.yaml: the API server would refuse ResourceClaim mine: spec.devices.requests[0].exactly has no field "
        "selector (did you mean selectors?); write selectors, or leave it out"
    )


def test_a_name_that_is_no_resource_is_refused_in_the_words_of_check() -> None:
    asked = resource("gpu.nvidia.com")
    told = "'gpu.nvidia.com' is no name of a resource; write cpu, memory or DOMAIN/NAME as in nvidia.com/gpu"
    assert refused(asked) == f"f.yaml: the API server would refuse Pod p: container c: {told}"
    document = Given(asked, "f.yaml", 1, (), NOWHERE)
    (one,) = check([document], Known())
    assert f"{one.message}; {one.action}" == f"the API server would refuse it: {told}"
    assert ".resources.limits" in one.path


def _changed(document: Any, *path: Any, **more: Any) -> Any:
    place = document
    for step in path:
        place = place[step]
    place.update(more)
    return document


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            words.claim({"name": "a", "deviceClassName": "gpu"}),
            "spec.devices.requests[0] has no field deviceClassName (it belongs into exactly)",
        ),
        (
            _changed(words.claim(), "spec", constraints=[]),
            "spec has no field constraints (it belongs into devices)",
        ),
        (_changed(words.claim(), xyz=1), "the object has no field xyz"),
        (_changed(words.claim(), "metadata", label={}), "metadata has no field label"),
        (
            _changed(words.template(), "spec", "spec", "devices", request=[]),
            "spec.spec.devices has no field request (did you mean requests?)",
        ),
        (
            _changed(words.device_class(), "spec", selector=[]),
            "spec has no field selector (did you mean selectors?)",
        ),
        (words.pod(resourceClaim=[]), "spec has no field resourceClaim (did you mean"),
        (words.pod(NodeSelector={}), "spec has no field NodeSelector (did you mean nodeSelector?)"),
        (
            _changed(words.pod(), "spec", "resourceClaims", 0, claimName="x"),
            "spec.resourceClaims[0] has no field claimName",
        ),
    ],
)
def test_a_typo_in_a_field_is_found_wherever_it_stands(document: Any, said: str) -> None:
    assert said in refused(document)


def test_fields_that_do_not_matter_here_are_no_typos() -> None:
    pod = words.pod(
        volumes=[], restartPolicy="Never", terminationGracePeriodSeconds=1, notYetInvented={}
    )
    container = pod["spec"]["containers"][0]
    container |= {"env": [], "restartPolicyRules": [], "resizePolicy": []}
    pod["spec"]["affinity"] = {"podAffinity": {}, "podAntiAffinity": {}}
    pod["metadata"] |= {"generateName": "p-", "managedFields": [{"x": {}}], "finalizers": []}
    pod["status"] = {"qosClass": "BestEffort"}
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "ns"},
        "spec": {"finalizers": []},
    }
    assert answer(state(ONE), namespace, words.claim(), pod).exit_code == 0


# Values


def asking(**resources: Any) -> Any:
    made = words.pod()
    made["spec"]["containers"][0]["resources"] |= resources
    return made


TOLERATIONS = (
    (
        {"key": "a", "operator": "Exists", "effect": "NoScheduleeee"},
        "effect is 'NoScheduleeee', it can be NoSchedule, NoExecute or None",
    ),
    ({"key": "a", "effect": "PreferNoSchedule"}, "effect is 'PreferNoSchedule'"),
    (
        {"key": "a", "operator": "Exists", "value": "x"},
        "value is 'x', but operator Exists takes no value",
    ),
    ({"key": "a", "operator": "Lt"}, "operator is 'Lt', it can be Equal or Exists"),
)
POD_TOLERATIONS = (
    ({"key": "a", "operator": "Is"}, ".operator is 'Is', it can be Equal, Exists, Lt or Gt"),
    (
        {"key": "a", "effect": "None"},
        ".effect is 'None', it can be NoSchedule, PreferNoSchedule or",
    ),
    ({"key": "a", "operator": "Exists", "value": "x"}, ".value is 'x', but operator Exists"),
    ({"operator": "Equal"}, " has no key: only operator Exists takes none"),
)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (words.claim(request(count=-1)), "requests[0].exactly.count is -1, it must be at least 1"),
        (
            words.claim(request(count=2, allocationMode="All")),
            "requests[0].exactly.count is 2, but allocationMode All takes no count",
        ),
        (
            words.claim(request(allocationMode="Some")),
            "requests[0].exactly.allocationMode is 'Some', it can be ExactCount or All",
        ),
        (words.claim(request("")), "requests[0] has no name"),
        (words.claim(request("A b")), "requests[0] is named 'A b'"),
        (words.claim(request("a"), request("a")), "requests[1] has the name a of another one"),
        (words.claim({"name": "a"}), "requests[0] needs one of exactly and firstAvailable"),
        (
            words.claim({**request("a"), "firstAvailable": [{"name": "b"}]}),
            "requests[0] needs one of exactly and firstAvailable",
        ),
        (
            words.claim({"name": "a", "firstAvailable": [{"name": "b", "count": -3}]}),
            "requests[0].firstAvailable[0].count is -3",
        ),
        (
            words.claim({"name": "a", "firstAvailable": [{"name": f"n{n}"} for n in range(9)]}),
            "requests[0].firstAvailable has more than 8 alternatives",
        ),
        (words.claim(*(request(f"n{n}") for n in range(33))), "has 33 requests, at most 32"),
        (words.claim(constraints=[{}]), "constraints[0] needs one of matchAttribute and"),
        (
            words.claim(constraints=[{"matchAttribute": "numa"}]),
            "constraints[0] is about 'numa': write the attribute as DOMAIN/NAME",
        ),
        (
            words.claim(constraints=[{"matchAttribute": f"{GPU}/numa", "requests": ["x"]}]),
            "constraints[0].requests names 'x', and no request has that name",
        ),
        (
            words.claim(config=[{"requests": ["zz"]}]),
            "config[0].requests names 'zz', and no request has that name",
        ),
        *(
            (words.claim(request(tolerations=[toleration])), f"exactly.tolerations[0].{said}")
            for toleration, said in TOLERATIONS
        ),
        (
            words.claim(
                {"name": "a", "firstAvailable": [{"name": "b", "tolerations": [{"effect": "x"}]}]}
            ),
            "firstAvailable[0].tolerations[0].effect is 'x'",
        ),
        *(
            (words.pod(tolerations=[toleration]), f"spec.tolerations[0]{said}")
            for toleration, said in POD_TOLERATIONS
        ),
        (words.pod(containers=[]), "spec.containers is empty: a pod has at least one container"),
        (words.claim(name=""), "ResourceClaim without a name: it has no metadata.name"),
        (words.claim(name="A"), "metadata.name may have lower case letters, digits, '-' and '.'"),
        (
            words.claim(name="a" * 254),
            "metadata.name has 254 characters; write one of at most 253",
        ),
        (
            words.pod(of={"resourceClaimName": "a", "resourceClaimTemplateName": "b"}),
            "spec.resourceClaims[0] needs one of resourceClaimName and resourceClaimTemplateName",
        ),
        (
            words.pod(resourceClaims=[]),
            "container main uses the claim 'devices', which spec.resourceClaims does not have",
        ),
        (
            asking(requests={"example.com/gpu": -1}),
            "container main asks for -1 of example.com/gpu, less than nothing",
        ),
        (asking(limits={"cpu": "-1m"}), "container main asks for -1m of cpu, less than nothing"),
        (
            asking(limits={"cpu": "much"}),
            "spec.containers[main].resources.limits[cpu]: 'much' is no quantity",
        ),
    ],
)
def test_what_the_api_server_refuses_is_not_judged(claim: Any, said: str) -> None:
    assert said in refused(claim)


@pytest.mark.parametrize("operator", ["", "Equal", "Exists"])
@pytest.mark.parametrize("effect", ["", "NoSchedule", "NoExecute", "None"])
def test_what_a_toleration_may_say_is_judged(operator: str, effect: str) -> None:
    toleration = {"key": "a", "operator": operator, "effect": effect}
    claim = words.claim(request(tolerations=[toleration]), config=[{"requests": ["gpu"]}])
    assert answer(state(ONE), claim).exit_code == 0


def test_a_part_of_a_name_may_be_longer_than_a_label() -> None:
    assert answer(state(ONE), words.claim(name="a" * 64 + "." + "b" * 188)).exit_code == 0


def test_a_pod_may_tolerate_one_taint_or_all() -> None:
    tolerations = [{"key": "team", "operator": "Exists"}, {"operator": "Exists"}]
    pod = words.pod(tolerations=tolerations)
    assert answer(state(TWO), words.claim(), pod).exit_code == 0


def test_a_container_asks_for_a_request_that_its_claim_has() -> None:
    def asks(name: str, of: dict[str, str]) -> Any:
        pod = words.pod(of=of)
        container = pod["spec"]["containers"][0]
        container["resources"]["claims"][0]["request"] = name
        return pod

    shared, made = {"resourceClaimName": "mine"}, {"resourceClaimTemplateName": "template"}
    claim = words.claim(name="mine")
    template = words.template()
    made = {"resourceClaimTemplateName": template["metadata"]["name"]}
    for given, of, title in (
        (claim, shared, "ResourceClaim mine"),
        (template, made, f"ResourceClaimTemplate {template['metadata']['name']}"),
    ):
        said = refused(given, asks("zz", of))
        assert f"container main asks for the request 'zz' of {title}, which has gpu" in said
        assert answer(state(ONE), given, asks("gpu", of)).exit_code == 0


@pytest.mark.parametrize(
    "asked",
    [
        request(count=0),
        {"name": "gpu", "firstAvailable": [{"name": "b", "deviceClassName": "gpu", "count": 0}]},
    ],
)
def test_a_count_of_zero_stands_for_one_as_the_api_server_fills_it_in(asked: Any) -> None:
    """Of ExactCount; k8s.io/kubernetes pkg/apis/resource/v1/defaults.go."""
    assert answer(state(ONE), words.claim(asked)).exit_code == 0
    assert answer(state(), words.claim(asked)).exit_code == 1


def test_a_constraint_may_name_alternatives() -> None:
    alternatives = [{"name": name, "deviceClassName": "gpu"} for name in "ab"]
    constraint = {"matchAttribute": f"{GPU}/numa", "requests": ["one", "two/a"]}
    two = {"name": "two", "firstAvailable": alternatives}
    assert (
        answer(state(TWO), words.claim(request("one"), two, constraints=[constraint])).exit_code
        == 0
    )


def test_a_name_may_be_left_to_the_api_server() -> None:
    first, second = words.claim(name=""), words.claim(name="")
    first["metadata"]["generateName"] = second["metadata"]["generateName"] = "c-"
    report = answer(state(TWO), first, second)
    assert [one.name for one in report.claims] == ["ns/(generated)", "ns/(generated)"]
    spec = {"template": {"spec": words.pod(restartPolicy="Never")["spec"]}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "train-"},
        "spec": spec,
    }
    assert answer(state(ONE), words.claim(), job).subject == "job ns/train"


# What is there already


def test_of_two_objects_with_one_name_the_later_counts() -> None:
    report = answer(state(ONE), words.claim(request(count=5)), words.claim())
    assert [one.asks for claim in report.claims for one in claim.requests] == ["1 x gpu"]


def test_a_claim_that_is_applied_again_keeps_its_devices() -> None:
    cluster = state(ONE, holder("gpu-0", name=words.MINE))
    (claim,) = answer(cluster, words.claim()).claims
    assert ([str(one) for one in claim.allocated], claim.origin) == ([f"{GPU}/{HOME}/gpu-0"], "")
    other = answer(cluster, words.claim(name="other"))
    assert (other.exit_code, other.claims[0].origin) == (1, FROM_FILE)
    written = words.claim(request(capacity={"requests": {"memory": "1Gi"}}))
    stored = holder("gpu-0", name=words.MINE) | {"spec": written["spec"]}
    same = words.claim(request(capacity={"requests": {"memory": "1024Mi"}}))
    assert answer(state(ONE, stored), same).claims[0].origin == ""
    changed = answer(cluster, words.claim(request(count=2)))
    assert (changed.exit_code, changed.claims[0].origin) == (1, IN_PLACE_OF)


def test_nobody_applies_a_status() -> None:
    report = answer(state(ONE), holder("gpu-0"))
    assert (report.exit_code, report.claims[0].allocated) == (0, ())


def test_a_pod_that_is_applied_again_keeps_its_claims() -> None:
    of = {"resourceClaimTemplateName": words.MINE}
    made = holder("gpu-0", name="made")
    made["metadata"]["ownerReferences"] = [{"uid": "u", "controller": True}]
    there = words.pod(of=of)
    there["metadata"] |= {"namespace": "ns", "uid": "u"}
    status = {"resourceClaimStatuses": [{"name": "devices", "resourceClaimName": "made"}]}
    pods = (msgspec.convert({**there, "status": status}, Pod),)
    cluster = msgspec.structs.replace(state(ONE, made), pods=pods)
    again = answer(cluster, words.template(), words.pod(of=of))
    assert ([one.name for one in again.claims], again.exit_code) == (["ns/made"], 0)
    other = answer(cluster, words.claim(name="other"), words.pod(of={"resourceClaimName": "other"}))
    assert ([one.name for one in other.claims], other.exit_code) == (["ns/other"], 1)


def test_a_record_may_lack_what_an_api_server_fills_in() -> None:
    cluster = state(ONE)
    bare = words.claim()
    bare["metadata"]["namespace"] = "ns"
    whole = msgspec.convert({"resourceClaims": [bare]}, ClusterState)
    cluster = msgspec.structs.replace(cluster, resource_claims=whole.resource_claims)
    report = explain(cluster, ClaimSubject("ns", words.MINE))
    assert (report.exit_code, report.claims[0].requests[0].asks) == (0, "1 x gpu")


def test_a_namespace_of_the_manifest_counts_with_its_labels() -> None:
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "ns", "labels": ADMIN},
    }
    claim = words.claim(request(adminAccess=True))
    assert answer(state(ONE), claim).exit_code == 1
    assert answer(state(ONE), namespace, claim).exit_code == 0
    gap = NotRead(resource="namespaces", reason="forbidden", message="m")
    blind = msgspec.structs.replace(state(ONE), not_read=(gap,))
    assert (answer(blind, claim).exit_code, answer(blind, namespace, claim).exit_code) == (2, 0)
    there = msgspec.convert({"metadata": {"name": "ns", "labels": ADMIN}}, Namespace)
    labelled = msgspec.structs.replace(state(ONE), namespaces=(there,))
    plain = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "ns", "labels": {"a": "b"}},
    }
    assert answer(labelled, plain, claim).exit_code == 0


# Several pods


def test_pods_that_fit_together_are_served_one_after_the_other() -> None:
    report = answer(state(TWO), *words.user("a"), *words.user("b"))
    assert (report.exit_code, report.subject) == (0, "pod ns/a")
    assert report.summary.startswith("all 2 pods of the file fit together, this is one: ")


def test_of_pods_that_fit_one_by_one_but_not_together_one_that_is_left_out_is_told() -> None:
    report = answer(state(ONE), *words.user("a"), *words.user("b"))
    assert (report.exit_code, report.subject) == (1, "pod ns/b")
    assert report.pods == PodCount(wanted=2, fit=1)
    assert report.summary == (
        "1 of 2 pods of the file fit, in every order that was tried; pod ns/b: the devices fit on no node (1 looked at)"
    )
    (group,) = report.claims[0].requests[0].devices
    assert (group.verdict, report.changes) == (HeldByClaim("ns/a", ("ns/a",)), ())


def test_a_pod_that_is_left_out_is_served_first() -> None:
    big, small = device("gpu-0"), device("gpu-1", memory="40Gi")
    expression = f'device.capacity["{GPU}"].memory.compareTo(quantity("80Gi")) >= 0'
    picky = [words.claim(request(cel=expression), name="b"), words.pod("b")]
    report = answer(state(resource_slice([big, small])), *words.user("a"), *picky)
    assert report.exit_code == 0


def test_pods_may_share_a_claim_and_take_from_templates() -> None:
    shared = [words.claim(), words.pod("a", of={"resourceClaimName": words.MINE})]
    second = words.pod("b", of={"resourceClaimName": words.MINE})
    assert answer(state(ONE), *shared, second).exit_code == 0
    of = {"resourceClaimTemplateName": words.MINE}
    made = [words.template(), words.pod("a", of=of), words.pod("b", of=of)]
    assert answer(state(TWO), *made).exit_code == 0
    assert answer(state(ONE), *made).exit_code == 1


def test_extended_resources_of_several_pods_add_up() -> None:
    assert answer(state(TWO), extended("a", "gpu"), extended("b", "gpu")).exit_code == 0
    assert answer(state(ONE), extended("a", "gpu"), extended("b", "gpu")).exit_code == 1


def test_one_of_several_says_so() -> None:
    short = [words.claim(request(count=9), name="b"), words.pod("b")]
    report = answer(state(ONE), *words.user("a"), *short)
    assert (report.exit_code, report.subject) == (1, "pod ns/b")
    assert report.summary.startswith("this is number 2 of 2 in the file: ")
    templates = answer(state(ONE), words.template(), words.template(name="t"))
    assert templates.summary.startswith("this is number 1 of 2 in the file: ")


# Extended resources


def extended(name: str, device_class: str) -> dict[str, Any]:
    resource = f"deviceclass.resource.kubernetes.io/{device_class}"
    container = {"name": "c", "resources": {"requests": {resource: "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container]},
    }


def test_an_extended_resource_whose_class_is_missing_says_so() -> None:
    report = answer(state(ONE), extended("p", "gpx"))
    (claim,) = report.claims
    assert (report.exit_code, claim.name) == (1, "ns/<extended-resources>")
    resource = "deviceclass.resource.kubernetes.io/gpx"
    missing = ClassMissing("gpx", "did you mean gpu?", resource)
    assert claim.verdicts == (missing,)
    assert str(missing) == "device class gpx does not exist (did you mean gpu?)"
    assert fix(missing).startswith(
        "correct the resource's name, deviceclass.resource.kubernetes.io/CLASS, or install"
    )
    assert {group.devices for group in report.nodes} <= {claim.verdicts}
    gap = NotRead(resource="deviceclasses", reason="malformed", name="gpx", message="m")
    spoiled = answer(msgspec.structs.replace(state(ONE), not_read=(gap,)), extended("p", "gpx"))
    assert spoiled.exit_code == 2
    assert isinstance(spoiled.claims[0].verdicts[0], CouldNotTell)


def test_an_extended_resource_needs_its_gate() -> None:
    resource = "deviceclass.resource.kubernetes.io/gpu"
    report = answer(state(ONE, kubernetesVersion="v1.34.0"), extended("p", "gpu"))
    off = FeatureOff("DRAExtendedResource", f"extended resource {resource}")
    assert (report.exit_code, report.claims[0].verdicts) == (1, (off,))


def test_without_device_allocation_no_claim_gets_anything() -> None:
    cluster = state(ONE, featureGates={"DynamicResourceAllocation": False})
    off = FeatureOff("DynamicResourceAllocation", "a claim")
    report = answer(cluster, words.claim())
    assert (report.exit_code, report.claims[0].verdicts) == (1, (off,))
    assert [group.devices for group in report.nodes] == [(off,)]
    allocated = state(ONE, holder("gpu-0"), featureGates={"DynamicResourceAllocation": False})
    assert explain(allocated, ClaimSubject("ns", "holder")).exit_code == 0
    assert answer(cluster, extended("p", "gpu")).exit_code == 1


def resource(name: str) -> dict[str, Any]:
    container = {"name": "c", "resources": {"limits": {name: "1"}}}
    spec = {"containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def test_a_resource_that_nothing_offers_is_told_as_that_with_what_may_be_meant() -> None:
    plain = answer(state(ONE), resource("nvidia.com/gpu"))
    missing = ClassMissing("", resource="nvidia.com/gpu")
    assert fix(missing).endswith("in place of the resource: `dra-driver convert` does it")
    mistyped = answer(state(ONE), resource("nvidia.com/gpus"))
    meant = ClassMissing("", "did you mean nvidia.com/gpu?", "nvidia.com/gpus")
    assert mistyped.claims[0].verdicts == (meant,)
    assert fix(meant).endswith("in place of the resource")
    assert (plain.exit_code, plain.claims[0].verdicts) == (1, (missing,))
    assert str(missing) == (
        "no device class has extendedResourceName nvidia.com/gpu, and no device plugin offers it on any node"
    )
    named = words.device_class("named")
    named["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    plugin = words.node("plugin")
    plugin["status"] = {"allocatable": {"cpu": "8", "pods": "9", "nvidia.com/gpu": "1"}}
    for there in (named, plugin):
        typo = answer(state(ONE, there), resource("nvidia.com/gpus"))
        hint = "did you mean nvidia.com/gpu?"
        assert typo.claims[0].verdicts == (ClassMissing("", hint, "nvidia.com/gpus"),)
        right = answer(state(ONE, there), resource("nvidia.com/gpu"))
        assert right.exit_code == 0


def test_a_resource_may_be_offered_where_nobody_could_look() -> None:
    plugin = words.node("plugin")
    plugin["status"] = {"allocatable": {"cpu": "8", "pods": "9", "nvidia.com/gpu": "1"}}
    only = explain(
        state(ONE, plugin),
        ManifestSubject((resource("nvidia.com/gpu"),), "ns", "f"),
        node=HOME,
    )
    assert (only.exit_code, only.claims) == (1, ())
    gap = NotRead(resource="nodes", reason="malformed", name="n", message="m")
    blind = msgspec.structs.replace(state(ONE), not_read=(gap,))
    assert answer(blind, resource("nvidia.com/gpu")).claims == ()
