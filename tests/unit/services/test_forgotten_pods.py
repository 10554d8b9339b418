# SPDX-License-Identifier: Apache-2.0
"""A claim that is adopted keeps what its row knew already: pods that the API server does not have any more, and their devices."""

import dataclasses
from collections.abc import Callable

import pytest

from dra_driver.errors import Permanent
from dra_driver.model.claim import Claim
from dra_driver.model.plan import Refusal
from dra_driver.model.state import Phase, Unknown
from dra_driver.services.adopt import take_up_pod_claims
from dra_driver.testing.builders import a_claim, a_result
from tests.support.local_node import LocalNode, ManualClock
from tests.unit.services.test_follow import ONE, SHARED, TWO, Bench
from tests.unit.services.test_lost_state import RUNS, as_the_kubelet_lists, let_run
from tests.unit.services.test_missed_pods import at, unprepare


@pytest.fixture
def node(new_node: Callable[..., LocalNode]) -> LocalNode:
    """Its time passes by sleeping only, so that whoever waits has waited at once."""
    return new_node(clock=ManualClock())


class Crash(BaseException):
    """The process dies here; no part of the driver may swallow it."""


def lost(node: LocalNode, claim: Claim) -> Bench:
    """The claim was prepared; its row and its file are lost, and the kubelet lists it."""
    bench = Bench(node)
    bench.prepare(claim)
    node.lose_state()
    bench.follower._store = node.store
    node.cdi.remove(claim.ref.uid)
    node.pod_devices = as_the_kubelet_lists(claim)
    return bench


def follow(bench: Bench, claim: Claim) -> None:
    """The API server has this version of the claim, and its watch delivers it."""
    bench.node.add(claim)
    bench.api.claims = (claim,)
    bench.follower.once()
    for watch, _ in bench.follower._watches.values():
        watch.look()


def assert_kept_for_two(bench: Bench) -> None:
    """TWO was deleted by force, and its containers run on: unprepare holds the device."""
    node = bench.node
    follow(bench, at(9, SHARED, ONE))
    node.presences = {TWO: RUNS}
    node.pod_devices = frozenset()
    unprepare(bench, SHARED)
    row = node.parts.row(SHARED.ref.uid)
    assert row is not None, "given back while a pod runs that joined"
    assert row.held is not None
    node.fetch = node.stored
    (other,) = node.add(a_claim("other"))
    assert isinstance(node.prepare(other)[other.uid], Refusal)


def test_a_pod_that_joins_while_a_lost_claim_is_set_up_again_is_known(node: LocalNode) -> None:
    bench = lost(node, at(1, SHARED, ONE))
    works = node.configure

    def configure(lease) -> None:
        follow(bench, at(2, SHARED, ONE, TWO))

    node.configure = configure
    assert node.sweep() == ()
    node.configure = works
    assert bench.pods(SHARED) == (ONE, TWO)
    assert_kept_for_two(bench)


def test_a_pod_that_joins_after_a_crash_in_the_middle_is_known(node: LocalNode) -> None:
    bench = lost(node, at(1, SHARED, ONE))

    def point(name: str) -> None:
        if name == "step.MarkPrepared.after":
            raise Crash

    node.restart(point=point)
    with pytest.raises(Crash):
        node.sweep()
    node.restart()
    node.recover()
    bench.follower._store = node.store
    follow(bench, at(2, SHARED, ONE, TWO))
    follow(bench, at(3, SHARED, ONE))
    assert node.sweep() == ()
    assert bench.pods(SHARED) == (ONE, TWO)
    assert_kept_for_two(bench)


def test_a_reservation_that_is_written_again_forgets_no_pod(node: LocalNode) -> None:
    bench = lost(node, at(1, SHARED, ONE, TWO))
    node.presences |= {ONE: RUNS, TWO: RUNS}
    inventory, node.inventory = node.inventory, dataclasses.replace(node.inventory, devices=())
    assert node.sweep() != ()
    follow(bench, at(2, SHARED, ONE))
    assert node.sweep() != ()
    assert bench.pods(SHARED) == (ONE, TWO)
    node.inventory = inventory
    assert_kept_for_two(bench)


def test_no_device_is_set_up_while_a_pod_runs_that_only_the_row_knows(node: LocalNode) -> None:
    bench = lost(node, at(1, SHARED, ONE, TWO))
    node.presences[TWO] = RUNS
    inventory, node.inventory = node.inventory, dataclasses.replace(node.inventory, devices=())
    assert node.sweep() != ()
    node.inventory = inventory
    follow(bench, at(2, SHARED, ONE))
    node.backend_calls.clear()
    assert node.sweep() == ()
    assert node.backend_calls == []


@pytest.mark.parametrize("dies", [False, True])
def test_a_device_whose_set_up_did_not_end_is_set_up_although_a_pod_was_started_meanwhile(
    node: LocalNode, dies: bool
) -> None:
    """The pod's sandbox runs. Without the claim's file it has no container yet."""
    claim = a_claim()
    lost(node, claim)

    def fail(lease) -> None:
        raise Permanent("the fan is stuck")

    works, node.configure = node.configure, fail
    assert node.sweep() != ()
    node.configure = works
    if dies:
        node.restart()
        node.recover()
    let_run(node, claim)
    node.backend_calls.clear()
    assert node.sweep() == ()
    assert [verb for verb, *_ in node.backend_calls] == ["configure"]
    row = node.parts.row(claim.ref.uid)
    assert row is not None
    assert row.phase is Phase.PREPARED


@pytest.mark.parametrize("listed", [frozenset(), Unknown("kubelet 1.33")])
@pytest.mark.parametrize("damaged", [False, True])
def test_devices_that_a_file_described_stay_reserved_if_the_claim_is_allocated_otherwise_now(
    node: LocalNode, listed: frozenset[object] | Unknown, damaged: bool
) -> None:
    """etcd was restored, or a named claim is allocated again; the pod of before may run."""
    claim = a_claim("named", sole=False)
    (ref,) = node.add(claim)
    node.prepare(ref)
    node.lose_state()
    let_run(node, claim)
    node.pod_devices = listed  # type: ignore[assignment]
    take_up_pod_claims(
        node.parts, node.store, node.cdi.documents, lambda: node.pod_devices, at_start=True
    )
    node.recover()
    if damaged:
        node.cdi.write(ref.uid, "")
    node.add(a_claim("named", sole=False, pods=["yesterday"], results=[a_result("gpu-3")]))
    node.sweep()
    (other,) = node.add(a_claim("other"))
    assert isinstance(node.prepare(other)[other.uid], Refusal)
