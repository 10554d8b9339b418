# SPDX-License-Identifier: Apache-2.0
"""Is a device meant for this node?

A slice, or each of its devices, names one node, or selects nodes by their labels and fields, or is there for all.
A selector is a list of terms of which one must hold; all requirements of a term must hold; an empty term selects nothing.
Source: k8s.io/component-helpers scheduling/corev1/nodeaffinity and k8s.io/apimachinery pkg/labels.
"""

import re
from collections.abc import Iterator, Mapping

from dra_driver.allocator.failures import AllocationError
from dra_driver.model.api.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LIMITS = range(-(2**63), 2**63)
_LABEL_LENGTH, _DOMAIN_LENGTH = 63, 253
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")
_ANY = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"


def node_matches(
    node: Node, node_name: str | None, *, all_nodes: bool | None, selector: NodeSelector | None
) -> bool:
    """Whether what has these three fields is there for the node; an error if the selector is malformed."""
    if node_name:
        return node.metadata.name == node_name
    if all_nodes:
        return True
    return selector is not None and selector_matches(node, selector)


def selector_matches(node: Node, selector: NodeSelector) -> bool:
    """Whether the selector has the node; an error if it is malformed."""
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
    number = None if found is None else _integer(found)
    if number is None:
        return False
    return number > int(values[0]) if operator == "Gt" else number < int(values[0])


def _integer(text: str) -> int | None:
    if _INTEGER.fullmatch(text) and int(text) in _LIMITS:
        return int(text)
    return None


def _field_holds(name: str, requirement: NodeSelectorRequirement) -> bool:
    found = name if requirement.key == "metadata.name" else ""
    wanted = (requirement.values or [""])[0]
    return (found == wanted) == (requirement.operator == "In")


def selector_problems(selector: NodeSelector) -> Iterator[str]:
    """What makes the selector malformed; an API server lets none of it pass."""
    for number, term in enumerate(selector.node_selector_terms or ()):
        path = f"nodeSelectorTerms[{number}]"
        for index, part in enumerate(term.match_expressions or ()):
            yield from _label_problems(part, f"{path}.matchExpressions[{index}]")
        for index, part in enumerate(term.match_fields or ()):
            yield from _field_problems(part, f"{path}.matchFields[{index}]")


def _label_problems(part: NodeSelectorRequirement, path: str) -> Iterator[str]:
    if part.operator not in _OPERATORS:
        yield _unsupported(part.operator, _OPERATORS, path)
        return
    found = [*_key_problems(part.key, path), *_count_problems(part, path)]
    found += _value_problems(part.values or [], path)
    if found:
        yield found[0] if len(found) == 1 else f"[{', '.join(found)}]"


def _key_problems(key: str, path: str) -> Iterator[str]:
    domain, slash, name = key.rpartition("/")
    if (
        not _NAME.fullmatch(name)
        or len(name) > _LABEL_LENGTH
        or (slash and not (_DOMAIN.fullmatch(domain) and len(domain) <= _DOMAIN_LENGTH))
    ):
        yield f"{path}.key: Invalid value: {_quoted(key)}: it must be a qualified name: [domain/]name"


def _count_problems(part: NodeSelectorRequirement, path: str) -> Iterator[str]:
    values = part.values or []
    shown = "[" + ",".join(map(_quoted, values)) + "]" if part.values is not None else "null"
    invalid = f"{path}.values: Invalid value: {shown}:"
    if part.operator in ("In", "NotIn") and not values:
        yield f"{invalid} for 'in', 'notin' operators, values set can't be empty"
    if part.operator in ("Exists", "DoesNotExist") and values:
        yield f"{invalid} values set must be empty for exists and does not exist"
    if part.operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield f"{invalid} for 'Gt', 'Lt' operators, exactly one value is required"
        for index, value in enumerate(values):
            if _integer(value) is None:
                yield (
                    f"{path}.values[{index}]: Invalid value: {_quoted(value)}:"
                    " for 'Gt', 'Lt' operators, the value must be an integer"
                )


def _value_problems(values: list[str], path: str) -> Iterator[str]:
    for index, value in enumerate(values):
        if value and (len(value) > _LABEL_LENGTH or not _NAME.fullmatch(value)):
            yield f"{path}.values[{index}]: Invalid value: {_quoted(value)}: {_ANY}"


def _field_problems(part: NodeSelectorRequirement, path: str) -> Iterator[str]:
    if part.operator not in _FIELD_OPERATORS:
        yield _unsupported(part.operator, _FIELD_OPERATORS, path)
    elif len(part.values or ()) != 1:
        shown = "[" + ",".join(map(_quoted, part.values or ())) + "]"
        shown = shown if part.values is not None else "null"
        yield f"{path}.values: Invalid value: {shown}: must have one element"


def _unsupported(operator: str, known: tuple[str, ...], path: str) -> str:
    names = ", ".join(map(_quoted, known))
    return f"{path}.operator: Unsupported value: {_quoted(operator)}: supported values: {names}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _as_go(selector: NodeSelector) -> str:
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
