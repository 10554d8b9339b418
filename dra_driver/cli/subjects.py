# SPDX-License-Identifier: Apache-2.0
"""What does the command line of `explain` ask about? The words are read as kubectl reads them.

`KIND/NAME …`, `KIND NAME …`, or nothing at all: every pod that asks for devices and has no node. A single NAME is a pod's. Kinds have
kubectl's names: singular, plural, short (`deploy`), and with the group (`deployments.apps`).
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from dra_driver.explain.subject.labels import EVERYTHING, BadSelector, LabelSelector, parse_selector
from dra_driver.explain.subject.subject import (
    ClaimSubject,
    ManyPods,
    NamedSubject,
    PendingSubject,
    PodSubject,
    TemplateSubject,
    WorkloadSubject,
)
from dra_driver.model.api.resource_claim import GROUP
from dra_driver.model.api.workload import PLURALS

POD = "Pod"
_NAMED: Mapping[str, Callable[[str, str], NamedSubject]] = {
    POD: PodSubject,
    "ResourceClaim": ClaimSubject,
    "ResourceClaimTemplate": TemplateSubject,
}
_GROUPS = {
    POD: "",
    "ResourceClaim": GROUP,
    "ResourceClaimTemplate": GROUP,
    **{kind: group for kind, (group, _) in PLURALS.items()},
}
_SHORT = {
    POD: ("po",),
    "ResourceClaim": ("claim", "claims"),
    "ResourceClaimTemplate": ("template", "templates"),
    "Deployment": ("deploy",),
    "StatefulSet": ("sts",),
    "DaemonSet": ("ds",),
    "ReplicaSet": ("rs",),
    "CronJob": ("cj",),
    "ReplicationController": ("rc",),
}
SPELLINGS: Mapping[str, str] = {
    spelling: kind
    for kind in _GROUPS
    for spelling in (kind.lower(), f"{kind.lower()}s", *_SHORT.get(kind, ()))
}
"""The kind for each of its names in small letters."""
_SHORTEST = 2  # almost every word is like one of two letters
_TITLES = {"ResourceClaim": "claim", "ResourceClaimTemplate": "template"}
_VERSION = re.compile(r"v[0-9]+(?:(?:alpha|beta)[0-9]+)?\.")
_OTHERS = {
    "node": "--node NAME explains a pod or claim for that node alone",
    "nodes": "--node NAME explains a pod or claim for that node alone",
    "no": "--node NAME explains a pod or claim for that node alone",
}
CAN = "pods, claims, templates, deployments, statefulsets, daemonsets, replicasets, jobs, cronjobs and replicationcontrollers can be explained"


class WrongUsage(ValueError):
    """The command line is wrong; the message says what to write instead."""


class Named(Struct, frozen=True):
    """One object that the command line names."""

    kind: str
    name: str


class Asked(Struct, frozen=True):
    """What the command line asks about: objects by name, or, if there are none, all pending pods that the selector chooses.

    `from_files`: neither, but the objects of the manifests.
    """

    named: tuple[Named, ...] = ()
    labels: LabelSelector = EVERYTHING
    all_namespaces: bool = False
    from_files: bool = False

    @property
    def is_one(self) -> bool:
        """Whether the answer is one report: about manifests, or about one pod, claim or template."""
        return self.from_files or (len(self.named) == 1 and self.named[0].kind in _NAMED)

    @property
    def workloads(self) -> tuple[str, ...]:
        """The kinds of workloads that have to be read."""
        return tuple(dict.fromkeys(one.kind for one in self.named if one.kind in PLURALS))

    def subjects(self, namespace: str) -> tuple[NamedSubject | ManyPods, ...]:
        """Return the subjects in a namespace."""
        if not self.named:
            return (PendingSubject("" if self.all_namespaces else namespace, self.labels),)
        return tuple(_subject(one, namespace) for one in self.named)

    def title(self, namespace: str) -> str:
        """Return what is asked about. The namespace may be "", if it is not known."""
        place = f"{namespace}/" if namespace else ""
        names = (
            f"{_TITLES.get(one.kind, one.kind.lower())} {place}{one.name}" for one in self.named
        )
        return ", ".join(names) or "pending pods"


def _subject(one: Named, namespace: str) -> NamedSubject | ManyPods:
    if one.kind in _NAMED:
        return _NAMED[one.kind](namespace, one.name)
    return WorkloadSubject(one.kind, namespace, one.name)


def asked(
    words: Sequence[str], *, files: bool = False, labels: str = "", all_namespaces: bool = False
) -> Asked:
    """Read the command line: the words that are no flags, and the values of -f (whether there are any), -l and -A. Raises WrongUsage."""
    if files:
        if words or labels or all_namespaces:
            other = "names" if words else "-l" if labels else "--all-namespaces"
            raise WrongUsage(f"give either {other} or manifests with -f")
        return Asked(from_files=True)
    try:
        selector = parse_selector(labels)
    except BadSelector as error:
        raise WrongUsage(str(error)) from error
    named = tuple(dict.fromkeys(_named(words)))
    if named and labels:
        raise WrongUsage("give either names or labels (-l)")
    if named and all_namespaces:
        raise WrongUsage(
            "an object is named in one namespace: give it with -n, without --all-namespaces"
        )
    return Asked(named, selector, all_namespaces)


def _named(words: Sequence[str]) -> Iterator[Named]:
    for word in words:
        if _is_file(word):
            raise WrongUsage(
                f"{word!r} is a file: give manifests with -f, as in `explain -f {word}`"
            )
    if any("/" in word for word in words):
        for word in words:
            kind, slash, name = word.partition("/")
            if not slash:
                raise WrongUsage(f"give KIND/NAME for each object: {word!r} has no kind")
            yield _one(kind, name)
    elif len(words) == 1 and not kind_of(words[0]):
        yield Named(POD, words[0])
    elif words:
        kind, *names = words
        if not names and _kind(kind) != POD:
            raise WrongUsage(f"give the name: {kind}/NAME")
        for name in names:
            yield _one(kind, name)


def _is_file(word: str) -> bool:
    """Return whether a word is a path: of a manifest, or in a form that no name has. `pod/a.yaml` is a pod."""
    path = word.startswith(("./", "../", "/", "~")) or word.endswith((".yaml", ".yml", ".json"))
    return path and not kind_of(word.partition("/")[0])


def _one(kind: str, name: str) -> Named:
    found = _kind(kind)
    if not name:
        raise WrongUsage(f"the name of the {kind} is missing")
    return Named(found, name)


def kind_of(word: str) -> str:
    """Return the kind that a word means; "" if it means none."""
    spelling, _, group = word.lower().partition(".")
    kind = SPELLINGS.get(spelling, "")
    right = not group or (
        bool(kind) and _VERSION.sub("", f"{group}.", count=1).rstrip(".") == _GROUPS[kind]
    )
    return kind if right else ""


def _kind(word: str) -> str:
    """Return the kind that a word means. Raises WrongUsage, with the kind that may be meant."""
    kind = kind_of(word)
    if kind:
        return kind
    lowered = word.lower()
    spelling = lowered.partition(".")[0]
    if spelling in SPELLINGS:
        group = _GROUPS[SPELLINGS[spelling]]
        raise WrongUsage(
            f"there is no kind {word!r}; did you mean {spelling}{group and f'.{group}'}?"
        )
    if spelling in _OTHERS:
        raise WrongUsage(f"{word!r} cannot be explained; {_OTHERS[spelling]}")
    near = difflib.get_close_matches(lowered, [one for one in SPELLINGS if len(one) > _SHORTEST], 1)
    if near:
        raise WrongUsage(f"there is no kind {word!r}; did you mean {near[0]}?")
    raise WrongUsage(
        f"{word!r} is no kind that can be explained; {CAN}; the pods of another kind can be chosen by their labels with -l, and manifests are given with -f"
    )
