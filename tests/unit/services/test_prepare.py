# SPDX-License-Identifier: Apache-2.0
"""What the kubelet is answered when it asks to prepare claims, and what stands on the disk afterwards."""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from threading import Barrier, Event, Lock, Thread

import pytest

from dra_driver.errors import Fatal, Permanent, Temporary
from dra_driver.kube.base import Invalid
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import ClaimPrepared, DevicesFreed, WorkEnded
from dra_driver.model.ids import ClaimUid
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import Refusal
from dra_driver.model.state import Phase, PodDevice, PreparedDevice, Unknown, Users
from dra_driver.services.release import STILL_EXISTS
from dra_driver.testing.builders import (
    A_DRIVER,
    A_POOL,
    a_cdi_id,
    a_claim,
    a_config,
    a_device,
    a_ref,
    a_result,
    an_inventory,
)
from dra_driver.testing.failpoints import Failpoints, raising
from tests.support.local_node import LocalNode, ManualClock

DEADLINE = 300  # seconds, against hanging only
NewNode = Callable[..., LocalNode]


def prepared(name: str, device: str = "gpu-0", *, share: str = "", admin: bool = False, configs=()):
    claim = a_claim(name, results=[a_result(device, share=share, admin=admin)], configs=configs)
    return PreparedDevice(
        request_names=("gpu",),
        pool=A_POOL,
        device=device,
        cdi_ids=(a_cdi_id(claim, device),),
        uuid=f"uuid-{device}",
        share_id=share,
        admin_access=admin,
    )


def held_by(ref: ClaimRef, device: str = "gpu-0") -> PodDevice:
    return PodDevice(
        ref.namespace,
        ref.name,
        A_DRIVER,
        A_POOL,
        device,
        cdi_ids=(f"k8s.gpu.dra-driver.dev/claim={ref.uid}-{device}",),
    )


def test_a_prepared_claim_has_an_answer_a_row_and_a_file(node: LocalNode) -> None:
    red = [a_config(label="red")]
    (ref,) = node.add(a_claim("wine", configs=red))
    assert node.prepare(ref) == {"uid-wine": (prepared("wine", configs=red),)}
    disk = node.disk()
    assert disk.claims == {"uid-wine": ("Prepared", "boot-1")}
    assert disk.owners == {(A_POOL, "gpu-0", "", "uid-wine")}
    ((name, text),) = disk.files.items()
    assert name == "k8s.gpu.dra-driver.dev-claim_uid-wine.json"
    assert json.loads(text) == {
        "cdiVersion": "0.3.0",
        "kind": "k8s.gpu.dra-driver.dev/claim",
        "devices": [
            {
                "name": "uid-wine-bb30b431-gpu-0",
                "containerEdits": {
                    "env": ["GPU_DEVICE_0=uuid-gpu-0", "GPU_LABEL_0=red"],
                    "deviceNodes": [
                        {
                            "path": "/dev/dra-simulated/gpu-0",
                            "type": "c",
                            "permissions": "rw",
                            "major": 120,
                            "minor": 0,
                        }
                    ],
                },
            }
        ],
    }
    assert node.cdi.file(ref.uid).stat().st_mode & 0o777 == 0o644


def test_a_second_prepare_returns_the_first_answer_and_asks_nobody(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    first = node.prepare(ref)
    node.delete(ref)
    assert node.prepare(ref) == first


def test_a_second_prepare_puts_a_damaged_file_right(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    good = node.disk()
    node.cdi.file(ref.uid).write_text("{")
    node.prepare(ref)
    assert node.disk() == good


def test_a_call_makes_two_commits_however_many_claims_it_has(new_node: NewNode) -> None:
    points = Failpoints()
    node = new_node(point=points)
    refs = node.add(
        *(a_claim(f"c{index}", results=[a_result(f"gpu-{index}")]) for index in range(4))
    )
    node.parts.learn(node.inventory)
    begun = len(points.passed)
    answers = node.prepare(*refs)
    assert answers == {
        ref.uid: (prepared(ref.name, f"gpu-{index}"),) for index, ref in enumerate(refs)
    }
    passed = points.passed[begun:]
    commits = [name for name in passed if name.startswith("commit") and name.endswith("after")]
    assert commits == ["commit.started.after", "commit.prepared.after"]
    counts = Counter(name for name in passed if name.endswith(".before"))
    assert counts == {
        "step.MarkStarted.before": 4,
        "commit.started.before": 1,
        "step.ConfigureDevice.before": 4,
        "step.WriteCdiSpec.before": 4,
        "rename.file.before": 4,
        "step.MarkPrepared.before": 4,
        "commit.prepared.before": 1,
    }


def test_the_reservation_is_on_disk_before_the_work_and_the_text_before_the_file(
    new_node: NewNode,
) -> None:
    points = Failpoints()
    node = new_node(point=points)
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    assert points.passed == (
        "commit.learned.before",
        "commit.learned.after",
        "step.MarkStarted.before",
        "step.MarkStarted.after",
        "commit.started.before",
        "commit.started.after",
        "step.ConfigureDevice.before",
        "step.ConfigureDevice.after",
        "step.MarkPrepared.before",
        "step.MarkPrepared.after",
        "commit.prepared.before",
        "commit.prepared.after",
        "step.WriteCdiSpec.before",
        "rename.file.before",
        "rename.file.after",
        "step.WriteCdiSpec.after",
    )


def test_the_call_is_told_to_the_observer_with_one_event_for_each_claim(new_node: NewNode) -> None:
    node = new_node(clock=ManualClock())
    (ref,) = node.add(a_claim("wine"))
    node.prepare(ref, a_ref("none"))
    missing = "cannot read claim default/none (uid uid-none): resourceclaims default/none not found"
    assert node.events == [ClaimPrepared(ref, 0.0), ClaimPrepared(a_ref("none"), 0.0, missing)]


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        (
            a_claim(uid="another"),
            (
                "ResourceClaim default/claim was replaced: the pod was scheduled with uid uid-claim, the API server has another; "
                "delete the pod, its successor gets the new claim"
            ),
        ),
        (
            Claim(a_ref()),
            "ResourceClaim default/claim is not allocated; the scheduler allocates it again, delete the pod if it stays so",
        ),
        (
            a_claim(results=[a_result(driver="nic.example.com")]),
            "ResourceClaim default/claim has no device of driver gpu.dra-driver.dev, only of: nic.example.com",
        ),
        (
            a_claim(results=[a_result("gpu-99")]),
            (
                "device gpu-99 of ResourceClaim default/claim is not found on this node (any more); `dra-driver devices` shows what is; "
                "delete the pod and the claim, so that the scheduler chooses another device"
            ),
        ),
        (
            a_claim(configs=[a_config(label="two\nlines")]),
            (
                "ResourceClaim default/claim: configuration refused at status.allocation.devices.config[0].opaque.parameters.label: "
                "'two\\nlines' must be a text of at most 63 characters (A text that the container gets in a variable; printable ASCII only); correct it in the claim or its DeviceClass and create the claim again"
            ),
        ),
    ],
)
def test_a_refused_claim_leaves_nothing_behind(node: LocalNode, claim: Claim, reason: str) -> None:
    node.add(claim)
    before = node.disk()
    assert node.prepare(a_ref()) == {"uid-claim": Refusal(reason)}
    assert node.disk() == before


@pytest.mark.parametrize("uid", ["../../etc/cron.d/x", "", "a/b", "-", "u" * 65, "ü", "a\nb"])
def test_a_uid_that_is_no_uid_never_reaches_a_file_name(node: LocalNode, uid: str) -> None:
    ref = ClaimRef("default", "claim", ClaimUid(uid))
    (answer,) = node.prepare(ref).values()
    assert answer == Refusal(
        f"claim default/claim: uid {uid[:80]!a} is no UID that the API server makes"
    )
    assert sorted(path.name for path in node.directory.iterdir() if "state" not in path.name) == [
        "cdi"
    ]


def test_a_claim_that_fails_neither_delays_nor_undoes_another(node: LocalNode) -> None:
    def configure(lease) -> None:
        if lease.device == "gpu-0":
            raise Permanent("the device fell off the bus; reboot the node")

    node.configure = configure
    bad, good = node.add(a_claim("bad"), a_claim("good", results=[a_result("gpu-1")]))
    assert node.prepare(bad, good) == {
        bad.uid: Refusal(
            "cannot prepare claim default/bad (uid uid-bad): the device fell off the bus; reboot the node"
        ),
        good.uid: (prepared("good", "gpu-1"),),
    }
    assert node.disk().claims == {bad.uid: ("Started", "boot-1"), good.uid: ("Prepared", "boot-1")}


def test_what_a_backend_throws_costs_its_claim_only(node: LocalNode) -> None:
    def configure(lease) -> None:
        if lease.device == "gpu-0":
            raise ZeroDivisionError("oops")

    node.configure = configure
    bad, good = node.add(a_claim("bad"), a_claim("good", results=[a_result("gpu-1")]))
    answers = node.prepare(bad, good)
    assert answers[good.uid] == (prepared("good", "gpu-1"),)
    assert (
        "ZeroDivisionError: oops; this is a defect of the backend or the driver"
        in answers[bad.uid].reason
    )


def test_a_store_that_fails_late_takes_no_earlier_answer_back(new_node: NewNode) -> None:
    points = Failpoints({"commit.prepared.before": raising(Temporary("no space"))})
    node = new_node()
    old, new = node.add(a_claim("old"), a_claim("new", results=[a_result("gpu-1")]))
    node.prepare(old)
    node.restart(point=points)
    node.recover()
    assert node.prepare(old, new) == {
        old.uid: (prepared("old"),),
        new.uid: Refusal("cannot prepare claim default/new (uid uid-new): no space"),
    }
    points.disarm()
    assert node.prepare(new) == {new.uid: (prepared("new", "gpu-1"),)}


def test_of_two_claims_in_one_call_that_want_one_device_the_second_is_refused(
    node: LocalNode,
) -> None:
    first, second = node.add(a_claim("first"), a_claim("second"))
    assert node.prepare(first, second) == {
        first.uid: (prepared("first"),),
        second.uid: Refusal(
            "device gpu-0 is prepared for claim default/first (uid uid-first) and cannot be given to claim default/second (uid uid-second) as well: "
            "it still exists; `kubectl get resourceclaim -n default first` shows who uses it"
        ),
    }


@pytest.mark.parametrize("gone", ["deleted", "replaced"])
def test_an_owner_that_is_gone_and_that_no_pod_holds_is_released_first(
    node: LocalNode, gone: str
) -> None:
    (first,) = node.add(a_claim("first"))
    node.prepare(first)
    resets: list[str] = []
    node.reset = lambda lease: resets.append(lease.device)
    node.delete(first)
    if gone == "replaced":
        node.add(a_claim("first", uid="another", results=[a_result("gpu-3")]))
    (second,) = node.add(a_claim("second"))
    node.events.clear()
    assert node.prepare(second) == {second.uid: (prepared("second"),)}
    assert node.disk().claims == {second.uid: ("Prepared", "boot-1")}
    assert resets == ["gpu-0"]
    assert [type(event) for event in node.events] == [DevicesFreed, ClaimPrepared]


@pytest.mark.parametrize(
    ("held", "because"),
    [
        (frozenset({held_by(a_ref("first"))}), "the kubelet says that a pod on this node uses it"),
        (
            Unknown("the kubelet lists no claims before 1.34"),
            "the kubelet's pod-resources cannot tell whether a pod uses it: the kubelet lists no claims before 1.34",
        ),
    ],
)
def test_an_owner_that_is_gone_but_may_be_held_keeps_its_device(
    node: LocalNode, held: frozenset[PodDevice] | Unknown, because: str
) -> None:
    (first,) = node.add(a_claim("first"))
    node.prepare(first)
    node.delete(first)
    before = node.disk()
    node.pod_devices = held
    (second,) = node.add(a_claim("second"))
    assert node.prepare(second)[second.uid] == Refusal(
        "device gpu-0 is prepared for claim default/first (uid uid-first) and cannot be given to claim default/second (uid uid-second) as well: "
        f"{because}; `kubectl get resourceclaim -n default first` shows who uses it"
    )
    assert node.disk() == before


def test_an_owner_about_which_the_api_server_cannot_be_asked_keeps_its_device(
    node: LocalNode,
) -> None:
    first, second = node.add(a_claim("first"), a_claim("second"))
    node.prepare(first)

    def fetch(ref: ClaimRef) -> Claim:
        if ref == first:
            raise Permanent("403: forbidden")
        return node.stored(ref)

    node.fetch = fetch
    answer = node.prepare(second)[second.uid]
    assert (
        "as well: the API server cannot tell whether it still exists: 403: forbidden;"
        in answer.reason
    )


def test_an_owner_that_somebody_is_at_work_on_is_not_released(new_node: NewNode) -> None:
    node = new_node(clock=ManualClock())
    (first,) = node.add(a_claim("first"))
    node.prepare(first)
    node.delete(first)
    (second,) = node.add(a_claim("second"))
    with node.lock([f"claim-{first.uid}"], 0.0, "unpreparing"):
        answer = node.prepare(second)[second.uid]
    assert (
        "the claim is gone, but releasing it failed: claim-uid-first is locked by process"
        in answer.reason
    )
    assert node.disk().claims == {first.uid: ("Prepared", "boot-1")}
    assert node.prepare(second) == {second.uid: (prepared("second"),)}


def test_an_owner_that_came_back_while_its_lock_was_taken_stays(node: LocalNode) -> None:
    (first,) = node.add(a_claim("first"))
    node.prepare(first)
    (second,) = node.add(a_claim("second"))
    asked: list[ClaimRef] = []

    def gone_at_first(ref: ClaimRef) -> Claim:
        asked.append(ref)
        return (
            a_claim("first", uid="other")
            if asked.count(first) == 1 and ref == first
            else node.stored(ref)
        )

    node.fetch = gone_at_first
    assert STILL_EXISTS in node.prepare(second)[second.uid].reason
    assert node.disk().claims == {first.uid: ("Prepared", "boot-1")}


def test_an_owner_that_was_unprepared_meanwhile_needs_no_release(node: LocalNode) -> None:
    (first,) = node.add(a_claim("first"))
    node.prepare(first)
    node.delete(first)
    (second,) = node.add(a_claim("second"))
    asked: list[ClaimRef] = []

    def unprepared_by_then(ref: ClaimRef) -> Claim:
        asked.append(ref)
        if asked.count(first) == 2:
            with node.store.transaction("released") as transaction:
                transaction.forget(first.uid)
            node.cdi.remove(first.uid)
        return node.stored(ref)

    node.fetch = unprepared_by_then
    assert node.prepare(second) == {second.uid: (prepared("second"),)}


def test_an_owner_whose_device_cannot_be_reset_keeps_it(node: LocalNode) -> None:
    (first,) = node.add(a_claim("first"))
    node.prepare(first)
    node.delete(first)

    def refuse(lease) -> None:
        raise Permanent("device busy")

    node.reset = refuse
    (second,) = node.add(a_claim("second"))
    answer = node.prepare(second)[second.uid]
    assert "as well: the claim is gone, but releasing it failed: device busy;" in answer.reason
    node.reset = lambda lease: None
    assert node.prepare(second) == {second.uid: (prepared("second"),)}


def test_admin_access_neither_owns_nor_conflicts(node: LocalNode) -> None:
    configured: list[bool] = []
    node.configure = lambda lease: configured.append(lease.admin_access)
    admin = a_claim("admin", results=[a_result(admin=True)])
    other = a_claim("other", results=[a_result(admin=True)])
    user, watcher, second = node.add(a_claim("user"), admin, other)
    assert node.prepare(watcher) == {watcher.uid: (prepared("admin", admin=True),)}
    assert node.prepare(user) == {user.uid: (prepared("user"),)}
    assert node.prepare(second) == {second.uid: (prepared("other", admin=True),)}
    assert node.disk().owners == {(A_POOL, "gpu-0", "", "uid-user")}
    assert configured == [True, False, True]
    assert '"DRA_ADMIN_ACCESS=true"' in (node.cdi.read(watcher.uid) or "")
    assert "DRA_ADMIN_ACCESS" not in (node.cdi.read(user.uid) or "")


def test_two_shares_of_one_device_go_to_two_claims(node: LocalNode) -> None:
    node.inventory = an_inventory(4, shared=True)
    one, two = node.add(
        a_claim("one", results=[a_result(share="share-1")]),
        a_claim("two", results=[a_result(share="share-2")]),
    )
    assert node.prepare(one, two) == {
        one.uid: (prepared("one", share="share-1"),),
        two.uid: (prepared("two", share="share-2"),),
    }
    assert node.disk().owners == {
        (A_POOL, "gpu-0", "share-1", "uid-one"),
        (A_POOL, "gpu-0", "share-2", "uid-two"),
    }
    assert '"GPU_DEVICE_0=uuid-gpu-0"' in (node.cdi.read(one.uid) or "")


def test_claims_of_one_call_are_fetched_in_parallel(node: LocalNode) -> None:
    together = Barrier(3, timeout=DEADLINE)

    def fetch(ref: ClaimRef) -> Claim:
        together.wait()
        return node.stored(ref)

    node.fetch = fetch
    refs = node.add(
        *(a_claim(f"c{index}", results=[a_result(f"gpu-{index}")]) for index in range(3))
    )
    assert all(isinstance(answer, tuple) for answer in node.prepare(*refs).values())


def test_a_temporary_error_of_the_api_server_is_tried_again_inside_the_call(
    new_node: NewNode,
) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    (ref,) = node.add(a_claim())
    errors = [Temporary("503"), Temporary("429", retry_after_seconds=3.0)]

    def fetch(wanted: ClaimRef) -> Claim:
        if errors:
            raise errors.pop(0)
        return node.stored(wanted)

    node.fetch = fetch
    assert node.prepare(ref) == {ref.uid: (prepared("claim"),)}
    assert clock.pauses == [0.05, 3.0]


def test_fetching_ends_before_the_kubelet_loses_patience(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)

    def fetch(wanted: ClaimRef) -> Claim:
        raise Temporary("the API server does not answer")

    node.fetch = fetch
    assert node.prepare(a_ref()) == {
        "uid-claim": Refusal(
            "cannot read claim default/claim (uid uid-claim): the API server does not answer"
        )
    }
    assert clock.pauses[:6] == [0.05, 0.1, 0.25, 0.5, 1.0, 2.0]
    assert 32 < sum(clock.pauses) < 35


def test_a_permanent_error_of_the_api_server_is_not_tried_again(node: LocalNode) -> None:
    asked: list[ClaimRef] = []

    def fetch(wanted: ClaimRef) -> Claim:
        asked.append(wanted)
        raise Permanent("403: forbidden")

    node.fetch = fetch
    node.prepare(a_ref())
    assert asked == [a_ref()]


def test_work_that_outlives_the_call_says_itself_that_the_claim_is_prepared(
    new_node: NewNode,
) -> None:
    clock, go_on, said = ManualClock(), Event(), Event()
    jumps, configured = [36.0], []

    def point(name: str) -> None:
        if name == "commit.started.after" and jumps:
            clock.now += jumps.pop()

    def slow(lease) -> None:
        configured.append(lease.device)
        assert go_on.wait(DEADLINE)

    node = new_node(clock=clock, point=point)
    node.configure = slow
    node.told(WorkEnded, said)
    (ref,) = node.add(a_claim())
    assert node.prepare(ref) == {
        ref.uid: Refusal(
            "cannot prepare claim default/claim (uid uid-claim): claim default/claim (uid uid-claim): "
            "the work on its devices takes longer than a call may take and goes on; "
            "the next try gets the result"
        )
    }
    assert node.disk().claims == {ref.uid: ("Started", "boot-1")}
    # Nobody else touches the claim meanwhile: the work has its lock.
    assert "claim-uid-claim is locked by process" in node.prepare(ref)[ref.uid].reason
    assert "claim-uid-claim is locked by process" in node.unprepare(ref)[ref.uid].reason
    assert [str(error)[:32] for error in node.recover().values()] == [
        "claim-uid-claim is locked by pro"
    ]
    assert node.parts.executor.unfinished() == (ref,)
    go_on.set()
    assert said.wait(DEADLINE)
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}
    assert node.prepare(ref) == {ref.uid: (prepared("claim"),)}
    assert configured == ["gpu-0"]


def test_what_fails_after_the_call_is_told_and_tried_again_by_the_next_one(
    new_node: NewNode,
) -> None:
    clock, go_on, said = ManualClock(), Event(), Event()
    jumps, configured = [36.0], []

    def point(name: str) -> None:
        if name == "commit.started.after" and jumps:
            clock.now += jumps.pop()

    def slow(lease) -> None:
        configured.append(lease.device)
        if len(configured) == 1:
            assert go_on.wait(DEADLINE)
            raise Permanent("the device fell off the bus")

    node = new_node(clock=clock, point=point)
    node.configure = slow
    node.told(WorkEnded, said)
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    go_on.set()
    assert said.wait(DEADLINE)
    assert node.events[-1] == WorkEnded(ref, "the device fell off the bus")
    assert node.prepare(ref) == {ref.uid: (prepared("claim"),)}
    assert configured == ["gpu-0", "gpu-0"]


def test_a_device_that_vanished_after_its_preparation_is_refused_and_kept(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    node.inventory = Inventory((a_device("gpu-1"),))
    assert node.prepare(ref) == {
        ref.uid: Refusal(
            "device gpu-0 of claim default/claim (uid uid-claim) was prepared and has vanished from this node; "
            "see `dra-driver devices`; delete the pod and the claim, so that the scheduler chooses another device"
        )
    }
    assert node.disk() == before
    # Its backend has not answered since the driver started: it may still be there.
    node.inventory = dataclasses.replace(node.inventory, unanswered=("acme",))
    assert node.prepare(ref) == {ref.uid: (prepared("claim"),)}
    node.inventory = an_inventory()
    assert node.prepare(ref) == {ref.uid: (prepared("claim"),)}


def test_a_second_prepare_that_cannot_repair_the_file_says_so(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    file = node.cdi.file(ref.uid)
    file.unlink()
    file.mkdir()
    answer = node.prepare(ref)[ref.uid]
    assert answer == Refusal(
        f"cannot prepare claim default/claim (uid uid-claim): cannot write {file}: Is a directory"
    )
    file.rmdir()
    assert node.prepare(ref) == {ref.uid: (prepared("claim"),)}


def test_calls_for_one_claim_from_two_threads_configure_it_once(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    configured: list[str] = []
    node.configure = lambda lease: configured.append(lease.device)
    start, answers, mutex = Barrier(4, timeout=DEADLINE), [], Lock()

    def call() -> None:
        start.wait()
        answer = node.prepare(ref)
        with mutex:
            answers.append(answer)

    threads = [Thread(target=call, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert answers == [{ref.uid: (prepared("claim"),)}] * 4
    assert configured == ["gpu-0"]


def test_a_claim_that_another_process_holds_is_refused_with_its_name(new_node: NewNode) -> None:
    node = new_node(clock=ManualClock())
    (ref,) = node.add(a_claim())
    with node.lock([f"claim-{ref.uid}"], 0.0, "preparing"):
        answer = node.prepare(ref)[ref.uid]
    assert answer.reason.startswith(
        "cannot prepare claim default/claim (uid uid-claim): claim-uid-claim is locked by process "
    )
    assert "preparing" in answer.reason


def test_a_claim_prepared_before_the_reboot_is_prepared_anew(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.restart(boot_id="boot-2")
    configured: list[str] = []
    node.configure = lambda lease: configured.append(lease.device)
    assert node.prepare(ref) == {ref.uid: (prepared("claim"),)}
    assert configured == ["gpu-0"]
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-2")}


def test_an_unknown_kind_of_error_of_the_state_reaches_the_caller(new_node: NewNode) -> None:
    node = new_node(point=Failpoints({"commit.started.before": raising(Fatal("gone"))}))
    (ref,) = node.add(a_claim())
    assert node.prepare(ref) == {
        ref.uid: Refusal("cannot prepare claim default/claim (uid uid-claim): gone")
    }
    assert node.disk().claims == {}


def test_a_file_of_an_earlier_try_does_not_vouch_for_a_later_one(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    with node.store.transaction("recovered") as transaction:  # as if the commit had been lost
        transaction.set_phase(ref.uid, Phase.STARTED)

    def configure(lease) -> None:
        raise Permanent("half configured")

    node.configure = configure
    assert isinstance(node.prepare(ref)[ref.uid], Refusal)
    node.restart()
    assert node.recover() == {}
    assert node.disk().claims == {ref.uid: ("Started", "boot-1")}
    assert node.disk().files == {}


def test_a_passing_403_is_tried_again_inside_the_call_and_a_lasting_one_ends_it_soon(
    new_node: NewNode,
) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    (ref,) = node.add(a_claim())
    errors = [Invalid("403: the rights are not there yet")] * 2

    def fetch(wanted: ClaimRef) -> Claim:
        if errors:
            raise errors.pop()
        return node.stored(wanted)

    node.fetch = fetch
    assert node.prepare(ref) == {ref.uid: (prepared("claim"),)}
    assert clock.pauses == [0.05, 0.1]

    def refused(_wanted: ClaimRef) -> Claim:
        raise Invalid("403: forbidden")

    node.fetch = refused
    begun = clock.now
    answer = node.prepare(a_ref("other"))["uid-other"]
    assert answer == Refusal("cannot read claim default/other (uid uid-other): 403: forbidden")
    assert 3.0 <= clock.now - begun < 6.0


def test_hardware_that_nobody_has_read_yet_takes_no_prepared_claim_away(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    old, new = node.add(a_claim("old"), a_claim("new", results=[a_result("gpu-1")]))
    node.prepare(old)
    known, node.inventory = node.inventory, Inventory(scanned=False)
    answers = node.prepare(old, new)
    assert answers[old.uid] == (prepared("old"),)
    assert isinstance(answers[new.uid], Refusal)
    assert "the hardware of this node has not been read yet" in answers[new.uid].reason
    assert node.unprepare(old) == {old.uid: None}
    node.inventory = known
    assert node.prepare(new) == {new.uid: (prepared("new", "gpu-1"),)}


def test_hardware_that_is_read_meanwhile_is_waited_for_inside_the_call(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)
    (ref,) = node.add(a_claim())
    known, node.inventory = node.inventory, Inventory(scanned=False)

    def sleep(seconds: float) -> None:
        clock.now += seconds
        node.inventory = known

    clock.sleep = sleep
    node.restart()
    assert node.prepare(ref) == {ref.uid: (prepared("claim"),)}


def test_a_file_that_cannot_be_removed_costs_its_own_claim_only(node: LocalNode) -> None:
    bad, good = node.add(a_claim("bad"), a_claim("good", results=[a_result("gpu-1")]))

    def fail(lease) -> None:
        raise Permanent("not now")

    node.configure = fail
    node.prepare(bad)  # half done: its file is taken away before the next try
    node.configure = lambda lease: None
    node.cdi.file(bad.uid).mkdir()
    answers = node.prepare(bad, good)
    assert str(node.cdi.file(bad.uid)) in answers[bad.uid].reason
    assert answers[good.uid] == (prepared("good", "gpu-1"),)
    node.cdi.file(bad.uid).rmdir()
    assert node.prepare(bad) == {bad.uid: (prepared("bad"),)}


def test_the_callers_deadline_counts(new_node: NewNode) -> None:
    clock = ManualClock()
    node = new_node(clock=clock)

    def fetch(_wanted: ClaimRef) -> Claim:
        raise Temporary("503")

    node.fetch = fetch
    begun = clock.now
    assert isinstance(node.prepare(a_ref(), until=begun + 5)["uid-claim"], Refusal)
    assert clock.now < begun + 5
    begun = clock.now
    assert isinstance(node.prepare(a_ref(), until=begun + 500)["uid-claim"], Refusal)
    assert clock.now < begun + 35


def test_pods_that_join_a_prepared_claim_are_remembered_by_its_next_prepare(
    node: LocalNode,
) -> None:
    (ref,) = node.add(a_claim(sole=False, pods=["one"]))
    answer = node.prepare(ref)
    node.add(a_claim(sole=False, pods=["two"]))
    assert node.prepare(ref) == answer
    node.fetch = node_is_silent
    assert node.prepare(ref) == answer  # the API server's silence changes nothing
    row = node.parts.row(ref.uid)
    assert row is not None
    assert row.users == Users(("one", "two"))


def node_is_silent(_ref: ClaimRef) -> Claim:
    raise Temporary("503")


def test_a_claim_that_is_allocated_no_more_is_not_answered_from_the_state(node: LocalNode) -> None:
    (ref,) = node.add(a_claim(sole=False))
    node.prepare(ref)
    before = node.disk()
    node.add(dataclasses.replace(a_claim(sole=False), results=None))
    answer = node.prepare(ref)[ref.uid]
    assert isinstance(answer, Refusal)
    assert "is not allocated" in answer.reason
    assert node.disk() == before
