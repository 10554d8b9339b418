# SPDX-License-Identifier: Apache-2.0
"""Claims of pod groups: which pods may use one, and which do."""

from typing import Any

import msgspec
import pytest

from dra_driver.explain.facts.claim_state import not_owned, unusable
from dra_driver.explain.facts.holders import Holders
from dra_driver.explain.facts.pod_groups import GATE, accepts_claims_of_groups
from dra_driver.explain.remedy import fix
from dra_driver.explain.verdict import ClaimMissing, CouldNotTell, FeatureOff
from dra_driver.explain.verdicts.claim import OF_ANOTHER_GROUP, OF_ANOTHER_POD
from dra_driver.explain.verdicts.general import GATE_UNKNOWN
from dra_driver.model.api.core import Pod
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.cluster import ClusterState
from tests.unit.explain.clusters import holder, state

GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "pg", "uid": "g"}


def member(name: str, group: str | None = "pg", node: str = "n", claim: str = "holder") -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"nodeName": node, "schedulingGroup": {"podGroupName": group}},
            "status": {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": claim}]},
        },
        Pod,
    )


def owned(**owner: Any) -> ResourceClaim:
    reference = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "name": "pg",
        "uid": "g",
        "controller": True,
        **owner,
    }
    metadata = {"name": "c", "namespace": "ns", "ownerReferences": [reference]}
    return msgspec.convert({"metadata": metadata}, ResourceClaim)


@pytest.mark.parametrize(
    ("owner", "groups", "reason"),
    [
        ({}, True, None),
        ({"apiVersion": "scheduling.k8s.io/v1"}, True, None),
        ({"apiVersion": ""}, True, None),  # a record of an older release
        ({}, False, FeatureOff),
        ({}, None, CouldNotTell),
        ({"name": "other"}, True, ClaimMissing),
        ({"apiVersion": "example.com/v1"}, True, ClaimMissing),
        ({"controller": False}, True, ClaimMissing),
    ],
)
def test_a_claim_of_a_group_is_for_its_pods(
    owner: dict[str, Any], groups: bool | None, reason: type | None
) -> None:
    found = list(not_owned(owned(**owner), member("p"), groups=groups))
    assert [type(one) for one in found] == ([reason] if reason else [])


def test_nobody_is_told_to_delete_the_claim_of_a_group() -> None:
    for pod in (member("p", "other"), member("p", None)):
        (found,) = not_owned(owned(), pod, groups=True)
        assert found == ClaimMissing("ns/c", OF_ANOTHER_GROUP)
        assert fix(found).startswith("leave the claim")
    (unknown,) = not_owned(owned(), member("p"), groups=None)
    assert isinstance(unknown, CouldNotTell)
    assert unknown.cause == GATE_UNKNOWN
    assert "kube-scheduler" in fix(unknown)
    (lone,) = not_owned(owned(kind="Pod"), member("p"), groups=True)
    assert lone == ClaimMissing("ns/c", OF_ANOTHER_POD)


@pytest.mark.parametrize(
    ("version", "gates", "accepts"),
    [
        ("v1.35.0", {}, False),
        ("v1.37.0", {}, None),
        ("", {}, None),
        ("v1.37.0", {GATE: True}, True),
        ("v1.37.0", {GATE: False}, False),
    ],
)
def test_the_gate_decides(version: str, gates: dict[str, bool], accepts: bool | None) -> None:
    cluster = ClusterState(kubernetes_version=version, feature_gates=gates)
    assert accepts_claims_of_groups(cluster) is accepts


def test_a_reserved_group_is_told_with_the_pods_that_run() -> None:
    claim = holder("gpu-0")
    claim["status"]["reservedFor"] = [GROUP, {"resource": "pods", "name": "x", "uid": "x"}]
    pods = (
        *(member("w0"), member("w1"), member("waits", node="")),
        *(member("of-another", "other"), member("of-none", None), member("without", claim="d")),
    )
    cluster = msgspec.structs.replace(state(claim), pods=pods)
    name = f"ns/{cluster.resource_claims[0].metadata.name}"
    found = Holders(cluster).named(name)
    assert found.pods == ("pod group ns/pg", "ns/w0", "ns/w1", "ns/x")
    gone = msgspec.structs.replace(cluster, pods=())
    assert Holders(gone).named(name).pods == ("pod group ns/pg", "ns/x")


def test_a_group_has_its_place_among_256() -> None:
    status = {
        "allocation": {"devices": {}},
        "reservedFor": [GROUP, *({"name": f"p{n}", "uid": f"{n}"} for n in range(255))],
    }
    full = msgspec.convert(
        {"metadata": {"name": "c", "namespace": "ns"}, "status": status}, ResourceClaim
    )
    assert list(unusable(full, member("w"))) == []
    assert [str(one) for one in unusable(full, member("w", "other"))]
