# SPDX-License-Identifier: Apache-2.0
"""What does helm make of the ClusterRoles for people? Their rights are compared with what is read in tests/packaging/test_user_roles.py."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import rendering
from tests.e2e.rendering import FOR_PEOPLE, Object, of_kind

pytestmark = pytest.mark.real

OFF = "clusterRoles: {enabled: false}"
ROLES = tuple(end.removeprefix("-") for end in FOR_PEOPLE)


@pytest.fixture
def render(tmp_path: Path) -> Any:
    return partial(rendering.render, tmp_path)


def roles(objects: list[Object]) -> dict[str, Object]:
    """The ClusterRoles for people, by the end of their names."""
    found = {one["metadata"]["name"]: one for one in of_kind(objects, "ClusterRole")}
    return {
        end: found[name] for end in ROLES for name in found if name.endswith(f"dra-driver-{end}")
    }


def test_there_are_four_with_the_labels_of_the_release(render: Any) -> None:
    found = roles(render())
    assert list(found) == list(ROLES)
    for one in found.values():
        assert one["metadata"]["labels"]["app.kubernetes.io/name"] == "dra-driver"
        assert all(rule["verbs"] for rule in one["rules"])


def test_nobody_is_bound_to_them(render: Any) -> None:
    objects = render()
    names = {one["metadata"]["name"] for one in roles(objects).values()}
    bound = {
        one["roleRef"]["name"]
        for kind in ("ClusterRoleBinding", "RoleBinding")
        for one in of_kind(objects, kind)
    }
    assert not names & bound


def test_the_rules_that_roles_share_are_whole(render: Any) -> None:
    found = roles(render())
    for rule in (*found["user"]["rules"], *found["user-cluster"]["rules"]):
        assert rule in found["explain"]["rules"]
    for rule in found["explain"]["rules"]:
        assert rule in found["admin"]["rules"]
    assert {"nonResourceURLs": ["/metrics"], "verbs": ["get"]} in found["explain"]["rules"]


def test_there_are_none_if_somebody_says_no_or_the_cluster_has_no_claims(render: Any) -> None:
    assert roles(render(values=OFF)) == {}
    assert roles(render("--kube-version", "1.30.14")) == {}
