# SPDX-License-Identifier: Apache-2.0
"""Who has a device, since when, and whether that ends by itself."""

from typing import Any

import msgspec
import pytest

from dra_driver.allocator.allocated_devices import allocated_claim
from dra_driver.explain.facts.holders import Holders
from dra_driver.explain.verdict import Ending
from dra_driver.model.api.core import Pod
from dra_driver.model.cluster import ClusterState
from tests.unit.explain.clusters import holder, state

GONE = {"deletionTimestamp": "2026-11-20T10:00:00Z"}


def of(*, pods: dict[str, dict[str, Any]] | None = None, **metadata: Any) -> ClusterState:
    """A claim with these pods, and their metadata; a pod without metadata is not there."""
    claim = holder("gpu-0")
    claim["metadata"] |= metadata
    claim["status"]["allocation"]["allocationTimestamp"] = "2026-11-19T10:00:00Z"
    names = pods or {}
    claim["status"]["reservedFor"] = [
        {"resource": "pods", "name": name, "uid": name} for name in names
    ]
    made = tuple(
        msgspec.convert({"metadata": {"name": name, "namespace": "ns", **more}}, Pod)
        for name, more in names.items()
        if "absent" not in more
    )
    return msgspec.structs.replace(state(claim), pods=made)


def test_a_holder_is_told_with_its_time_and_kept() -> None:
    cluster = of(creationTimestamp="2026-11-18T10:00:00Z")
    holders = Holders(cluster)
    claim = allocated_claim(cluster.resource_claims[0])
    found = holders.held_by(claim)
    assert (found.allocated, found.created) == ("2026-11-19T10:00:00Z", "2026-11-18T10:00:00Z")
    assert holders.held_by(claim) is found


def test_what_is_being_deleted_is_told_with_its_finalizers() -> None:
    cluster = of(pods={"p": GONE, "q": {}, "r": {"absent": True}}, finalizers=["f"], **GONE)
    claim = allocated_claim(cluster.resource_claims[0])
    time = GONE["deletionTimestamp"]
    assert Holders(cluster).ending([claim]) == (
        Ending("claim ns/holder", time, ("f",)),
        Ending("pod ns/p", time),
    )


def test_of_finalizers_without_end_the_first_are_told_and_how_many_there_are() -> None:
    cluster = of(finalizers=["a/b", "c" * 101, *["x"] * 9_998], **GONE)
    (told,) = Holders(cluster).ending([allocated_claim(cluster.resource_claims[0])])
    assert told.finalizers == ("a/b", "c" * 100 + "…", "x", "x", "… (10,000 finalizers)")
    assert str(told).endswith(f"kept by finalizers a/b, {'c' * 100}…, x, x, … (10,000 finalizers)")


@pytest.mark.parametrize(
    ("cluster", "ends"),
    [
        (of(), False),
        (of(**GONE), True),
        (of(pods={"p": GONE}), True),
        (of(pods={"p": GONE}, **GONE), True),
        (of(pods={"p": {}}, **GONE), False),
        (of(pods={"p": GONE, "q": {}}), False),
        (of(pods={"p": {"absent": True}}, **GONE), False),
    ],
)
def test_a_claim_ends_by_itself_if_nothing_that_stays_uses_it(
    cluster: ClusterState, ends: bool
) -> None:
    assert Holders(cluster).named("ns/holder").ends is ends
