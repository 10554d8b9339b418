# SPDX-License-Identifier: Apache-2.0
"""The parts of the workloads of apps/v1, batch/v1 and core/v1 that say how many pods there should be, and whose they are."""

from collections.abc import Mapping, Sequence

import msgspec

from dra_driver.model.api.meta import ApiValue, Condition, ObjectMeta, learn

PLURALS: Mapping[str, tuple[str, str]] = {
    "Deployment": ("apps", "deployments"),
    "StatefulSet": ("apps", "statefulsets"),
    "DaemonSet": ("apps", "daemonsets"),
    "ReplicaSet": ("apps", "replicasets"),
    "Job": ("batch", "jobs"),
    "CronJob": ("batch", "cronjobs"),
    "ReplicationController": ("", "replicationcontrollers"),
}
"""The group and the plural of each kind."""
BETWEEN: Mapping[str, str] = {"Deployment": "ReplicaSet", "CronJob": "Job"}
"""The kinds whose pods belong to objects of another kind, which the workload makes."""


def with_parts(kinds: Sequence[str]) -> tuple[str, ...]:
    """Return these kinds, and the kinds of the objects that they make their pods with."""
    parts = [BETWEEN[kind] for kind in kinds if kind in BETWEEN]
    return tuple(dict.fromkeys((*kinds, *parts)))


class WorkloadSpec(ApiValue, frozen=True):
    """spec of a workload, as far as it says how many pods there are at a time. Each kind has some of the fields."""

    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    pod_management_policy: str = ""


class WorkloadStatus(ApiValue, frozen=True):
    """status of a workload. A DaemonSet has `desired_number_scheduled`, a Job the rest."""

    desired_number_scheduled: int | None = None
    succeeded: int | None = None
    conditions: list[Condition] | None = None


class StoredWorkload(ApiValue, frozen=True):
    """A workload of the cluster. The items of a list have no kind, so the reader adds it."""

    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)

    @property
    def ended(self) -> bool:
        """Whether a Job is over: it makes no more pods."""
        return any(
            one.type in ("Complete", "Failed") and one.status == "True"
            for one in self.status.conditions or ()
        )

    @property
    def one_by_one(self) -> bool:
        """Whether a StatefulSet makes each pod only when the one before is ready."""
        return self.kind == "StatefulSet" and self.spec.pod_management_policy != "Parallel"

    @property
    def wanted(self) -> int | None:
        """How many pods there should be now; None if the workload does not say so."""
        if self.kind == "CronJob":
            return None
        if self.kind == "DaemonSet":
            return self.status.desired_number_scheduled
        if self.kind != "Job":
            return 1 if self.spec.replicas is None else self.spec.replicas
        at_once = 1 if self.spec.parallelism is None else self.spec.parallelism
        succeeded = self.status.succeeded or 0
        if self.spec.completions is not None:
            return max(0, min(at_once, self.spec.completions - succeeded))
        # Without completions, the first pod that succeeds ends the Job; until the others have ended no new ones are made.
        return None if succeeded else at_once


learn(StoredWorkload)
