# SPDX-License-Identifier: Apache-2.0
"""A pod joins a claim and is removed again while the claim's watch is broken: it is known before the claim is released."""

import dataclasses
import time
from collections.abc import Callable
from threading import Event

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from dra_driver.errors import Permanent, Temporary
from dra_driver.kube.base import ClaimEvent, Expired, Invalid, Malformed
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.presence import Alive
from dra_driver.services import follow
from dra_driver.services.held import ASK_AGAIN_SECONDS, FREE_SECONDS, HeldDevices
from dra_driver.services.take_back import ASK_SECONDS
from dra_driver.services.unprepare import UnprepareClaims
from dra_driver.testing.builders import a_claim, a_result, an_inventory
from tests.support.local_node import Disk, LocalNode, ManualClock
from tests.unit.services.test_follow import ONE, SHARED, TWO, Bench

NewNode = Callable[..., LocalNode]


@pytest.fixture
def bench(node: LocalNode) -> Bench:
    found = Bench(node)
    node.presences[TWO] = Alive("its cgroup has processes")
    return found


def at(version: int, claim: Claim, *pods: str) -> Claim:
    return dataclasses.replace(claim, reserved_for=pods, resource_version=str(version))


def happens(bench: Bench, *versions: Claim, deleted: bool = False) -> None:
    """The claim changes at the API server; no watch delivers it."""
    for index, claim in enumerate(versions):
        last = deleted and index == len(versions) - 1
        kind = "DELETED" if last else "MODIFIED"
        bench.api.claim_past.append(ClaimEvent(kind, claim.resource_version, claim))  # type: ignore[arg-type]
    bench.api.claims = () if deleted else (versions[-1],)
    bench.node.claims.clear()
    bench.node.add(*bench.api.claims)


def came_and_went(bench: Bench, claim: Claim = SHARED) -> None:
    happens(bench, at(5, claim, ONE, TWO), at(6, claim, ONE))


def unprepare(bench: Bench, *claims: Claim) -> None:
    parts = replace(
        bench.node.parts,
        followed=bench.follower.followed,
        catch_up=bench.follower.catch_up,
    )
    UnprepareClaims(parts)([claim.ref for claim in claims])


def test_a_watch_that_is_begun_again_reads_what_it_has_missed(bench: Bench) -> None:
    bench.prepare(at(1, SHARED, ONE))

    def break_off() -> None:
        came_and_went(bench)
        bench.api.fail("watch", Temporary("broken"))

    bench.watch(break_off, lambda: None)
    assert bench.pods(SHARED) == (ONE, TWO)
    assert bench.api.requests == [
        "find default/shared",
        "watch default/shared 0",
        "find default/shared",
        "changes default/shared 0",
        "watch default/shared 0",
    ]


def test_a_claim_that_is_released_before_its_watch_is_back_keeps_its_device(bench: Bench) -> None:
    bench.prepare(at(1, SHARED, ONE))

    def release_in_the_gap(_stop: Event, _seconds: float) -> bool:
        came_and_went(bench)
        unprepare(bench, SHARED)
        watch.stop.set()
        return True

    bench.follower.once()
    [(watch, _)] = bench.follower._watches.values()
    bench.api.fail("watch", Temporary("broken"))
    watch.run(wait=release_in_the_gap)
    row = bench.node.parts.row(SHARED.ref.uid)
    assert row is not None, "given back while a pod runs that came and went in the gap"
    assert row.held is not None
    assert not row.held.unasked
    assert row.users.pods == (ONE, TWO)


def in_the_gap(bench: Bench) -> None:
    """The watch of the claim is broken; nothing begins it again."""
    bench.prepare(at(1, SHARED, ONE))
    bench.follower.once()
    [(watch, _)] = bench.follower._watches.values()
    watch.look()
    watch._heard = None


def test_nothing_is_asked_if_the_watch_has_delivered_the_claim_as_it_is(bench: Bench) -> None:
    in_the_gap(bench)
    unprepare(bench, SHARED)
    assert bench.node.parts.row(SHARED.ref.uid) is None
    assert bench.api.requests == ["find default/shared"]


def test_changes_that_cannot_be_read_now_are_asked_for_again(bench: Bench) -> None:
    in_the_gap(bench)
    came_and_went(bench)
    bench.api.fail("changes", Temporary("away"))
    unprepare(bench, SHARED)
    row = bench.node.parts.row(SHARED.ref.uid)
    assert row is not None
    assert row.held is not None
    assert row.held.unasked
    # Its watch goes on: nothing else knows from where the changes are missing.
    bench.follower.once()
    assert list(bench.follower._watches) == [SHARED.ref.uid]
    unprepare(bench, SHARED)
    assert bench.pods(SHARED) == (ONE, TWO)
    bench.follower.once()
    assert list(bench.follower._watches) == []


@pytest.mark.parametrize("error", [Permanent("no right to watch"), Expired("too old")])
def test_changes_that_nobody_can_read_any_more_hold_no_device(
    bench: Bench, error: Exception
) -> None:
    in_the_gap(bench)
    came_and_went(bench)
    bench.api.fail("changes", error)  # type: ignore[arg-type]
    unprepare(bench, SHARED)
    assert bench.node.parts.row(SHARED.ref.uid) is None


@pytest.mark.parametrize("last", [(ONE,), (ONE, TWO)])
def test_the_changes_until_a_claim_was_deleted_are_read(
    bench: Bench, last: tuple[str, ...]
) -> None:
    in_the_gap(bench)
    happens(bench, at(5, SHARED, ONE, TWO), at(6, SHARED, *last), deleted=True)
    unprepare(bench, SHARED)
    assert bench.pods(SHARED) == (ONE, TWO)


def test_a_server_that_does_not_have_the_version_yet_is_asked_again(bench: Bench) -> None:
    """One of several API servers answers from a cache that is behind."""
    in_the_gap(bench)
    bench.api.claim_past.append(ClaimEvent("BOOKMARK", "4", None))
    bench.node.claims.clear()
    bench.node.add(at(6, SHARED, ONE))
    unprepare(bench, SHARED)
    row = bench.node.parts.row(SHARED.ref.uid)
    assert row is not None
    assert row.held is not None
    assert row.held.unasked
    came_and_went(bench)
    unprepare(bench, SHARED)
    assert bench.pods(SHARED) == (ONE, TWO)


@pytest.mark.parametrize("error", [None, Invalid("403: no verb watch"), Malformed("half a pair")])
def test_changes_that_cannot_be_read_hide_no_pod_that_is_there_now(
    bench: Bench, error: Exception | None
) -> None:
    in_the_gap(bench)
    [(watch, _)] = bench.follower._watches.values()
    bench.api.claims = (at(5, SHARED, ONE, TWO),)
    if error is not None:
        bench.api.fail("changes", error)  # type: ignore[arg-type]
    watch.look()
    assert bench.pods(SHARED) == (ONE, TWO)


def test_a_deletion_that_the_watch_has_delivered_is_not_asked_for_again(bench: Bench) -> None:
    bench.prepare(at(1, SHARED, ONE))
    watch = bench.watch(bench.change(at(5, SHARED, ONE), "DELETED"))
    watch.stop = Event()
    bench.node.claims.clear()
    bench.api.requests.clear()
    unprepare(bench, SHARED)
    assert bench.api.requests == []
    assert bench.node.parts.row(SHARED.ref.uid) is None


def test_a_server_that_was_restored_is_not_asked_for_what_it_does_not_have(bench: Bench) -> None:
    in_the_gap(bench)
    [(watch, _)] = bench.follower._watches.values()
    watch._version = "90"
    bench.node.claims.clear()
    bench.node.add(at(7, SHARED, ONE))
    unprepare(bench, SHARED)
    assert bench.node.parts.row(SHARED.ref.uid) is None
    assert bench.api.requests == ["find default/shared"]


def test_a_claim_that_is_polled_is_not_given_back_either(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MOST_WATCHES", 0)
    bench.prepare(at(1, SHARED, ONE))
    bench.follower.once()
    came_and_went(bench)
    unprepare(bench, SHARED)
    assert bench.pods(SHARED) == (ONE, TWO)


def test_a_claim_that_is_polled_is_read_at_once_for_the_first_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MOST_WATCHES", 0)
    bench.prepare(a_claim("first", results=[a_result("gpu-1")], sole=False))
    bench.follower.once()
    bench.clock.now += 1.0  # long before the next poll
    bench.prepare(at(1, SHARED, ONE))
    bench.follower.once()
    bench.follower.once()
    assert bench.api.requests == ["find default/first", "find default/shared"]
    came_and_went(bench)
    unprepare(bench, SHARED)
    assert bench.pods(SHARED) == (ONE, TWO)


def test_a_claim_that_was_polled_is_watched_from_where_it_was_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MOST_WATCHES", 0)
    bench.prepare(at(1, SHARED, ONE))
    bench.follower.once()
    monkeypatch.setattr(follow, "MOST_WATCHES", 1)
    came_and_went(bench)
    bench.watch(lambda: None)
    assert bench.pods(SHARED) == (ONE, TWO)


def test_slow_answers_about_many_claims_do_not_add_up(bench: Bench) -> None:
    others = [a_claim(f"c{n}", results=[a_result(f"gpu-{n}")], sole=False) for n in (1, 2)]
    bench.prepare(*(at(1, claim, ONE) for claim in (SHARED, *others)))
    asked: list[str] = []

    def slow(ref: object, _claim: Claim | None) -> None:
        asked.append(str(ref))

    def clock() -> float:
        return time.monotonic() + len(asked) * (ASK_SECONDS + 0.1)

    parts = replace(bench.node.parts, catch_up=slow, clock=clock)
    UnprepareClaims(parts)([claim.ref for claim in (SHARED, *others)])
    assert len(asked) == 1
    rows = [bench.node.parts.row(claim.ref.uid) for claim in (SHARED, *others)]
    assert [row is not None and row.held is not None and row.held.unasked for row in rows] == [
        False,
        True,
        True,
    ]


def test_slow_answers_about_one_held_claim_take_no_time_from_the_next(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock, inventory=an_inventory(8))
    claims = [
        a_claim(f"c{index}", results=[a_result(f"gpu-{index}")], sole=False) for index in range(8)
    ]
    refs = node.add(*claims)
    node.prepare(*refs)
    for ref in refs:
        node.delete(ref)

    def slow(_ref: ClaimRef, _claim: Claim | None) -> None:
        clock.now += ASK_SECONDS

    parts = replace(node.parts, catch_up=slow)
    UnprepareClaims(parts)(refs)
    left = len(node.disk().claims)
    assert left > FREE_SECONDS // ASK_SECONDS
    clock.now += ASK_AGAIN_SECONDS
    with capture_logs() as logs:
        HeldDevices(parts, node.store, freed=lambda: None).once()
    assert node.disk() == Disk()
    assert logs == []
