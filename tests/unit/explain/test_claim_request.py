# SPDX-License-Identifier: Apache-2.0
"""Requests in one shape, and changed ones."""

import msgspec

from dra_driver.explain.claim_request import claim_with, claim_with_only, requests_in
from dra_driver.explain.facts.extended_resources import claim_for
from dra_driver.model.api.core import Pod
from dra_driver.model.api.resource_claim import ExactDeviceRequest
from tests.e2e.fleet import request
from tests.unit.explain.clusters import claim

LIST = {
    "name": "list",
    "firstAvailable": [
        {"name": "a", "deviceClassName": "x"},
        {"name": "b", "deviceClassName": "y", "allocationMode": "All"},
    ],
}


def test_requests_and_alternatives_are_listed_in_order() -> None:
    wanted = claim(
        request(cel="true", count=2, adminAccess=True, capacity={"requests": {"memory": "1Gi"}}),
        LIST,
    )
    assert [(one.name, str(one)) for one in requests_in(wanted)] == [
        ("gpu", "2 x gpu where true with memory 1Gi, admin access"),
        ("list/a", "1 x x"),
        ("list/b", "all y"),
    ]


def test_a_request_can_stand_alone() -> None:
    wanted = claim(request(), LIST, constraints=[{"matchAttribute": "a/b"}])
    first, _, second = (claim_with_only(one) for one in requests_in(wanted))
    assert [one.name for one in first.spec.devices.requests] == ["gpu"]
    (kept,) = second.spec.devices.requests[0].first_available
    assert (kept.name, second.spec.devices.constraints) == ("b", None)


def test_one_request_can_be_changed() -> None:
    wanted = claim(request(), LIST)
    first, middle, _ = requests_in(wanted)

    def twice(body):
        return msgspec.structs.replace(body, count=2)

    assert claim_with(first, twice).spec.devices.requests[0].exactly.count == 2
    alternatives = claim_with(middle, twice).spec.devices.requests[1].first_available
    assert [one.count for one in alternatives] == [2, 1]
    gone = claim_with(middle, lambda _: ExactDeviceRequest())
    assert [one.name for one in gone.spec.devices.requests[1].first_available] == ["b"]


def test_alternatives_share_the_place_of_their_request() -> None:
    either = {"name": "b", "firstAvailable": [{"name": "x"}, {"name": "y"}]}
    found = list(requests_in(claim(request("a"), either)))
    assert [one.main[1] for one in found] == [0, 1, 1]
    assert len({one.main[0] for one in found}) == 1


def test_the_claim_of_extended_resources_is_named_by_its_pod() -> None:
    pod = msgspec.convert(
        {
            "metadata": {"name": "train", "namespace": "ns"},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]
            },
        },
        Pod,
    )
    made = claim_for(pod, ["example.com/gpu"], {"example.com/gpu": "gpu"})
    (asked,) = requests_in(made)
    assert asked.place == "request container-0-request-0 for the extended resources of pod ns/train"
