# SPDX-License-Identifier: Apache-2.0
"""What of a cluster's objects may leave the cluster in a bug report?

All that decides about devices stays, because `explain` reads it: names, labels, selectors, attributes, taints, quantities. In all strings
identifiers are replaced, the same always by the same, so a selector still finds the device whose UUID it names. What an identifier is, only
Nodes and slices say, which no tenant writes: else the label of a pod could make a word of the others' objects one. Texts that a controller
wrote are left out; of the scheduler's message its own reasons are kept, which is what an explanation quotes it for.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec

from dra_driver.doctor.findings import MOST_TEXT
from dra_driver.doctor.redact import is_credential, own_words, searched, without_credentials
from dra_driver.model.cluster import POD_SCHEDULED, ClusterState
from dra_driver.model.quotes import left_out

_SERIAL, _CREDENTIAL = "serial", "credential"
_IDENTIFIERS = frozenset({"serial", "uuid", "parentuuid"})
"""Names of identifiers. Not every vendor's uuid has the form of a UUID; one that has not is replaced like a serial number."""
SHORTEST = 6
"""A shorter serial number or credential is replaced only where its name says what it is: in a text it may be anything."""
_BY_NAME = frozenset({"labels", "annotations", "matchLabels", "nodeSelector", "attributes"})
"""Fields whose content has names that people or drivers choose, with a value each."""
_AMOUNTS = frozenset(
    {
        "allocatable",
        "allocatedResources",
        "capacity",
        "consumedCapacity",
        "counters",
        "limits",
        "overhead",
        "requests",
    }
)
"""Fields whose content, if it has names, has quantities below them."""
_FIXED = frozenset(
    {
        *(
            "served",
            "kubernetesVersion",
            "kubeletVersion",
            "resourceVersion",
            "version",
            "versions",
        ),
        *("recordedAt", "creationTimestamp", "deletionTimestamp", "allocationTimestamp"),
        *("lastTransitionTime", "timeAdded", "kind", "apiGroup", "apiVersion", "resource", "phase"),
        *("status", "effect", "operator", "allocationMode", "restartPolicy", "source"),
    }
)
"""Fields with a word of the API, a version or a time: never an identifier, also if one is equal to it."""
_QUANTITY = re.compile(r"[+-]?[0-9.]{1,40}(?:[eE][+-]?[0-9]{1,9}|[KMGTPE]i|[numkMGTPE])?")
# Names of objects, API groups, quantities: here nobody could write a credential that `is_credential` finds by its form.
_PLAIN = re.compile(r"[a-z0-9./-]*")
_WORD = re.compile(r"\w+")
_REASON_WORD = re.compile(r"[A-Za-z]{1,64}")
# Comments and string literals of CEL. Each begins once: it ends at the latest with the line or the text.
_SPOKEN = re.compile(
    r"""//[^\n]*|'''.*?(?:'''|\Z)|\"\"\".*?(?:\"\"\"|\Z)|'(?:[^'\\\n]|\\.)*(?:'|(?=\n)|\\?\Z)|"(?:[^"\\\n]|\\.)*(?:"|(?=\n)|\\?\Z)""",
    re.DOTALL,
)
_REASONS = (
    "nodes are available",
    *("Insufficient cpu", "Insufficient memory", "Insufficient ephemeral-storage"),
    *("Insufficient nvidia.com/gpu", "Insufficient amd.com/gpu", "Too many pods"),
    "node(s) had untolerated taint",
    "node(s) had taints that the pod didn't tolerate",
    "node(s) were unschedulable",
    "node(s) had unknown conditions",
    "node(s) didn't match the requested node name",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't match scheduler-enforced node affinity",
    "node(s) didn't match Pod's required features",
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
    "node(s) didn't match pod topology spread constraints",
    "node(s) didn't have free ports for the requested pod ports",
    "node(s) didn't find available persistent volumes to bind",
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) had volume node affinity conflict",
    "node(s) had no available volume zone",
    "node(s) had no available disk",
    "node(s) exceed max volume count",
    "node(s) did not have enough free storage",
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
    "pod has unbound immediate PersistentVolumeClaims",
    "cannot allocate all claims",
    "resourceclaim not available on the node",
    "waiting for scheduling gates",
    "waiting for the preemption for this pod to be finished",
    "Preemption is not helpful for scheduling",
    "No preemption victims found for incoming pod",
    "not eligible due to preemptionPolicy=Never",
)
"""What the plugins of kube-scheduler say, without names. Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins, 1.32 to 1.37."""
_REASON = re.compile(r"(?:\b\d{1,6}(?:/\d{1,6})? )?(?:" + "|".join(map(re.escape, _REASONS)) + ")")


def without_texts_of_others(
    cluster: ClusterState, uuids: Callable[[str], str], serials: dict[str, str]
) -> ClusterState:
    """Return the cluster for a bug report. `uuids` replaces UUIDs in a text, `serials` has the serial numbers of the node and what stands for
    them, and gets those of the cluster.
    """
    tree = msgspec.to_builtins(cluster)
    credentials: dict[str, str] = {}
    for kind, text in _named([tree.get("nodes"), tree.get("resourceSlices")]):
        known, new = (serials, "{:013}") if kind is _SERIAL else (credentials, "hidden-{}")
        if uuids(text) == text:
            known.setdefault(text, new.format(len(known) + 1))
    words = {**credentials, **serials}
    named: dict[str, str] = {}
    for _, text in _named(tree):
        if text not in words and uuids(text) == text:
            named.setdefault(text, f"hidden-{len(credentials) + len(named) + 1}")
    return msgspec.convert(_Cleaner(uuids, words, named).cleaned(tree), ClusterState)


def numbered(uuids: Callable[[str], str], known: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that replaces in a text the UUIDs, and the words in `known` that can be told from other words."""

    def one(word: re.Match[str]) -> str:
        return known.get(word[0], word[0]) if _is_telling(word[0]) else word[0]

    def replaced(text: str) -> str:
        # What stands for a serial number is not looked up again: it may be the serial number of another device.
        return known[text] if _is_telling(text) and text in known else _WORD.sub(one, uuids(text))

    return replaced


def _is_telling(text: str) -> bool:
    return len(text) >= SHORTEST and any(one.isdigit() for one in text)


def _kind(name: str, field: str) -> str:
    """Return what the value of this name in a field is: a serial number, a credential, or "". A driver's attributes are no credentials."""
    prefix, _, last = name.rpartition("/")
    if last.rpartition(".")[2].lower() in _IDENTIFIERS:
        return _SERIAL
    is_hidden = is_credential(last) or is_credential(prefix)
    return _CREDENTIAL if field != "attributes" and is_hidden else ""


def _choices(fields: Mapping[str, Any], field: str) -> Iterator[tuple[str, str]]:
    """Yield which parts of a mapping have such a value, and its kind. `field` is the name of the mapping itself."""
    if field in _BY_NAME:
        yield from ((name, kind) for name in fields if (kind := _kind(name, field)))
    elif kind := _kind(str(fields.get("key", "")), field):
        yield from ((name, kind) for name in ("value", "values") if name in fields)


def _named(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Yield the serial numbers and credentials in a tree, each with its kind."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from _named(one, field)
    elif isinstance(value, dict):
        for name, kind in _choices(value, field):
            yield from ((kind, text) for text in _texts(value[name]))
        for name, one in value.items():
            yield from _named(one, name)


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str() if value:
            yield value
        case list() | tuple():
            yield from chain.from_iterable(map(_texts, value))
        case dict():
            yield from chain.from_iterable(map(_texts, value.values()))
        case int() if not isinstance(value, bool):
            yield str(value)
        case _:
            pass


class _Cleaner:
    """Goes through a tree and cleans each string by the field that it is in. `words` has what is replaced in all of them, `named` what is replaced
    only as the value of a name that says what it is.
    """

    def __init__(
        self, uuids: Callable[[str], str], words: Mapping[str, str], named: Mapping[str, str]
    ) -> None:
        self._known = {**named, **words}
        self._identifiers = numbered(uuids, words)
        self._cleaned: dict[str, str] = {}

    def cleaned(self, value: Any, field: str = "", *, is_amount: bool = False) -> Any:
        match value:
            case str() if is_amount and _QUANTITY.fullmatch(value):
                return value
            case str() if field in _FIXED:
                return _plain(value)
            case str():
                return self._spoken(value) if field == "expression" else self._text(value)
            case list() | tuple():
                return [self.cleaned(one, field, is_amount=is_amount) for one in value]
            case dict():
                return self._fields(value, field, is_amount=is_amount)
            case _:
                return value

    def _fields(self, value: Mapping[str, Any], field: str, *, is_amount: bool) -> dict[str, Any]:
        named = dict(_choices(value, field))
        said = self._said(value, field)

        def one(name: str, content: Any) -> Any:
            if name in named:
                return self._replaced(content)
            if name in said:
                return said[name]
            amounts = is_amount or (name in _AMOUNTS and isinstance(content, dict))
            # A label may have the name of a field.
            return self.cleaned(content, "" if field in _BY_NAME else name, is_amount=amounts)

        return {self._text(name): one(name, content) for name, content in value.items()}

    def _replaced(self, value: Any) -> Any:
        match value:
            case str():
                return self._known.get(value) or self._identifiers(value)
            case list() | tuple():
                return [self._replaced(one) for one in value]
            case dict():
                return {name: self._replaced(one) for name, one in value.items()}
            case _ if new := self._known.get(str(value)):
                return int(new) if new.isdecimal() else new
            case _:
                return value

    def _said(self, entry: Mapping[str, str], field: str) -> dict[str, str]:
        """Return what is left of the messages of an entry: of a gap, which this program wrote, the whole; of a condition hardly anything."""
        message, reason = entry.get("message", ""), entry.get("reason", "")
        if field == "notRead":
            return {"message": self._identifiers(own_words(message))}
        if field != "conditions":
            return {}
        is_schedulers = entry.get("type") == POD_SCHEDULED
        return {
            "message": understood(message) if is_schedulers else left_out(message),
            "reason": reason if _REASON_WORD.fullmatch(reason) else left_out(reason),
        }

    def _text(self, text: str) -> str:
        if text not in self._cleaned:
            self._cleaned[text] = self._identifiers(_plain(text))
        return self._cleaned[text]

    def _spoken(self, expression: str) -> str:
        return self._identifiers(_SPOKEN.sub(_literal, expression))


def _plain(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else without_credentials(text)


def _literal(found: re.Match[str]) -> str:
    """Return a comment or a literal of CEL without credentials, with its own quotes, so that the expression keeps its meaning."""
    text = found[0]
    if text.startswith("//"):
        return searched(text)
    quote = text[:3] if text.startswith(("'''", '"""')) else text[0]
    end = quote if text.endswith(quote) and len(text) >= 2 * len(quote) else ""
    return f"{quote}{searched(text[len(quote) : len(text) - len(end)])}{end}"


def understood(message: str) -> str:
    """Return the reasons of kube-scheduler in a message of PodScheduled, and the length of the message, which anybody may have written."""
    found = _REASON.findall(message[:MOST_TEXT])
    return "; ".join([*found, left_out(message)]) if message else ""
