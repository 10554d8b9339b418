# SPDX-License-Identifier: Apache-2.0
"""What does the chart's admission policy for status.devices let pass? tests/e2e asks a real API server the same."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.support.policy_in_cel import Policy

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "helm" / "dra-driver" / "templates" / "device-status-policy.yaml"
ACCOUNT = "system:serviceaccount:dra:dra-driver"
DRIVER, NODE, VICTIM = "gpu.dra-driver.dev", "node-1", "node-2"
POLICY = Policy(TEMPLATE.read_text(), account=ACCOUNT, driver=DRIVER)
Object = dict[str, Any]
NOT_HERE = f"{ACCOUNT} runs on node {NODE} and may write the status of ResourceClaims that are allocated on that node only."
NOT_ALLOCATION = f"{ACCOUNT} may not change what is allocated to a ResourceClaim, nor for whom."
NOT_OURS = f"{ACCOUNT} may write in status.devices entries of driver {DRIVER} and of the pool of its own node only."


def selector(*nodes: str, key: str = "metadata.name", operator: str = "In") -> Object:
    field = {"key": key, "operator": operator, "values": list(nodes)}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def entry(driver: str = DRIVER, pool: str = NODE, device: str = "gpu-0", **more: Any) -> Object:
    return {"driver": driver, "pool": pool, "device": device, **more}


def a_claim(*devices: Object, node_selector: Object | None = None) -> Object:
    allocation = {
        "devices": {"results": [{"request": "main", **entry()}]},
        "nodeSelector": selector(NODE) if node_selector is None else node_selector,
    }
    status: Object = {"allocation": allocation, "reservedFor": [{"name": "pod", "uid": "u"}]}
    return {"status": {**status, "devices": list(devices)} if devices else status}


def refusals(new: Object, old: Object, *, node: str = NODE) -> list[str]:
    return POLICY.refusals("UPDATE", new, old, node=node)


OTHERS = entry("other.example.com", "anywhere", "nic-0", data={"speed": "fast"})


def test_own_entries_are_added_changed_and_removed() -> None:
    before = a_claim(OTHERS)
    after = a_claim(OTHERS, entry(data={"uuid": "GPU-1"}), entry(device="gpu-1"))
    changed = a_claim(OTHERS, entry(data={"uuid": "GPU-2"}))
    assert refusals(after, before) == refusals(changed, after) == refusals(before, after) == []
    assert refusals(a_claim(entry()), a_claim()) == refusals(a_claim(), a_claim(entry())) == []


@pytest.mark.parametrize(
    "node_selector",
    [
        selector(VICTIM),
        selector(NODE, VICTIM),
        selector(NODE, operator="NotIn"),
        selector(NODE, key="metadata.labels"),
        {},
        {"nodeSelectorTerms": [{"matchExpressions": []}]},
        {"nodeSelectorTerms": selector(NODE)["nodeSelectorTerms"] * 2},
    ],
)
def test_a_claim_of_another_node_is_not_written(node_selector: Object) -> None:
    old = a_claim(node_selector=node_selector)
    assert refusals(a_claim(entry(), node_selector=node_selector), old) == [NOT_HERE]


def test_a_claim_that_is_not_allocated_is_not_written() -> None:
    assert refusals({"status": {"devices": [entry()]}}, {}) == [NOT_HERE]
    assert refusals(a_claim(), {}) == [NOT_HERE, NOT_ALLOCATION]


@pytest.mark.parametrize("field", ["allocation", "reservedFor"])
def test_neither_the_allocation_nor_the_pods_are_changed(field: str) -> None:
    old = a_claim()
    gone = deepcopy(old)
    del gone["status"][field]
    assert refusals(gone, old) == [NOT_ALLOCATION]
    other = deepcopy(old)
    other["status"][field] = {} if field == "allocation" else []
    assert refusals(other, old) == [NOT_ALLOCATION]


def test_a_new_allocation_does_not_make_a_claim_ones_own() -> None:
    theirs = a_claim(node_selector=selector(VICTIM))
    assert refusals(a_claim(), theirs) == [NOT_HERE, NOT_ALLOCATION]


@pytest.mark.parametrize(
    "foreign", [entry("other.example.com"), entry(pool=VICTIM), entry("x." + DRIVER)]
)
def test_entries_of_others_stay_as_they_are(foreign: Object) -> None:
    with_it = a_claim(foreign, entry())
    assert refusals(with_it, a_claim()) == [NOT_OURS]
    assert refusals(a_claim(entry()), with_it) == [NOT_OURS]
    assert refusals(a_claim({**foreign, "data": {"x": 1}}, entry()), with_it) == [NOT_OURS]
    assert refusals(a_claim(foreign), with_it) == []


def test_a_token_without_a_node_writes_nothing() -> None:
    (first, *_) = refusals(a_claim(entry()), a_claim(), node="")
    assert first.startswith(f"{ACCOUNT} may write the status of ResourceClaims only from a pod")


def test_it_meets_every_update_of_a_status_and_fails_closed() -> None:
    assert POLICY.spec["failurePolicy"] == "Fail"
    assert POLICY.spec["matchConstraints"]["matchPolicy"] == "Equivalent"
    (rule,) = POLICY.spec["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["UPDATE"], ["resourceclaims/status"])
