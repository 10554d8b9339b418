# SPDX-License-Identifier: Apache-2.0
"""Can this node use a device or a slice?

A slice, or each device in it, has nodeName, nodeSelector or allNodes. A node selector has a list of terms; a node
matches if it matches one of them. A node matches a term if it matches all requirements. A term without requirements
matches no node.
Source: k8s.io/component-helpers scheduling/corev1/nodeaffinity and k8s.io/apimachinery pkg/labels.
"""

from collections.abc import Mapping

from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.node_problems import integer, selector_problems
from dra_driver.model.api.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm


def node_matches(
    node: Node, node_name: str | None, *, all_nodes: bool | None, selector: NodeSelector | None
) -> bool:
    """Return whether the node can use an object with these three fields. Raises AllocationError if the selector is invalid."""
    if node_name:
        return node.metadata.name == node_name
    if all_nodes:
        return True
    return selector is not None and selector_matches(node, selector)


def selector_matches(node: Node, selector: NodeSelector) -> bool:
    """Return whether the node matches the selector. Raises AllocationError if the selector is invalid."""
    problems = list(selector_problems(selector))
    if problems:
        unique = list(dict.fromkeys(problems))
        text = unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
        raise AllocationError(f"failed to parse node selector {_as_go(selector)}: {text}")
    return any(_term_holds(node, term) for term in selector.node_selector_terms or ())


def _term_holds(node: Node, term: NodeSelectorTerm) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    labels = node.metadata.labels or {}
    if not all(_label_holds(labels, part) for part in term.match_expressions or ()):
        return False
    # nodeaffinity skips match_fields for a node without a name.
    return not node.metadata.name or all(
        _field_holds(node.metadata.name, part) for part in term.match_fields or ()
    )


def _label_holds(labels: Mapping[str, str], requirement: NodeSelectorRequirement) -> bool:
    found = labels.get(requirement.key)
    operator, values = requirement.operator, requirement.values or []
    if operator in ("In", "NotIn"):
        return (found in values) == (operator == "In")
    if operator in ("Exists", "DoesNotExist"):
        return (found is not None) == (operator == "Exists")
    # A label that is no integer does not match Gt or Lt. That is no error (Requirement.Matches).
    number = None if found is None else integer(found)
    if number is None:
        return False
    return number > int(values[0]) if operator == "Gt" else number < int(values[0])


def _field_holds(name: str, requirement: NodeSelectorRequirement) -> bool:
    found = name if requirement.key == "metadata.name" else ""
    wanted = (requirement.values or [""])[0]
    return (found == wanted) == (requirement.operator == "In")


def _as_go(selector: NodeSelector) -> str:
    # Kubernetes' error message has the selector as its generated String() method writes it.
    terms = "".join(
        f"NodeSelectorTerm{{MatchExpressions:{_requirements_as_go(term.match_expressions)},"
        f"MatchFields:{_requirements_as_go(term.match_fields)},}},"
        for term in selector.node_selector_terms or ()
    )
    return f"&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{terms}}},}}"


def _requirements_as_go(requirements: list[NodeSelectorRequirement] | None) -> str:
    parts = "".join(
        f"NodeSelectorRequirement{{Key:{part.key},Operator:{part.operator},"
        f"Values:[{' '.join(part.values or ())}],}},"
        for part in requirements or ()
    )
    return f"[]NodeSelectorRequirement{{{parts}}}"
