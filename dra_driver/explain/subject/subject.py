# SPDX-License-Identifier: Apache-2.0
"""What does the user ask about (the subject: by name, or in manifests), and which pod and claims are that?"""

from collections.abc import Iterator

from msgspec import Struct

from dra_driver.explain.subject.labels import EVERYTHING, LabelSelector
from dra_driver.explain.subject.workloads import Workload
from dra_driver.explain.verdict import ClaimMissing, Verdict
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.model.cluster import ClusterState


class NewNode(Struct, frozen=True):
    """A node that the cluster does not have: one like the machine `profile`. The report says whether it would help."""

    profile: str
    node: Node
    slices: tuple[ResourceSlice, ...]


class PodSubject(Struct, frozen=True):
    """A pod of the cluster."""

    namespace: str
    name: str


class ClaimSubject(Struct, frozen=True):
    """A claim of the cluster."""

    namespace: str
    name: str


class TemplateSubject(Struct, frozen=True):
    """A template of the cluster; `explain` answers for a claim made from the template."""

    namespace: str
    name: str


class WorkloadSubject(Struct, frozen=True):
    """A workload of the cluster, such as a Deployment; `explain` answers for those of its pods that have no node yet."""

    kind: str
    namespace: str
    name: str

    @property
    def title(self) -> str:
        """The workload's name in messages."""
        return f"{self.kind.lower()} {self.namespace}/{self.name}"


class PendingSubject(Struct, frozen=True):
    """All pods that have no node yet and ask for devices: of the namespace, or of all if it is ""; with `labels` only those that match."""

    namespace: str
    labels: LabelSelector = EVERYTHING

    @property
    def title(self) -> str:
        """What the pods are called in messages."""
        where = f"namespace {self.namespace}" if self.namespace else "all namespaces"
        chosen = f" with {self.labels.text}" if self.labels.text else ""
        return f"pending pods of {where}{chosen}"


class ManifestSubject(Struct, frozen=True):
    """Decoded objects of YAML or JSON files.

    `namespace` is used for objects that name none; `source` is the name of all files together in messages, and `files` has the file of
    each document, if there are several.
    """

    documents: tuple[object, ...]
    namespace: str
    source: str
    files: tuple[str, ...] = ()

    @property
    def named_documents(self) -> Iterator[tuple[str, object]]:
        """Each document with the name of its file."""
        files = self.files or (self.source,) * len(self.documents)
        return zip(files, self.documents, strict=True)


NamedSubject = PodSubject | ClaimSubject | TemplateSubject
Subject = NamedSubject | ManifestSubject
"""What has one report."""
ManyPods = WorkloadSubject | PendingSubject
"""What has a report for each of its pods that have no node."""


class WantedClaim(Struct, frozen=True):
    """One claim that the subject needs; `claim` is None if its spec is not known.

    `exists`: the claim exists in the cluster; if not, `origin` says what the claim is made from. `for_this_pod`: the resource claim
    controller makes the claim for this pod alone. `problems` were found while the claim was searched. `not_made_yet` is no
    problem: the controller will still make the claim.
    """

    name: str
    claim: ResourceClaim | None = None
    origin: str = ""
    exists: bool = False
    for_this_pod: bool = False
    problems: tuple[Verdict, ...] = ()
    not_made_yet: ClaimMissing | None = None


class Resolved(Struct, frozen=True):
    """The pod to explain, with its claims. If there is no pod (`pod` is None), the claims themselves are explained.

    `state` is the cluster plus the objects of the manifests. `live`: the pod exists in the cluster. `passed_over` names the objects
    of the manifests that `explain` ignores.
    """

    title: str
    state: ClusterState
    wanted: tuple[WantedClaim, ...]
    pod: Pod | None = None
    live: bool = False
    passed_over: tuple[str, ...] = ()

    @property
    def goes_to(self) -> str:
        """The node in the pod's spec, if the pod has not started yet and does not end; else ""."""
        pod = self.pod
        return pod.spec.node_name if pod is not None and _may_still_start(pod) else ""


def _may_still_start(pod: Pod) -> bool:
    # Container statuses tell nothing: the kubelet writes them before it starts anything.
    return pod.status.phase in ("", "Pending") and pod.metadata.deletion_timestamp is None


class ResolvedPod(Resolved, frozen=True):
    """A pod to explain; with `workload`, one of the workload's pods."""

    pod: Pod
    workload: Workload | None = None
