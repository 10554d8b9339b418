# SPDX-License-Identifier: Apache-2.0
"""The one rule by which a claim that was never unprepared may be released."""

import dataclasses

import pytest

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.kube.base import Malformed, NotFound, TooLarge
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.state import Phase, PodDevice, PreparedClaim, PreparedDevice, Unknown
from dra_driver.services.release import Releasable, Silence, is_of
from dra_driver.services.take_back import release_if_unneeded
from dra_driver.testing.builders import (
    A_DRIVER,
    A_PLACE,
    A_POOL,
    a_cdi_id,
    a_claim,
    a_ref,
    a_result,
)
from tests.support.local_node import LocalNode

REF = a_ref("wine")
ROW = PreparedClaim(
    REF,
    Phase.PREPARED,
    "boot-1",
    (PreparedDevice(("gpu",), A_POOL, "gpu-0", (a_cdi_id(a_claim("wine")),), ""),),
    "",
)
HELD_BY_A_POD = "the kubelet says that a pod on this node uses it"


def entry(*, uid: str = "", name: str = "wine", namespace: str = "default", driver: str = A_DRIVER):
    ids = (f"k8s.gpu.dra-driver.dev/claim={uid}-gpu-0",) if uid else ()
    return PodDevice(namespace, name, driver, A_POOL, "gpu-0", cdi_ids=ids)


def answering(found: Claim | DriverError):
    def get_claim(ref: ClaimRef) -> Claim:
        if isinstance(found, DriverError):
            raise found
        return found

    return get_claim


@pytest.mark.parametrize(
    ("held", "found", "why_not"),
    [
        (frozenset(), NotFound("404"), ""),
        (frozenset(), a_claim("wine", uid="another"), ""),
        (frozenset(), a_claim("wine"), "it still exists"),
        (frozenset(), dataclasses.replace(a_claim("wine"), results=None), ""),
        (frozenset(), a_claim("wine", results=[a_result("gpu-3")]), ""),
        (frozenset(), a_claim("wine", results=[a_result(pool="elsewhere")]), ""),
        (frozenset(), a_claim("wine", timestamp="2027-01-15T08:00:00Z"), ""),
        (
            frozenset({entry(uid=REF.uid)}),
            dataclasses.replace(a_claim("wine"), results=None),
            HELD_BY_A_POD,
        ),
        (frozenset({entry(uid="uid-other")}), NotFound("404"), ""),
        (frozenset({entry(uid=REF.uid)}), NotFound("404"), HELD_BY_A_POD),
        (frozenset({entry()}), NotFound("404"), HELD_BY_A_POD),
        (
            Unknown("kubelet 1.33 lists no claims"),
            NotFound("404"),
            "the kubelet's pod-resources cannot tell whether a pod uses it: kubelet 1.33 lists no claims",
        ),
        (
            frozenset(),
            Temporary("timed out"),
            "the API server cannot tell whether it still exists: timed out",
        ),
        (
            frozenset(),
            Malformed("no UTF-8"),
            "what the API server has under its name cannot be read: no UTF-8",
        ),
        (
            frozenset(),
            Permanent("401"),
            "the API server cannot tell whether it still exists: 401",
        ),
    ],
)
def test_a_claim_may_go_only_if_both_sides_say_so(held, found, why_not: str) -> None:
    assert Releasable(A_PLACE, lambda: held, answering(found)).why_not(ROW) == why_not


@pytest.mark.parametrize(
    ("held", "found", "silent"),
    [
        (Unknown("not served"), NotFound("404"), True),
        (frozenset(), Temporary("timed out"), True),
        (frozenset(), Malformed("no UTF-8"), False),
        (frozenset(), TooLarge("20 MiB"), False),
        (frozenset(), a_claim("wine"), False),
    ],
)
def test_what_one_claim_is_to_blame_for_is_no_silence(held, found, silent: bool) -> None:
    reason = Releasable(A_PLACE, lambda: held, answering(found)).why_not(ROW)
    assert reason
    assert isinstance(reason, Silence) is silent


def test_the_api_server_is_not_asked_about_a_claim_that_a_pod_holds() -> None:
    asked: list[ClaimRef] = []

    def get_claim(ref: ClaimRef) -> Claim:
        asked.append(ref)
        raise NotFound("404")

    Releasable(A_PLACE, lambda: frozenset({entry(uid=REF.uid)}), get_claim).why_not(ROW)
    assert asked == []


@pytest.mark.parametrize(
    ("device", "same"),
    [
        (entry(uid=REF.uid), True),
        (entry(uid=REF.uid, name="renamed"), True),
        (entry(uid="uid-wine2"), False),
        (entry(uid="uid"), False),
        (entry(uid=REF.uid, driver="nic.example.com"), False),
        (entry(), True),
        (entry(name="beer"), False),
        (entry(namespace="bar"), False),
    ],
)
def test_an_entry_is_a_claims_by_the_uid_in_its_cdi_ids_else_by_name(device, same: bool) -> None:
    assert is_of(device, REF, A_DRIVER) is same


def test_a_claim_that_was_unprepared_by_the_time_its_lock_is_free_needs_no_release(
    node: LocalNode,
) -> None:
    now = node.parts.clock()
    assert release_if_unneeded(node.parts, REF, lock_until=now, until=now + 1) == ""
    assert node.events == []
