# SPDX-License-Identifier: Apache-2.0
"""What is asked about, by name or in manifests; and what that means: a pod, and the claims that it needs."""

from dataclasses import dataclass

from dra_driver.explain.subject.workloads import Workload
from dra_driver.explain.verdict import ClaimMissing, Verdict
from dra_driver.model.api.core import Pod
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.cluster import ClusterState


@dataclass(frozen=True, slots=True)
class PodSubject:
    """A pod of the cluster."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ClaimSubject:
    """A claim of the cluster."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class TemplateSubject:
    """A template of the cluster: what a claim made from it would get."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ManifestSubject:
    """Objects as YAML or JSON gives them; `namespace` is for those that name none, `source` is for messages."""

    documents: tuple[object, ...]
    namespace: str
    source: str


Subject = PodSubject | ClaimSubject | TemplateSubject | ManifestSubject


@dataclass(frozen=True, slots=True)
class WantedClaim:
    """One claim that the subject needs; `claim` is None where its spec is not known.

    `origin` is what it is made from, where it does not exist (`exists`) in the cluster. `for_this_pod`: the resource claim
    controller makes it for this pod alone. `problems` were found while the claim was looked up. `not_made_yet` is no problem:
    the controller will still make the claim.
    """

    name: str
    claim: ResourceClaim | None = None
    origin: str = ""
    exists: bool = False
    for_this_pod: bool = False
    problems: tuple[Verdict, ...] = ()
    not_made_yet: ClaimMissing | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """What is explained, and the cluster with what the manifests add; without a pod the claims by themselves.

    `live`: the cluster knows the pod. `passed_over` is what a manifest holds besides and nobody looks at.
    """

    title: str
    state: ClusterState
    wanted: tuple[WantedClaim, ...]
    pod: Pod | None = None
    live: bool = False
    passed_over: tuple[str, ...] = ()

    @property
    def bound_to(self) -> str:
        """The node on which the scheduler put the pod; "" where it has not."""
        return self.pod.spec.node_name if self.pod is not None and self.live else ""


@dataclass(frozen=True, slots=True)
class ResolvedPod(Resolved):
    """A pod; of a `workload` one of its pods."""

    pod: Pod
    workload: Workload | None = None
