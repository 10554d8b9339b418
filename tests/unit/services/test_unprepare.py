# SPDX-License-Identifier: Apache-2.0
"""What the kubelet is answered when it asks to release claims."""

from collections.abc import Callable
from threading import Event, Thread

from dra_driver.errors import Permanent, Temporary
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import ClaimUnprepared
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import Refusal
from dra_driver.testing.builders import a_claim, a_ref, a_result
from dra_driver.testing.failpoints import Failpoints, raising
from dra_driver.testing.local_node import Disk, LocalNode, ManualClock

DEADLINE = 300  # seconds, against hanging only
NewNode = Callable[..., LocalNode]


def test_an_unprepared_claim_leaves_nothing_and_needs_no_api_server(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    resets: list[str] = []
    node.reset = resets.append

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


def test_shares_and_admin_access_reset_no_device(node: LocalNode) -> None:
    resets: list[str] = []
    node.reset = resets.append
    refs = node.add(
        a_claim("share", results=[a_result(share="s1")]),
        a_claim("admin", results=[a_result("gpu-1", admin=True)]),
    )
    node.prepare(*refs)
    node.unprepare(*refs)
    assert resets == []
    assert node.disk() == Disk()


def test_a_claim_that_cannot_be_released_keeps_its_device_and_its_neighbour_goes(
    node: LocalNode,
) -> None:
    bad, good = node.add(a_claim("bad"), a_claim("good", results=[a_result("gpu-1")]))
    node.prepare(bad, good)

    def reset(device) -> None:
        if device == "gpu-0":
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
    node.reset = lambda device: None
    assert node.unprepare(bad) == {bad.uid: None}


def test_when_no_claim_could_be_released_nothing_is_committed(new_node: NewNode) -> None:
    points = Failpoints()
    node = new_node(point=points)
    (ref,) = node.add(a_claim())
    node.prepare(ref)

    def reset(device) -> None:
        raise Permanent("no")

    node.reset = reset
    node.unprepare(ref)
    assert "commit.released.before" not in points.passed
    node.reset = lambda device: None
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
    node.configure = lambda device, _config: done.append(f"configure {device.name}")
    node.reset = lambda device: done.append(f"reset {device}")
    answer = node.prepare(ref)
    node.unprepare(ref)
    points.disarm()
    assert node.prepare(ref) == answer
    assert done == ["configure gpu-0", "reset gpu-0", "configure gpu-0"]


def test_a_claim_that_cannot_be_marked_is_not_touched(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    node.restart(point=Failpoints({"step.MarkStartedAgain.before": raising(Temporary("no space"))}))
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


def test_unprepare_waits_for_work_that_outlived_its_call(new_node: NewNode) -> None:
    clock, begun, go_on, order = ManualClock(), Event(), Event(), []

    def point(name: str) -> None:
        if name == "commit.started.after":
            clock.now += 36

    def slow(device, config) -> None:
        begun.set()
        assert go_on.wait(DEADLINE)
        order.append("configured")

    node = new_node(clock=clock, point=point)
    node.configure = slow
    node.reset = lambda device: order.append("reset")
    (ref,) = node.add(a_claim())
    assert isinstance(node.prepare(ref)[ref.uid], Refusal)
    assert begun.wait(DEADLINE)
    answers: list[object] = []
    thread = Thread(target=lambda: answers.append(node.unprepare(ref)))
    thread.start()
    go_on.set()
    thread.join(DEADLINE)
    assert answers == [{ref.uid: None}]
    assert order == ["configured", "reset"]
    assert node.disk() == Disk()
