# SPDX-License-Identifier: Apache-2.0
"""Of all nodes and all sets of claims, those are ended that cost least: unused and ending ones before a workload."""

from itertools import combinations
from random import Random
from typing import Any

import msgspec
import pytest

from dra_driver.explain import freed_nodes
from dra_driver.explain.cheapest_ends import Part, cheapest
from dra_driver.explain.costs import END, END_UNUSED, WAIT
from dra_driver.explain.outcome import Report
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.model.api.core import Pod
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, HOME, device, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

OTHER, THIRD = "n2", "n3"
NET = f'device.attributes["{GPU}"].model == "net"'
CARD = f'device.attributes["{GPU}"].model == "H100"'


def has(name: str, pool: str, *names: str, used: bool = True) -> dict[str, Any]:
    """A claim that has devices of a node."""
    made = holder(names[0], name, pool=pool)
    results = made["status"]["allocation"]["devices"]["results"]
    results += [{**results[0], "device": one} for one in names[1:]]
    if used:
        made["status"]["reservedFor"] = [{"resource": "pods", "name": name, "uid": name}]
    return made


def numbered(count: int) -> list[str]:
    return [f"gpu-{number}" for number in range(count)]


def nodes(count: int, *more: dict[str, Any]) -> ClusterState:
    """Three equal nodes with so many devices."""
    pools = (HOME, OTHER, THIRD)
    slices = [resource_slice(devices(count), pool=pool) for pool in pools]
    return state(words.node(OTHER), words.node(THIRD), *slices, *more)


def ending(cluster: ClusterState, *names: str) -> ClusterState:
    deleted = {"namespace": "ns", "deletionTimestamp": "2026-11-20T10:00:00Z"}
    made = [{"metadata": {"name": name, **deleted}} for name in names]
    return msgspec.structs.replace(cluster, pods=tuple(msgspec.convert(made, list[Pod])))


def asking(cluster: ClusterState, *requests: dict[str, Any]) -> Report:
    return explain(cluster, ManifestSubject((words.claim(*requests),), "ns", "f.yaml"))


def helps(report: Report) -> list[tuple[str, str, str]]:
    return [(one.kind, one.what, one.on) for one in report.changes]


def test_a_node_where_enough_ends_by_itself_is_found_whatever_else_has_its_devices() -> None:
    """On the first of equal nodes six claims stay, on the others only one large one."""
    small = [has(f"a{number}", HOME, f"gpu-{number}") for number in range(8)]
    large = [has(f"big-{pool}", pool, *numbered(8)) for pool in (OTHER, THIRD)]
    cluster = ending(nodes(8, *small, *large), "a0", "a1")
    assert helps(asking(cluster, request(count=2))) == [
        ("wait", "wait until pod ns/a0 and pod ns/a1 is gone", HOME),
        ("end", f"end claim ns/big-{OTHER}, used by ns/big-{OTHER}", OTHER),
    ]


def test_claims_that_nobody_uses_end_before_one_workload() -> None:
    unused = [has(f"u{number}", HOME, f"gpu-{number}", used=False) for number in range(3)]
    used = [has(f"w-{pool}", pool, *numbered(3)) for pool in (OTHER, THIRD)]
    report = asking(nodes(3, *unused, *used), *(request(name) for name in "abc"))
    assert helps(report) == [("end", "end claims ns/u0, ns/u1, ns/u2", HOME)]


def test_of_claims_of_several_sizes_those_end_that_cost_least_together() -> None:
    """One device after the other, the two small claims would be taken first, and the large one then."""
    claims = [
        has("s0", HOME, "gpu-0", used=False),
        has("big", HOME, "gpu-1", "gpu-2", used=False),
        has("used", HOME, "gpu-3"),
        *(has(f"w-{pool}", pool, *numbered(4)) for pool in (OTHER, THIRD)),
    ]
    assert helps(asking(nodes(4, *claims), request(count=2)))[0] == (
        "end",
        "end claim ns/big",
        HOME,
    )


def test_a_device_of_all_nodes_is_freed_with_one_of_the_node_where_that_costs_least() -> None:
    net = device("nic-0")
    net["attributes"]["model"] = {"string": "net"}
    cluster = nodes(
        1,
        resource_slice([net], pool="net", allNodes=True),
        has("hn", "net", "nic-0"),
        has("h1", HOME, "gpu-0"),
        has("h2", OTHER, "gpu-0", used=False),
        has("h3", THIRD, "gpu-0"),
    )
    report = asking(cluster, request("a", cel=CARD), request("b", cel=NET))
    assert helps(report) == [("end", "end claims ns/h2, ns/hn, used by ns/hn", OTHER)]


def test_a_node_with_a_device_of_each_claim_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes can use the network device, as its selector says, and only the second one the other device."""
    monkeypatch.setattr(freed_nodes, "MOST_TRIED", 1)
    net = device("nic-0")
    net["attributes"]["model"] = {"string": "net"}
    chosen = {"key": "kubernetes.io/hostname", "operator": "Exists"}
    selector = {"nodeSelectorTerms": [{"matchExpressions": [chosen]}]}
    cluster = nodes(
        1,
        resource_slice([net], pool="net", nodeSelector=selector),
        has("hn", "net", "nic-0"),
        has("h1", HOME, "gpu-0"),
        has("h2", OTHER, "gpu-0", used=False),
        has("h3", THIRD, "gpu-0"),
    )
    report = asking(cluster, request("a", cel=CARD), request("b", cel=NET))
    assert helps(report) == [("end", "end claims ns/h2, ns/hn, used by ns/hn", OTHER)]


def test_a_device_of_all_nodes_alone_is_tried_on_one_of_them() -> None:
    net = device("nic-0")
    net["attributes"]["model"] = {"string": "net"}
    cluster = nodes(1, resource_slice([net], pool="net", allNodes=True), has("hn", "net", "nic-0"))
    assert helps(asking(cluster, request("b", cel=NET)))[0] == (
        "end",
        "end claim ns/hn, used by ns/hn",
        HOME,
    )


def test_for_all_devices_of_a_node_each_claim_there_ends() -> None:
    lost = {"key": "k", "value": "failed", "effect": "NoSchedule"}
    claims = [
        *(has(f"a{number}", HOME, f"gpu-{number}", used=False) for number in range(2)),
        has("b", OTHER, "gpu-0"),
        has("c", THIRD, "gpu-0", "gpu-1"),
    ]
    cluster = nodes(2, *claims)
    everything = request(allocationMode="All")
    assert helps(asking(cluster, everything))[0] == ("end", "end claims ns/a0, ns/a1", HOME)
    broken = resource_slice([device("bad", taints=[lost])], name="bad", pool="bad", nodeName=HOME)
    more = msgspec.convert(broken, ResourceSlice)
    spoiled = msgspec.structs.replace(cluster, resource_slices=(*cluster.resource_slices, more))
    assert helps(asking(spoiled, everything))[0][2] == OTHER


def test_of_equal_nodes_that_nobody_had_time_for_the_one_with_the_least_in_use_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(freed_nodes, "MOST_LOOKS", 0)
    claims = [
        *(has(f"a{number}", HOME, f"gpu-{number}") for number in range(2)),
        has("b", OTHER, "gpu-0", "gpu-1"),
        *(has(f"c{number}", THIRD, f"gpu-{number}") for number in range(2)),
    ]
    assert helps(asking(nodes(2, *claims), request(count=2))) == [
        ("end", "end claim ns/b, used by ns/b", OTHER)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_the_cheapest_parts_are_those_that_trying_all_finds(seed: int) -> None:
    random = Random(seed)
    costs = (WAIT, END_UNUSED, END)
    parts = [Part(random.choice((1, 1, 2, 3)), random.choice(costs)) for _ in range(7)]
    needed = random.randint(1, 8)
    every = [
        (sum(parts[one].cost for one in some), len(some))
        for length in range(len(parts) + 1)
        for some in combinations(range(len(parts)), length)
        if sum(parts[one].size for one in some) >= needed
    ]
    chosen = cheapest(parts, needed)
    if not every:
        assert chosen is None
        return
    assert chosen is not None
    assert sum(parts[one].size for one in chosen) >= needed
    assert (sum(parts[one].cost for one in chosen), len(chosen)) == min(every)


def test_no_claim_has_more_devices_than_one_claim_can_have() -> None:
    assert cheapest([Part(40, END)], 32) == [0]
    assert cheapest([Part(40, END)], 33) is None
    assert cheapest([Part(40, END)], 0) == []
