# SPDX-License-Identifier: Apache-2.0
"""Looking for pods that ask for the same costs what pods and claims are long, however often pods name a claim."""

from typing import Any

import msgspec
import pytest

from dra_driver.explain import alike
from dra_driver.explain.alike import MOST_CLAIMS, grouped
from dra_driver.explain.several import explain_several
from dra_driver.explain.subject import wanted
from dra_driver.explain.subject.subject import PendingSubject
from dra_driver.explain.subject.wanted import Known
from dra_driver.model.api.core import Pod, PodResourceClaim
from dra_driver.model.api.meta import OwnerReference
from dra_driver.model.api.resource_claim import ResourceClaimSpec
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import devices, request, resource_slice
from tests.unit.explain.clusters import state

LONG = "device.driver == 'x' && " * 300 + "false"


def naming(name: str, times: int, of: str = "resourceClaimName") -> Pod:
    """A pod that names a claim or a template so many times."""
    made = words.pod(of={of: "large"})
    made["metadata"] |= {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    made["spec"]["resourceClaims"] = [{"name": f"c{n}", of: "large"} for n in range(times)]
    return msgspec.convert(made, Pod)


def cluster(*pods: Pod) -> ClusterState:
    claim = words.claim(request(cel=LONG), name="large")
    template = words.template(request(cel=LONG), name="large")
    claim["metadata"]["namespace"] = template["metadata"]["namespace"] = "ns"
    known = state(resource_slice(devices(1)), claim)
    return msgspec.structs.replace(
        known, pods=pods, resource_claim_templates=convert_templates(template)
    )


def convert_templates(*templates: Any) -> Any:
    kind = tuple[wanted.ResourceClaimTemplate, ...]
    return msgspec.convert(templates, kind)


@pytest.mark.parametrize("of", ["resourceClaimName", "resourceClaimTemplateName"])
def test_what_many_pods_name_is_read_once(monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    digested: list[object] = []
    copied: list[object] = []
    digest, copy = alike._digest, wanted.with_defaults
    monkeypatch.setattr(alike, "_digest", lambda what: digested.append(what) or digest(what))
    monkeypatch.setattr(wanted, "with_defaults", lambda spec: copied.append(spec) or copy(spec))
    pods = [naming(f"p{n}", 9, of) for n in range(5)]
    known = Known(cluster(*pods))
    assert grouped(known, pods) == [pods]
    specs = [one for one in digested if isinstance(one, ResourceClaimSpec)]
    assert len(specs) == len(copied) == 1
    assert len(repr([one for one in digested if isinstance(one, tuple)])) < 50 * len(LONG)


class Counted(list[Any]):
    """A list that knows how often it was gone through."""

    times = 0

    def __iter__(self) -> Any:
        self.times += 1
        return super().__iter__()


def test_owners_and_finalizers_of_a_claim_are_gone_through_once() -> None:
    owners, finalizers = Counted([OwnerReference()]), Counted(["a/b"])
    pods = [naming(f"p{n}", 9) for n in range(5)]
    known = cluster(*pods)
    (claim,) = known.resource_claims
    metadata = msgspec.structs.replace(
        claim.metadata, owner_references=owners, finalizers=finalizers, deletion_timestamp="T"
    )
    claim = msgspec.structs.replace(claim, metadata=metadata)
    assert grouped(Known(msgspec.structs.replace(known, resource_claims=(claim,))), pods) == [pods]
    assert (owners.times, finalizers.times) == (1, 0)


def test_a_claim_of_one_pod_is_alike_for_the_others_only() -> None:
    pods = [naming(f"p{n}", 1) for n in range(3)]
    known = cluster(*pods)
    (claim,) = known.resource_claims
    owner = OwnerReference(kind="Pod", name="p1", uid="uid-p1", controller=True)
    metadata = msgspec.structs.replace(claim.metadata, owner_references=[owner])
    claim = msgspec.structs.replace(claim, metadata=metadata)
    known = msgspec.structs.replace(known, resource_claims=(claim,))
    assert grouped(Known(known), pods) == [[pods[0], pods[2]], [pods[1]]]


@pytest.mark.parametrize("of", ["resourceClaimName", "resourceClaimTemplateName"])
def test_what_a_missing_name_means_is_found_out_in_the_turn_of_its_pod(
    monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(wanted, "likely", lambda name, _there: asked.append(name) or "large")
    pods = [naming("p", 1, of)]
    pods[0].spec.resource_claims[0] = msgspec.convert({"name": "c", of: "lrge"}, PodResourceClaim)
    known = cluster(*pods)
    assert grouped(Known(known), pods) == [pods]
    assert asked == []
    report = explain_several(known, [PendingSubject("")])
    assert asked == ["lrge"]
    assert "did you mean large?" in repr(report.items[0].summary)


def test_a_pod_with_very_many_claims_is_compared_with_no_other() -> None:
    few = [naming(f"few{n}", MOST_CLAIMS) for n in range(2)]
    many = [naming(f"many{n}", MOST_CLAIMS + 1) for n in range(2)]
    known = Known(cluster(*few, *many))
    assert grouped(known, [*few, *many]) == [few, [many[0]], [many[1]]]


def test_a_claim_that_is_named_many_times_is_in_the_report_once_and_its_selectors_are_cut() -> None:
    (found,) = explain_several(cluster(naming("p", 40)), [PendingSubject("ns")]).items
    assert found.outcome == "devices do not fit"
    (claim,) = found.claims
    (asked,) = claim.requests
    assert len(asked.asks) < 1100
    assert asked.asks.endswith(" …")
