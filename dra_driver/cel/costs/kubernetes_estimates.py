# SPDX-License-Identifier: Apache-2.0
"""How much does a call of a Kubernetes library function cost at most?

The rules depend only on the name of the function. So they also apply to a function of cel-go with the same name. A changed
rule would change what the API server accepts, so Kubernetes rarely changes one between releases.
Source: k8s.io/apiserver pkg/cel/library/cost.go.
"""

from dra_driver.cel.costs.bounds import LARGEST, ONE, ZERO, Bounds, fixed, quotient, wrapped
from dra_driver.cel.costs.call_estimates import (
    NEW_LIST,
    TRAVERSAL,
    CallEstimate,
    CallSite,
    Operand,
    Rule,
    search,
)
from dra_driver.cel.costs.sizes import Path
from dra_driver.cel.syntax.ast import Constant
from dra_driver.cel.types import Kind
from dra_driver.cel.versions import Environment

_AUTHORIZATION_CHECK = 350_000
_MOST_INCLUDED = 48  # The API allows this many entries in a list attribute.
# The cost factor of the longest pattern of a named format, which has 128 characters.
_FORMAT_PATTERN = 32.0
_LONGEST_FORMAT = 64
_IP_BYTES = Bounds(4, 16)
_AUTHORIZATION_TYPES = ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
_AUTHORIZATION = (
    "serviceAccount", "path", "group", "resource", "subresource", "namespace", "name",
    "allowed", "reason", "error", "errored",
)  # fmt: skip
_ADDRESSES = (
    "masked", "prefixLength", "family", "isUnspecified", "isLoopback",
    "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast",
)  # fmt: skip
_NUMBERS = (
    "sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan",
    "compareTo", "add", "sub", "major", "minor", "patch",
)  # fmt: skip
_URLS_AND_FORMATS = (
    "getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery", "format.named",
)  # fmt: skip


def kubernetes(site: CallSite, environment: Environment) -> CallEstimate | None:
    """Estimate a call by the rules of this Kubernetes release. Returns None if no rule applies."""
    if environment.minor < _RULE_SINCE.get(site.function, 0):
        return None
    if site.overload == _OWN_INCLUDES:
        return CallEstimate(Bounds(0, _MOST_INCLUDED))
    rule = _KUBERNETES.get(site.function)
    return rule(site) if rule is not None else None


def _nominal(site: CallSite) -> CallEstimate:  # noqa: ARG001  the same signature as the other rules
    return CallEstimate(ONE)


def _read(site: CallSite) -> CallEstimate:
    """Estimate a function that parses its argument."""
    return CallEstimate(site.args[0].known_size.scaled(TRAVERSAL))


def _read_twice(site: CallSite) -> CallEstimate:
    return CallEstimate(site.args[0].known_size.scaled(2 * TRAVERSAL))


def _ip(site: CallSite) -> CallEstimate:
    return CallEstimate(ONE) if site.overload == "cidr_ip" else _read(site)


def _transformed(site: CallSite) -> CallEstimate:
    size = site.first.known_size
    return CallEstimate(size.scaled(TRAVERSAL), size)


def _over_elements(site: CallSite) -> CallEstimate:
    """Estimate a function that compares each element once; strings cost extra by length. A string target is read once."""
    target = site.first
    element = _element(target)
    if element is not None:
        each = ONE
        if element.type.kind in {Kind.STRING, Kind.BYTES}:
            each += element.known_size.scaled(TRAVERSAL)
        return CallEstimate(target.known_size * each)
    if site.function == "includes":
        return CallEstimate(target.known_size)
    return CallEstimate(target.known_size.scaled(TRAVERSAL))


def _element(operand: Operand) -> Operand | None:
    """Return an operand that represents any element of the list. Returns None if the element type is unknown."""
    if not operand.type.parameters:
        return None
    path = None if operand.path is None else Path(*operand.path.names, "@items")
    return Operand(None, operand.type.parameters[0], path, None)


def _replace(site: CallSite) -> CallEstimate:
    size, old, new = (operand.known_size for operand in (site.first, *site.args[:2]))
    retained_most = most = retained_least = least = 0
    if old.low == 0:  # Replacing "" inserts the new text before, between and after all characters.
        most, retained_most = min(size.high + 1, LARGEST), size.high
    elif new.high <= old.low:
        retained_most = size.high
    else:
        most = quotient(size.high, old.low)
    if old.high == 0:
        least, retained_least = min(size.low + 1, LARGEST), size.low
    elif old.high <= new.low:
        retained_least = size.low
    else:
        least = quotient(size.low, old.high)
    result = Bounds(least, most) * new + Bounds(retained_least, retained_most)
    return CallEstimate(size.scaled(2 * TRAVERSAL), result)


def _split(site: CallSite) -> CallEstimate:
    size = site.first.known_size
    most = size.high
    limit = site.args[1].expr if len(site.args) > 1 else None
    if isinstance(limit, Constant) and type(limit.value) is int:
        most = wrapped(limit.value)
    return CallEstimate(size.scaled(2 * TRAVERSAL), Bounds(0, most))


def _join(site: CallSite) -> CallEstimate:
    count = site.first.known_size
    element = _element(site.first)
    size = count * element.known_size if element is not None else ZERO
    if site.args:
        separators = Bounds(max(count.low - 1, 0), max(count.high - 1, 0))
        size += site.args[0].known_size * separators
    return CallEstimate(size.scaled(TRAVERSAL), size)


def _find(site: CallSite) -> CallEstimate:
    size = site.first.known_size
    return CallEstimate(search(size, site.args[0].known_size), Bounds(0, size.high))


def _contains_address(site: CallSite) -> CallEstimate:
    cost = (_IP_BYTES + _IP_BYTES).scaled(TRAVERSAL)
    if site.function == "containsCIDR":
        cost += _IP_BYTES.scaled(TRAVERSAL) + ONE
    if site.overload.endswith("_string"):
        cost += site.args[0].known_size.scaled(TRAVERSAL)
    return CallEstimate(cost)


def _validate(site: CallSite) -> CallEstimate:
    once = site.args[0].known_size.scaled(TRAVERSAL)
    return CallEstimate(once.scaled(_FORMAT_PATTERN))


def _equals(site: CallSite) -> CallEstimate | None:
    left, right = site.args
    if left.type != right.type:
        return None
    if left.type.name in _COMPARED_AT_ONCE:
        return CallEstimate(ONE)
    if left.type.name == "kubernetes.NamedFormat":
        return CallEstimate(Bounds(1, _LONGEST_FORMAT).scaled(TRAVERSAL))
    if left.type.name == "kubernetes.URL":
        most = 1 if right.size is None else right.size.high
        return CallEstimate(Bounds(1, most).scaled(TRAVERSAL))
    return None


def _selector(site: CallSite) -> CallEstimate:
    """Estimate the authorizer's fieldSelector or labelSelector, which is parsed into one requirement per two characters."""
    length = site.args[0].known_size
    requirements = length.scaled(0.5).scaled(NEW_LIST + 40.0)
    return CallEstimate(fixed(NEW_LIST) + length.scaled(TRAVERSAL) + requirements)


_OWN_INCLUDES = "dra_includes_dyn_dyn"  # Only 1.36 has this overload.
_RULE_SINCE = dict.fromkeys(("semver", "isSemver", "major", "minor", "patch"), 33) | {
    "includes": 36
}
_COMPARED_AT_ONCE = frozenset(
    {"net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"}
    | {f"kubernetes.authorization.{name}" for name in _AUTHORIZATION_TYPES}
)


def _rules(rule: Rule, *functions: str) -> dict[str, Rule]:
    return dict.fromkeys(functions, rule)


_KUBERNETES: dict[str, Rule] = {
    **_rules(_nominal, *_AUTHORIZATION, *_ADDRESSES, *_NUMBERS, *_URLS_AND_FORMATS),
    **_rules(_over_elements, "isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"),
    **_rules(_read, "cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"),
    **_rules(
        _transformed, "lowerAscii", "upperAscii", "substring", "trim", "url", "jsonpatch.escapeKey"
    ),
    **_rules(_find, "find", "findAll"),
    **_rules(_contains_address, "containsIP", "containsCIDR"),
    **_rules(_selector, "fieldSelector", "labelSelector"),
    "ip": _ip,
    "ip.isCanonical": _read_twice,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "validate": _validate,
    "_==_": _equals,
    "check": lambda _: CallEstimate(fixed(_AUTHORIZATION_CHECK)),
}
