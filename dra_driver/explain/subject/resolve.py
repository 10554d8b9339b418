# SPDX-License-Identifier: Apache-2.0
"""Which pod and which claims does the user ask about: by name in the cluster, or in manifests that are not applied yet?"""

from collections.abc import Iterator

from dra_driver.explain.names import full_name
from dra_driver.explain.subject.applied import of_manifest
from dra_driver.explain.subject.lookup import Cluster, named
from dra_driver.explain.subject.subject import (
    ClaimSubject,
    PodSubject,
    Resolved,
    Subject,
    TemplateSubject,
)
from dra_driver.explain.subject.wanted import existing, of_pod, of_template
from dra_driver.model.cluster import ClusterState


def resolve(state: ClusterState, subject: Subject, *, recorded: bool = False) -> Iterator[Resolved]:
    """Yield the pod, or the claims, that the subject means; several pods of a manifest one by one.

    `recorded`: the cluster's state comes from a file. Raises Permanent if the subject does not exist or is not valid.
    """
    where = Cluster(state, recorded)
    match subject:
        case PodSubject():
            pod = named(state.pods, subject, "pod", where)
            yield of_pod(state, pod, live=True)
        case ClaimSubject():
            claim = named(state.resource_claims, subject, "resourceclaim", where)
            yield Resolved(f"claim {full_name(claim.metadata)}", state, (existing(claim),))
        case TemplateSubject():
            template = named(
                state.resource_claim_templates, subject, "resourceclaimtemplate", where
            )
            yield of_template(state, template)
        case _:
            yield from of_manifest(state, subject)
