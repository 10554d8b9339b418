# SPDX-License-Identifier: Apache-2.0
"""Does the scheduler stand-in leave behind in the API server what the real control plane would?"""

from collections.abc import Iterator
from typing import Any

import pytest

from dra_driver.errors import Permanent
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_scheduler import FakeScheduler, Placed, Unschedulable
from dra_driver.testing.plain_client import PlainClient

DRIVER = "gpu.example.com"
Object = dict[str, Any]


@pytest.fixture
def client() -> Iterator[PlainClient]:
    """A cluster with the node n1, its two devices, and the class gpu."""
    with FakeApi() as api, PlainClient(api.url) as client:
        api.put("nodes", {"metadata": {"name": "n1"}})
        pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": "gpu-0"}, {"name": "gpu-1"}]
        spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": devices}
        api.put("resourceslices", {"metadata": {"name": "s"}, "spec": spec})
        api.put("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        yield client


def claim_spec(count: int = 1) -> Object:
    return {
        "devices": {
            "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}]
        }
    }


def create(client: PlainClient, kind: str, name: str, spec: Object) -> Object:
    version = "v1" if kind == "Pod" else "resource.k8s.io/v1"
    metadata = {"name": name, "namespace": "default"}
    return client.create({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


def create_pod(client: PlainClient, name: str, **source: str) -> Object:
    return create(client, "Pod", name, {"resourceClaims": [{"name": "c", **source}]})


def the(client: PlainClient, plural: str, name: str) -> Object:
    found = client.get(plural, name)
    assert found is not None
    return found


def test_a_claim_is_made_from_the_template_allocated_reserved_and_the_pod_bound(
    client: PlainClient,
) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": claim_spec()}
    create(client, "ResourceClaimTemplate", "t", template)
    pod = create_pod(client, "p", resourceClaimTemplateName="t")

    assert FakeScheduler(client).schedule() == (Placed("default/p", "n1"),)

    (claim,) = client.list("resourceclaims")
    metadata = claim["metadata"]
    assert metadata["name"].startswith("p-c-")
    assert metadata["labels"] == {"a": "b"}
    assert metadata["annotations"] == {"resource.kubernetes.io/pod-claim-name": "c"}
    assert [(owner["kind"], owner["uid"]) for owner in metadata["ownerReferences"]] == [
        ("Pod", pod["metadata"]["uid"])
    ]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    assert claim["status"] == {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}],
    }
    bound = the(client, "pods", "p")
    assert bound["spec"]["nodeName"] == "n1"
    assert bound["status"]["resourceClaimStatuses"] == [
        {"name": "c", "resourceClaimName": metadata["name"]}
    ]


def test_a_pod_is_placed_once(client: PlainClient) -> None:
    create(client, "ResourceClaim", "c", claim_spec())
    create_pod(client, "p", resourceClaimName="c")
    scheduler = FakeScheduler(client)
    scheduler.schedule()
    assert scheduler.schedule() == ()


def test_two_pods_share_a_claim_and_its_device(client: PlainClient) -> None:
    create(client, "ResourceClaim", "c", claim_spec())
    for name in ("p", "q"):
        create_pod(client, name, resourceClaimName="c")
    placed = FakeScheduler(client).schedule()
    assert placed == (Placed("default/p", "n1"), Placed("default/q", "n1"))
    status = the(client, "resourceclaims", "c")["status"]
    assert [user["name"] for user in status["reservedFor"]] == ["p", "q"]
    assert len(status["allocation"]["devices"]["results"]) == 1


def test_two_claims_of_one_pod_get_different_devices(client: PlainClient) -> None:
    for name in ("c", "d"):
        create(client, "ResourceClaim", name, claim_spec())
    claims = [{"name": name, "resourceClaimName": name} for name in ("c", "d")]
    create(client, "Pod", "p", {"resourceClaims": claims})
    FakeScheduler(client).schedule()
    given = {
        name: the(client, "resourceclaims", name)["status"]["allocation"]["devices"]["results"][0][
            "device"
        ]
        for name in ("c", "d")
    }
    assert given == {"c": "gpu-0", "d": "gpu-1"}


def test_a_pod_that_cannot_be_placed_says_why_in_its_condition_and_nothing_is_allocated(
    client: PlainClient,
) -> None:
    create(client, "ResourceClaim", "c", claim_spec())
    create(client, "ResourceClaim", "d", claim_spec(2))
    claims = [{"name": name, "resourceClaimName": name} for name in ("c", "d")]
    create(client, "Pod", "p", {"resourceClaims": claims})

    reason = "0/1 nodes are available: 1 cannot allocate all claims."
    assert FakeScheduler(client).schedule() == (Unschedulable("default/p", reason),)
    (condition,) = the(client, "pods", "p")["status"]["conditions"]
    assert condition == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": reason,
    }
    assert [claim.get("status") for claim in client.list("resourceclaims")] == [None, None]


def test_a_pod_waits_for_claims_and_templates_that_do_not_exist(client: PlainClient) -> None:
    sources = [
        {"name": "c", "resourceClaimName": "gone"},
        {"name": "d", "resourceClaimTemplateName": "t"},
    ]
    create(client, "Pod", "p", {"resourceClaims": sources})
    (outcome,) = FakeScheduler(client).schedule()
    assert outcome == Unschedulable("default/p", "ResourceClaims not found: gone, template t")


def test_a_claim_allocated_on_another_node_keeps_the_pod_from_this_one(
    client: PlainClient,
) -> None:
    claim = create(client, "ResourceClaim", "c", claim_spec())
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]
    selector = {"nodeSelectorTerms": [{"matchFields": fields}]}
    status = {"allocation": {"devices": {"results": []}, "nodeSelector": selector}}
    client.replace_status({**claim, "status": status})
    create_pod(client, "p", resourceClaimName="c")
    (outcome,) = FakeScheduler(client).schedule()
    reason = "0/1 nodes are available: 1 resourceclaim not available on the node."
    assert outcome == Unschedulable("default/p", reason)


def test_a_claim_that_every_node_can_reach_keeps_no_pod_away(client: PlainClient) -> None:
    claim = create(client, "ResourceClaim", "c", claim_spec())
    client.replace_status({**claim, "status": {"allocation": {"devices": {"results": []}}}})
    create_pod(client, "p", resourceClaimName="c")
    assert FakeScheduler(client).schedule() == (Placed("default/p", "n1"),)


def test_a_fault_of_the_claim_is_said_once_for_all_nodes(client: PlainClient) -> None:
    spec = claim_spec()
    spec["devices"]["requests"][0]["exactly"]["deviceClassName"] = "none"
    create(client, "ResourceClaim", "c", spec)
    create_pod(client, "p", resourceClaimName="c")
    (outcome,) = FakeScheduler(client).schedule()
    assert isinstance(outcome, Unschedulable)
    assert "could not retrieve device class none" in outcome.reason


def test_a_fault_of_a_nodes_slices_costs_that_node(client: PlainClient) -> None:
    (stored,) = client.list("resourceslices")
    client.delete(stored)
    spec = {**stored["spec"], "pool": {**stored["spec"]["pool"], "resourceSliceCount": 2}}
    for name in ("s", "t"):
        client.create({**stored, "metadata": {"name": name}, "spec": spec})
    create(client, "ResourceClaim", "c", claim_spec())
    create_pod(client, "p", resourceClaimName="c")
    (outcome,) = FakeScheduler(client).schedule()
    reason = "0/1 nodes are available: 1 invalid resource pools were encountered."
    assert outcome == Unschedulable("default/p", reason)


def test_without_nodes_the_pod_waits(client: PlainClient) -> None:
    client.delete(the(client, "nodes", "n1"))
    create_pod(client, "p", resourceClaimName="c")
    create(client, "ResourceClaim", "c", claim_spec())
    (outcome,) = FakeScheduler(client).schedule()
    assert outcome == Unschedulable("default/p", "0/0 nodes are available.")


def test_claims_of_a_deleted_pod_are_deleted_and_shared_ones_released(client: PlainClient) -> None:
    create(client, "ResourceClaimTemplate", "t", {"spec": claim_spec()})
    create(client, "ResourceClaim", "shared", claim_spec())
    for name in ("p", "q"):
        sources = [{"name": "s", "resourceClaimName": "shared"}]
        if name == "p":
            sources.append({"name": "own", "resourceClaimTemplateName": "t"})
        create(client, "Pod", name, {"resourceClaims": sources})
    scheduler = FakeScheduler(client)
    scheduler.schedule()

    client.delete(the(client, "pods", "p"))
    scheduler.collect()
    (shared,) = client.list("resourceclaims")
    assert [user["name"] for user in shared["status"]["reservedFor"]] == ["q"]
    assert "allocation" in shared["status"]

    client.delete(the(client, "pods", "q"))
    scheduler.collect()
    (shared,) = client.list("resourceclaims")
    assert not shared["status"]


def test_what_the_server_refuses_is_an_error_with_its_words(client: PlainClient) -> None:
    create(client, "ResourceClaim", "c", claim_spec())
    with pytest.raises(
        Permanent, match=r"POST .*/resourceclaims was refused with 409 AlreadyExists"
    ):
        create(client, "ResourceClaim", "c", claim_spec())
