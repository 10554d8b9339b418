# SPDX-License-Identifier: Apache-2.0
"""Why is a node selector invalid? The messages are the same as in Kubernetes, byte for byte.

An API server refuses a ResourceSlice with such a selector. So the messages only appear for objects from another source,
for example from a file.
Source: k8s.io/component-helpers scheduling/corev1/nodeaffinity, k8s.io/apimachinery pkg/labels (NewRequirement).
"""

import re
from collections.abc import Iterator

from dra_driver.model.api.core import NodeSelector, NodeSelectorRequirement

_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL_LENGTH, _DOMAIN_LENGTH = 63, 253
_INTEGER = re.compile(r"[+-]?[0-9]+")
_LIMITS = range(-(2**63), 2**63)
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")

_CHARACTERS = "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
_MUST = (
    f"must {_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc',"
    f" regex used for validation is '{_NAME}')"
)
_KEY = f"a valid label key {_MUST}"
_VALUE = (
    f"a valid label must be an empty string or {_CHARACTERS} (e.g. 'MyValue',  or 'my_value',  or '12345',"
    f" regex used for validation is '({_NAME})?')"
)
_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character (e.g. 'example.com'"
)


def selector_problems(selector: NodeSelector) -> Iterator[str]:
    """Yield one message for each invalid requirement of the selector."""
    for number, term in enumerate(selector.node_selector_terms or ()):
        path = f"nodeSelectorTerms[{number}]"
        for index, part in enumerate(term.match_expressions or ()):
            yield from _label_problems(part, f"{path}.matchExpressions[{index}]")
        for index, part in enumerate(term.match_fields or ()):
            yield from _field_problems(part, f"{path}.matchFields[{index}]")


def _label_problems(part: NodeSelectorRequirement, path: str) -> Iterator[str]:
    # NewRequirement returns at once for an unknown operator. The other problems come as one aggregate error.
    if part.operator not in _OPERATORS:
        yield _unsupported(part.operator, _OPERATORS, path)
        return
    found = [*_key_problems(part.key, path), *_count_problems(part, path)]
    found += _value_problems(part, path)
    if found:
        yield found[0] if len(found) == 1 else f"[{', '.join(found)}]"


def _key_problems(key: str, path: str) -> Iterator[str]:
    *prefix, name = key.split("/")
    # IsQualifiedName returns at once if the key has two slashes. Otherwise it reports the problems of both parts.
    if len(prefix) > 1:
        found = [
            f"{_KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    else:
        found = [f"prefix part {problem}" for part in prefix for problem in _domain_problems(part)]
        found += [f"name part {problem}" for problem in _name_problems(name)]
    if found:
        yield f"{path}.key: Invalid value: {quoted(key)}: {'; '.join(found)}"


def _domain_problems(domain: str) -> Iterator[str]:
    if not domain:
        yield "must be non-empty"
        return
    yield from _too_long(domain, _DOMAIN_LENGTH)
    if not re.fullmatch(_DOMAIN, domain):
        yield f"{_SUBDOMAIN}, regex used for validation is '{_DOMAIN}')"


def _name_problems(name: str) -> Iterator[str]:
    if not name:
        yield "must be non-empty"
    yield from _too_long(name, _LABEL_LENGTH)
    if not re.fullmatch(_NAME, name):
        yield _MUST


def _too_long(text: str, most: int) -> Iterator[str]:
    if len(text.encode()) > most:
        yield f"must be no more than {most} bytes"


def _count_problems(part: NodeSelectorRequirement, path: str) -> Iterator[str]:
    values = part.values or []
    shown = "[" + ",".join(map(quoted, values)) + "]" if part.values is not None else "null"
    invalid = f"{path}.values: Invalid value: {shown}:"
    if part.operator in ("In", "NotIn") and not values:
        yield f"{invalid} for 'in', 'notin' operators, values set can't be empty"
    if part.operator in ("Exists", "DoesNotExist") and values:
        yield f"{invalid} values set must be empty for exists and does not exist"
    if part.operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield f"{invalid} for 'Gt', 'Lt' operators, exactly one value is required"
        for index, value in enumerate(values):
            if integer(value) is None:
                yield (
                    f"{path}.values[{index}]: Invalid value: {quoted(value)}:"
                    " for 'Gt', 'Lt' operators, the value must be an integer"
                )


def _value_problems(part: NodeSelectorRequirement, path: str) -> Iterator[str]:
    for index, value in enumerate(part.values or ()):
        found = list(_too_long(value, _LABEL_LENGTH))
        if not re.fullmatch(f"({_NAME})?", value):
            found.append(_VALUE)
        if found:
            where = f"{path}.values[{index}][{part.key}]"
            yield f"{where}: Invalid value: {quoted(value)}: {'; '.join(found)}"


def _field_problems(part: NodeSelectorRequirement, path: str) -> Iterator[str]:
    if part.operator not in _FIELD_OPERATORS:
        yield _unsupported(part.operator, _FIELD_OPERATORS, path)
    elif len(part.values or ()) != 1:
        shown = "[" + ",".join(map(quoted, part.values or ())) + "]"
        shown = shown if part.values is not None else "null"
        yield f"{path}.values: Invalid value: {shown}: must have one element"


def _unsupported(operator: str, known: tuple[str, ...], path: str) -> str:
    names = ", ".join(map(quoted, known))
    return f"{path}.operator: Unsupported value: {quoted(operator)}: supported values: {names}"


def integer(text: str) -> int | None:
    """Parse the text as a 64-bit integer (strconv.ParseInt). None if the text is no such integer."""
    if _INTEGER.fullmatch(text) and int(text) in _LIMITS:
        return int(text)
    return None


def quoted(text: str) -> str:
    """Return the text in double quotes. Backslashes and double quotes in the text are escaped."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
