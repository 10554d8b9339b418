# SPDX-License-Identifier: Apache-2.0
"""Which pods join a claim that is prepared here, and does its allocation change?"""

import dataclasses
from collections.abc import Callable
from threading import Event

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.kube.base import ClaimEvent, Expired, Malformed, NotServed, TooLarge
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import (
    ClaimPrepared,
    ClaimUnprepared,
    DriverEvent,
    Leading,
    Recovered,
    ThreadFailed,
)
from dra_driver.model.ids import PodUid
from dra_driver.model.presence import Alive
from dra_driver.model.state import Held
from dra_driver.services import follow
from dra_driver.services.follow import ClaimFollower, ClaimWatch
from dra_driver.services.pace import RETRY_SECONDS, delay_after
from dra_driver.services.prepare import PrepareClaims
from dra_driver.services.reserved_versions import MANY, REMEMBERED_SECONDS, ReservedVersions
from dra_driver.services.unprepare import UnprepareClaims
from dra_driver.testing.builders import A_PLACE, a_claim, a_pod, a_ref, a_result, a_uid
from tests.support.local_node import LocalNode, ManualClock
from tests.support.scripted_api import ScriptedApi


class Bench:
    """A follower on a node with one prepared claim; its watches run only when a test lets them."""

    def __init__(self, node: LocalNode) -> None:
        self.node = node
        self.clock = ManualClock()
        self.api = ScriptedApi()
        self.changed: list[ClaimRef] = []
        self.events: list[DriverEvent] = []
        self.begun: list[Callable[..., None]] = []
        self.joined: list[float] = []
        self.follower = ClaimFollower(
            self.api,
            node.store,
            A_PLACE,
            changed=self.changed.append,
            observe=self.events.append,
            clock=self.clock,
            start=self.start,
        )

    def start(self, run: Callable[..., None]) -> Callable[[float], None]:
        self.begun.append(run)
        return self.joined.append

    def connect(self) -> None:
        """Let the calls of the node tell the follower, and ask it."""
        node = self.node
        node.parts = replace(
            node.parts,
            reserved=self.follower.reserved,
            unwatched=self.follower.unwatched,
            followed=self.follower.followed,
            catch_up=self.follower.catch_up,
        )
        node.prepare_claims = PrepareClaims(node.parts, node.stored, node.workers)

    def prepare(self, *claims: Claim) -> None:
        self.api.claims += claims
        for answer in self.node.prepare(*self.node.add(*claims)).values():
            assert isinstance(answer, tuple), answer

    def change(self, claim: Claim, kind: str = "MODIFIED") -> Callable[[], None]:
        """A step: the API server's claim changes."""

        def step() -> None:
            others = tuple(known for known in self.api.claims if known.ref != claim.ref)
            self.api.claims = others if kind == "DELETED" else (*others, claim)
            self.api.claim_news.append(ClaimEvent(kind, "7", claim))  # type: ignore[arg-type]

        return step

    def watch(self, *steps: Callable[[], object]) -> ClaimWatch:
        """Let the one watch run to the end of a script."""
        self.follower.once()
        [(watch, _)] = self.follower._watches.values()

        def run(stop: Event, wait: Callable[[Event, float], bool]) -> None:
            watch.stop = stop
            watch.run(wait=wait)

        self.api.follow(run, *steps)
        return watch

    def pods(self, claim: Claim) -> tuple[PodUid, ...] | None:
        row = self.node.parts.row(claim.ref.uid)
        assert row is not None
        return row.users.pods


SHARED = a_claim("shared", sole=False)
ONE, TWO, THREE = a_pod("shared"), PodUid("pod-two"), PodUid("pod-three")


@pytest.fixture
def bench(node: LocalNode) -> Bench:
    return Bench(node)


def _with(claim: Claim, *pods: PodUid) -> Claim:
    return dataclasses.replace(claim, reserved_for=pods)


def test_pods_that_join_a_claim_are_remembered_and_none_is_forgotten(bench: Bench) -> None:
    bench.prepare(SHARED)
    bench.api.claims = (_with(SHARED, ONE, TWO),)
    bench.watch(bench.change(_with(SHARED, TWO, THREE)), bench.change(_with(SHARED)))
    assert bench.pods(SHARED) == (ONE, TWO, THREE)
    assert bench.changed == []
    assert bench.api.requests == ["find default/shared", "watch default/shared 0"]


def test_a_pod_that_came_and_went_before_the_watch_began_is_remembered(
    bench: Bench,
) -> None:
    """From the version that the prepare call has read the changes are known: here by the watch's first look."""
    bench.connect()
    bench.prepare(dataclasses.replace(SHARED, resource_version="3"))
    bench.api.claims = (dataclasses.replace(_with(SHARED), resource_version="7"),)
    bench.api.claim_past.append(ClaimEvent("MODIFIED", "5", _with(SHARED, TWO)))
    bench.api.claim_past.append(ClaimEvent("MODIFIED", "7", _with(SHARED)))
    bench.watch()
    assert bench.pods(SHARED) == (ONE, TWO)
    assert bench.api.requests[:2] == ["find default/shared", "changes default/shared 3"]


@pytest.mark.parametrize("claim", [SHARED, a_claim("made")], ids=["shared", "of a template"])
def test_a_claim_that_ends_before_its_watch_began_is_asked_for_its_pods(
    bench: Bench, node: LocalNode, claim: Claim
) -> None:
    follower = bench.follower
    bench.connect()
    [one] = claim.reserved_for
    bench.prepare(dataclasses.replace(claim, resource_version="3"))
    assert follower.unwatched(claim.ref)
    node.add(dataclasses.replace(_with(claim, one), resource_version="7"))
    bench.api.claim_past.append(ClaimEvent("MODIFIED", "5", _with(claim, one, TWO)))
    bench.api.claim_past.append(ClaimEvent("MODIFIED", "7", _with(claim, one)))
    node.presences[TWO] = Alive("its cgroup has processes")
    assert UnprepareClaims(node.parts)([claim.ref]) == {claim.ref.uid: None}
    row = node.parts.row(claim.ref.uid)
    assert row is not None, "given back while a pod runs that came and went unseen"
    assert row.users.pods == (one, TWO)


def _comes_and_goes_unseen(bench: Bench, claim: Claim) -> PodUid:
    """A pod uses the claim for a moment: only the API server's changes between versions 3 and 7 name it, and it still runs."""
    present = dataclasses.replace(claim, resource_version="7")
    bench.api.claims = (present,)
    bench.node.add(present)
    past = (_with(claim, *claim.reserved_for, TWO), "5"), (present, "7")
    bench.api.claim_past += [ClaimEvent("MODIFIED", version, one) for one, version in past]
    bench.node.presences[TWO] = Alive("its cgroup has processes")
    return TWO


def _assert_kept_for(bench: Bench, claim: Claim, pod: PodUid) -> None:
    assert UnprepareClaims(bench.node.parts)([claim.ref]) == {claim.ref.uid: None}
    row = bench.node.parts.row(claim.ref.uid)
    assert row is not None, "given back while a pod runs that came and went unseen"
    assert pod in (row.users.pods or ())


def test_a_claim_stays_unwatched_until_its_watch_has_read_it(bench: Bench) -> None:
    """To begin a watch is not yet to know something: the API server may be slow or away."""
    claim = a_claim("made")
    bench.connect()
    bench.prepare(dataclasses.replace(claim, resource_version="3"))
    bench.follower.once()
    assert len(bench.begun) == 1
    assert bench.follower.unwatched(claim.ref)
    _assert_kept_for(bench, claim, _comes_and_goes_unseen(bench, claim))


def test_a_claim_that_was_read_by_its_watch_is_not_asked_for_again(bench: Bench) -> None:
    claim = a_claim("made")
    bench.connect()
    bench.prepare(claim)
    bench.watch()
    assert not bench.follower.unwatched(claim.ref)


def test_a_claim_that_another_process_prepared_is_unwatched(bench: Bench) -> None:
    """Two processes serve a node during an update, and the follower sees the other's rows only after a while."""
    claim = a_claim("made")
    bench.prepare(claim)  # not connected: this follower was not told
    bench.connect()
    bench.node.add(_with(claim, *claim.reserved_for, TWO))
    bench.node.presences[TWO] = Alive("its cgroup has processes")
    _assert_kept_for(bench, claim, TWO)


def test_the_version_is_noted_before_the_row_can_be_seen(bench: Bench, node: LocalNode) -> None:
    """Else a look in between begins a watch that does not know from where to read."""
    bench.connect()
    seen: list[bool] = []

    def reserved(claim: Claim) -> None:
        seen.append(node.store._db.in_transaction)  # a look waits for its end
        bench.follower.reserved(claim)

    node.parts = replace(node.parts, reserved=reserved)
    node.prepare_claims = PrepareClaims(node.parts, node.stored, node.workers)
    bench.prepare(dataclasses.replace(SHARED, resource_version="3"))
    assert seen == [True]


def test_a_look_before_the_row_is_written_forgets_no_version(bench: Bench) -> None:
    bench.connect()
    bench.follower.reserved(dataclasses.replace(SHARED, resource_version="3"))
    bench.follower.once()
    bench.prepare(dataclasses.replace(SHARED, resource_version="6"))
    _assert_kept_for(bench, SHARED, _comes_and_goes_unseen(bench, SHARED))


def test_a_look_during_a_release_hides_no_change(bench: Bench) -> None:
    bench.connect()
    bench.prepare(dataclasses.replace(SHARED, resource_version="3"))

    class Racing(dict):  # type: ignore[type-arg]
        def get(self, key: object, default: object = None) -> object:
            found = super().get(key, default)
            bench.follower._watches = dict(self)  # once
            bench.follower.once()
            return found

    pod = _comes_and_goes_unseen(bench, SHARED)
    bench.follower._watches = Racing()
    bench.follower.catch_up(SHARED.ref, bench.api.claims[0])
    assert bench.pods(SHARED) == (ONE, pod)


def test_of_two_versions_before_a_watch_the_first_one_counts(bench: Bench) -> None:
    """For example if the claim was allocated anew within a second: pods of the time before may run."""
    bench.connect()
    bench.prepare(dataclasses.replace(SHARED, resource_version="3"))
    bench.follower.reserved(dataclasses.replace(SHARED, resource_version="6"))
    pod = _comes_and_goes_unseen(bench, SHARED)
    bench.watch()
    assert bench.pods(SHARED) == (ONE, pod)


def test_versions_that_no_watch_takes_over_are_forgotten(bench: Bench) -> None:
    """A process that stands by begins no watches."""
    for number in range(1000):
        bench.follower.reserved(a_claim(f"c{number}"))
        bench.clock.now += 1
    assert len(bench.follower._reserved) == REMEMBERED_SECONDS + 1
    bench.clock.now += REMEMBERED_SECONDS + 1
    last = dataclasses.replace(a_claim("c999"), resource_version="9")
    bench.follower.reserved(last)
    assert (len(bench.follower._reserved), bench.follower._reserved.of(last.ref.uid)) == (1, "9")


def test_the_version_of_a_claim_that_ended_is_forgotten_unless_it_is_prepared_again(
    bench: Bench,
) -> None:
    bench.connect()
    over, again = a_claim("over"), a_claim("again")
    for claim in (over, again):
        bench.follower.reserved(claim)
        bench.follower(ClaimUnprepared(claim.ref, 0.1))
    bench.follower(ClaimUnprepared(a_ref("never noted"), 0.1))
    bench.follower.reserved(again)
    bench.follower.once()
    assert not bench.follower._reserved.of(over.ref.uid)
    assert bench.follower._reserved.of(again.ref.uid) == again.resource_version
    assert len(bench.follower._reserved) == 1


def test_claims_that_come_and_go_without_a_pause_do_not_wait_for_one(bench: Bench) -> None:
    bench.connect()
    for number in range(MANY):
        assert not bench.follower._is_quiet(bench.clock.now)
        claim = a_claim(f"c{number}")
        bench.follower.reserved(claim)
        bench.follower(ClaimUnprepared(claim.ref, 0.1))
    assert bench.follower._is_quiet(bench.clock.now)
    bench.follower.once()
    assert len(bench.follower._reserved) == 0
    assert not bench.follower._is_quiet(bench.clock.now)


def test_a_claim_that_failed_to_end_or_is_held_keeps_its_version(bench: Bench) -> None:
    bench.connect()
    bench.follower.reserved(SHARED)
    bench.follower(ClaimUnprepared(SHARED.ref, 0.1, error="the device is busy"))
    bench.follower.once()
    assert bench.follower._reserved.of(SHARED.ref.uid) == SHARED.resource_version


def test_a_claim_that_is_prepared_again_during_a_look_keeps_its_version() -> None:
    versions = ReservedVersions(lambda: 0.0)
    uid, held = a_uid("again"), a_uid("held")
    for one in (uid, held):
        versions.note(one, "3")
        versions.ended(one)
    ended = versions.begin_look()
    versions.note(uid, "5")
    versions.ended(uid)
    versions.end_look(ended, watched=(), there={held})
    assert (versions.of(uid), versions.of(held)) == ("3", "3")


def test_news_that_a_look_clears_while_they_arrive_cost_no_call(bench: Bench) -> None:
    class Cleared(ClaimFollower):
        """The follower's thread clears the news whenever another thread has read them."""

        kept: tuple[float, float] | None = None

        @property
        def _news(self) -> tuple[float, float] | None:
            found, self.kept = self.kept, None
            return found

        @_news.setter
        def _news(self, news: tuple[float, float] | None) -> None:
            self.kept = news

    follower = Cleared(bench.api, bench.node.store, A_PLACE, changed=bench.changed.append)
    for _ in range(2):
        follower(ClaimPrepared(SHARED.ref, 0.1))
    assert follower.kept is not None


def test_a_template_s_claim_that_another_pod_names_is_followed_too(bench: Bench) -> None:
    claim = a_claim("made")
    bench.prepare(claim)
    bench.watch(bench.change(_with(claim, a_pod("made"), TWO)))
    assert bench.pods(claim) == (a_pod("made"), TWO)


def test_a_user_without_a_name_is_remembered(bench: Bench) -> None:
    bench.prepare(SHARED)
    bench.watch(bench.change(dataclasses.replace(SHARED, unnamed_users=True)))
    row = bench.node.parts.row(SHARED.ref.uid)
    assert row is not None
    assert row.users.unnamed


def test_what_is_known_already_writes_nothing(bench: Bench, node: LocalNode) -> None:
    bench.prepare(SHARED)
    before = (node.directory / "state.db-wal").stat().st_size
    bench.watch(bench.change(SHARED))
    assert (node.directory / "state.db-wal").stat().st_size == before


def test_a_claim_is_followed_from_the_list_until_its_watch_ends(bench: Bench) -> None:
    bench.prepare(SHARED)
    assert not bench.follower.followed(SHARED.ref)
    seen: list[bool] = []
    bench.watch(lambda: seen.append(bench.follower.followed(SHARED.ref)))
    assert seen == [True]
    assert not bench.follower.followed(SHARED.ref)


def test_a_watch_that_says_nothing_for_a_second_is_not_believed(
    bench: Bench,
) -> None:
    bench.prepare(SHARED)
    seen: list[bool] = []

    def silence() -> None:
        bench.clock.now += follow.FRESH_SECONDS
        seen.append(bench.follower.followed(SHARED.ref))
        bench.api.claim_news.append(ClaimEvent("BOOKMARK", "9", None))

    bench.watch(silence, lambda: seen.append(bench.follower.followed(SHARED.ref)))
    assert seen == [False, True]


@pytest.mark.parametrize("seconds", [follow.FRESH_SECONDS, 50.0])
def test_a_pod_that_joined_behind_a_dead_connection_keeps_its_device(
    bench: Bench, node: LocalNode, seconds: float
) -> None:
    bench.prepare(SHARED)
    unprepare = UnprepareClaims(replace(node.parts, followed=bench.follower.followed))
    answers: list[object] = []

    def behind() -> None:
        # The connection of the watch is dead and says nothing; the kubelet's own works.
        bench.clock.now += seconds
        node.add(_with(SHARED, ONE, TWO))
        node.presences[TWO] = Alive("its cgroup has processes")
        answers.append(unprepare([SHARED.ref]))  # the reconciler's, within 60 s

    bench.watch(behind)
    assert answers == [{SHARED.ref.uid: None}]
    row = node.parts.row(SHARED.ref.uid)
    assert row is not None, "given back while a pod runs that the claim names"
    assert row.held is not None
    assert row.users.pods == (ONE, TWO)


def test_a_prepared_claim_behind_a_dead_connection_is_answered_without_the_api_server(
    bench: Bench, node: LocalNode
) -> None:
    bench.prepare(SHARED)
    prepare = PrepareClaims(
        replace(node.parts, followed=bench.follower.followed), node.stored, node.workers
    )
    first = node.prepare(SHARED.ref)
    assert isinstance(first[SHARED.ref.uid], tuple)
    asked: list[ClaimRef] = []
    answers: list[object] = []

    def away(ref: ClaimRef) -> Claim:
        asked.append(ref)
        raise Temporary("away")

    def behind() -> None:
        bench.clock.now += follow.FRESH_SECONDS
        node.fetch = away
        answers.append(prepare([SHARED.ref]))

    bench.watch(behind)
    assert asked == [SHARED.ref]
    assert answers == [first]


@pytest.mark.parametrize(
    "now",
    [
        dataclasses.replace(SHARED, results=None),
        dataclasses.replace(SHARED, results=(a_result("gpu-1"),)),
        dataclasses.replace(SHARED, allocation_timestamp="2026-11-22T10:00:00Z"),
    ],
)
def test_a_claim_that_is_allocated_no_more_or_in_another_way_is_told_and_not_followed(
    bench: Bench, now: Claim
) -> None:
    bench.prepare(SHARED)
    seen: list[bool] = []

    def look() -> None:
        seen.append(bench.follower.followed(SHARED.ref))
        bench.api.claim_news.append(ClaimEvent("BOOKMARK", "9", None))

    bench.watch(bench.change(now), look, look, bench.change(SHARED), look)
    assert bench.changed == [SHARED.ref]
    # A bookmark says nothing of what is wrong with it; the old allocation, which comes back with a restored etcd, does.
    assert seen == [False, False, True]


@pytest.mark.parametrize("how", ["deleted", "made anew", "gone before"])
def test_a_claim_that_is_gone_is_told_and_not_followed(bench: Bench, how: str) -> None:
    bench.prepare(SHARED)
    anew = dataclasses.replace(SHARED, ref=replace(SHARED.ref, uid="another"))
    if how == "gone before":
        bench.api.claims = ()
    step = {
        "deleted": bench.change(SHARED, "DELETED"),
        "made anew": bench.change(anew),
        "gone before": lambda: None,
    }[how]
    seen: list[bool] = []
    bench.watch(step, lambda: seen.append(bench.follower.followed(SHARED.ref)))
    assert bench.changed == [SHARED.ref]
    assert seen == [False]


def test_a_row_that_went_meanwhile_is_nobodys_business(bench: Bench) -> None:
    bench.prepare(SHARED)
    bench.watch(lambda: bench.node.unprepare(SHARED.ref), bench.change(_with(SHARED, TWO)))
    assert bench.changed == []
    assert bench.node.parts.row(SHARED.ref.uid) is None


def test_a_watch_that_fails_is_begun_again_after_growing_pauses(bench: Bench) -> None:
    bench.prepare(SHARED)
    bench.api.fail("find", Temporary("away"), Temporary("away"), Permanent("no right"))
    bench.api.fail("watch", Expired("too old"))
    bench.watch(bench.change(_with(SHARED, TWO)))
    assert bench.api.pauses == [
        RETRY_SECONDS[0],
        RETRY_SECONDS[1],
        delay_after(Permanent("no right"), 2),
        1.0,
        1.0,
    ]
    assert bench.pods(SHARED) == (ONE, TWO)


def test_a_watch_that_lived_long_was_no_failure(bench: Bench) -> None:
    bench.prepare(SHARED)
    bench.api.fail("find", Temporary("away"))

    def live_long_and_break() -> None:
        bench.clock.now += 100
        bench.api.fail("watch", Temporary("broken"))

    bench.watch(live_long_and_break, lambda: None)
    assert bench.api.pauses == [RETRY_SECONDS[0], RETRY_SECONDS[0], 1.0]


def test_what_nobody_foresaw_is_counted_and_costs_a_pause(bench: Bench) -> None:
    bench.prepare(SHARED)
    surprises = [IndexError("list index out of range")]

    def fail_once(_ref: ClaimRef) -> None:
        if surprises:
            raise surprises.pop()

    bench.follower._changed = fail_once
    bench.watch(
        bench.change(dataclasses.replace(SHARED, results=None)), bench.change(_with(SHARED, TWO))
    )
    [told] = bench.events
    assert isinstance(told, ThreadFailed)
    # The same for every claim: it becomes a label of a metric.
    assert (told.thread, told.delay_seconds) == ("watch of a claim", RETRY_SECONDS[0])
    assert told.error.startswith(f"claim {SHARED.ref}: IndexError(")


def test_watches_come_and_go_with_the_rows(bench: Bench) -> None:
    other = a_claim("other", results=[a_result("gpu-1")])
    bench.prepare(SHARED, other)
    bench.follower.once()
    assert len(bench.begun) == 2
    bench.follower.once()
    assert len(bench.begun) == 2
    watch, _ = bench.follower._watches[other.ref.uid]
    bench.node.unprepare(other.ref)
    bench.follower.once()
    assert watch.stop.is_set()
    assert bench.joined == [follow.END_SECONDS]
    assert list(bench.follower._watches) == [SHARED.ref.uid]


def test_who_owns_nothing_is_held_or_of_another_boot_is_not_followed(
    bench: Bench, node: LocalNode
) -> None:
    admin = a_claim("admin", results=[a_result("gpu-1", admin=True)])
    held = a_claim("held", results=[a_result("gpu-2")])
    bench.prepare(admin, held)
    with node.store.transaction("releasing") as transaction:
        transaction.hold(held.ref.uid, Held("released", "2026-11-22T10:00:00Z"))
    bench.follower.once()
    assert bench.begun == []
    bench.prepare(SHARED)
    node.restart(boot_id="boot-2")
    later = Bench(node)
    later.follower.once()
    assert later.begun == []


def test_watches_are_bounded_and_claims_that_anybody_may_join_come_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MOST_WATCHES", 1)
    first, second = a_claim("a-sole", results=[a_result("gpu-1")]), SHARED
    bench.prepare(first, second)
    bench.follower.once()
    assert list(bench.follower._watches) == [SHARED.ref.uid]
    # The one beyond is asked once, and again after a while.
    assert bench.api.requests == ["find default/a-sole"]
    bench.api.claims = (_with(first, a_pod("a-sole"), TWO),)
    bench.follower.once()
    assert bench.pods(first) == (a_pod("a-sole"),)
    bench.clock.now += follow.POLL_SECONDS
    bench.follower.once()
    assert bench.pods(first) == (a_pod("a-sole"), TWO)
    assert not bench.follower.followed(first.ref)

    # Who is watched stays so, whoever comes.
    bench.prepare(a_claim("a-shared", results=[a_result("gpu-2")], sole=False))
    bench.follower.once()
    assert list(bench.follower._watches) == [SHARED.ref.uid]


@pytest.mark.parametrize("error", [Malformed("no UTF-8"), TooLarge("5 MiB")])
def test_a_claim_that_cannot_be_read_ends_no_poll(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: DriverError
) -> None:
    monkeypatch.setattr(follow, "MOST_WATCHES", 0)
    bad, good = (
        a_claim(name, results=[a_result(device)])
        for name, device in (("a-bad", "gpu-0"), ("b-good", "gpu-1"))
    )
    bench.prepare(bad, good)
    bench.api.claims = (bad, _with(good, a_pod("b-good"), TWO))
    bench.api.fail("find", error)
    bench.follower.once()
    assert bench.api.requests == ["find default/a-bad", "find default/b-good"]
    assert bench.pods(good) == (a_pod("b-good"), TWO)
    # And both are asked after the usual while, no sooner.
    bench.clock.now += follow.POLL_SECONDS - 1
    bench.follower.once()
    assert len(bench.api.requests) == 2
    bench.clock.now += 1
    bench.follower.once()
    assert len(bench.api.requests) == 4


def test_an_api_server_that_is_away_is_not_asked_about_each_claim(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MOST_WATCHES", 0)
    bench.prepare(*(a_claim(f"c{n}", results=[a_result(f"gpu-{n}")]) for n in range(3)))
    bench.api.fail("find", NotServed("away"), NotServed("away"))
    bench.follower.once()
    assert len(bench.api.requests) == 1
    bench.clock.now += follow.LOOK_SECONDS
    bench.follower.once()
    assert len(bench.api.requests) == 2
    bench.clock.now += follow.LOOK_SECONDS
    bench.follower.once()
    assert len(bench.api.requests) == 5


def test_the_follower_looks_when_the_node_is_quiet_and_now_and_then(bench: Bench) -> None:
    stop = Event()
    looks: list[int] = []

    def news(event: DriverEvent) -> Callable[[], None]:
        return lambda: bench.follower(event)

    def passed(seconds: float) -> Callable[[], None]:
        return lambda: bench.clock.sleep(seconds)

    nearly = follow.SETTLE_SECONDS / 2
    busy = int(follow.LATEST_SECONDS / nearly)
    prepared = news(ClaimPrepared(SHARED.ref, 0.1))
    steps = iter(
        [
            (news(Leading(leads=True)), passed(follow.SETTLE_SECONDS)),  # not its business
            (prepared, passed(nearly)),
            (passed(nearly),),  # quiet
            (news(Recovered(0, 0, 0)), passed(follow.SETTLE_SECONDS)),  # a sweep may adopt claims
            *((prepared, passed(nearly)) for _ in range(busy + 1)),  # never quiet, but not for ever
            (passed(follow.LOOK_SECONDS - nearly),),
            (passed(nearly),),
            (stop.set,),
        ]
    )

    def wait(event: Event, _seconds: float) -> bool:
        assert event is stop
        looks.append(len(bench.begun))
        for step in next(steps):
            step()
        return False

    bench.follower.once = lambda: bench.begun.append(lambda: None)  # type: ignore[method-assign]
    bench.follower.run(stop, wait=wait)
    assert looks == [1, 1, 1, 2, 3, *[3] * (busy - 1), 4, 4, 5, 5]


def test_a_state_that_cannot_be_read_is_logged_and_read_again(bench: Bench) -> None:
    bench.prepare(SHARED)
    stop = Event()
    failures = [Temporary("the state is locked")]
    real = bench.follower.once

    def once() -> None:
        if failures:
            raise failures.pop()
        real()
        stop.set()

    def wait(_stop: Event, _seconds: float) -> bool:
        bench.clock.sleep(follow.LOOK_SECONDS)
        return False

    bench.follower.once = once  # type: ignore[method-assign]
    with capture_logs() as lines:
        bench.follower.run(stop, wait=wait)
    assert [(line["event"], line["error"]) for line in lines] == [
        ("claims_not_followed", "the state is locked")
    ]
    # At the end every watch is ended too.
    assert len(bench.begun) == 1
    assert bench.joined == [follow.END_SECONDS]
    assert not bench.follower.followed(SHARED.ref)


def test_a_watch_runs_on_a_thread_of_its_own() -> None:
    ran = Event()
    follow._on_a_thread(ran.set)(60)
    assert ran.is_set()
