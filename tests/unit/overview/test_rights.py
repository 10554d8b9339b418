# SPDX-License-Identifier: Apache-2.0
"""What does the user lack, and which role gives it?"""

import pytest

from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.overview.part import Gap
from dra_driver.overview.rights import gaps_of


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
    (unknown,) = gaps(command, NotRead(resource="resource.k8s.io", reason="failed", message="m"))
    assert (unknown.lacks, unknown.role) == ("everything", "")


def test_what_the_answer_lacks() -> None:
    claims, nodes = gaps("devices", forbidden("resourceclaims"), forbidden("nodes"))
    assert (claims.lacks, claims.role) == ("who has the devices, and so which are free", "explain")
    assert (nodes.lacks, nodes.role) == ("the nodes of devices with a node selector", "explain")


def test_an_object_that_cannot_be_read_needs_no_right() -> None:
    bad = NotRead(resource="resourceclaims", reason="malformed", name="ns/x", message="m")
    assert gaps("claims", bad) == (
        Gap(
            verb="list",
            resource="resourceclaims",
            name="ns/x",
            message="m",
            lacks="the claims of other namespaces",
            role="",
        ),
    )


@pytest.mark.parametrize("command", ["claims", "usage"])
def test_who_asks_about_one_namespace_needs_no_right_for_all(command: str) -> None:
    there = forbidden("resourceclaims", only_namespace="team")
    assert gaps(command, there, namespace="team") == ()
    assert [one.role for one in gaps(command, there, namespace="other")] == ["user"]
    assert [one.role for one in gaps(command, there)] == ["explain"]
    none = forbidden("pods")
    assert [one.role for one in gaps(command, none, namespace="team")] == ["user"]


def test_devices_are_asked_for_in_the_whole_cluster() -> None:
    there = forbidden("resourceclaims", only_namespace="team")
    assert [one.role for one in gaps("devices", there, namespace="team")] == ["explain"]
