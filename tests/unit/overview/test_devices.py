# SPDX-License-Identifier: Apache-2.0
"""What is said of each device: where it is, how it is, who has it, and how much of it is free."""

import pytest

from dra_driver.explain.trial import try_on
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.names import DOMAIN
from dra_driver.overview.cluster import Overview
from dra_driver.overview.devices import (
    Chosen,
    ClusterDevice,
    HolderOfDevice,
    TaintOfDevice,
    devices_of,
)
from dra_driver.overview.part import Gap
from tests.e2e import fleet as words
from tests.unit.explain.clusters import claim
from tests.unit.overview.scene import gpu_slice, held, overview, rows, shared

EXAMPLE = "gpu.example.com"


def tainted(effect: str = "NoSchedule", key: str = "example.com/xid", value: str = "79"):
    taint = {"key": key, "value": value, "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}
    return words.device("gpu-0", taints=[taint])


def rule(**selector: str):
    spec = {
        "deviceSelector": {"driver": EXAMPLE, **selector},
        "taint": {"key": "maintenance", "effect": "NoExecute"},
    }
    return [{"metadata": {"name": "drain"}, "spec": spec}]


def test_a_free_device() -> None:
    listed = words.device("gpu-0", numa=1)
    listed["attributes"] |= {"ecc": {"bool": True}, "x.io/links": {"ints": [1, 2]}, "none": {}}
    assert rows(gpu_slice(listed)) == [
        ClusterDevice(
            driver=EXAMPLE,
            pool="fleet-1",
            name="gpu-0",
            all_nodes=False,
            nodes=("fleet-1",),
            where="node fleet-1",
            product="H100",
            memory="80Gi",
            health="ok",
            health_reason="",
            taints=(),
            holders=(),
            shared=False,
            free="free",
            reason="",
            used_up_by=(),
            free_share={},
            attributes={
                "ecc": "true",
                "model": "H100",
                "none": "",
                "numa": "1",
                "x.io/links": "1,2",
            },
            capacity={"memory": "80Gi"},
        )
    ]


def test_names_with_a_domain_and_profiles_of_partitions() -> None:
    listed = {
        "name": "a",
        "attributes": {
            "x.io/model": {"string": "small"},
            "x.io/productName": {"string": "Big"},
            "profile": {"string": "1g.10gb"},
        },
        "capacity": {"x.io/memory": {"value": "1Gi"}},
    }
    bare = {"name": "b"}
    first, second = rows(gpu_slice(listed, bare))
    assert (first.product, first.memory) == ("Big 1g.10gb", "1Gi")
    assert (second.product, second.memory) == ("", "")


def test_devices_are_sorted_by_node_driver_pool_and_name() -> None:
    found = rows(
        gpu_slice(words.device("b"), words.device("a")),
        gpu_slice(words.device("c"), pool="fleet-0"),
        gpu_slice(words.device("d"), driver="a.example.com", name="other"),
        gpu_slice(words.device("e"), name="network", pool="shared", allNodes=True),
    )
    assert [(one.nodes, one.name) for one in found] == [
        ((), "e"),
        (("fleet-0",), "c"),
        (("fleet-1",), "d"),
        (("fleet-1",), "a"),
        (("fleet-1",), "b"),
    ]


def test_where_a_device_can_be_used() -> None:
    chosen = {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["fleet-1"]}
                ]
            }
        ]
    }
    everywhere = gpu_slice(words.device("a"), name="all", pool="all", allNodes=True)
    some = gpu_slice(words.device("b"), name="some", pool="some", nodeSelector=chosen)
    none = gpu_slice(words.device("c"), name="gone", pool="gone", nodeName="fleet-9")
    a, b, c = rows(everywhere, some, none)
    assert (a.all_nodes, a.nodes, a.where, a.free) == (True, (), "all nodes", "free")
    assert (b.all_nodes, b.nodes) == (False, ("fleet-1",))
    assert b.where == "nodes with kubernetes.io/hostname=fleet-1"
    assert (c.nodes, c.free, c.reason) == (("fleet-9",), "no node", "only for node fleet-9")
    named = rows(everywhere, some, none, chosen=Chosen(node="fleet-1"))
    assert [one.name for one in named] == ["a", "b"]


def test_a_device_that_a_claim_has() -> None:
    (found,) = rows(
        gpu_slice(words.device("gpu-0")), held("train", {"device": "gpu-0"}, pods=("p",))
    )
    assert found.holders == (
        HolderOfDevice(
            namespace="ns", claim="train", pods=("p",), share="", consumed={}, admin_access=False
        ),
    )
    assert (found.free, found.reason) == ("in use", "held by ns/train, used by ns/p")


def test_admin_access_keeps_no_claim_away() -> None:
    (found,) = rows(
        gpu_slice(words.device("gpu-0")), held("look", {"device": "gpu-0", "adminAccess": True})
    )
    assert [one.admin_access for one in found.holders] == [True]
    assert found.free == "free"


def test_several_holders_are_sorted_and_the_largest_share_is_what_is_left() -> None:
    mine = {"device": "gpu-0", "shareID": "s1", "consumedCapacity": {"memory": "10Gi"}}
    yours = {"device": "gpu-0", "shareID": "s2", "consumedCapacity": {"memory": "30Gi"}}
    (found,) = rows(gpu_slice(shared()), held("b", yours), held("a", mine))
    assert [(one.claim, one.share, one.consumed) for one in found.holders] == [
        ("a", "s1", {"memory": "10Gi"}),
        ("b", "s2", {"memory": "30Gi"}),
    ]
    assert (found.shared, found.free, found.free_share) == (True, "partly free", {"memory": "40Gi"})


@pytest.mark.parametrize(
    ("taken", "policy", "left", "free"),
    [
        ("", {}, "80Gi", "free"),
        ("10Gi", {"validValues": ["20Gi", "40Gi"], "default": "20Gi"}, "40Gi", "partly free"),
        ("70Gi", {"validValues": ["20Gi", "40Gi"], "default": "20Gi"}, "0", "in use"),
        ("5Gi", {"validRange": {"min": "10Gi", "step": "10Gi"}}, "70Gi", "partly free"),
        ("80Gi", {}, "0", "in use"),
        ("90Gi", {}, "0", "in use"),
        ("", {"validValues": ["90Gi"], "default": "90Gi"}, "0", "not usable"),
    ],
)
def test_the_largest_share_is_one_that_the_policy_allows(taken, policy, left, free) -> None:
    share = {"device": "gpu-0", "shareID": "s", "consumedCapacity": {"memory": taken}}
    listed = shared(**({"requestPolicy": policy} if policy else {}))
    holders = [held("a", share)] if taken else []
    whole = overview(gpu_slice(listed), *holders)
    (found,) = devices_of(whole, Chosen()).devices
    assert (found.free_share, found.free) == ({"memory": left}, free)
    # The scheduler's own search agrees: it gives this share, and no more.
    asked = words.request(capacity={"requests": {"memory": left if left != "0" else "1Gi"}})
    more = words.request(capacity={"requests": {"memory": "80.5Gi" if not taken else "79Gi"}})
    assert fits(whole, claim(asked)) is (free not in ("in use", "not usable"))
    assert not fits(whole, claim(more))


def fits(found: Overview, wanted: ResourceClaim) -> bool:
    (node,) = found.state.nodes
    return try_on(found.fleet.allocator, node, [wanted], lambda: False).fits


def test_a_whole_claim_leaves_no_share() -> None:
    (found,) = rows(gpu_slice(shared()), held("old", {"device": "gpu-0"}))
    assert (found.free, found.free_share) == ("in use", {"memory": "0"})


def test_without_consumable_capacity_nothing_is_shared() -> None:
    (found,) = rows(gpu_slice(shared()), featureGates={"DRAConsumableCapacity": False})
    assert (found.shared, found.free_share, found.free) == (False, {}, "free")


def test_a_taint_of_the_driver_says_how_the_device_is() -> None:
    (found,) = rows(gpu_slice(tainted()))
    assert found.taints == (
        TaintOfDevice(
            key="example.com/xid",
            value="79",
            effect="NoSchedule",
            time_added="2026-01-01T00:00:00Z",
            rule="",
        ),
    )
    assert (found.health, found.health_reason) == ("unhealthy", "example.com/xid=79")
    assert (found.free, found.reason) == ("tainted", "tainted example.com/xid=79:NoSchedule")


def test_a_taint_without_effect_is_a_warning_and_gives_way_to_one_with() -> None:
    (found,) = rows(gpu_slice(tainted("None", value="")))
    assert (found.health, found.health_reason, found.free) == ("warning", "example.com/xid", "free")
    listed = tainted("None")
    listed["taints"].append({"key": "lost", "effect": "NoExecute"})
    (found,) = rows(gpu_slice(listed))
    assert (found.health, found.health_reason) == ("unhealthy", "lost")


@pytest.mark.parametrize("name", ["held", "not-clean", "occupied", "held-by"])
def test_a_taint_about_the_use_of_a_device_says_nothing_of_its_health(name: str) -> None:
    (found,) = rows(gpu_slice(tainted(key=f"{DOMAIN}/{name}")))
    assert (found.health, found.free) == ("ok", "tainted")


def test_a_taint_of_an_admin_names_its_rule_and_says_nothing_of_the_health() -> None:
    (found,) = rows(gpu_slice(words.device("gpu-0")), deviceTaintRules=rule())
    assert [(one.key, one.rule) for one in found.taints] == [("maintenance", "drain")]
    assert (found.health, found.free) == ("ok", "tainted")


@pytest.mark.parametrize(
    ("condition", "health"),
    [
        ({"type": "Ready", "status": "False", "reason": "Unhealthy"}, ("unhealthy", "Unhealthy")),
        ({"type": "Ready", "status": "False"}, ("unhealthy", "not ready")),
        ({"type": "Ready", "status": "True"}, ("ok", "")),
        ({"type": "Other", "status": "False"}, ("ok", "")),
    ],
)
def test_the_condition_of_a_device_that_is_in_use(condition, health) -> None:
    holder = held("train", {"device": "gpu-0"})
    device = {"driver": EXAMPLE, "pool": "fleet-1", "device": "gpu-0", "conditions": [condition]}
    holder["status"]["devices"] = [device]
    (found,) = rows(gpu_slice(words.device("gpu-0")), holder)
    assert (found.health, found.health_reason) == health


def test_a_partition_whose_counters_others_use() -> None:
    def part(name: str) -> dict[str, object]:
        taken = {"counterSet": "gpu", "counters": {"slices": {"value": "4"}}}
        return words.device(name, consumesCounters=[taken])

    counters = [{"name": "gpu", "counters": {"slices": {"value": "7"}}}]
    sets = gpu_slice(name="sets", slices=2, nodeName="fleet-1", sharedCounters=counters)
    a, b = rows(sets, gpu_slice(part("a"), part("b"), slices=2), held("x", {"device": "a"}))
    assert (a.free, b.free) == ("in use", "used up")
    assert (a.used_up_by, b.used_up_by) == ((), ("ns/x",))


def test_a_pool_that_is_not_complete_and_one_that_is_wrong() -> None:
    late = gpu_slice(words.device("a"), pool="late", slices=2, nodeName="fleet-1")
    twice = gpu_slice(words.device("b"), words.device("b"), pool="twice", nodeName="fleet-1")
    assert [one.free for one in rows(late, twice)] == ["pool incomplete", "pool invalid"]


def test_a_feature_that_is_off_and_a_capacity_that_is_wrong() -> None:
    bound = words.device("a", bindingConditions=["ready"])
    (off,) = rows(gpu_slice(bound), featureGates={"DRADeviceBindingConditions": False})
    assert off.free == "feature off"
    wrong = shared(requestPolicy={"validRange": {"min": "1Gi", "step": "0"}})
    (found,) = rows(gpu_slice(wrong), held("a", {"device": "gpu-0", "shareID": "s"}))
    assert found.free == "not usable"
    assert "the step of the valid range is not positive" in found.reason


def test_without_the_right_to_list_claims_it_is_not_known_what_is_free() -> None:
    forbidden = {"resource": "resourceclaims", "reason": "forbidden", "message": "no"}
    (found,) = rows(gpu_slice(words.device("gpu-0")), notRead=[forbidden])
    assert found.free == "not known"
    one = {**forbidden, "reason": "malformed", "name": "ns/x"}
    (found,) = rows(gpu_slice(words.device("gpu-0")), notRead=[one])
    assert found.free == "free"


def test_only_a_node_a_driver_or_a_namespace() -> None:
    objects = (
        gpu_slice(words.device("a"), words.device("b")),
        gpu_slice(words.device("c"), driver="nic.example.com", name="nics"),
        held("train", {"device": "b"}, namespace="team"),
    )

    def names(**chosen: str) -> list[str]:
        return [one.name for one in rows(*objects, chosen=Chosen(**chosen))]

    assert names() == ["a", "b", "c"]
    assert names(driver=EXAMPLE) == ["a", "b"]
    assert names(node="fleet-0") == []
    assert names(namespace="team") == ["b"]


def test_the_answer_says_when_it_was_read_and_what_it_lacks() -> None:
    gap = Gap(verb="list", resource="nodes", name="", message="m", lacks="x", role="explain")
    found = devices_of(overview(recordedAt="2026-01-01T00:00:00Z"), Chosen(), (gap,))
    assert (found.read_at, found.not_read) == ("2026-01-01T00:00:00Z", (gap,))


def test_a_device_of_a_node_that_takes_no_pods() -> None:
    (one,) = rows(words.node("n2", unschedulable=True), gpu_slice(words.device("a"), pool="n2"))
    assert one.free == "node closed"
