# SPDX-License-Identifier: Apache-2.0
"""Devices of claims that the kubelet forgot while something may still use them."""

import dataclasses
from collections.abc import Callable
from threading import Event, Semaphore, Thread, current_thread, main_thread

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from dra_driver.errors import BackendMissing, Permanent, Temporary
from dra_driver.kube.base import NotFound
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import (
    ClaimUnprepared,
    DevicesFreed,
    DevicesHeld,
    HeldCounted,
    SecondOwnerRefused,
    StillHeld,
)
from dra_driver.model.ids import PodUid
from dra_driver.model.lease import Lease
from dra_driver.model.plan import Refusal
from dra_driver.model.presence import Alive, CannotTell
from dra_driver.model.state import Held, Phase, PodDevice, Unknown, Users
from dra_driver.services.conflicts import WAITING_CALLS
from dra_driver.services.held import LOOK_SECONDS, HeldDevices
from dra_driver.services.prepare import PrepareClaims
from dra_driver.testing.builders import (
    A_DRIVER,
    A_POOL,
    a_cdi_id,
    a_claim,
    a_pod,
    a_ref,
    a_result,
    an_inventory,
)
from dra_driver.testing.failpoints import Failpoints
from tests.support.local_node import A_MOMENT_TEXT, Disk, LocalNode, ManualClock

DEADLINE = 300  # seconds, against hanging only
NewNode = Callable[..., LocalNode]
RUNS = Alive("3 processes")
UNPREPARED = Held("the kubelet unprepared it", A_MOMENT_TEXT)
OWNED = frozenset({(A_POOL, "gpu-0", "", "uid-one")})


@pytest.fixture
def node(new_node: NewNode) -> LocalNode:
    """Its time passes by sleeping only, so that whoever waits has waited at once."""
    return new_node(clock=ManualClock())


def a_held_claim(node: LocalNode, claim: Claim | None = None) -> ClaimRef:
    """Prepared, unprepared, and its pod runs on."""
    claim = claim or a_claim("one")
    (ref,) = node.add(claim)
    assert isinstance(node.prepare(ref)[ref.uid], tuple)
    for pod in claim.reserved_for:
        node.presences[pod] = RUNS
    assert node.unprepare(ref) == {ref.uid: None}
    return ref


def row_of(node: LocalNode, ref: ClaimRef):
    row = node.parts.row(ref.uid)
    assert row is not None
    return row


def end_pods(node: LocalNode) -> None:
    node.presences.clear()


# The call of the kubelet.


def test_an_unprepared_claim_keeps_its_devices_while_a_pod_of_it_runs(node: LocalNode) -> None:
    ref = a_held_claim(node)
    assert node.disk() == Disk({ref.uid: ("Started", "boot-1")}, OWNED, {})
    assert row_of(node, ref).held == UNPREPARED
    assert [call[0] for call in node.backend_calls] == ["configure"]
    assert node.events[-2:] == [
        DevicesHeld(ref, "node-1/gpu-0", "pod pod-one still runs: 3 processes"),
        ClaimUnprepared(ref, node.events[-1].seconds),
    ]
    node.look_at_held()
    assert node.disk().owners == OWNED
    assert node.freed == 0
    end_pods(node)
    node.look_at_held()
    assert node.disk() == Disk()
    assert node.backend_calls[-1] == ("reset", "gpu-0", ref.uid, "")
    assert node.events[-2] == DevicesFreed(ref, "node-1/gpu-0", A_MOMENT_TEXT)
    assert node.freed == 1


def test_a_second_unprepare_of_a_held_claim_succeeds_and_changes_nothing(node: LocalNode) -> None:
    ref = a_held_claim(node)
    row, told = row_of(node, ref), len(node.events)
    assert node.unprepare(ref) == {ref.uid: None}
    assert row_of(node, ref) == row
    assert [type(event) for event in node.events[told:]] == [ClaimUnprepared]
    end_pods(node)
    assert node.unprepare(ref) == {ref.uid: None}
    assert node.disk() == Disk()


def test_an_ordinary_release_makes_two_commits_and_no_request(new_node: NewNode) -> None:
    points = Failpoints()
    node = new_node(point=points)
    (ref,) = node.add(a_claim("one"))
    node.prepare(ref)

    def fetch(_ref: ClaimRef) -> Claim:
        raise AssertionError("asked without need")

    node.fetch = fetch
    before = len(points.passed)
    assert node.unprepare(ref) == {ref.uid: None}
    assert [name for name in points.passed[before:] if name.endswith("after")] == [
        "step.MarkHeld.after",
        "commit.releasing.after",
        "step.RemoveCdiSpec.after",
        "step.ShowUnused.after",
        "step.ResetDevice.after",
        "step.Forget.after",
        "commit.released.after",
    ]
    assert node.disk() == Disk()


def test_what_cannot_be_told_is_no_proof(node: LocalNode) -> None:
    (ref,) = node.add(a_claim("one"))
    node.prepare(ref)
    node.presences[a_pod("one")] = CannotTell("no kubepods below /sys/fs/cgroup")
    assert node.unprepare(ref) == {ref.uid: None}
    node.look_at_held()
    assert node.disk().owners == OWNED


def test_an_admin_may_believe_the_kubelet_instead(node: LocalNode) -> None:
    node.believes_unprepare = True
    node.restart()
    (ref,) = node.add(a_claim("one", sole=False))
    node.prepare(ref)
    node.presences[a_pod("one")] = RUNS
    node.fetch = lambda _ref: pytest.fail("asked without need")
    assert node.unprepare(ref) == {ref.uid: None}
    assert node.disk() == Disk()


def test_admin_access_owns_nothing_and_holds_nothing(node: LocalNode) -> None:
    claim = a_claim("one", results=[a_result(admin=True)])
    (ref,) = node.add(claim)
    node.prepare(ref)
    node.presences[a_pod("one")] = RUNS
    assert node.unprepare(ref) == {ref.uid: None}
    assert node.disk() == Disk()


def test_every_pod_that_ever_used_the_claim_counts(node: LocalNode) -> None:
    """One prepare call for each pod that came, and a pod that only the API server told of."""
    for pods in (["one"], ["two"], ["three"]):
        (ref,) = node.add(a_claim("one", sole=False, pods=pods))
        node.prepare(ref)
    with node.store.transaction("joined") as transaction:
        transaction.add_users(ref.uid, Users(("four",)))
    (ref,) = node.add(a_claim("one", sole=False, pods=["five"]))
    node.presences = dict.fromkeys(["one", "two", "three", "four", "five"], RUNS)
    node.unprepare(ref)
    assert row_of(node, ref).users == Users(("one", "two", "three", "four", "five"))
    for pod in ("five", "one", "three", "two"):
        del node.presences[pod]
        node.look_at_held()
        assert node.disk().owners == OWNED
    del node.presences["four"]
    node.look_at_held()
    assert node.disk() == Disk()


def test_a_claim_that_somebody_follows_costs_no_request(node: LocalNode) -> None:
    (ref,) = node.add(a_claim("one", sole=False))
    node.followed.add(ref.uid)
    answer = node.prepare(ref)
    node.fetch = lambda _ref: pytest.fail("asked without need")
    assert node.prepare(ref) == answer
    assert node.unprepare(ref) == {ref.uid: None}
    assert node.disk() == Disk()


def test_users_that_are_no_pods_hold_the_device_until_the_next_boot(node: LocalNode) -> None:
    claim = dataclasses.replace(a_claim("one", sole=False), unnamed_users=True)
    (ref,) = node.add(claim)
    node.prepare(ref)
    assert node.unprepare(ref) == {ref.uid: None}
    node.look_at_held()
    assert "not all of its users are pods" in refused(node)
    node.restart(boot_id="boot-2")
    assert node.recover() == {}
    node.look_at_held()
    assert node.disk() == Disk()


def test_an_api_server_that_says_nothing_holds_the_device_until_it_does(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    (ref,) = node.add(a_claim("one", sole=False))
    node.prepare(ref)
    asked: list[ClaimRef] = []

    def silent(wanted: ClaimRef) -> Claim:
        asked.append(wanted)
        raise Temporary("503")

    node.fetch = silent
    assert node.unprepare(ref) == {ref.uid: None}
    assert row_of(node, ref).held == replace(UNPREPARED, unasked=True)
    assert asked == [ref]
    for _ in range(10):  # seconds
        node.look_at_held()
        clock.now += LOOK_SECONDS
    assert len(asked) == 3  # not every second
    assert node.disk().owners == OWNED
    # In the end it answers, and names a pod that joined without a call of the kubelet.
    node.fetch = node.stored
    node.add(a_claim("one", sole=False, pods=["joined"]))
    node.presences["joined"] = RUNS
    node.look_at_held()
    assert row_of(node, ref).held == UNPREPARED
    assert row_of(node, ref).users == Users((a_pod("one"), "joined"))
    end_pods(node)
    node.look_at_held()
    assert node.disk() == Disk()


def test_who_used_a_held_claim_is_asked_once(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    asked: list[ClaimRef] = []

    def fetch(wanted: ClaimRef) -> Claim:
        asked.append(wanted)
        return node.stored(wanted)

    (ref,) = node.add(a_claim("one", sole=False, pods=["one"]))
    node.prepare(ref)
    node.presences[a_pod("one")] = node.presences["one"] = RUNS
    node.fetch = fetch
    assert node.unprepare(ref) == {ref.uid: None}
    assert asked == [ref]
    for _ in range(10):  # seconds
        node.look_at_held()
        clock.now += LOOK_SECONDS
    assert asked == [ref]
    assert node.disk().owners == OWNED


@pytest.mark.parametrize(
    "answer", [NotFound("404"), a_claim("one", uid="another", pods=["stranger"])]
)
def test_a_claim_that_is_gone_names_nobody_else(node: LocalNode, answer) -> None:
    (ref,) = node.add(a_claim("one", sole=False))
    node.prepare(ref)
    node.presences["stranger"] = RUNS

    def fetch(_ref: ClaimRef) -> Claim:
        if isinstance(answer, Claim):
            return answer
        raise answer

    node.fetch = fetch
    assert node.unprepare(ref) == {ref.uid: None}
    assert node.disk() == Disk()


def test_an_answer_that_does_not_come_is_not_waited_for(node: LocalNode) -> None:
    (ref,) = node.add(a_claim("one", sole=False))
    node.prepare(ref)
    go_on = Event()

    def hanging(_ref: ClaimRef) -> Claim:
        assert go_on.wait(DEADLINE)
        raise Temporary("too late")

    node.fetch = hanging
    assert node.unprepare(ref) == {ref.uid: None}
    go_on.set()
    held = row_of(node, ref).held
    assert held is not None
    assert held.unasked


# Who else wants the device.


def refused(node: LocalNode, claim: Claim | None = None) -> str:
    (ref,) = node.add(claim or a_claim("two"))
    answer = node.prepare(ref)[ref.uid]
    assert isinstance(answer, Refusal)
    return answer.reason


def test_who_meets_a_held_device_is_told_what_to_do(node: LocalNode) -> None:
    ref = a_held_claim(node)
    assert refused(node) == (
        "device gpu-0 is prepared for claim default/one (uid uid-one) and cannot be given to claim default/two (uid uid-two) as well: "
        "it is not needed, and it is held since 2027-01-15T08:00:00Z because something may still use it: "
        "pod pod-one still runs: 3 processes; end what uses it: the driver releases it when the last process has ended, or at the "
        "next boot; run `dra-driver release default/one` on this node if you know that nothing uses it; "
        "`kubectl get resourceclaim -n default one` shows who uses it"
    )
    event = next(event for event in node.events if isinstance(event, SecondOwnerRefused))
    assert (event.claim, event.owner, event.device) == (a_ref("two"), ref, "gpu-0")
    end_pods(node)
    two = a_ref("two")
    assert isinstance(node.prepare(two)[two.uid], tuple)
    assert node.disk().claims == {"uid-two": ("Prepared", "boot-1")}
    assert [call[:3] for call in node.backend_calls] == [
        ("configure", "gpu-0", "uid-one"),
        ("reset", "gpu-0", "uid-one"),
        ("configure", "gpu-0", "uid-two"),
    ]


@pytest.mark.parametrize("unprepared", [True, False])
def test_the_next_pod_waits_inside_its_call_until_the_last_process_has_ended(
    new_node: NewNode, unprepared: bool
) -> None:
    """A pod that was deleted by force: its claim is gone everywhere, and its containers run on."""
    clock = ManualClock()
    node = new_node(clock=clock)
    if unprepared:
        one = a_held_claim(node)
    else:
        (one,) = node.add(a_claim("one"))
        node.prepare(one)
        node.presences[a_pod("one")] = RUNS
    node.delete(one)
    (two,) = node.add(a_claim("two"))
    order: list[str] = []

    def sleep(seconds: float) -> None:
        clock.now += seconds
        assert node.disk().owners == OWNED
        assert node.disk().files == {}
        if clock.now > 1005.0:
            order.append("ended")
            end_pods(node)

    clock.sleep = sleep
    node.restart()
    node.reset = lambda lease: order.append("reset")
    node.configure = lambda lease: order.append("configure")
    assert isinstance(node.prepare(two)[two.uid], tuple)
    assert order == ["ended", "reset", "configure"]
    assert clock.now < 1006.0
    assert node.unprepare(one) == {one.uid: None}  # the kubelet's late word
    assert node.disk().claims == {two.uid: ("Prepared", "boot-1")}


def test_waiting_holds_up_no_other_claim_of_the_call(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    a_held_claim(node)
    two, other = node.add(a_claim("two"), a_claim("other", results=[a_result("gpu-1")]))
    phases: list[object] = []

    def sleep(seconds: float) -> None:
        clock.now += seconds
        phases.append(node.disk().claims.get(other.uid))

    clock.sleep = sleep
    node.restart()
    answers = node.prepare(two, other)
    assert isinstance(answers[other.uid], tuple)
    assert isinstance(answers[two.uid], Refusal)
    assert set(phases) == {("Prepared", "boot-1")}
    assert 34.0 < clock.now - 1000.0 <= 35.0


def test_no_more_than_eight_calls_wait_at_a_time(
    new_node: NewNode, request: pytest.FixtureRequest
) -> None:
    node = new_node()
    a_held_claim(node)
    refs = node.add(*(a_claim(f"waiting-{number}") for number in range(WAITING_CALLS)))
    answers: list[object] = []
    sitting = Semaphore(0)

    go_on = Event()
    request.addfinalizer(go_on.set)

    def sleep(_seconds: float) -> None:
        assert current_thread() is not main_thread(), "the ninth sits down, too"
        sitting.release()
        assert go_on.wait(DEADLINE)

    parts = replace(node.parts, sleep=sleep)
    prepare = PrepareClaims(parts, node.stored, node.workers)
    threads = [
        Thread(target=lambda ref=ref: answers.extend(prepare([ref]).values()), daemon=True)
        for ref in refs
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert sitting.acquire(timeout=DEADLINE)
    (ninth,) = node.add(a_claim("ninth"))
    (answer,) = prepare([ninth]).values()  # at once: nobody gets up
    assert isinstance(answer, Refusal)
    assert "it is held since" in answer.reason
    end_pods(node)
    go_on.set()
    for thread in threads:
        thread.join(DEADLINE)
    assert len(answers) == WAITING_CALLS
    assert len([answer for answer in answers if isinstance(answer, tuple)]) == 1


def test_shares_of_one_device_are_held_each_for_itself(node: LocalNode) -> None:
    node.inventory = an_inventory(4, shared=True)
    one = a_held_claim(node, a_claim("one", results=[a_result(share="s1")]))
    (two,) = node.add(a_claim("two", results=[a_result(share="s2")]))
    assert isinstance(node.prepare(two)[two.uid], tuple)
    assert "is prepared for claim default/one" in refused(node, a_claim("whole"))
    assert node.unprepare(two) == {two.uid: None}
    assert node.disk().owners == {(A_POOL, "gpu-0", "s1", one.uid)}
    assert "it is held since" in refused(node, a_claim("whole"))
    end_pods(node)
    assert isinstance(node.prepare(a_ref("whole"))["uid-whole"], tuple)
    share = a_claim("late", results=[a_result(share="s3")])
    assert "it still exists" in refused(node, share)


def test_a_whole_device_and_a_share_of_it_in_one_call_are_two_owners(node: LocalNode) -> None:
    node.inventory = an_inventory(4, shared=True)
    whole, share = node.add(a_claim("whole"), a_claim("share", results=[a_result(share="s1")]))
    answers = node.prepare(whole, share)
    assert isinstance(answers[whole.uid], tuple)
    assert isinstance(answers[share.uid], Refusal)
    node.unprepare(whole)
    assert isinstance(node.prepare(share)[share.uid], tuple)
    assert isinstance(node.prepare(whole)[whole.uid], Refusal)


# The same claim again.


def test_a_held_claim_is_prepared_again_for_another_pod_and_forgets_no_pod(node: LocalNode) -> None:
    ref = a_held_claim(node, a_claim("one", sole=False, pods=["old"]))
    node.add(a_claim("one", sole=False, pods=["new"]))
    assert isinstance(node.prepare(ref)[ref.uid], tuple)
    row = row_of(node, ref)
    assert (row.phase, row.held) == (Phase.PREPARED, None)
    assert row.users == Users(("old", "new"))
    node.look_at_held()
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}
    # The new pod ends, the old one is still there.
    assert node.unprepare(ref) == {ref.uid: None}
    assert node.disk().owners == OWNED
    end_pods(node)
    node.look_at_held()
    assert node.disk() == Disk()


@pytest.mark.parametrize("prepared", [True, False])
def test_another_allocation_of_the_claim_waits_for_the_pods_of_the_first(
    node: LocalNode, prepared: bool
) -> None:
    first = a_claim("one", sole=False, pods=["old"])
    if prepared:
        (ref,) = node.add(first)
        node.prepare(ref)
        node.presences["old"] = RUNS
    else:
        ref = a_held_claim(node, first)
    anew = a_claim("one", sole=False, pods=["new"], results=[a_result("gpu-3")])
    assert "it is held since" in refused(node, anew)
    assert node.disk() == Disk({ref.uid: ("Started", "boot-1")}, OWNED, {})
    end_pods(node)
    (answer,) = node.prepare(ref)[ref.uid]
    assert (answer.device, answer.cdi_ids) == ("gpu-3", (a_cdi_id(anew, "gpu-3"),))
    assert node.disk().owners == {(A_POOL, "gpu-3", "", ref.uid)}
    assert [call[:2] for call in node.backend_calls] == [
        ("configure", "gpu-0"),
        ("reset", "gpu-0"),
        ("configure", "gpu-3"),
    ]
    assert row_of(node, ref).users == Users(("new",))


def test_one_device_allocated_twice_to_a_claim_never_has_one_name(node: LocalNode) -> None:
    names = []
    for moment in ("2027-01-15T08:00:00Z", "2027-01-15T08:05:00Z"):
        (ref,) = node.add(a_claim("one", sole=False, timestamp=moment))
        (answer,) = node.prepare(ref)[ref.uid]
        names.append(answer.cdi_ids)
    assert len(set(names)) == 2
    assert [call[0] for call in node.backend_calls] == ["configure", "reset", "configure"]


def test_a_claim_allocated_anew_while_it_was_set_up_gives_the_first_device_back(
    node: LocalNode,
) -> None:
    def fail(lease) -> None:
        raise Permanent("not now")

    (ref,) = node.add(a_claim("one"))
    node.configure = fail
    assert isinstance(node.prepare(ref)[ref.uid], Refusal)
    node.configure = lambda lease: None
    node.add(a_claim("one", results=[a_result("gpu-3")]))
    assert isinstance(node.prepare(ref)[ref.uid], tuple)
    assert [call[:2] for call in node.backend_calls] == [
        ("configure", "gpu-0"),
        ("reset", "gpu-0"),
        ("configure", "gpu-3"),
    ]


def test_a_first_allocation_that_cannot_be_reset_keeps_its_device(node: LocalNode) -> None:
    (ref,) = node.add(a_claim("one", sole=False))
    node.prepare(ref)

    def refuse(lease) -> None:
        raise Permanent("device busy")

    node.reset = refuse
    anew = a_claim("one", sole=False, results=[a_result("gpu-3")])
    assert "the claim is gone, but releasing it failed: device busy" in refused(node, anew)
    assert node.disk().owners == OWNED
    node.reset = lambda lease: None


# The keeper.


def test_a_reboot_proves_that_nothing_runs(node: LocalNode) -> None:
    ref = a_held_claim(node)
    node.restart(boot_id="boot-2")
    assert node.recover() == {}
    assert node.disk().claims == {ref.uid: ("Started", "boot-1")}
    node.look_at_held()
    assert node.disk() == Disk()


def test_a_restart_forgets_neither_that_it_is_held_nor_by_whom(node: LocalNode) -> None:
    ref = a_held_claim(node)
    row = row_of(node, ref)
    node.restart()
    assert node.recover() == {}
    assert node.sweep() == ()
    assert row_of(node, ref) == row
    assert "pod pod-one still runs" in refused(node)
    assert [call[0] for call in node.backend_calls] == ["configure"]


def test_a_held_device_that_vanished_is_given_back_like_any_other(node: LocalNode) -> None:
    a_held_claim(node)
    node.inventory = dataclasses.replace(node.inventory, devices=node.inventory.devices[1:])
    node.look_at_held()
    assert node.disk().owners == OWNED
    end_pods(node)
    node.look_at_held()
    assert node.disk() == Disk()


def test_an_admins_word_is_proof(node: LocalNode) -> None:
    ref = a_held_claim(node)
    with node.store.transaction("releasing") as transaction:
        transaction.hold(ref.uid, replace(UNPREPARED, by_admin=True))
    node.look_at_held()
    assert node.disk() == Disk()


def test_what_an_admin_vouches_for_while_the_api_server_is_asked_is_kept(node: LocalNode) -> None:
    claim = a_claim(sole=False, pods=["one"])
    (ref,) = node.add(claim)
    node.prepare(ref)
    node.presences[PodUid("one")] = RUNS

    def away(_ref: ClaimRef) -> Claim:
        raise Temporary("away")

    node.fetch = away
    node.unprepare(ref)
    row = node.parts.row(ref.uid)
    assert row is not None
    assert row.held is not None
    assert row.held.unasked

    def back(wanted: ClaimRef) -> Claim:
        # `dra-driver release` at this moment, as dra_driver.daemon.offline.confirm_unused does it
        with node.store.transaction("releasing") as transaction:
            held = transaction.read(uids=[ref.uid]).claims[ref.uid].held
            assert held is not None
            transaction.hold(ref.uid, replace(held, by_admin=True))
        return node.stored(wanted)

    node.fetch = back
    node.look_at_held()
    row = node.parts.row(ref.uid)
    assert row is None or (row.held is not None and row.held.by_admin), "the admin's word is lost"


def test_an_admins_word_does_not_outlive_what_it_was_given_for(node: LocalNode) -> None:
    ref = a_held_claim(node)
    with node.store.transaction("releasing") as transaction:
        transaction.hold(ref.uid, replace(UNPREPARED, by_admin=True))
    node.prepare(ref)
    node.look_at_held()
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}
    node.unprepare(ref)
    node.look_at_held()
    assert node.disk().owners == OWNED


def test_what_is_held_for_long_is_told_once_and_counted(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    ref = a_held_claim(node)
    told = len(node.events)
    for _ in range(40):
        node.look_at_held()
        clock.now += LOOK_SECONDS
    assert node.events[told:] == [
        HeldCounted(1),
        StillHeld(ref, "node-1/gpu-0", A_MOMENT_TEXT, "pod pod-one still runs: 3 processes"),
    ]
    end_pods(node)
    node.look_at_held()
    assert node.events[-1] == HeldCounted(0)


def test_a_claim_that_somebody_is_at_work_on_is_looked_at_later(node: LocalNode) -> None:
    ref = a_held_claim(node)
    end_pods(node)
    with capture_logs() as lines, node.lock([f"claim-{ref.uid}"], 0.0, "preparing"):
        node.look_at_held()
        node.look_at_held()
    assert node.disk().owners == OWNED
    assert [line["event"] for line in lines] == ["held_device_not_freed"]
    assert node.freed == 0
    node.look_at_held()
    assert node.disk() == Disk()


def test_a_claim_that_was_prepared_between_two_looks_is_left_alone(node: LocalNode) -> None:
    ref = a_held_claim(node)
    end_pods(node)

    class Late:
        """The rows as they were before the kubelet prepared the claim again."""

        def reading(self):
            rows = self.rows
            return _Answering(rows)

    class _Answering:
        def __init__(self, rows) -> None:
            self.rows = rows

        def __enter__(self):
            return self

        def __exit__(self, *_error: object) -> None:
            return None

        def held_claims(self):
            return self.rows

    late = Late()
    late.rows = (row_of(node, ref),)
    node.prepare(ref)
    HeldDevices(node.parts, late, freed=lambda: None).once()
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}


def test_the_keeper_goes_on_when_the_state_cannot_be_read(node: LocalNode) -> None:
    looks: list[str] = []

    class Broken:
        def reading(self):
            looks.append("look")
            raise Temporary("disk full")

    keeper = HeldDevices(node.parts, Broken(), freed=lambda: None)
    with capture_logs() as lines:
        keeper.run(Event(), wait=lambda _stop, seconds: seconds != LOOK_SECONDS or len(looks) == 2)
    assert [line["error"] for line in lines] == ["disk full", "disk full"]


# Suspects.


def holding(ref: ClaimRef) -> frozenset[PodDevice]:
    ids = (a_cdi_id(a_claim(ref.name)),)
    return frozenset({PodDevice(ref.namespace, ref.name, A_DRIVER, A_POOL, "gpu-0", cdi_ids=ids)})


def test_a_claim_that_is_allocated_no_more_loses_its_file_and_then_its_device(
    new_node: NewNode,
) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    (ref,) = node.add(a_claim("one", sole=False))
    node.prepare(ref)
    node.presences[a_pod("one")] = RUNS
    node.keeper.suspect(ref)
    node.look_at_held()  # it still is what it was
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}
    node.add(dataclasses.replace(a_claim("one", sole=False), results=None))
    node.keeper.suspect(ref)
    node.pod_devices = holding(ref)
    with capture_logs() as lines:
        node.look_at_held()  # a pod may start another container with it
    assert [line["reason"] for line in lines] == [
        "the kubelet says that a pod on this node uses it"
    ]
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}
    node.pod_devices = Unknown("no socket")
    clock.now += 31
    node.look_at_held()
    node.pod_devices = frozenset()
    clock.now += 31
    node.look_at_held()
    assert node.disk() == Disk({ref.uid: ("Started", "boot-1")}, OWNED, {})
    end_pods(node)
    node.look_at_held()
    assert node.disk() == Disk()


def test_a_suspect_that_somebody_is_at_work_on_is_looked_at_later(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    (ref,) = node.add(a_claim("one", sole=False))
    node.prepare(ref)
    node.delete(ref)
    node.keeper.suspect(ref)
    with node.lock([f"claim-{ref.uid}"], 0.0, "preparing"):
        node.look_at_held()
    node.look_at_held()
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}
    clock.now += 31
    node.look_at_held()
    assert node.disk() == Disk()
    # It is no suspect any more: nobody asks about it when it is there again.
    node.add(a_claim("one", sole=False))
    node.prepare(ref)
    node.delete(ref)
    clock.now += 31
    node.look_at_held()
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}


def test_an_admin_frees_a_device_whose_backend_is_gone_for_ever(node: LocalNode) -> None:
    (ref,) = node.add(a_claim(results=[a_result("gpu-0"), a_result("gpu-1", request="two")]))
    node.prepare(ref)
    reset: list[str] = []

    def gone(lease: Lease) -> None:
        if lease.device == "gpu-1":
            raise BackendMissing("its backend is gone")
        reset.append(lease.device)

    node.reset = gone
    assert node.unprepare(ref) == {ref.uid: None}
    assert DevicesHeld(ref, "node-1/gpu-0, node-1/gpu-1", "its backend is gone") in node.events
    node.look_at_held()
    row = node.parts.row(ref.uid)
    assert row is not None
    assert row.held is not None
    with node.store.transaction("releasing") as transaction:
        transaction.hold(ref.uid, replace(row.held, by_admin=True))
    node.look_at_held()
    assert node.parts.row(ref.uid) is None
    assert reset == ["gpu-0"]
    assert node.unprepare(ref) == {ref.uid: None}
