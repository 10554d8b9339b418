# SPDX-License-Identifier: Apache-2.0
"""What was meant by the name of a claim or template that does not exist, and at what cost?"""

import msgspec
import pytest

from dra_driver.explain.subject import wanted
from dra_driver.explain.subject.wanted import Known
from dra_driver.explain.verdict import TemplateMissing
from dra_driver.model.cluster import ClusterState


def known(*names: str) -> Known:
    """A cluster with claims and templates of these names, in each of two namespaces."""
    made = [
        {"metadata": {"name": name, "namespace": namespace}}
        for name in names
        for namespace in ("ns", "other")
    ]
    cluster = {"resourceClaims": made, "resourceClaimTemplates": made}
    return Known(msgspec.convert(cluster, ClusterState))


def near(cluster: Known, name: str, namespace: str = "ns") -> str:
    found = cluster.no_template(namespace, name)
    assert isinstance(found, TemplateMissing)
    assert cluster.no_template(namespace, name) is found
    (problem,) = cluster.claim(namespace, name).problems
    assert getattr(problem, "near") == found.near  # noqa: B009  a union of verdicts
    return found.near


def test_a_similar_name_of_the_namespace_is_offered() -> None:
    cluster = known("one-gpu", "two-gpus")
    assert near(cluster, "onegpu") == "one-gpu"
    assert near(cluster, "nothing") == ""


def test_what_the_names_of_one_namespace_cost_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = known("one-gpu", "two-gpus")
    cost = 2 * (len("one-gpu") + len("two-gpus") + 2 * len("onegpu"))  # once for a claim
    monkeypatch.setattr(wanted, "_MOST_COMPARED", cost)
    assert near(cluster, "onegpu") == "one-gpu"
    assert near(cluster, "twogpu") == near(cluster, "twogpus") == ""
    # What is not compared costs nothing, and nothing is taken from another namespace.
    assert near(cluster, "missing", "none") == ""
    assert near(cluster, "onegpu", "other") == "one-gpu"


def test_longer_names_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wanted, "_MOST_COMPARED", 60)
    assert near(known("a-gpu"), "a-gpus") == "a-gpu"
    assert near(known("a" * 30), "a" * 31) == ""


def test_who_has_no_turn_compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wanted, "_MOST_COMPARED", 100)
    cluster = known("one-gpu")
    for number in range(100):
        cluster.no_template("ns", f"onegpu{number}", asks=False)
        cluster.claim("ns", f"onegpu{number}", asks=False)
    assert near(cluster, "onegpu") == "one-gpu"
