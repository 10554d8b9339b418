# SPDX-License-Identifier: Apache-2.0
"""What is no object of this cluster is refused by its name; what nobody here understands is said."""

from functools import reduce
from typing import Any

import msgspec
import pytest

from dra_driver.errors import Permanent
from dra_driver.explain.report import ClaimSubject, ManifestSubject, PodSubject, explain
from dra_driver.explain.subject.manifest import matters
from dra_driver.model.api.core import Namespace
from dra_driver.model.cluster import ClusterState, NotRead
from tests.e2e import fleet as words
from tests.e2e.fleet import HOME, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

ONE = resource_slice(devices(1))
V1 = state(ONE, served=["v1"])
OLD = state(ONE, served=["v1beta1"])
GROUP = "resource.k8s.io"
TRAINING = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "train"},
    "spec": {"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [{}]}}}}},
}


def of(version: str, document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "apiVersion": version}


def refused(cluster: ClusterState, *documents: Any) -> str:
    with pytest.raises(Permanent) as raised:
        explain(cluster, ManifestSubject(documents, "ns", "f.yaml"))
    return str(raised.value)


FLAT = of(f"{GROUP}/v1alpha3", words.claim({"name": "gpu", "deviceClassName": "gpu", "count": 2}))

FIRST = {
    "apiVersion": f"{GROUP}/v1alpha2",
    "kind": "ResourceClaimTemplate",
    "spec": {"spec": {"resourceClassName": "gpu.nvidia.com"}},
}
TODAY = "devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}"


@pytest.mark.parametrize(
    ("cluster", "document", "said"),
    [
        (
            V1,
            FLAT,
            "in v1 this is written `apiVersion: resource.k8s.io/v1`, with `requests: [{name: gpu, exactly: {deviceClassName: gpu, count: 2}}]`",
        ),
        (state(ONE), FLAT, "v1alpha3 is not served here; in v1 this is written"),
        (V1, of(f"{GROUP}/v1beta1", FLAT), "v1beta1 is not served here; in v1 this is written"),
        (
            V1,
            of(f"{GROUP}/v1beta1", words.template({"name": "a", "deviceClassName": "b"}, {})),
            "with `requests: [{name: a, exactly: {deviceClassName: b}}]`, the others alike",
        ),
        (
            V1,
            of(f"{GROUP}/v1beta1", words.claim({"name": "a", "deviceClassName": "b" * 400})),
            "with the request's fields but its name below `exactly`",
        ),
        (
            V1,
            of(f"{GROUP}/v1beta2", words.claim()),
            "v1beta2 is not served here; in v1 this is written `apiVersion: resource.k8s.io/v1`, and the rest as it is",
        ),
        (V1, of(f"{GROUP}/v1beta1", words.device_class()), "and the rest as it is"),
        (
            OLD,
            words.claim(),
            "v1 is not served here; in v1beta1 this is written `apiVersion: resource.k8s.io/v1beta1`, with the fields of",
        ),
        (V1, of(f"{GROUP}/v1alpha1", words.claim()), "write it for resource.k8s.io/v1"),
        (
            V1,
            FIRST,
            f"write `apiVersion: {GROUP}/v1`, and `{TODAY}` in place of `resourceClassName`",
        ),
        (
            OLD,
            of(f"{GROUP}/v1alpha2", {"kind": "ResourceClaim", "spec": {"parametersRef": {}}}),
            (
                "`devices: {requests: [{name: gpu, deviceClassName: CLASS}]}` in place of `resourceClassName`, and what the object of "
                "`parametersRef` said as selectors, count or config"
            ),
        ),
        (V1, of(f"{GROUP}/v1beta1", {"kind": "ResourceClaim"}), "with `requests: []`"),
        (
            V1,
            of(
                f"{GROUP}/v1beta1",
                {"kind": "ResourceClaimTemplate", "spec": {"spec": {"devices": 1}}},
            ),
            "with `requests: []`",
        ),
        (V1, of("v1", words.claim()), "there is no ResourceClaim in v1; write apiVersion: resour"),
        (
            V1,
            of("extensions/v1beta1", {"kind": "Deployment"}),
            "there is no Deployment in extensions; write apiVersion: apps/v1",
        ),
        (V1, of("batch/v1beta1", {"kind": "CronJob"}), "v1beta1 of CronJob is not served any more"),
        (
            V1,
            of(f"{GROUP}/v1", {"kind": "ResourceClaimm"}),
            "there is no kind ResourceClaimm in resource.k8s.io/v1 (did you mean ResourceClaim?)",
        ),
        (
            V1,
            of("v1", {"kind": "pod"}),
            "there is no kind pod in v1 (did you mean Pod?); write kind: Pod",
        ),
        (V1, {"kind": "Pod"}, "it has no apiVersion; write apiVersion: v1"),
        (V1, {"kind": "DeviceClass"}, "it has no apiVersion; write apiVersion: resource.k8s.io/v1"),
        (V1, {"image": {"tag": "1"}}, "an object without a name: it has no kind; write the kind"),
        (V1, {"kind": "Values"}, "it has no apiVersion; write the one of its kind"),
    ],
)
def test_versions_and_kinds_that_are_not_served_are_refused(
    cluster: ClusterState, document: Any, said: str
) -> None:
    assert said in refused(cluster, document)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_a_version_that_is_served_is_read(version: str) -> None:
    claim = words.claim()
    if version == "v1beta1":
        claim = words.claim({"name": "a", "deviceClassName": "gpu"})
    for cluster in (state(ONE, served=[version]), state(ONE)):
        subject = ManifestSubject((of(f"{GROUP}/{version}", claim),), "ns", "f.yaml")
        assert explain(cluster, subject).exit_code == 0


# What is passed over


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (TRAINING, "PyTorchJob train: this kind is not known here, its pods are not looked at"),
        (
            {**TRAINING, "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"},
            "Job train: this kind is not known here, its pods are not looked at",
        ),
        (
            {
                "apiVersion": f"{GROUP}/v1beta2",
                "kind": "DeviceTaintRule",
                "metadata": {"name": "r"},
            },
            "DeviceTaintRule r: what it would change is not looked at",
        ),
        (ONE, f"ResourceSlice {words.GPU}-{HOME}: what it would change is not looked at"),
    ],
)
def test_what_is_passed_over_is_said_and_spoils_a_good_answer(document: Any, said: str) -> None:
    report = explain(
        V1 if document is ONE else state(ONE), ManifestSubject((words.claim(), document), "ns", "f")
    )
    assert (report.exit_code, report.outcome) == (2, "could not tell")
    assert report.passed_over == (said,)
    assert report.summary.endswith("; but the file has more, which is not looked at")
    short = ManifestSubject((words.claim(request(count=2)), document), "ns", "f")
    assert explain(state(ONE), short).exit_code == 1
    assert said in refused(state(ONE), document)


DEEP: dict[str, Any] = reduce(lambda inner, _: {"more": inner}, range(12), {"containers": []})
"""A pod's spec so deep in an object that nobody looks for one there."""


@pytest.mark.parametrize(
    "document",
    [
        of("v1", {"kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{}]}}),
        of("v1", {"kind": "ConfigMap", "data": {"a": "containers"}}),
        of("example.com/v1", {"kind": "Anything", "spec": {"containers": 3}}),
        of("v1", {"kind": "NotYetInvented"}),
        of("apps/v1", {"kind": "ControllerRevision"}),
        of("example.com/v1", {"kind": "Deep", "spec": DEEP}),
    ],
)
def test_what_has_nothing_to_do_with_devices_is_not_worth_a_word(document: Any) -> None:
    report = explain(V1, ManifestSubject((words.claim(), document), "ns", "f.yaml"))
    assert (report.exit_code, report.passed_over) == (0, ())
    assert not matters(document)


@pytest.mark.parametrize("document", [words.claim(), TRAINING, {"kind": "List"}, 3, {}, FLAT])
def test_what_is_read_or_told_matters(document: Any) -> None:
    assert matters(document)


# Namespaces


def with_namespaces(*names: str, **more: Any) -> ClusterState:
    found = tuple(msgspec.convert({"metadata": {"name": name}}, Namespace) for name in names)
    return msgspec.structs.replace(V1, namespaces=found, **more)


def test_a_namespace_that_is_not_there_is_refused_unless_the_file_brings_it() -> None:
    here = with_namespaces("default")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
    for documents in ((words.claim(),), words.user("a"), (words.template(),)):
        assert "there is no namespace ns; create it" in refused(here, *documents)
        assert explain(here, ManifestSubject((*documents, namespace), "ns", "f")).exit_code == 0
    job = of("batch/v1", {"kind": "Job", "metadata": {"name": "j"}})
    job["spec"] = {"template": {"spec": words.pod(restartPolicy="Never")["spec"]}}
    assert "would refuse Job ns/j: there is no namespace ns" in refused(here, job)


def test_a_namespace_that_nobody_could_read_may_be_there() -> None:
    gap = NotRead(resource="namespaces", reason="malformed", name="ns", message="m")
    for cluster in (V1, with_namespaces("ns"), with_namespaces("default", not_read=(gap,))):
        assert explain(cluster, ManifestSubject((words.claim(),), "ns", "f")).exit_code == 0


# Names


def test_who_looks_for_a_name_is_told_where_there_is_one() -> None:
    cluster = state(ONE, holder("gpu-0"))

    def said(subject: Any, cluster: ClusterState = cluster, **more: Any) -> str:
        with pytest.raises(Permanent) as raised:
            explain(cluster, subject, **more)
        return str(raised.value)

    near = said(ClaimSubject("default", "holder"))
    assert (
        near
        == "there is no resourceclaim default/holder in this cluster: there is one in ns: give it with -n"
    )
    live = said(PodSubject("ns", "x"))
    assert "look with `kubectl get pods --all-namespaces`" in live
    recorded = said(ClaimSubject("ns", "x"), recorded=True)
    assert recorded == "there is no resourceclaim ns/x in the record: it has ns/holder"
    nothing = said(PodSubject("ns", "x"), recorded=True)
    assert nothing == "there is no pod ns/x in the record: it has none"
    node = said(ClaimSubject("ns", "holder"), node="x", recorded=True)
    assert node == f"there is no node x in the record: it has {HOME}"
    assert "kubectl get nodes" in said(ClaimSubject("ns", "holder"), node="x")
    where = said(PodSubject("nowhere", "x"), with_namespaces("default"))
    assert where.endswith("there is no namespace nowhere either")
