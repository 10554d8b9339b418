# SPDX-License-Identifier: Apache-2.0
"""Which pods does a workload make, and how many at the same time?"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct

from dra_driver.explain.subject.manifest_kinds import WORKLOADS
from dra_driver.model.api.core import Pod, Toleration
from dra_driver.model.yaml_documents import Path

_NEAR = 0.8
_OF_JOBS = ("Job", "CronJob")
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
"""The known fields of each kind's spec. An unknown field with a similar name is most often a typo."""
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
"""The tolerations that the DaemonSet controller adds to each of its pods."""


class Workload(Struct, frozen=True):
    """A workload makes equal pods: `count` pods at a time, or, with `per_node`, one pod on each node that takes the pod."""

    kind: str
    pod: Pod
    count: int = 1
    per_node: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the workload makes no pod at all."""
        return not (self.count or self.per_node)

    @property
    def title(self) -> str:
        """The workload's name in messages."""
        metadata = self.pod.metadata
        return f"{self.kind.lower()} {metadata.namespace}/{metadata.name}"


def template_of(workload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod as the workload would make it, with the workload's name."""
    template = _inside(_spec(workload, str(workload["kind"])), "template")
    outer = _inside(workload, "metadata")
    name = _name(outer)
    # A pod of the same file may have the workload's name: the UID keeps the two apart.
    uid = f"uid-of-{name}-(pod)"
    metadata = {"uid": uid, **_inside(template, "metadata"), "name": name}
    if "namespace" in outer:
        metadata["namespace"] = outer["namespace"]
    return {**template, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def _name(metadata: Mapping[str, Any]) -> str:
    """Return the name of the workload, or its generateName without hyphens at the end."""
    return str(metadata.get("name") or metadata.get("generateName") or "").rstrip("-")


def workload_refusal(workload: Mapping[str, Any]) -> str:
    """Return why the API server would refuse the workload itself; "" if it would accept it."""
    return next(workload_refusals(workload), "")


def workload_refusals(workload: Mapping[str, Any]) -> Iterator[str]:
    """Yield every reason for which the API server would refuse the workload itself."""
    kind = str(workload["kind"])
    return chain(
        _typos(workload, kind),
        _parts(workload, kind),
        _selector(workload, kind),
        _restarts(workload, kind),
    )


def made_of(workload: Mapping[str, Any], pod: Pod) -> Workload:
    """Return the workload with its pod, which is decoded already."""
    kind = str(workload["kind"])
    metadata = msgspec.structs.replace(pod.metadata, name=_name(_inside(workload, "metadata")))
    pod = msgspec.structs.replace(pod, metadata=metadata)
    if kind == "DaemonSet":
        tolerations = [*(pod.spec.tolerations or ()), *_TOLERATED_BY_DAEMONS]
        spec = msgspec.structs.replace(pod.spec, tolerations=tolerations)
        return Workload(kind, msgspec.structs.replace(pod, spec=spec), per_node=True)
    return Workload(kind, pod, count_of(workload))


def count_of(workload: Mapping[str, Any]) -> int:
    """Return how many pods a workload runs at a time; 1 if it does not say so by a number, as a DaemonSet."""
    counts = [count for _, count in _counts(workload, str(workload["kind"]))]
    return min((count for count in counts if isinstance(count, int)), default=1)


SPEC_PATHS = {
    **dict.fromkeys(WORKLOADS, "spec"),
    "CronJob": "spec.jobTemplate.spec",
}
"""Where a workload has the part with its pod template."""


def pod_path(kind: str, group: str) -> Path | None:
    """Return the path to the pod of a Pod, a PodTemplate or a workload; None for other objects."""
    if (kind, group) == ("Pod", ""):
        return ()
    if (kind, group) == ("PodTemplate", ""):
        return ("template",)
    if WORKLOADS.get(kind) != group:
        return None
    return (*SPEC_PATHS[kind].split("."), "template")


def _spec(workload: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the part of the workload that has the pod template."""
    spec = _inside(workload, "spec")
    return _inside(_inside(spec, "jobTemplate"), "spec") if kind == "CronJob" else spec


def _counts(workload: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the fields that limit how many pods run at a time. The smallest of their values is the number of pods."""
    spec = _spec(workload, kind)
    if kind in _OF_JOBS:
        yield "parallelism", _or_one(spec.get("parallelism"))
        if spec.get("completions") is not None:
            yield "completions", spec["completions"]
    elif kind != "DaemonSet":
        yield "replicas", _or_one(spec.get("replicas"))


def _or_one(count: Any) -> Any:
    return 1 if count is None else count


def _parts(workload: Mapping[str, Any], kind: str) -> Iterator[str]:
    if not isinstance(_spec(workload, kind).get("template"), dict):
        yield f"it has no {SPEC_PATHS[kind]}.template; write one, with metadata and spec of its pods"
    for name, count in _counts(workload, kind):
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**31:
            yield f"{SPEC_PATHS[kind]}.{name} is {count!a:.40}, it must be a number from 0; write how many pods there are to be, or leave it out for 1"


def _selector(workload: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Yield a problem if the workload's selector does not match its own pods. For a Job, the API server makes the selector."""
    if kind in _OF_JOBS:
        return
    spec = _spec(workload, kind)
    selector = spec.get("selector")
    labels = _inside(_inside(_inside(spec, "template"), "metadata"), "labels")
    controller = kind == "ReplicationController"
    if controller:
        # If the selector is missing, the API server copies the labels.
        selector = {"matchLabels": selector or labels}
    if controller and selector == {"matchLabels": {}}:
        yield "it has neither spec.selector nor labels in spec.template.metadata; write labels there"
    elif not isinstance(selector, dict) or not any(
        map(selector.get, ("matchLabels", "matchExpressions"))
    ):
        yield "it has no spec.selector; give the labels of spec.template.metadata as matchLabels"
    elif not selects(selector, labels):
        yield "spec.selector does not match the labels of spec.template.metadata; give it the same ones"


def selects(selector: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    """Return whether a label selector matches the labels. An expression with an unknown operator is taken as true."""
    wanted = _inside(selector, "matchLabels")
    expressions = selector.get("matchExpressions")
    each = expressions if isinstance(expressions, list) else []
    found = [one for one in each if isinstance(one, dict)]
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(one, labels) for one in found
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    key, values = str(expression.get("key")), expression.get("values")
    values = values if isinstance(values, list) else []
    match expression.get("operator"):
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return True


def _restarts(workload: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Yield a problem if restartPolicy is not valid: OnFailure or Never for a Job, Always for every other workload."""
    policy = _inside(_inside(_spec(workload, kind), "template"), "spec").get("restartPolicy")
    path = f"{SPEC_PATHS[kind]}.template.spec.restartPolicy"
    if kind in _OF_JOBS:
        if policy not in ("OnFailure", "Never"):
            said = f"is {policy!a:.40}" if policy else "is missing"
            yield f"{path} {said}: a Job takes OnFailure or Never; write one of these"
    elif policy not in (None, "", "Always"):
        yield f"{path} is {policy!a:.40}, but a {kind} takes only Always; write Always, or leave it out"


def _typos(workload: Mapping[str, Any], kind: str) -> Iterator[str]:
    yield from _near(_inside(workload, "spec"), _FIELDS[kind], "spec")
    if kind == "CronJob":
        yield from _near(_spec(workload, kind), _FIELDS["Job"], SPEC_PATHS[kind])


def _near(spec: Mapping[str, Any], fields: Sequence[str], path: str) -> Iterator[str]:
    for name in map(str, spec):
        near = () if name in fields else difflib.get_close_matches(name, fields, 1, _NEAR)
        if near:
            yield f"{path} has no field {ascii(name)[1:-1]} (did you mean {near[0]}?); write {near[0]}, or leave it out"


def _inside(document: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return the object in this field of a document; {} if there is none."""
    found = document.get(field)
    return found if isinstance(found, dict) else {}
