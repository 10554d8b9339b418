# SPDX-License-Identifier: Apache-2.0
"""Which nodes are meant."""

from typing import Any

import msgspec
import pytest

from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.nodes import node_matches, selector_matches
from dra_driver.model.api.core import Node, NodeSelector

NODE = msgspec.convert(
    {"metadata": {"name": "node-1", "labels": {"zone": "west", "rank": "5"}}}, Node
)


def selector(*terms: dict[str, Any]) -> NodeSelector:
    return msgspec.convert({"nodeSelectorTerms": terms}, NodeSelector)


def labels(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}


def fields(key: str, operator: str, value: str) -> dict[str, Any]:
    return {"matchFields": [{"key": key, "operator": operator, "values": [value]}]}


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        (labels("zone", "In", "west", "east"), True),
        (labels("zone", "In", "east"), False),
        (labels("absent", "In", "east"), False),
        (labels("zone", "NotIn", "west"), False),
        (labels("absent", "NotIn", "west"), True),
        (labels("zone", "Exists"), True),
        (labels("absent", "Exists"), False),
        (labels("zone", "DoesNotExist"), False),
        (labels("absent", "DoesNotExist"), True),
        (labels("rank", "Gt", "4"), True),
        (labels("rank", "Gt", "5"), False),
        (labels("rank", "Lt", "6"), True),
        (labels("rank", "Lt", "5"), False),
        (labels("zone", "Gt", "4"), False),
        (labels("absent", "Lt", "4"), False),
        (fields("metadata.name", "In", "node-1"), True),
        (fields("metadata.name", "NotIn", "node-1"), False),
        (fields("spec.unknown", "NotIn", "node-1"), True),
        (fields("spec.unknown", "In", ""), True),
        ({**labels("zone", "Exists"), **fields("metadata.name", "In", "node-2")}, False),
        ({}, False),
    ],
)
def test_each_operator_matches_as_kubernetes_matches(term: dict[str, Any], matches: bool) -> None:
    assert selector_matches(NODE, selector(term)) is matches


def test_one_term_suffices_and_none_matches_nothing() -> None:
    terms = labels("absent", "Exists"), labels("zone", "Exists")
    assert selector_matches(NODE, selector(*terms))
    assert not selector_matches(NODE, selector())
    assert not selector_matches(NODE, NodeSelector())


def test_fields_of_a_node_without_a_name_are_not_looked_at() -> None:
    assert selector_matches(Node(), selector(fields("metadata.name", "In", "node-1")))


def test_the_name_goes_before_all_nodes_and_these_before_the_selector() -> None:
    nowhere = selector()
    assert node_matches(NODE, "node-1", all_nodes=False, selector=nowhere)
    assert not node_matches(NODE, "node-2", all_nodes=True, selector=nowhere)
    assert node_matches(NODE, "", all_nodes=True, selector=nowhere)
    assert node_matches(NODE, None, all_nodes=None, selector=selector(labels("zone", "Exists")))
    assert not node_matches(NODE, None, all_nodes=None, selector=None)


def test_a_malformed_selector_is_shown_as_go_shows_it() -> None:
    wrong = selector(labels("zone", "Near", "west"), fields("metadata.name", "In", "node-1"))
    with pytest.raises(AllocationError) as caught:
        selector_matches(NODE, wrong)
    assert str(caught.value) == (
        "failed to parse node selector &NodeSelector{NodeSelectorTerms:[]NodeSelectorTerm{"
        "NodeSelectorTerm{MatchExpressions:[]NodeSelectorRequirement{NodeSelectorRequirement{"
        "Key:zone,Operator:Near,Values:[west],},},MatchFields:[]NodeSelectorRequirement{},},"
        "NodeSelectorTerm{MatchExpressions:[]NodeSelectorRequirement{},"
        "MatchFields:[]NodeSelectorRequirement{NodeSelectorRequirement{"
        "Key:metadata.name,Operator:In,Values:[node-1],},},},},}:"
        ' nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Near":'
        ' supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
    )


def test_several_problems_are_listed_once_each() -> None:
    twice = selector(labels("zone", "In"), labels("zone", "Near"))
    with pytest.raises(
        AllocationError, match=r": \[nodeSelectorTerms\[0\].*, nodeSelectorTerms\[1\].*\]$"
    ):
        selector_matches(NODE, twice)
