# SPDX-License-Identifier: Apache-2.0
"""What does the user lack, and which role gives it?"""

from typing import Any

import pytest

from dra_driver.model.api.core import NodeSelector
from dra_driver.model.api.resource_slice import (
    Device,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.overview.part import Gap
from dra_driver.overview.rights import forbidden as unreadable
from dra_driver.overview.rights import gaps_of, needed, not_whole, nothing_served


def gaps(command: str, *found: NotRead, namespace: str = "") -> tuple[Gap, ...]:
    return gaps_of(ClusterState(not_read=found), command, namespace=namespace)


def forbidden(resource: str, **more: str) -> NotRead:
    return NotRead(resource=resource, reason="forbidden", message="no", **more)


@pytest.mark.parametrize("command", ["devices", "claims", "free", "usage"])
def test_only_what_the_command_needs_is_told(command: str) -> None:
    assert gaps(command, forbidden("/metrics"), forbidden("namespaces")) == ()
    (found,) = gaps(command, forbidden("resourceslices"))
    assert (found.verb, found.resource, found.message, found.role) == (
        "list",
        "resourceslices",
        "no",
        "user-cluster",
    )


def test_what_the_answer_lacks() -> None:
    claims, nodes = gaps("devices", forbidden("resourceclaims"), forbidden("nodes"))
    assert (claims.lacks, claims.role) == ("who has the devices, and so which are free", "explain")
    assert (nodes.lacks, nodes.role) == (
        "which nodes are cordoned, and the nodes of devices with a node selector",
        "explain",
    )


def test_what_is_watched_is_what_the_answer_needs_and_the_user_may_read() -> None:
    assert needed("usage of nodes") - needed("usage") == {"pods", "nodes"}
    in_one = forbidden("pods", only_namespace="team")
    one_claim = forbidden("resourceclaims", name="ns/x")
    silent = NotRead(resource="deviceclasses", reason="timeout", message="no")
    found = ClusterState(not_read=(forbidden("nodes"), in_one, one_claim, silent))
    assert unreadable(found) == {"nodes"}
    assert not_whole(found) == {("nodes", ""), ("pods", "team"), ("deviceclasses", "")}


def test_an_object_that_cannot_be_read_needs_no_right() -> None:
    bad = NotRead(resource="resourceclaims", reason="malformed", name="ns/x", message="m")
    assert gaps("claims", bad) == (
        Gap(
            verb="list",
            resource="resourceclaims",
            name="ns/x",
            message="m",
            lacks="this claim, and that it has its devices",
            role="",
        ),
    )


@pytest.mark.parametrize("command", ["claims", "usage", "usage of nodes"])
def test_who_asks_about_one_namespace_needs_no_right_for_all(command: str) -> None:
    there = forbidden("resourceclaims", only_namespace="team")
    assert gaps(command, there, namespace="team") == ()
    assert [one.role for one in gaps(command, there, namespace="other")] == ["user"]
    (all_of_them,) = gaps(command, there)
    assert all_of_them.role == "explain"
    assert all_of_them.lacks == "the claims, but for what namespace team has of them"
    none = forbidden("resourceclaims")
    (nothing,) = gaps(command, none, namespace="team")
    assert (nothing.lacks, nothing.role) == ("the claims", "user")


def test_pods_and_nodes_matter_for_usage_only_by_node() -> None:
    unread = forbidden("pods"), forbidden("nodes")
    assert gaps("usage", *unread) == ()
    assert [one.resource for one in gaps("usage of nodes", *unread)] == ["pods"]


@pytest.mark.parametrize("command", ["claims", "usage of nodes"])
@pytest.mark.parametrize(
    "spec",
    [
        {"node_selector": NodeSelector()},
        {"devices": (Device(name="a"), Device(name="b", node_selector=NodeSelector()))},
    ],
)
def test_nodes_matter_for_claims_only_where_a_slice_selects_them(
    command: str, spec: dict[str, Any]
) -> None:
    pool = ResourcePool(name="p")
    chosen = ResourceSlice(spec=ResourceSliceSpec(driver="d", pool=pool, **spec))
    named = ResourceSlice(spec=ResourceSliceSpec(driver="d", pool=pool, node_name="n"))
    each = ResourceSliceSpec(
        driver="d",
        pool=pool,
        per_device_node_selection=True,
        devices=(Device(name="a", node_name="n"),),
    )
    themselves = ResourceSlice(spec=each)
    for slices, expected in (((named, themselves), 0), ((named, chosen), 1)):
        state = ClusterState(resource_slices=slices, not_read=(forbidden("nodes"),))
        assert len(gaps_of(state, command)) == expected


def test_nothing_is_served() -> None:
    assert nothing_served(ClusterState()) is None
    slices = NotRead("resourceslices", "not_served", message="none")
    assert nothing_served(ClusterState(not_read=(slices,))) == slices
    group = NotRead("resource.k8s.io", "not_served", message="404")
    assert nothing_served(ClusterState(not_read=(group, slices))) == slices
    failed = NotRead("resource.k8s.io", "failed", message="500")
    assert nothing_served(ClusterState(not_read=(failed, slices))) == failed
    assert nothing_served(ClusterState(not_read=(forbidden("resourceslices"),))) is None


def test_the_version_of_a_cluster_that_serves_nothing_lacks_nothing() -> None:
    slices = NotRead("resourceslices", "not_served", message="none")
    group = NotRead("resource.k8s.io", "not_served", message="404")
    assert gaps("version", group, slices) == ()
    (found,) = gaps_of(ClusterState(served=("v1alpha3",), not_read=(slices,)), "version")
    assert (found.lacks, found.role) == ("the drivers", "")
    failed = NotRead("resource.k8s.io", "forbidden", message="403")
    (found,) = gaps("version", failed, slices)
    assert (found.lacks, found.role) == ("its versions, and the drivers", "")


def test_devices_are_asked_for_in_the_whole_cluster() -> None:
    there = forbidden("resourceclaims", only_namespace="team")
    assert [one.role for one in gaps("devices", there, namespace="team")] == ["explain"]
