# SPDX-License-Identifier: Apache-2.0
"""What the kubelet is answered when it asks to release claims."""

from collections.abc import Callable
from threading import Event, Thread, current_thread, main_thread

from dra_driver.errors import Permanent, Temporary
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import ClaimUnprepared, DevicesFreed, DevicesHeld, WorkEnded
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import Refusal
from dra_driver.testing.builders import a_claim, a_ref, a_result, an_inventory
from dra_driver.testing.failpoints import Failpoints, raising
from tests.support.local_node import Disk, LocalNode, ManualClock

DEADLINE = 300  # seconds, against hanging only
NewNode = Callable[..., LocalNode]


def test_an_unprepared_claim_leaves_nothing_and_needs_no_api_server(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    resets: list[str] = []
    node.reset = lambda lease: resets.append(lease.device)

    def fetch(wanted: ClaimRef):
        raise Permanent("nobody may ask")

    node.fetch = fetch
    assert node.unprepare(ref) == {ref.uid: None}
    assert node.disk() == Disk()
    assert resets == ["gpu-0"]


def test_unprepare_is_idempotent_and_an_unknown_claim_is_released_already(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    for _ in range(2):
        assert node.unprepare(ref, a_ref("unknown")) == {ref.uid: None, "uid-unknown": None}


def test_a_uid_that_is_no_uid_is_released_already(node: LocalNode) -> None:
    outside = node.directory / "cdi.json"
    outside.write_text("{}")
    uid = ClaimUid("../cdi")
    assert node.unprepare(ClaimRef("default", "claim", uid)) == {uid: None}
    assert outside.exists()


def test_an_unprepare_makes_two_commits_however_many_claims_it_has(new_node: NewNode) -> None:
    points = Failpoints()
    node = new_node(point=points)
    refs = node.add(
        *(a_claim(f"c{index}", results=[a_result(f"gpu-{index}")]) for index in range(3))
    )
    node.prepare(*refs)
    before = len(points.passed)
    node.unprepare(*refs)
    passed = points.passed[before:]
    assert [name for name in passed if name.startswith("commit")] == [
        "commit.releasing.before",
        "commit.releasing.after",
        "commit.released.before",
        "commit.released.after",
    ]
    assert passed.count("step.Forget.before") == 3
    assert max(
        index for index, name in enumerate(passed) if name == "step.ResetDevice.after"
    ) < passed.index("step.Forget.before")


def test_each_share_is_reset_and_admin_access_sets_nothing_up(node: LocalNode) -> None:
    node.inventory = an_inventory(4, shared=True)
    refs = node.add(
        a_claim("one", results=[a_result(share="s1")]),
        a_claim("two", results=[a_result(share="s2")]),
        a_claim("admin", results=[a_result("gpu-1", admin=True)]),
    )
    node.prepare(*refs)
    node.unprepare(*refs)
    assert sorted(node.backend_calls) == [
        ("configure", "gpu-0", "uid-one", "s1"),
        ("configure", "gpu-0", "uid-two", "s2"),
        ("reset", "gpu-0", "uid-one", "s1"),
        ("reset", "gpu-0", "uid-two", "s2"),
    ]
    assert node.disk() == Disk()


def test_a_claim_that_cannot_be_released_keeps_its_device_and_its_neighbour_goes(
    node: LocalNode,
) -> None:
    bad, good = node.add(a_claim("bad"), a_claim("good", results=[a_result("gpu-1")]))
    node.prepare(bad, good)

    def reset(lease) -> None:
        if lease.device == "gpu-0":
            raise Permanent("processes still use gpu-0; end them")

    node.reset = reset
    node.events.clear()
    sentence = (
        "cannot unprepare claim default/bad (uid uid-bad): processes still use gpu-0; end them"
    )
    assert node.unprepare(bad, good) == {bad.uid: Refusal(sentence), good.uid: None}
    assert [(event.claim, event.error) for event in node.events] == [(bad, sentence), (good, "")]
    assert all(isinstance(event, ClaimUnprepared) for event in node.events)
    assert set(node.disk().claims) == {bad.uid}
    node.reset = lambda lease: None
    assert node.unprepare(bad) == {bad.uid: None}


def test_when_no_claim_could_be_released_nothing_is_committed(new_node: NewNode) -> None:
    points = Failpoints()
    node = new_node(point=points)
    (ref,) = node.add(a_claim())
    node.prepare(ref)

    def reset(lease) -> None:
        raise Permanent("no")

    node.reset = reset
    node.unprepare(ref)
    assert "commit.released.before" not in points.passed
    node.reset = lambda lease: None
    node.unprepare(ref)


def test_a_state_that_cannot_be_written_keeps_the_claim(new_node: NewNode) -> None:
    points = Failpoints({"commit.released.before": raising(Temporary("no space"))})
    node = new_node(point=points)
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    assert node.unprepare(ref) == {
        ref.uid: Refusal("cannot unprepare claim default/claim (uid uid-claim): no space")
    }
    assert node.disk().claims == {ref.uid: ("Started", "boot-1")}
    points.disarm()
    assert node.unprepare(ref) == {ref.uid: None}


def test_a_half_released_claim_is_never_answered_from_the_state(new_node: NewNode) -> None:
    points = Failpoints({"commit.released.before": raising(Temporary("no space"))})
    node = new_node(point=points)
    (ref,) = node.add(a_claim())
    done: list[str] = []
    node.configure = lambda lease: done.append(f"configure {lease.device}")
    node.reset = lambda lease: done.append(f"reset {lease.device}")
    answer = node.prepare(ref)
    node.unprepare(ref)
    points.disarm()
    assert node.prepare(ref) == answer
    assert done == ["configure gpu-0", "reset gpu-0", "configure gpu-0"]


def test_a_claim_that_cannot_be_marked_is_not_touched(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    node.restart(point=Failpoints({"step.MarkHeld.before": raising(Temporary("no space"))}))
    assert node.unprepare(ref) == {
        ref.uid: Refusal("cannot unprepare claim default/claim (uid uid-claim): no space")
    }
    assert node.disk() == before


def test_the_file_of_a_claim_that_the_state_lost_goes(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    with node.store.transaction("released") as transaction:
        transaction.forget(ref.uid)
    assert node.unprepare(ref) == {ref.uid: None}
    assert node.disk() == Disk()


def test_unprepare_waits_for_work_that_outlived_its_call(node: LocalNode) -> None:
    begun, go_on, order = Event(), Event(), []

    def slow(lease) -> None:
        begun.set()
        assert go_on.wait(DEADLINE)
        order.append("configured")

    node.configure = slow
    node.reset = lambda lease: order.append("reset")
    (ref,) = node.add(a_claim())
    answer = node.prepare(ref, until=node.parts.clock())[ref.uid]
    assert isinstance(answer, Refusal)
    assert "takes longer than a call may take and goes on" in answer.reason
    assert begun.wait(DEADLINE)
    answers: list[object] = []
    thread = Thread(target=lambda: answers.append(node.unprepare(ref)), daemon=True)
    thread.start()
    go_on.set()
    thread.join(DEADLINE)
    assert answers == [{ref.uid: None}]
    assert order == ["configured", "reset"]
    assert node.disk() == Disk()


def test_a_file_that_cannot_be_removed_costs_its_own_claim_only(node: LocalNode) -> None:
    good, bad = node.add(a_claim("good", results=[a_result("gpu-1")]), a_claim("bad"))
    node.prepare(good, bad)
    blocked = node.cdi.file(bad.uid)
    blocked.unlink()
    blocked.mkdir()
    (blocked / "x").touch()
    unknown = a_ref("unknown")
    node.cdi.file(unknown.uid).mkdir()
    answers = node.unprepare(good, bad, unknown)
    assert answers[good.uid] is None
    for ref in (bad, unknown):
        answer = answers[ref.uid]
        assert isinstance(answer, Refusal)
        assert str(node.cdi.file(ref.uid)) in answer.reason
    (blocked / "x").unlink()
    blocked.rmdir()
    node.cdi.file(unknown.uid).rmdir()
    assert set(node.disk().claims) == {bad.uid}
    assert node.unprepare(bad, unknown) == {bad.uid: None, unknown.uid: None}


def test_a_claim_that_somebody_is_at_work_on_holds_up_no_other(new_node: NewNode) -> None:
    node = new_node(clock=ManualClock())
    good, busy = node.add(a_claim("good", results=[a_result("gpu-1")]), a_claim("busy"))
    assert all(isinstance(answer, tuple) for answer in node.prepare(good, busy).values())
    with node.lock([f"claim-{busy.uid}"], 0.0, "resetting"):
        answers = node.unprepare(busy, good)
        assert answers[good.uid] is None
        assert "claim-uid-busy is locked by process" in answers[busy.uid].reason
        again = node.prepare(busy, good)
        assert isinstance(again[good.uid], tuple)
        assert "claim-uid-busy is locked by process" in again[busy.uid].reason
    node.unprepare(busy, good)


def test_work_that_ends_after_the_unprepare_call_forgets_the_claim_itself(
    new_node: NewNode,
) -> None:
    marked, begun, go_on, said = Event(), Event(), Event(), Event()

    class Clock(ManualClock):
        """The call looks at its time again when the reset has begun."""

        def __call__(self) -> float:
            if marked.is_set() and current_thread() is main_thread():
                assert begun.wait(DEADLINE)
            return super().__call__()

    def slow(lease) -> None:
        begun.set()
        assert go_on.wait(DEADLINE)

    node = new_node(
        clock=Clock(), point=lambda name: marked.set() if name == "commit.releasing.after" else None
    )
    node.reset = slow
    node.told(WorkEnded, said)
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    assert node.unprepare(ref, until=node.parts.clock()) == {ref.uid: None}
    assert (node.disk().claims, node.disk().files) == ({ref.uid: ("Started", "boot-1")}, {})
    (held,) = (event for event in node.events if isinstance(event, DevicesHeld))
    assert "takes longer than a call may take and goes on" in held.reason
    # Nobody else touches the claim meanwhile: the work has its lock.
    node.look_at_held()
    assert [call[0] for call in node.backend_calls] == ["configure", "reset"]
    go_on.set()
    assert said.wait(DEADLINE)
    assert node.events[-1] == WorkEnded(ref)
    assert node.disk() == Disk()


def test_a_device_that_cannot_be_reset_now_is_held_and_keeps_no_pod(new_node: NewNode) -> None:
    node = new_node(clock=ManualClock())
    hanging, good = node.add(a_claim("hanging"), a_claim("good", results=[a_result("gpu-1")]))
    node.prepare(hanging, good)

    def reset(lease) -> None:
        if lease.device == "gpu-0":
            raise Temporary("gpu-0 does not answer")

    node.reset = reset
    for _ in range(2):
        assert node.unprepare(hanging, good) == {hanging.uid: None, good.uid: None}
        assert node.disk().claims == {hanging.uid: ("Started", "boot-1")}
        assert node.disk().files == {}
    held = DevicesHeld(hanging, "node-1/gpu-0", "gpu-0 does not answer")
    assert [event for event in node.events if isinstance(event, DevicesHeld)] == [held]
    node.look_at_held()
    assert set(node.disk().claims) == {hanging.uid}
    node.restart()
    node.recover()
    node.reset = lambda lease: None
    node.look_at_held()
    assert node.disk() == Disk()
    assert [event.claim for event in node.events if isinstance(event, DevicesFreed)] == [hanging]


def test_a_file_that_cannot_be_removed_now_is_an_error_of_the_call(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.restart(point=Failpoints({"step.RemoveCdiSpec.before": raising(Temporary("I/O error"))}))
    answer = node.unprepare(ref, until=node.parts.clock())[ref.uid]
    assert isinstance(answer, Refusal)
    assert not [event for event in node.events if isinstance(event, DevicesHeld)]
    node.point.disarm()
    assert node.unprepare(ref) == {ref.uid: None}
