# SPDX-License-Identifier: Apache-2.0
"""What is said of each claim: its state, its pods and nodes, and its devices."""

from dra_driver.explain.subject.labels import parse_selector
from dra_driver.overview.claims import ClusterClaim, DeviceOfClaim, claims_of
from dra_driver.overview.devices import Chosen
from tests.e2e import fleet as words
from tests.unit.overview.scene import ANYWHERE, Object, gpu_slice, held, overview, pod

GPU = "gpu.example.com"


def rows(*objects: Object, chosen: Chosen = ANYWHERE, pods: tuple[Object, ...] = ()):
    return list(claims_of(overview(*objects, pods=list(pods)), chosen).claims)


def waiting(name: str = "wait", namespace: str = "ns") -> Object:
    made = words.claim(name=name)
    made["metadata"] |= {"namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return made


def test_a_claim_in_use() -> None:
    share = {"device": "a", "shareID": "s", "consumedCapacity": {"memory": "1Gi"}}
    claim = held(
        "train",
        {"device": "b"},
        share,
        pods=("q", "p"),
        allocated="2026-01-01T00:00:05Z",
        created="2026-01-01T00:00:00Z",
    )
    found = rows(claim, pods=(pod("p", node="n2"), pod("q", node="n1")))
    assert found == [
        ClusterClaim(
            namespace="ns",
            name="train",
            state="in use",
            created_at="2026-01-01T00:00:00Z",
            allocated_at="2026-01-01T00:00:05Z",
            pods=("p", "q"),
            nodes=("n1", "n2"),
            device_classes=("gpu",),
            devices=(
                DeviceOfClaim(
                    request="gpu",
                    device_class="gpu",
                    driver=GPU,
                    pool="fleet-1",
                    name="b",
                    share="",
                    consumed={},
                    admin_access=False,
                ),
                DeviceOfClaim(
                    request="gpu",
                    device_class="gpu",
                    driver=GPU,
                    pool="fleet-1",
                    name="a",
                    share="s",
                    consumed={"memory": "1Gi"},
                    admin_access=False,
                ),
            ),
        )
    ]


def test_a_claim_without_a_pod_is_on_the_node_of_its_devices() -> None:
    (found,) = rows(gpu_slice(words.device("a")), held("idle", {"device": "a"}))
    assert (found.state, found.pods, found.nodes) == ("allocated", (), ("fleet-1",))


def test_a_device_of_all_nodes_or_of_none_that_is_published_has_no_node() -> None:
    network = gpu_slice(words.device("a"), allNodes=True)
    (first, second) = rows(network, held("x", {"device": "a"}), held("y", {"device": "gone"}))
    assert (first.nodes, second.nodes) == ((), ())


def test_a_claim_that_waits_names_the_pods_that_wait_for_it() -> None:
    made = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "wait"}]}
    extended = {"extendedResourceClaimStatus": {"resourceClaimName": "wait"}}
    pods = (
        pod("named", claim="wait"),
        pod("made", **made),
        pod("extended", **extended),
        pod("both", claim="wait", **made),
        pod("elsewhere", namespace="other", claim="wait"),
        pod("none", resourceClaimStatuses=[{"name": "gpu"}]),
    )
    (found,) = rows(waiting(), pods=pods)
    assert (found.state, found.allocated_at, found.devices) == ("pending", "", ())
    assert found.pods == ("both", "extended", "made", "named")


def test_a_claim_that_is_being_deleted() -> None:
    claim = held("old", {"device": "a"}, pods=("p",))
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (found,) = rows(claim)
    assert found.state == "ending"


def test_the_class_of_an_alternative_and_of_a_request_without_a_class() -> None:
    claim = held("either", {"device": "a", "request": "gpu/small"})
    alternatives = [
        {"name": "large", "deviceClassName": "large"},
        {"name": "small", "deviceClassName": "small"},
    ]
    claim["spec"]["devices"]["requests"] = [
        {"name": "gpu", "firstAvailable": alternatives},
        {"name": "odd", "exactly": {"deviceClassName": ""}},
    ]
    (found,) = rows(claim)
    assert found.device_classes == ("large", "small")
    assert [one.device_class for one in found.devices] == ["small"]


def test_claims_are_sorted_and_filtered() -> None:
    objects = (
        gpu_slice(words.device("a")),
        held("b", {"device": "a"}),
        held("a", {"device": "x", "driver": "nic.example.com"}),
        waiting("c", "team"),
    )

    def names(**chosen: str) -> list[str]:
        return [f"{one.namespace}/{one.name}" for one in rows(*objects, chosen=Chosen(**chosen))]

    assert names() == ["ns/a", "ns/b", "team/c"]
    assert names(namespace="team") == ["team/c"]
    assert names(node="fleet-1") == ["ns/b"]
    assert names(driver="nic.example.com") == ["ns/a"]


def test_only_claims_with_a_label() -> None:
    labelled = waiting()
    labelled["metadata"]["labels"] = {"app": "train"}
    chosen = Chosen(labels=parse_selector("app=train"))
    assert [one.name for one in rows(labelled, waiting("other"), chosen=chosen)] == ["wait"]


def test_a_claim_of_a_pod_group_is_told_with_the_group_and_its_pods() -> None:
    claim = held("gang", {"device": "a"})
    claim["status"]["reservedFor"] = [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "pg", "uid": "g"}
    ]
    member = pod("w0", node="n1", claim="gang")
    late = pod("w1", claim="gang")
    for one in (member, late):
        one["spec"]["schedulingGroup"] = {"podGroupName": "pg"}
    (found,) = rows(claim, pods=(member, late))
    assert (found.pod_groups, found.pods, found.nodes) == (("pg",), ("w0",), ("n1",))
    (alone,) = rows(claim, pods=(late,))
    assert (alone.pod_groups, alone.pods) == (("pg",), ())
