# SPDX-License-Identifier: Apache-2.0
"""Which changes of constraints may help? Their names are corrected, or they are left out, alone or together with the end of claims."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from dra_driver.cel.cancellation import Check
from dra_driver.explain import conflict
from dra_driver.explain.costs import COSTS
from dra_driver.explain.names import full_name
from dra_driver.explain.proposals import Candidate, Proposal
from dra_driver.model.api.resource_claim import ResourceClaim


def constraint_texts(claims: Sequence[ResourceClaim]) -> Sequence[str]:
    """Return the constraints of the claims, each text once."""
    found = (
        conflict.constraint_text(constraint)
        for claim in claims
        for constraint in claim.spec.devices.constraints or ()
    )
    return list(dict.fromkeys(found))


def unconstrained(claims: Sequence[ResourceClaim]) -> Mapping[str, ResourceClaim]:
    """Return the claims without their constraints, by "namespace/name"."""
    return {full_name(one.metadata): conflict.without_constraints(one) for one in claims}


def of_constraints(
    claims: Mapping[str, ResourceClaim], published: Collection[str], stop: Check
) -> Iterator[Proposal]:
    """Propose for each constraint: correct its attribute's name, if it looks mistyped, and leave the constraint out.

    If several look mistyped, all of them together too: one alone may be no help. `published` are the attributes that devices have.
    """
    for name, claim in claims.items():
        corrected: list[str] = []
        right = claim
        for index, constraint in enumerate(claim.spec.devices.constraints or ()):
            if stop():
                return
            near = conflict.near_attribute(constraint, published)
            if near:
                write = f"write {near} instead of {conflict.attribute_of(constraint)}"
                yield _correct(name, [write], conflict.with_attribute(claim, index, near))
                corrected.append(write)
                right = conflict.with_attribute(right, index, near)
            part = conflict.ClaimPart(0, "constraint", index)
            (rest,) = conflict.without([claim], [part])
            text = conflict.constraint_text(constraint)
            what = f"claim {name}: leave out the constraint {text}"
            yield Proposal(what, rest, "edit", COSTS["edit"])
        if len(corrected) > 1:
            yield _correct(name, corrected, right)


def _correct(name: str, corrections: Sequence[str], right: ResourceClaim) -> Proposal:
    what = f"claim {name}: {' and '.join(dict.fromkeys(corrections))}"
    return Proposal(what, right, "correct", COSTS["correct"] * len(corrections))


def with_ends(
    ending: Sequence[Candidate], claims: Sequence[ResourceClaim], proposals: Sequence[Proposal]
) -> Iterator[Candidate]:
    """Yield what has to change besides, if constraints make the end of claims useless. `proposals` are those of `of_constraints`.

    For the first of `ending`, it is enough that there are no constraints.
    """
    corrected = [one for one in proposals if one.kind == "correct"]
    yield from (one.and_also(right) for one in ending for right in corrected)
    left_out = [one for one in proposals if one.kind == "edit"]
    yield from (ending[0].and_also(one) for one in left_out)
    if len(left_out) > 1:
        what = "; ".join(one.what for one in left_out)
        cost = sum(one.cost for one in left_out)
        yield replace(ending[0], what=what, claims=unconstrained(claims), kind="edit", cost=cost)
