# SPDX-License-Identifier: Apache-2.0
"""Whether a claim that exists can be used, and from where."""

from typing import Any

import msgspec
import pytest

from dra_driver.explain.facts.claim_state import (
    allocated_elsewhere,
    chosen_devices,
    not_owned,
    unusable,
)
from dra_driver.explain.verdict import (
    ChosenDevice,
    ClaimAllocatedElsewhere,
    ClaimMissing,
    ClaimReservedForOthers,
)
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.resource_claim import ResourceClaim

DEVICE = {"driver": "d", "pool": "p", "device": "gpu-0"}
POD = msgspec.convert({"metadata": {"name": "p", "uid": "mine"}}, Pod)


def claim(results: list[dict[str, Any]] | None = None, **status: Any) -> ResourceClaim:
    if results is not None:
        status["allocation"] = {"devices": {"results": [{**DEVICE, **one} for one in results]}}
    return msgspec.convert(
        {"metadata": {"name": "c", "namespace": "ns"}, "status": status}, ResourceClaim
    )


def selected(*terms: dict[str, Any]) -> ResourceClaim:
    allocation = {"devices": {}, "nodeSelector": {"nodeSelectorTerms": list(terms)}}
    return claim(allocation=allocation)


def users(count: int, first: str) -> list[dict[str, str]]:
    return [{"name": f"p{n}", "uid": f"{n}" if n else first} for n in range(count)]


def test_a_claim_that_goes_away_cannot_be_used() -> None:
    going = msgspec.convert(
        {"metadata": {"name": "c", "namespace": "ns", "deletionTimestamp": "now"}}, ResourceClaim
    )
    assert list(unusable(going, None)) == [ClaimMissing("ns/c", "is being deleted")]
    kept = msgspec.convert(
        {
            "metadata": {
                "name": "c",
                "namespace": "ns",
                "deletionTimestamp": "now",
                "finalizers": ["a/b", "c/d"],
            }
        },
        ResourceClaim,
    )
    assert list(unusable(kept, None)) == [
        ClaimMissing("ns/c", "is being deleted, kept by a/b, c/d")
    ]
    many = msgspec.structs.replace(kept.metadata, finalizers=["a/b"] * 5)
    (missing,) = unusable(msgspec.structs.replace(kept, metadata=many), None)
    assert str(missing).endswith("kept by a/b, a/b, a/b, a/b, … (5 finalizers)")


def test_256_pods_share_a_claim_and_no_more() -> None:
    assert list(unusable(claim([{}], reservedFor=users(255, "x")), POD)) == []
    assert list(unusable(claim([{}], reservedFor=users(256, "mine")), POD)) == []
    assert list(unusable(claim([{}], reservedFor=users(256, "x")), POD)) == [
        ClaimReservedForOthers("ns/c", 256)
    ]
    assert list(unusable(claim(), POD)) == []


@pytest.mark.parametrize(
    ("owner", "owned"),
    [
        ({"uid": "mine", "controller": True}, True),
        ({"uid": "mine"}, False),
        ({"uid": "other", "controller": True}, False),
    ],
)
def test_a_claim_of_a_template_belongs_to_one_pod(owner: dict[str, Any], owned: bool) -> None:
    made = msgspec.convert({"metadata": {"name": "c", "ownerReferences": [owner]}}, ResourceClaim)
    assert (list(not_owned(made, POD, groups=None)) == []) == owned


def test_an_allocated_claim_is_usable_where_its_devices_are() -> None:
    node = msgspec.convert({"metadata": {"name": "n", "labels": {"zone": "a"}}}, Node)
    here = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    there = {"key": "metadata.name", "operator": "In", "values": ["m"]}
    odd = {"key": "zone", "operator": "Odd", "values": ["a", "b"]}
    assert list(allocated_elsewhere(selected({"matchFields": [here]}), node)) == []
    assert list(allocated_elsewhere(claim([{}]), node)) == []
    assert list(allocated_elsewhere(selected({"matchFields": [there]}), node)) == [
        ClaimAllocatedElsewhere("ns/c", "nodes with name=m")
    ]
    assert list(allocated_elsewhere(selected({"matchExpressions": [odd]}), node)) == [
        ClaimAllocatedElsewhere("ns/c", "nodes with zone Odd (a, b)")
    ]


def test_devices_that_skip_operations_are_usable_only_where_the_node_declares_it() -> None:
    without = msgspec.convert({"metadata": {"name": "n"}}, Node)
    status = {"declaredFeatures": ["DRAOptionalNodeOperations"]}
    declaring = msgspec.convert({"metadata": {"name": "n"}, "status": status}, Node)
    skipping = claim([{}, {"skipNodeOperations": ["NodePrepareResources"]}])
    assert list(allocated_elsewhere(skipping, declaring)) == []
    assert list(allocated_elsewhere(claim([{"skipNodeOperations": []}]), without)) == []
    assert list(allocated_elsewhere(skipping, without)) == [
        ClaimAllocatedElsewhere("ns/c", "nodes that declare the feature DRAOptionalNodeOperations")
    ]


def test_the_devices_of_a_claim_are_listed() -> None:
    assert chosen_devices(claim([{"request": "r"}])) == (
        ChosenDevice("ns/c", "r", "d", "p", "gpu-0"),
    )
    assert chosen_devices(claim()) == ()
