# SPDX-License-Identifier: Apache-2.0
"""An object that does not exist: what the message offers instead."""

import msgspec
import pytest

from dra_driver.errors import Permanent
from dra_driver.explain.subject.lookup import Cluster, meant, named
from dra_driver.explain.subject.subject import PodSubject
from dra_driver.model.cluster import ClusterState

STATE = msgspec.convert(
    {"pods": [{"metadata": {"name": "trainer-0", "namespace": "ns"}}]}, ClusterState
)


@pytest.mark.parametrize(
    ("name", "namespace", "recorded", "said"),
    [
        ("trainr-0", "ns", False, "in this cluster: did you mean trainer-0?"),
        ("trainr-0", "ns", True, "in the record: did you mean trainer-0?"),
        ("trainr-0", "other", True, "in the record: it has ns/trainer-0"),
        ("x", "ns", True, "in the record: it has ns/trainer-0"),
        ("x", "ns", False, "in this cluster: look with `kubectl get pods --all-namespaces`"),
        ("trainer-0", "other", False, "in this cluster: there is one in ns: give it with -n"),
        ("trainer-0", "other", True, "in the record: there is one in ns: give it with -n"),
    ],
)
def test_the_message_names_what_was_probably_meant(
    name: str, namespace: str, said: str, *, recorded: bool
) -> None:
    with pytest.raises(Permanent) as caught:
        named(STATE.pods, PodSubject(namespace, name), "pod", Cluster(STATE, recorded))
    assert f"there is no pod {namespace}/{name} {said}" in str(caught.value)


def test_of_many_namespaces_with_that_name_a_few_are_told() -> None:
    pods = [{"metadata": {"name": "p", "namespace": f"ns-{number}"}} for number in range(6)]
    state = msgspec.convert({"pods": pods}, ClusterState)
    with pytest.raises(Permanent, match=r"there is one in ns-0, ns-1, ns-2, ns-3, … \(6\): give"):
        named(state.pods, PodSubject("default", "p"), "pod", Cluster(state, recorded=True))


def test_only_a_very_similar_name_is_offered() -> None:
    assert meant("worker-1", ["trainer-1", "x"]) == ""
