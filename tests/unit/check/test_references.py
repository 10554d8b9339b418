# SPDX-License-Identifier: Apache-2.0
"""References between pods, containers, requests, claims, templates and classes."""

import msgspec
import pytest

from dra_driver.check.given import Known
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_claim import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
)
from dra_driver.model.cluster import ClusterState, NotRead
from tests.unit.check.findings import claim, found, pod

TEMPLATE = """\
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: big, namespace: ns}
spec:
  spec:
    devices:
      requests:
        - {name: card, exactly: {deviceClassName: gpu}}
        - name: any
          firstAvailable: [{name: a, deviceClassName: gpu}, {name: b, deviceClassName: gpu}]
"""
_SPEC = ResourceClaimSpec(devices=DeviceClaim(requests=[DeviceRequest(name="card")]))
CLUSTER = Known(
    state=ClusterState(
        device_classes=(DeviceClass(metadata=ObjectMeta(name="there")),),
        resource_claims=(
            ResourceClaim(metadata=ObjectMeta(name="mine", namespace="ns"), spec=_SPEC),
        ),
        resource_claim_templates=(
            ResourceClaimTemplate(
                metadata=ObjectMeta(name="ours", namespace="ns"),
                spec=ResourceClaimTemplateSpec(spec=_SPEC),
            ),
        ),
    )
)


def with_claim(entry: str, use: str, namespace: str = "ns") -> str:
    return pod(
        f"resources: {{claims: [{use}]}}",
        f"resourceClaims: [{{name: gpu, {entry}}}]",
        f"name: p, namespace: {namespace}",
    )


def told(text: str, known: Known = CLUSTER) -> list[tuple[str, str, str]]:
    return [(one.rule, one.message, one.action) for one in found(text, known)]


@pytest.mark.parametrize(
    ("entry", "use", "expected"),
    [
        ("resourceClaimTemplateName: big", "{name: gpu, request: card}", []),
        ("resourceClaimTemplateName: big", "{name: gpu}", []),
        (
            "resourceClaimTemplateName: big",
            "{name: gpu, request: crd}",
            [
                (
                    "ref-request",
                    "the claim gpu has no request crd: the container would get no devices",
                    "did you mean card?",
                )
            ],
        ),
        (
            "resourceClaimTemplateName: big",
            "{name: gpu, request: zzz}",
            [
                (
                    "ref-request",
                    "the claim gpu has no request zzz: the container would get no devices",
                    "it has card, any",
                )
            ],
        ),
        (
            "resourceClaimTemplateName: bigg",
            "{name: gpu, request: zzz}",
            [
                (
                    "ref-template",
                    "ResourceClaimTemplate bigg is not in the files",
                    "did you mean big?",
                )
            ],
        ),
        ("resourceClaimTemplateName: another", "{name: gpu, request: zzz}", []),
        (
            "resourceClaimName: big",
            "{name: gpu, request: zzz}",
            [
                (
                    "ref-template",
                    "ResourceClaim big is not in the files",
                    "there is a ResourceClaimTemplate of this name: write resourceClaimTemplateName",
                )
            ],
        ),
        (
            "resourceClaimTemplateName: big",
            "{name: gpu}, {name: gpuu}",
            [
                (
                    "ref-claim",
                    "the container uses the claim gpuu, which spec.resourceClaims of its pod does not have",
                    "did you mean gpu?",
                )
            ],
        ),
    ],
)
def test_references_within_the_files(
    entry: str, use: str, expected: list[tuple[str, str, str]]
) -> None:
    assert told(with_claim(entry, use) + TEMPLATE, Known()) == expected


def test_a_template_of_another_namespace_is_another_one() -> None:
    text = with_claim("resourceClaimTemplateName: big", "{name: gpu, request: z}", "other")
    action = "there is one in the namespace ns, and a pod uses those of its own namespace: create it in other too"
    message = "ResourceClaimTemplate big is not in the files"
    assert told(text + TEMPLATE, Known()) == [("ref-template", message, action)]
    assert told(text + TEMPLATE.replace(", namespace: ns", ""), Known())[0][0] == "ref-request"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            "resourceClaimName: mine",
            "the claim gpu has no request z: the container would get no devices",
        ),
        (
            "resourceClaimTemplateName: ours",
            "the claim gpu has no request z: the container would get no devices",
        ),
        (
            "resourceClaimName: ours",
            "there is no ResourceClaim ours, neither in the files nor in the cluster",
        ),
        (
            "resourceClaimTemplateName: mine",
            "there is no ResourceClaimTemplate mine, neither in the files nor in the cluster",
        ),
    ],
)
def test_references_to_the_cluster(entry: str, expected: str) -> None:
    (one,) = told(with_claim(entry, "{name: gpu, request: z}"))
    assert one[1] == expected


def test_a_claim_is_no_template() -> None:
    text = with_claim("resourceClaimTemplateName: c", "{name: gpu}") + "---\n"
    ((_, _, action),) = told(text + claim("deviceClassName: gpu"), Known())
    assert action == "there is a ResourceClaim of this name: write resourceClaimName"


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("there", None),
        ("there2", "did you mean there?"),
        ("gpu", "create the class first"),
        ("here", "did you mean there?"),
    ],
)
def test_classes_of_the_cluster(name: str, action: str | None) -> None:
    expected = [
        (
            "ref-class",
            f"there is no DeviceClass {name}, neither in the files nor in the cluster",
            action,
        )
    ]
    assert told(claim(f"deviceClassName: {name}")) == ([] if action is None else expected)


def test_a_resource_names_a_class_too() -> None:
    resources = (
        "requests: {cpu: 1, deviceclass.resource.kubernetes.io/there2: 1}, "
        "limits: {deviceclass.resource.kubernetes.io/there2: 1, deviceclass.resource.kubernetes.io/there: 1}"
    )
    missing = "there is no DeviceClass there2, neither in the files nor in the cluster"
    asked = pod(f"resources: {{{resources}}}")
    assert told(asked) == [("ref-class", missing, "did you mean there?")]
    (one,) = [each for each in found(asked, CLUSTER) if each.rule == "ref-class"]
    assert ".resources.limits" in one.path


@pytest.mark.parametrize(
    "resource", ["deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"]
)
def test_of_what_was_not_read_nothing_is_said(resource: str) -> None:
    gap = NotRead(resource=resource, reason="forbidden")
    known = Known(state=msgspec.structs.replace(CLUSTER.state, not_read=(gap,)))
    text = (
        claim("deviceClassName: zzz")
        + "---\n"
        + with_claim("resourceClaimName: zzz", "{name: gpu}")
        + "---\n"
        + with_claim("resourceClaimTemplateName: zzz", "{name: gpu}")
    )
    told = [one.message.split()[3] for one in found(text, known)]
    kinds = {
        "deviceclasses": "DeviceClass",
        "resourceclaims": "ResourceClaim",
        "resourceclaimtemplates": "ResourceClaimTemplate",
    }
    assert told == [kind for name, kind in kinds.items() if name != resource]


def test_a_class_of_the_files_is_there() -> None:
    text = (
        "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: mine}\nspec: {}\n"
    )
    assert told(claim("deviceClassName: mine") + text) == []
    assert told(claim("deviceClassName: mina") + text, Known()) == [
        (
            "ref-class",
            "DeviceClass mina is not in the files, and no known class has this name",
            "did you mean mine?",
        )
    ]


def test_a_workload_is_checked_by_its_template() -> None:
    text = (
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: j}\nspec:\n  jobTemplate:\n    spec:\n      template:\n"
        "        spec:\n          restartPolicy: Never\n          resourceClaims: [{name: a, resourceClaimName: x}]\n"
        "          initContainers: [{name: i, resources: {claims: [{name: b}]}}]\n"
        "          containers: [{name: c}]\n"
    )
    assert [(one.line, one.rule, one.path) for one in found(text)] == [
        (10, "ref-unused", "spec.jobTemplate.spec.template.spec.resourceClaims[0]"),
        (
            11,
            "ref-claim",
            "spec.jobTemplate.spec.template.spec.initContainers[0].resources.claims[0].name",
        ),
    ]
