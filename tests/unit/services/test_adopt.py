# SPDX-License-Identifier: Apache-2.0
"""Claims of running pods that a lost state does not know."""

import dataclasses

import pytest
from msgspec.structs import replace

from dra_driver.errors import Permanent
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.plan import Refusal
from dra_driver.model.presence import Alive
from dra_driver.model.state import PodDevice, Unknown
from dra_driver.planning.prepare import users_of
from dra_driver.services.adopt import name_requests, take_up_allocated, take_up_pod_claims
from dra_driver.testing.builders import (
    A_DRIVER,
    A_POOL,
    a_cdi_id,
    a_claim,
    a_config,
    a_ref,
    a_result,
)
from tests.support.local_node import Disk, LocalNode


def held_by(ref: ClaimRef, device: str = "gpu-0", *, claim: Claim | None = None) -> PodDevice:
    claim = claim or a_claim(ref.name, results=[a_result(device)])
    ids = (a_cdi_id(claim, device),)
    return PodDevice(ref.namespace, ref.name, A_DRIVER, A_POOL, device, cdi_ids=ids)


def take_up(node: LocalNode) -> dict:
    return dict(
        take_up_pod_claims(node.parts, node.store, node.cdi.documents, lambda: node.pod_devices)
    )


def test_the_kubelet_is_not_asked_when_every_file_is_known(node: LocalNode) -> None:
    node.prepare(*node.add(a_claim()))

    def held():
        raise AssertionError("asked without need")

    assert take_up_pod_claims(node.parts, node.store, node.cdi.documents, held) == {}


def test_a_held_claim_is_reserved_without_the_api_server_and_the_inventory(node: LocalNode) -> None:
    mine = a_claim(configs=[a_config(label="x")])
    ref, other = node.add(mine, a_claim("other"))
    answer = node.prepare(ref)[ref.uid]
    before = node.disk()
    node.lose_state()
    node.pod_devices = frozenset({held_by(ref, claim=mine)})

    def fetch(_ref):
        raise AssertionError("the API server was asked")

    node.fetch = fetch
    assert take_up(node) == {}
    assert node.disk() == before
    node.fetch = node.stored
    assert isinstance(node.prepare(other)[other.uid], Refusal)
    (found,) = node.prepare(ref)[ref.uid]
    assert found == dataclasses.replace(answer[0], request_names=())
    # The API server knows the claim after all.
    name_requests(node.parts, node.stored(ref))
    assert node.prepare(ref)[ref.uid] == answer
    name_requests(node.parts, node.stored(ref))
    assert node.disk() == before


def test_nothing_is_taken_up_when_the_kubelet_cannot_be_asked_or_names_nobody(
    node: LocalNode,
) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.lose_state()
    for node.pod_devices in (
        Unknown("no socket"),
        frozenset(),
        frozenset({held_by(a_ref("else"))}),
    ):
        assert take_up(node) == {}
        assert node.disk().claims == {}
    node.cdi.remove(ref.uid)


def test_a_device_that_somebody_else_has_by_now_is_named(node: LocalNode) -> None:
    ref, other = node.add(a_claim(), a_claim("other"))
    node.prepare(ref)
    node.lose_state()
    node.prepare(other)
    node.pod_devices = frozenset({held_by(ref)})
    assert take_up(node) == {
        ref.uid: f"claim {ref} is not in the state and cannot be taken up: "
        f"device {A_POOL}/gpu-0 of claim {ref} is owned by claim {other}"
    }
    node.cdi.remove(ref.uid)


@pytest.mark.parametrize("asks", ["the kubelet alone", "the API server too"])
def test_a_device_that_somebody_else_has_costs_the_claim_no_other_device(
    node: LocalNode, asks: str
) -> None:
    claim = a_claim(results=[a_result("gpu-0"), a_result("gpu-1")])
    ref, other, third = node.add(
        claim, a_claim("other"), a_claim("third", results=[a_result("gpu-1")])
    )
    node.prepare(ref)
    node.lose_state()
    node.prepare(other)
    node.pod_devices = frozenset(held_by(ref, name, claim=claim) for name in ("gpu-0", "gpu-1"))
    if asks == "the kubelet alone":
        [said] = take_up(node).values()
        assert f"gpu-0 of claim {ref} is owned by claim {other}" in said
    else:
        said = take_up_allocated(node.parts, claim, lambda: node.pod_devices)
        assert said == f"its device gpu-0 is prepared for claim {other}"
    owners = {device: uid for _, device, _, uid in node.disk().owners}
    assert owners == {"gpu-0": other.uid, "gpu-1": ref.uid}
    assert isinstance(node.prepare(third)[third.uid], Refusal)
    node.cdi.remove(ref.uid)


@pytest.mark.parametrize("verb", ["prepare", "unprepare"])
def test_what_the_kubelet_did_meanwhile_counts(node: LocalNode, verb: str) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    node.lose_state()

    def held():
        getattr(node, verb)(ref)
        return frozenset({held_by(ref)})

    assert take_up_pod_claims(node.parts, node.store, node.cdi.documents, held) == {}
    assert node.disk() == (before if verb == "prepare" else Disk())


def test_a_claim_that_was_prepared_and_released_meanwhile_stays_as_it_is(node: LocalNode) -> None:
    """It is held for a pod that runs on; its file, which is gone, must not come back."""
    claim = a_claim()
    (ref,) = node.add(claim)
    node.prepare(ref)
    node.presences = {pod: Alive("3 processes") for pod in users_of(claim).pods or ()}
    node.unprepare(ref)
    before = node.disk()
    assert (before.claims.keys(), before.files) == ({ref.uid}, {})
    named = frozenset({held_by(ref)})
    assert take_up_allocated(node.parts, claim, lambda: named) == ""
    assert node.disk() == before


@pytest.mark.parametrize("text", [None, "{}"])
def test_a_start_without_any_row_reserves_what_the_kubelet_alone_still_knows(
    node: LocalNode, text: str | None
) -> None:
    mine = a_claim()
    ref, other = node.add(mine, a_claim("other"))
    answer = node.prepare(ref)
    node.cdi.remove(ref.uid)
    if text is not None:
        node.cdi.write(ref.uid, text)
    node.lose_state()
    node.pod_devices = frozenset(
        {held_by(ref, claim=mine), replace(held_by(ref), driver="nic.example.com")}
    )
    assert text is not None or take_up(node) == {}
    assert node.disk().claims == {}
    found = take_up_pod_claims(
        node.parts, node.store, node.cdi.documents, lambda: node.pod_devices, at_start=True
    )
    assert "its CDI file" in found[ref.uid]
    assert node.disk().claims == {ref.uid: ("Started", "boot-1")}
    refused = node.prepare(other)[other.uid]
    assert isinstance(refused, Refusal)
    assert f"is prepared for claim {ref}" in refused.reason
    # The API server knows it after all.
    node.sweep()
    assert node.prepare(ref) == answer
    assert node.unprepare(ref) == {ref.uid: None}
    assert node.disk() == Disk()


def test_a_start_without_any_row_gives_nobodys_device_away(node: LocalNode) -> None:
    mine = a_claim()
    ref, other = node.add(mine, a_claim("other"))
    node.prepare(ref)
    node.cdi.remove(ref.uid)
    node.lose_state()

    def held():
        node.prepare(other)  # by another process
        return frozenset({held_by(ref, claim=mine)})

    found = take_up_pod_claims(node.parts, node.store, node.cdi.documents, held, at_start=True)
    assert set(found) == {ref.uid}
    assert node.disk().claims == {other.uid: ("Prepared", "boot-1")}


def test_whose_file_stands_comes_before_whom_the_kubelet_alone_names(node: LocalNode) -> None:
    """The kubelet does not tell of admin access: the other claim may have had that."""
    watching, mine = a_claim("a", results=[a_result(admin=True)]), a_claim("b")
    for claim in (watching, mine):
        node.prepare(*node.add(claim))
    node.cdi.remove(watching.ref.uid)
    node.lose_state()
    node.pod_devices = frozenset({held_by(one.ref, claim=one) for one in (watching, mine)})
    take_up_pod_claims(
        node.parts, node.store, node.cdi.documents, lambda: node.pod_devices, at_start=True
    )
    assert node.disk().claims == {mine.ref.uid: ("Prepared", "boot-1")}


def test_a_name_that_this_driver_did_not_make_reserves_nothing(node: LocalNode) -> None:
    strange = replace(held_by(a_ref()), cdi_ids=("k8s.gpu.dra-driver.dev/claim=gpu-0",))
    node.pod_devices = frozenset({strange})
    found = take_up_pod_claims(
        node.parts, node.store, node.cdi.documents, lambda: node.pod_devices, at_start=True
    )
    assert (found, node.disk()) == ({}, Disk())


def test_requests_are_not_named_for_a_claim_that_is_another_by_now(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.lose_state()
    node.pod_devices = frozenset({held_by(ref)})
    take_up(node)
    before = node.prepare(ref)
    for claim in (
        dataclasses.replace(a_claim(), results=None),
        a_claim(results=[a_result("gpu-1")]),
        a_claim(configs=[a_config(label="new")]),
    ):
        name_requests(node.parts, claim)
        assert node.prepare(ref) == before
    node.unprepare(ref)
    name_requests(node.parts, a_claim())
    assert node.disk() == Disk()


def test_a_state_that_cannot_be_written_is_the_callers_business(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.lose_state()
    node.pod_devices = frozenset({held_by(ref)})

    def point(_name: str) -> None:
        raise Permanent("no")

    node.restart(point=point)
    assert take_up(node) == {ref.uid: f"claim {ref} is not in the state and cannot be taken up: no"}
    node.restart()
    node.unprepare(ref)
