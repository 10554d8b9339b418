# SPDX-License-Identifier: Apache-2.0
"""Which pods ask for the same, and so have the same answer, except for their names and those of their claims?

They are looked for before anything else, with no limit of time. So what a pod costs here is bounded by its own size, and what a claim
costs by its own, however often pods name it. A pod with more than MOST_CLAIMS is like no other: comparing would cost more than it saves.
"""

import hashlib
import itertools
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.explain.facts.claim_state import not_owned, unusable, used_by_nobody_else
from dra_driver.explain.subject.subject import WantedClaim
from dra_driver.explain.subject.wanted import Known, of_pod
from dra_driver.model.api.core import Pod
from dra_driver.model.api.resource_claim import ResourceClaim, ResourceClaimSpec
from dra_driver.model.cluster import POD_SCHEDULED

MOST_CLAIMS = 32
"""Of a pod that is compared with others. An ordinary pod has one or two."""


def grouped(
    known: Known, pods: Sequence[Pod], begins: Callable[[Pod], object] = lambda _pod: None
) -> list[list[Pod]]:
    """Return the pods that ask for the same together, in the order of the first of each. `begins` is called with a pod before it is compared."""
    digests = _Digests()
    found: dict[object, list[Pod]] = {}
    for pod in pods:
        begins(pod)
        is_compared = len(pod.spec.resource_claims or ()) <= MOST_CLAIMS
        key = digests.deciding(known, pod) if is_compared else object()
        found.setdefault(key, []).append(pod)
    return list(found.values())


class _OfClaim(Struct, frozen=True):
    """What of a claim is the same for all pods that name it. `slim`: the claim with what is asked for each pod, and nothing that may be large."""

    claim: ResourceClaim
    """Kept, so that no other claim gets its identity."""
    slim: ResourceClaim
    spec: bytes
    status: bytes


class _Digests:
    """Keys for comparing: short ones, because all of them are kept at the same time."""

    def __init__(self) -> None:
        self._specs: dict[int, tuple[object, bytes]] = {}
        """By the identity of the spec, which many claims of one template share. It is kept too, so that no other one gets this identity."""
        self._claims: dict[int, _OfClaim] = {}
        """Of the claims that exist, by their identity."""

    def deciding(self, known: Known, pod: Pod) -> bytes:
        """Return a key that is equal for pods with the same answer."""
        one = of_pod(known.state, pod, live=True, known=known, asks=False)
        said = [each for each in pod.status.conditions or () if each.type == POD_SCHEDULED]
        scheduled = [(each.status, each.reason, each.message) for each in said]
        compared: dict[int, object] = {}
        for each in one.wanted:
            if id(each.claim) not in compared:
                compared[id(each.claim)] = each.claim and self._of_claim(each, each.claim, pod)
        claims = [(_of_wanted(each), compared[id(each.claim)]) for each in one.wanted]
        return _digest((pod.metadata.namespace, one.pod.spec, scheduled, claims))

    def _of_claim(self, wanted: WantedClaim, claim: ResourceClaim, pod: Pod) -> object:
        known = self._known(claim) if wanted.exists else self._read(claim)
        slim = known.slim
        against = [
            type(reason) for reason in (*unusable(slim, pod), *not_owned(slim, pod, groups=True))
        ]
        idle = used_by_nobody_else(slim, pod)
        return known.spec, known.status, claim.metadata.deletion_timestamp is None, against, idle

    def _known(self, claim: ResourceClaim) -> _OfClaim:
        found = self._claims.get(id(claim))
        if found is None:
            found = self._claims[id(claim)] = self._read(claim)
        return found

    def _read(self, claim: ResourceClaim) -> _OfClaim:
        return _OfClaim(claim, _slim(claim), self._of_spec(claim.spec), _digest(claim.status))

    def _of_spec(self, spec: ResourceClaimSpec) -> bytes:
        found = self._specs.get(id(spec))
        if found is None:
            found = self._specs[id(spec)] = (spec, _digest(spec))
        return found[1]


def _of_wanted(wanted: WantedClaim) -> object:
    return (
        "" if wanted.for_this_pod else wanted.name,
        wanted.origin,
        wanted.exists,
        wanted.not_made_yet is None,
        [type(problem) for problem in wanted.problems],
    )


def _slim(claim: ResourceClaim) -> ResourceClaim:
    """Return the claim without finalizers and without owners but its controller: the API server limits the number of neither."""
    owners = (one for one in claim.metadata.owner_references or () if one.controller)
    metadata = replace(
        claim.metadata, finalizers=None, owner_references=[*itertools.islice(owners, 1)]
    )
    return replace(claim, metadata=metadata)


def _digest(what: object) -> bytes:
    return hashlib.sha256(repr(what).encode(errors="surrogatepass")).digest()
