# SPDX-License-Identifier: Apache-2.0
"""Which pods does a workload make, and how many at the same time?"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec

from dra_driver.model.api.core import Pod, Toleration
from dra_driver.services.manifest_checks import OF_A_WORKLOAD
from dra_driver.services.manifest_kinds import WORKLOADS

_NEAR = 0.8
_OF_ALL = ("selector", "template", "minReadySeconds")
_FIELDS: Mapping[str, Sequence[str]] = {
    "Deployment": (
        *("replicas", "strategy", "revisionHistoryLimit", "paused", "progressDeadlineSeconds"),
        *_OF_ALL,
    ),
    "StatefulSet": (
        *("replicas", "serviceName", "volumeClaimTemplates", "podManagementPolicy", "ordinals"),
        *("updateStrategy", "revisionHistoryLimit", "persistentVolumeClaimRetentionPolicy"),
        *_OF_ALL,
    ),
    "DaemonSet": ("updateStrategy", "revisionHistoryLimit", *_OF_ALL),
    "ReplicaSet": ("replicas", *_OF_ALL),
    "ReplicationController": ("replicas", *_OF_ALL),
    "Job": (
        *("parallelism", "completions", "activeDeadlineSeconds", "podFailurePolicy", "selector"),
        *("successPolicy", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes", "template"),
        *("manualSelector", "ttlSecondsAfterFinished", "completionMode", "suspend", "managedBy"),
        "podReplacementPolicy",
    ),
    "CronJob": (
        *("schedule", "timeZone", "startingDeadlineSeconds", "concurrencyPolicy", "suspend"),
        *("jobTemplate", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"),
    ),
}
"""The fields of spec: one that is nearly one of them is most often a typo."""
_TOLERATED_BY_DAEMONS = tuple(
    Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect=effect)
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
"""What the DaemonSet controller adds to each of its pods."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods that are alike: `count` of them at a time, or one for each node that takes it."""

    kind: str
    pod: Pod
    count: int = 1
    per_node: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it makes no pod at all."""
        return not (self.count or self.per_node)

    @property
    def title(self) -> str:
        """As people name it."""
        metadata = self.pod.metadata
        return f"{self.kind.lower()} {metadata.namespace}/{metadata.name}"


def template_of(workload: Mapping[str, Any]) -> dict[str, Any]:
    """A pod as the workload would make it, with the workload's name."""
    template = _inside(_spec(workload, str(workload["kind"])), "template")
    outer = _inside(workload, "metadata")
    name = str(outer.get("name") or outer.get("generateName") or "").rstrip("-")
    metadata = {**_inside(template, "metadata"), "name": f"{name}{OF_A_WORKLOAD}"}
    if "namespace" in outer:
        metadata["namespace"] = outer["namespace"]
    return {**template, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def workload_refusal(workload: Mapping[str, Any]) -> str:
    """What the API server would say against the workload itself; "" where nothing."""
    kind = str(workload["kind"])
    return next(chain(_typos(workload, kind), _parts(workload, kind)), "")


def made_of(workload: Mapping[str, Any], pod: Pod) -> Workload:
    """The workload, with its pod as it was read."""
    kind = str(workload["kind"])
    metadata = msgspec.structs.replace(
        pod.metadata, name=pod.metadata.name.removesuffix(OF_A_WORKLOAD)
    )
    pod = msgspec.structs.replace(pod, metadata=metadata)
    if kind == "DaemonSet":
        tolerations = [*(pod.spec.tolerations or ()), *_TOLERATED_BY_DAEMONS]
        spec = msgspec.structs.replace(pod.spec, tolerations=tolerations)
        return Workload(kind, msgspec.structs.replace(pod, spec=spec), per_node=True)
    counts = [count for _, count in _counts(workload, kind)]
    return Workload(kind, pod, min(counts))


_PATHS = {
    **dict.fromkeys(WORKLOADS, "spec"),
    "CronJob": "spec.jobTemplate.spec",
}


def _spec(workload: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The part that has the template."""
    spec = _inside(workload, "spec")
    return _inside(_inside(spec, "jobTemplate"), "spec") if kind == "CronJob" else spec


def _counts(workload: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Any]]:
    """The fields that say how many pods there are at a time; the smallest of them counts."""
    spec = _spec(workload, kind)
    if kind in ("Job", "CronJob"):
        yield "parallelism", _or_one(spec.get("parallelism"))
        if spec.get("completions") is not None:
            yield "completions", spec["completions"]
    elif kind != "DaemonSet":
        yield "replicas", _or_one(spec.get("replicas"))


def _or_one(count: Any) -> Any:
    return 1 if count is None else count


def _parts(workload: Mapping[str, Any], kind: str) -> Iterator[str]:
    if not isinstance(_spec(workload, kind).get("template"), dict):
        yield f"it has no {_PATHS[kind]}.template"
    for name, count in _counts(workload, kind):
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**31:
            yield f"{_PATHS[kind]}.{name} is {count!a:.40}, it must be a number from 0"


def _typos(workload: Mapping[str, Any], kind: str) -> Iterator[str]:
    yield from _near(_inside(workload, "spec"), _FIELDS[kind], "spec")
    if kind == "CronJob":
        yield from _near(_spec(workload, kind), _FIELDS["Job"], _PATHS[kind])


def _near(spec: Mapping[str, Any], fields: Sequence[str], path: str) -> Iterator[str]:
    for name in map(str, spec):
        near = () if name in fields else difflib.get_close_matches(name, fields, 1, _NEAR)
        if near:
            yield f"{path} has no field {ascii(name)[1:-1]} (did you mean {near[0]}?)"


def _inside(document: Mapping[str, Any], field: str) -> dict[str, Any]:
    """An object in a document; whatever else stands there is none."""
    found = document.get(field)
    return found if isinstance(found, dict) else {}
