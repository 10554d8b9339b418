# SPDX-License-Identifier: Apache-2.0
"""What was meant by the name of a claim or template that does not exist, and at what cost?"""

import msgspec
import pytest

from dra_driver.explain.subject import wanted
from dra_driver.explain.subject.wanted import Known
from dra_driver.explain.verdict import TemplateMissing
from dra_driver.model.cluster import ClusterState


def known(*names: str) -> Known:
    """A cluster with claims and templates of these names."""
    made = [{"metadata": {"name": name, "namespace": "ns"}} for name in names]
    cluster = {"resourceClaims": made, "resourceClaimTemplates": made}
    return Known(msgspec.convert(cluster, ClusterState))


def near(cluster: Known, name: str) -> str:
    found = cluster.no_template("ns", name)
    assert isinstance(found, TemplateMissing)
    assert cluster.no_template("ns", name) is found
    (problem,) = cluster.claim("ns", name).problems
    assert getattr(problem, "near") == found.near  # noqa: B009  a union of verdicts
    return found.near


def test_a_similar_name_of_the_namespace_is_offered() -> None:
    cluster = known("one-gpu", "two-gpus")
    assert near(cluster, "onegpu") == "one-gpu"
    assert near(cluster, "other") == ""


def test_a_very_long_name_is_compared_with_nothing() -> None:
    longest = "a" * wanted._LONGEST_NAME
    assert near(known(longest), longest[1:]) == longest
    assert near(known(longest), f"{longest}b") == ""
    assert near(known(f"{longest}b"), longest) == ""


def test_what_all_names_together_cost_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def likely(_name: str, there: list[str]) -> str:
        nonlocal compared
        compared += len(there)
        return ""

    monkeypatch.setattr(wanted, "likely", likely)
    cluster = known(*(f"name-{number}" for number in range(100)))
    for number in range(1000):
        near(cluster, f"missing-{number}")
    assert compared == wanted._MOST_COMPARED
