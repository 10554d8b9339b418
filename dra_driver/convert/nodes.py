# SPDX-License-Identifier: Apache-2.0
"""Which of a pod's conditions about its node are about devices, and become selectors of its requests? The others stay in the pod."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct, field

from dra_driver.convert.labels import Condition, of_parent, of_whole, selector
from dra_driver.convert.resources import Choice, NotConverted, Wanted, usual
from dra_driver.model.plugin_resources import is_device_label

Object = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_VENDORS = {"nvidia.com": "nvidia", "amd.com": "amd", "gpu.intel.com": "intel"}
_OF_SEVERAL = "one of several terms has another condition, so none can be taken out; all stay"
_OF_WHOLE_GPU = "it is about the whole GPU, and a part of one does not say how it is; it stays. The profile says the memory of the part"

NO_REQUEST = "no container asks for a device that a claim can have, so there is no request for its selector; it stays"

_CLAIM = "no container asks for a device by a resource, and the pod has a claim: if that is for this device, "


class ChoiceOfNodes(Struct):
    """The selectors for each request, and what stays."""

    selectors: list[list[str]]
    left: list[NotConverted] = field(default_factory=list)


class _Requests(Struct, frozen=True):
    wanted: Sequence[Wanted]
    products: Collection[str]

    def of(self, condition: Condition) -> list[str] | NotConverted:
        """Return the expression for each request, "" for one that needs none; or why the condition stays."""
        vendor = _VENDORS.get(condition.key.partition("/")[0], "")
        found: list[str] = []
        for one in self.wanted:
            if vendor and one.vendor != vendor:
                found.append("")
                continue
            if one.is_part and "memory" in condition.key:
                return NotConverted(str(condition), _OF_WHOLE_GPU)
            asked = of_parent(condition) if one.is_part else condition
            asked = of_whole(asked) if one.shared else asked
            answer = selector(asked, one.driver, self.products)
            if isinstance(answer, NotConverted):
                return answer
            found.append(answer.expression)
        if vendor and not any(one.vendor == vendor for one in self.wanted):
            return NotConverted(
                str(condition), f"no container asks for a device of {vendor}; it stays"
            )
        return found


def choice_of_nodes(
    spec: Object, wanted: Sequence[Wanted], products: Collection[str]
) -> ChoiceOfNodes:
    """Take the conditions about devices out of a pod's spec, and return them as selectors."""
    requests = _Requests(wanted, products)
    found = ChoiceOfNodes([[] for _ in wanted])
    _node_selector(spec, requests, found)
    affinity = inside(inside(spec, "affinity"), "nodeAffinity")
    terms = inside(affinity, _REQUIRED).get("nodeSelectorTerms")
    # An empty list matches no node, and the API server refuses it: it stays.
    if isinstance(terms, list) and len(terms) > 0 and all(isinstance(one, dict) for one in terms):
        _terms(terms, requests, found)
        if not terms:
            _drop_affinity(spec)
    _preferences(affinity, found)
    return found


def inside(content: Mapping[str, Any], name: str) -> Object:
    """Return the mapping in a field; an empty one if there is none."""
    found = content.get(name)
    return found if isinstance(found, dict) else {}


def required_terms(spec: Mapping[str, Any]) -> list[list[Condition]]:
    """Return the conditions of each term of the required node affinity, of which a node needs one."""
    affinity = inside(inside(spec, "affinity"), "nodeAffinity")
    terms = inside(affinity, _REQUIRED).get("nodeSelectorTerms")
    return [
        [condition_of(each) for each in _expressions(one)]
        for one in (terms if isinstance(terms, list) else ())
        if isinstance(one, dict)
    ]


def without_request(spec: Mapping[str, Any]) -> list[NotConverted]:
    """Return the conditions about devices in the spec of a pod that has no request for their selectors."""
    affinity = inside(inside(spec, "affinity"), "nodeAffinity")
    each = [
        *(
            Condition(str(key), "In", (str(value),))
            for key, value in inside(spec, "nodeSelector").items()
        ),
        *chain(*required_terms(spec)),
        *_preferred(affinity),
    ]
    return [
        NotConverted(str(one), why_no_request(spec, one))
        for one in each
        if is_device_label(one.key)
    ]


def why_no_request(spec: Mapping[str, Any], condition: Condition) -> str:
    """Return why a condition stays in a pod that asks for no device by a resource. A claim that its author wrote can have the selector."""
    if not spec.get("resourceClaims"):
        return NO_REQUEST
    vendor = _VENDORS.get(condition.key.partition("/")[0], "nvidia")
    answer = selector(condition, usual(vendor, Choice())[1], ())
    if isinstance(answer, NotConverted):
        return answer.reason
    if not answer.expression:
        return f"{_CLAIM}the label says no more than its class, and can go; it stays"
    return f"{_CLAIM}add the selector {answer.expression} to its request and remove the label; it stays"


def _take(found: ChoiceOfNodes, expressions: Sequence[str]) -> None:
    for mine, expression in zip(found.selectors, expressions, strict=True):
        if expression:
            mine.append(expression)


def _node_selector(spec: Object, requests: _Requests, found: ChoiceOfNodes) -> None:
    labels = inside(spec, "nodeSelector")
    for key, value in list(labels.items()):
        if not is_device_label(str(key)):
            continue
        answer = requests.of(Condition(str(key), "In", (str(value),)))
        if isinstance(answer, NotConverted):
            found.left.append(answer)
        else:
            _take(found, answer)
            del labels[key]
    if "nodeSelector" in spec and not labels:
        del spec["nodeSelector"]


def _terms(terms: list[Object], requests: _Requests, found: ChoiceOfNodes) -> None:
    if len(terms) == 1:
        _single_term(terms, requests, found)
        return
    all_of: list[list[str]] = []
    each = [[condition_of(one) for one in _expressions(term)] for term in terms]
    for term, conditions in zip(terms, each, strict=True):
        answers = [requests.of(one) for one in conditions if is_device_label(one.key)]
        stays = next((one.reason for one in answers if isinstance(one, NotConverted)), "")
        if len(answers) < len(conditions) or not conditions or term.get("matchFields"):
            stays = stays or _OF_SEVERAL
        if stays:
            about = [one for one in chain(*each) if is_device_label(one.key)]
            found.left += [NotConverted(text, stays) for text in dict.fromkeys(map(str, about))]
            return
        all_of.append([_both(one) for one in zip(*answers, strict=True)])
    _take(found, [_either(one) for one in zip(*all_of, strict=True)])
    terms.clear()


def _both(expressions: Sequence[Any]) -> str:
    return " && ".join(f"({one})" for one in expressions if one)


def _either(expressions: Sequence[str]) -> str:
    """Return that one of the terms holds; "" if one of them asks nothing of the device."""
    return " || ".join(f"({one})" for one in expressions) if all(expressions) else ""


def _single_term(terms: list[Object], requests: _Requests, found: ChoiceOfNodes) -> None:
    term = terms[0]
    if not _expressions(term):
        return  # a term without expressions matches no node, and goes on doing so
    kept = []
    for one in _expressions(term):
        condition = condition_of(one)
        answer: list[str] | NotConverted | None = None
        if is_device_label(condition.key):
            answer = requests.of(condition)
        if isinstance(answer, list):
            _take(found, answer)
            continue
        if answer is not None:
            found.left.append(answer)
        kept.append(one)
    if kept:
        term["matchExpressions"] = kept
        return
    term.pop("matchExpressions", None)
    if not term:
        terms.clear()


def _expressions(term: Object) -> list[Any]:
    found = term.get("matchExpressions")
    return found if isinstance(found, list) else []


def condition_of(expression: object) -> Condition:
    """Return what an entry of matchExpressions asks."""
    found = expression if isinstance(expression, dict) else {}
    values = found.get("values")
    texts = tuple(map(str, values)) if isinstance(values, list) else ()
    return Condition(str(found.get("key", "")), str(found.get("operator", "")), texts)


def _drop_affinity(spec: Object) -> None:
    """Remove the empty parts of the affinity: an empty list of terms would match no node."""
    affinity = spec["affinity"]
    del affinity["nodeAffinity"][_REQUIRED]
    if not affinity["nodeAffinity"]:
        del affinity["nodeAffinity"]
    if not affinity:
        del spec["affinity"]


def _preferences(affinity: Object, found: ChoiceOfNodes) -> None:
    reason = "it is a preference; a claim has firstAvailable for alternatives in an order; it stays"
    found.left += [
        NotConverted(str(one), reason) for one in _preferred(affinity) if is_device_label(one.key)
    ]


def _preferred(affinity: Object) -> list[Condition]:
    preferred = affinity.get(_PREFERRED)
    terms = [
        inside(one, "preference")
        for one in (preferred if isinstance(preferred, list) else ())
        if isinstance(one, dict)
    ]
    return [condition_of(each) for term in terms for each in _expressions(term)]
