# SPDX-License-Identifier: Apache-2.0
"""Which pods ask for the same, and so have the same answer, except for their names and those of their claims?

They are looked for before anything else, with no limit of time. So what a pod costs here is bounded by its own size, and what a claim
costs by its own, however often pods name it. A pod with more than MOST_CLAIMS is like no other: comparing would cost more than it saves.
"""

import hashlib
from collections.abc import Sequence

from dra_driver.explain.facts.claim_state import not_owned, unusable, used_by_nobody_else
from dra_driver.explain.subject.subject import WantedClaim
from dra_driver.explain.subject.wanted import Known, of_pod
from dra_driver.model.api.core import Pod
from dra_driver.model.api.resource_claim import (
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from dra_driver.model.cluster import POD_SCHEDULED

MOST_CLAIMS = 32
"""Of a pod that is compared with others. An ordinary pod has one or two."""


def grouped(known: Known, pods: Sequence[Pod]) -> list[list[Pod]]:
    """Return the pods that ask for the same together, in the order of the first of each."""
    digests = _Digests()
    found: dict[object, list[Pod]] = {}
    for pod in pods:
        is_compared = len(pod.spec.resource_claims or ()) <= MOST_CLAIMS
        key = digests.deciding(known, pod) if is_compared else object()
        found.setdefault(key, []).append(pod)
    return list(found.values())


class _Digests:
    """Keys for comparing: short ones, because all of them are kept at the same time."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[object, bytes]] = {}
        """By the identity of an object, which is kept too, so that no other one gets this identity."""

    def deciding(self, known: Known, pod: Pod) -> bytes:
        """Return a key that is equal for pods with the same answer."""
        one = of_pod(known.state, pod, live=True, known=known)
        said = [each for each in pod.status.conditions or () if each.type == POD_SCHEDULED]
        scheduled = [(each.status, each.reason, each.message) for each in said]
        claims = [self._of_wanted(each, pod) for each in one.wanted]
        return _digest((pod.metadata.namespace, one.pod.spec, scheduled, claims))

    def _of_wanted(self, wanted: WantedClaim, pod: Pod) -> object:
        return (
            "" if wanted.for_this_pod else wanted.name,
            wanted.origin,
            wanted.exists,
            wanted.not_made_yet is None,
            [type(problem) for problem in wanted.problems],
            wanted.claim and self._of_claim(wanted.claim, pod),
        )

    def _of_claim(self, claim: ResourceClaim, pod: Pod) -> object:
        against = [
            type(reason) for reason in (*unusable(claim, pod), *not_owned(claim, pod, groups=True))
        ]
        idle = used_by_nobody_else(claim, pod)
        spec, status = self._once(claim.spec), self._once(claim.status)
        return spec, status, claim.metadata.deletion_timestamp is None, against, idle

    def _once(self, part: ResourceClaimSpec | ResourceClaimStatus) -> bytes:
        """Return the digest of what may be large, and may be shared by many pods."""
        found = self._of.get(id(part))
        if found is None:
            found = self._of[id(part)] = (part, _digest(part))
        return found[1]


def _digest(what: object) -> bytes:
    return hashlib.sha256(repr(what).encode(errors="surrogatepass")).digest()
