# SPDX-License-Identifier: Apache-2.0
"""What running pods have stays theirs when the state was lost, whatever else is wrong at the same time."""

import dataclasses
import sqlite3
from collections.abc import Callable
from contextlib import closing
from threading import Event

import pytest

from dra_driver.errors import Permanent
from dra_driver.kubelet.pb import dra_v1_pb2
from dra_driver.model.claim import Claim
from dra_driver.model.events import WorkEnded
from dra_driver.model.lease import Lease
from dra_driver.model.plan import Refusal
from dra_driver.model.presence import Alive
from dra_driver.model.state import Phase, PodDevice, Unknown
from dra_driver.planning.prepare import users_of
from dra_driver.services.adopt import take_up_pod_claims
from dra_driver.services.sweep import Sweep
from dra_driver.testing.builders import (
    A_DRIVER,
    A_POOL,
    a_cdi_id,
    a_claim,
    a_ref,
    a_result,
    an_inventory,
)
from dra_driver.testing.kubelet_calls import ClaimInfo, dynamic_resource
from tests.support.local_node import Disk, LocalNode, ManualClock

NewNode = Callable[..., LocalNode]
ANOTHER_BOOT = "boot-2"
DEADLINE = 60.0  # only against hanging
RUNS = Alive("its cgroup has processes")


class Killed(BaseException):
    """The process died."""


def as_the_kubelet_lists(claim: Claim) -> frozenset[PodDevice]:
    """As GetDynamicResources of kubelet 1.37.1 does (cm/container_manager_linux.go:1081): the CDI devices of a driver add up over its devices."""
    found = []
    ids: tuple[str, ...] = ()
    for result in claim.results or ():
        ids = (*ids, a_cdi_id(claim, result.device))
        found.append(
            PodDevice(
                claim.ref.namespace, claim.ref.name, A_DRIVER, A_POOL, result.device, cdi_ids=ids
            )
        )
    return frozenset(found)


def let_run(node: LocalNode, claim: Claim) -> None:
    node.presences |= dict.fromkeys(users_of(claim).pods or (), RUNS)


TWO = a_claim(results=[a_result("gpu-0", request="one"), a_result("gpu-1", request="two")])


def test_a_lost_claim_of_two_devices_is_answered_as_before_where_the_api_server_is_away(
    node: LocalNode,
) -> None:
    (ref,) = node.add(TWO)
    answer = node.prepare(ref)[ref.uid]
    assert not isinstance(answer, Refusal)
    node.lose_state()
    node.delete(ref)
    node.pod_devices = as_the_kubelet_lists(TWO)
    let_run(node, TWO)
    node.sweep()
    found = node.prepare(ref)[ref.uid]
    assert not isinstance(found, Refusal)
    # Each device by its own name: a container of request "two" gets no device of request "one".
    assert [device.cdi_ids for device in found] == [device.cdi_ids for device in answer]


def test_a_lost_claim_of_two_devices_is_prepared_as_before_when_the_kubelet_asks_again(
    new_node: NewNode,
) -> None:
    node = new_node(clock=ManualClock())
    (ref,) = node.add(TWO)
    answer = node.prepare(ref)
    node.lose_state()
    node.pod_devices = as_the_kubelet_lists(TWO)
    let_run(node, TWO)
    assert node.sweep() == ()
    before = node.disk()
    assert node.prepare(ref) == answer  # the kubelet was restarted
    assert node.disk() == before  # not held, its file not taken away under its running containers


@pytest.mark.parametrize("when", ["always", "second question"])
def test_a_kubelet_that_cannot_be_asked_leaves_a_sweep_open(node: LocalNode, when: str) -> None:
    """State and file are lost, a pod runs. The kubelet refuses more than 100 questions a second, or is being restarted."""
    claim = a_claim()
    (ref,) = node.add(claim)
    node.prepare(ref)
    node.lose_state()
    node.cdi.remove(ref.uid)
    let_run(node, claim)
    held = as_the_kubelet_lists(claim)
    node.pod_devices = Unknown("ResourceExhausted") if when == "always" else held

    def allocated() -> tuple[Claim, ...]:
        node.pod_devices = Unknown("ResourceExhausted")  # from the second question on
        return (claim,)

    still_open = Sweep(node.parts, node.store, node.cdi.documents, allocated).once()
    taken_up = node.parts.row(ref.uid) is not None
    # The thread of sweeps ends for good when nothing is open.
    assert taken_up or still_open != ()


def test_a_device_is_held_after_another_claims_row_was_damaged(new_node: NewNode) -> None:
    """One row that cannot be believed must not let go what other rows hold."""
    node = new_node(clock=ManualClock())
    held, damaged = a_claim("held"), a_claim("two", results=[a_result("gpu-1")])
    refs = node.add(held, damaged)
    node.prepare(*refs)
    let_run(node, held)
    node.unprepare(refs[0])  # deleted by force, its containers run on
    node.delete(refs[0])
    row = node.parts.row(refs[0].uid)
    assert row is not None
    assert row.held is not None
    with closing(sqlite3.connect(node.directory / "state.db")) as db, db:
        db.execute("UPDATE claims SET cdi_spec = cdi_spec || ' ' WHERE uid = 'uid-two'")
    node.restart()
    assert node.store.quarantined is not None
    node.recover()
    node.sweep()
    (other,) = node.add(a_claim("other"))
    assert isinstance(node.prepare(other)[other.uid], Refusal)


def test_a_lost_claim_of_a_pod_that_was_deleted_by_force_keeps_its_device(
    new_node: NewNode,
) -> None:
    """The API server and the kubelet have both forgotten the pod, its containers run on, its file stands, the state is lost."""
    node = new_node(clock=ManualClock())
    claim = a_claim()
    (ref,) = node.add(claim)
    node.prepare(ref)
    let_run(node, claim)
    node.lose_state()
    node.delete(ref)
    node.pod_devices = frozenset()
    node.recover()
    node.sweep()
    (other,) = node.add(a_claim("other"))
    assert isinstance(node.prepare(other)[other.uid], Refusal)


@pytest.mark.parametrize("who", ["sweep", "unprepare"])
@pytest.mark.parametrize("anew", [True, False])
def test_who_used_a_lost_claim_before_its_reservation_ended_is_not_nobody(
    new_node: NewNode, who: str, anew: bool
) -> None:
    """Taken up from its file while the API server was away. Then its pod is deleted by force, and the claim names nobody any more."""
    node = new_node(clock=ManualClock())
    claim = a_claim("shared", sole=False)
    (ref,) = node.add(claim)
    node.prepare(ref)
    let_run(node, claim)
    node.lose_state()
    node.pod_devices = as_the_kubelet_lists(claim)
    take_up_pod_claims(
        node.parts, node.store, node.cdi.documents, lambda: node.pod_devices, at_start=True
    )
    node.pod_devices = frozenset()
    results = [a_result("gpu-3")] if anew else None
    pods = ["another"] if anew else []
    node.add(
        dataclasses.replace(
            a_claim("shared", sole=False, pods=pods, results=results or []), results=results
        )
    )
    if who == "sweep":
        node.sweep()
    else:
        node.unprepare(ref)
    row = node.parts.row(ref.uid)
    assert row is not None, "given back while a pod runs that only the lost state knew"
    assert row.held is not None
    (other,) = node.add(a_claim("other"))
    assert isinstance(node.prepare(other)[other.uid], Refusal)


@pytest.mark.parametrize("kubelet", [frozenset(), Unknown("no socket")])
def test_what_a_file_describes_is_given_to_nobody_before_it_is_known_whose_it_is(
    new_node: NewNode, kubelet: frozenset[PodDevice] | Unknown
) -> None:
    """A kubelet without its checkpoint names nobody, and the first sweep comes after the first call."""
    node = new_node(clock=ManualClock())
    claim = a_claim()
    (ref,) = node.add(claim)
    answer = node.prepare(ref)
    before = node.disk()
    let_run(node, claim)
    node.lose_state()
    node.pod_devices = kubelet
    take_up_pod_claims(
        node.parts, node.store, node.cdi.documents, lambda: node.pod_devices, at_start=True
    )
    node.recover()
    (other,) = node.add(a_claim("other"))
    refused = node.prepare(other)[other.uid]
    assert isinstance(refused, Refusal)
    assert "its claim is not known yet" in refused.reason or isinstance(kubelet, Unknown)
    assert node.disk().files == before.files
    # The API server says whose it is.
    node.sweep()
    assert node.disk() == before
    assert node.prepare(ref) == answer


def test_what_a_file_describes_is_held_once_its_claim_is_known_to_be_gone(
    new_node: NewNode,
) -> None:
    node = new_node(clock=ManualClock())
    claim = a_claim()
    (ref,) = node.add(claim)
    node.prepare(ref)
    let_run(node, claim)
    node.lose_state()
    node.pod_devices = frozenset()
    take_up_pod_claims(
        node.parts, node.store, node.cdi.documents, lambda: node.pod_devices, at_start=True
    )
    node.delete(ref)
    assert node.sweep() == ()
    row = node.parts.row(ref.uid)
    assert row is not None
    assert row.held is not None
    assert node.disk().files == {}
    assert node.sweep() == ()
    (other,) = node.add(a_claim("other"))
    refused = node.prepare(other)[other.uid]
    assert isinstance(refused, Refusal)
    assert f"`dra-driver release {ref.uid}`" in refused.reason


def test_the_kubelet_may_unprepare_what_is_only_reserved_for_its_file(node: LocalNode) -> None:
    claim = a_claim("shared", sole=False)
    (ref,) = node.add(claim)
    node.prepare(ref)
    let_run(node, claim)
    node.lose_state()
    take_up_pod_claims(
        node.parts, node.store, node.cdi.documents, lambda: node.pod_devices, at_start=True
    )
    node.fetch = None  # nobody knows its name
    assert node.unprepare(ref) == {ref.uid: None}
    row = node.parts.row(ref.uid)
    assert row is not None
    assert row.held is not None


def test_a_reserved_claim_of_a_running_pod_is_not_reset_by_a_start(new_node: NewNode) -> None:
    """`--release-proof unprepare` believes the kubelet's unprepare; it has not come."""
    node = new_node()
    node.believes_unprepare = True
    claim = a_claim(results=[a_result("gpu-0"), a_result("gpu-1")])
    (ref,) = node.add(claim)
    node.prepare(ref)
    node.cdi.remove(ref.uid)
    node.lose_state()
    node.pod_devices = as_the_kubelet_lists(claim)
    node.inventory = an_inventory(1)
    (sentence,) = node.sweep()
    assert "cannot be taken up" in sentence
    assert node.parts.row(ref.uid) is not None
    node.backend_calls.clear()
    node.restart()
    node.recover()
    assert node.backend_calls == []  # gpu-0 is in use, the kubelet says so


def test_of_a_lost_claim_the_device_that_nobody_else_has_stays_its_own(new_node: NewNode) -> None:
    """Its file is lost too, and one of its two devices was prepared for another claim before it could be taken up."""
    node = new_node(clock=ManualClock())
    (ref,) = node.add(TWO)
    node.prepare(ref)
    node.lose_state()
    node.cdi.remove(ref.uid)
    let_run(node, TWO)
    node.pod_devices = as_the_kubelet_lists(TWO)
    rival, other = node.add(a_claim("rival"), a_claim("other", results=[a_result("gpu-1")]))
    node.prepare(rival)
    node.sweep()
    assert isinstance(node.prepare(other)[other.uid], Refusal)


def test_of_a_lost_claim_that_is_allocated_anew_the_device_that_its_pod_has_stays_its_own(
    new_node: NewNode,
) -> None:
    """The kubelet names pool and device of a pod that runs; the file is lost, the API server has another allocation."""
    node = new_node(clock=ManualClock())
    claim = a_claim("named", sole=False)
    (ref,) = node.add(claim)
    node.prepare(ref)
    node.lose_state()
    node.cdi.remove(ref.uid)
    let_run(node, claim)
    node.pod_devices = as_the_kubelet_lists(claim)
    node.add(a_claim("named", sole=False, results=[a_result("gpu-3")]))
    (sentence,) = node.sweep()
    assert "which is not what it is allocated now" in sentence
    (other,) = node.add(a_claim("other"))
    assert isinstance(node.prepare(other)[other.uid], Refusal)


def test_the_stand_in_lists_cdi_devices_as_the_kubelet_does() -> None:
    """Kubelet 1.37.1, cm/container_manager_linux.go:1081: `cdiDevices` is made once for each driver, and not for each device."""
    devices = (
        dra_v1_pb2.Device(pool_name=A_POOL, device_name="gpu-0", cdi_device_ids=["a"]),
        dra_v1_pb2.Device(pool_name=A_POOL, device_name="gpu-1", cdi_device_ids=["b"]),
    )
    listed = dynamic_resource(ClaimInfo(a_ref(), A_DRIVER, devices=devices))
    names = [[cdi.name for cdi in found.cdi_devices] for found in listed.claim_resources]
    assert names == [["a"], ["a", "b"]]


def test_a_device_that_was_reserved_for_a_file_alone_is_free_after_a_boot(node: LocalNode) -> None:
    """The claim ended while nobody knew its name: after the boot no file, no pod and no API server speaks of it."""
    (ref,) = node.add(TWO)
    assert not isinstance(node.prepare(ref)[ref.uid], Refusal)
    node.lose_state()
    take_up_pod_claims(node.parts, node.store, node.cdi.documents, frozenset, at_start=True)
    node.recover()
    assert node.disk().claims == {ref.uid: ("Started", "boot-1")}
    node.delete(ref)
    node.restart(boot_id="boot-2")
    node.cdi.remove(ref.uid)
    node.recover()
    assert node.disk().claims == {}
    (other,) = node.add(a_claim("other", results=[a_result("gpu-0")]))
    assert not isinstance(node.prepare(other)[other.uid], Refusal)


def test_it_is_free_too_where_its_file_goes_only_after_the_start(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ref,) = node.add(TWO)
    node.prepare(ref)
    node.lose_state()
    take_up_pod_claims(node.parts, node.store, node.cdi.documents, frozenset, at_start=True)
    node.delete(ref)
    go_on, ended = Event(), Event()

    def slow(name: str) -> None:
        if name == "step.RemoveCdiSpec.before":
            assert go_on.wait(DEADLINE)

    node.restart(boot_id="boot-2", point=slow)
    node.told(WorkEnded, ended)
    monkeypatch.setattr("dra_driver.services.recover.CALL_SECONDS", 0.05)
    assert list(node.recover()) == [ref.uid]
    go_on.set()
    assert ended.wait(DEADLINE)
    assert node.disk() == Disk({}, frozenset(), {})


def test_a_device_that_was_reserved_for_a_file_is_held_if_somebody_removes_the_file(
    new_node: NewNode,
) -> None:
    """In the same boot: its claim is gone too, so only the row knows the device, and containers may still use it."""
    node = new_node(clock=ManualClock())
    (ref,) = node.add(TWO)
    node.prepare(ref)
    node.lose_state()
    take_up_pod_claims(node.parts, node.store, node.cdi.documents, frozenset, at_start=True)
    node.delete(ref)
    node.cdi.remove(ref.uid)
    assert node.sweep() == ()
    row = node.parts.row(ref.uid)
    assert row is not None
    assert row.held is not None
    assert {device for _, device, *_ in node.disk().owners} == {"gpu-0", "gpu-1"}
    (other,) = node.add(a_claim("other", results=[a_result("gpu-0")]))
    refused = node.prepare(other)[other.uid]
    assert isinstance(refused, Refusal)
    assert f"`dra-driver release {ref.uid}`" in refused.reason


@pytest.mark.parametrize("same", [True, False])
def test_a_device_that_was_reserved_for_a_file_gets_its_claim_if_somebody_removes_the_file(
    node: LocalNode, same: bool
) -> None:
    """Its claim is still allocated and no pod holds it: nothing may wait for the next start to release it."""
    (ref,) = node.add(TWO)
    node.prepare(ref)
    node.lose_state()
    take_up_pod_claims(node.parts, node.store, node.cdi.documents, frozenset, at_start=True)
    node.cdi.remove(ref.uid)
    if not same:
        node.add(dataclasses.replace(TWO, results=(a_result("gpu-3"),)))
    assert node.sweep() == ()
    row = node.parts.row(ref.uid)
    assert row is not None
    assert (row.ref, row.held) == (ref, None)
    assert row.users == users_of(TWO)
    assert {device for _, device, *_ in node.disk().owners} == {"gpu-0", "gpu-1"}
    # The claim ends without a call of the kubelet: its pods are known, and have ended.
    node.delete(ref)
    node.sweep()
    node.look_at_held()
    assert node.disk() == Disk({}, frozenset(), {})


def test_a_device_that_was_reserved_for_a_file_that_is_gone_is_prepared_when_the_kubelet_asks(
    node: LocalNode,
) -> None:
    (ref,) = node.add(TWO)
    answer = node.prepare(ref)
    before = node.disk()
    node.lose_state()
    take_up_pod_claims(node.parts, node.store, node.cdi.documents, frozenset, at_start=True)
    node.cdi.remove(ref.uid)
    node.sweep()
    assert node.prepare(ref) == answer
    assert node.disk() == before


def test_a_lost_claim_of_which_its_file_and_the_kubelet_tell_nothing_keeps_its_devices(
    node: LocalNode,
) -> None:
    """The state is lost, the file is empty, and the kubelet has lost its checkpoint. The API server still has the allocation."""
    (ref,) = node.add(TWO)
    answer = node.prepare(ref)[ref.uid]
    node.lose_state()
    node.cdi.write(ref.uid, "")
    let_run(node, TWO)
    (told,) = node.sweep()
    assert "its CDI file describes nothing that can be read" in told
    (other,) = node.add(a_claim("other", results=[a_result("gpu-1")]))
    assert isinstance(node.prepare(other)[other.uid], Refusal)
    # The kubelet asks again, and gets the answer of before.
    assert node.prepare(ref)[ref.uid] == answer
    assert node.sweep() == ()


@pytest.mark.parametrize("restarts", [False, True], ids=["no restart", "restart"])
def test_a_device_in_use_whose_edits_came_late_is_never_set_up_again(
    node: LocalNode, *, restarts: bool
) -> None:
    """The state and the file are lost, and the backend cannot answer when the first sweep asks it for the edits."""
    claim = a_claim()
    (ref,) = node.add(claim)
    node.prepare(ref)
    node.pod_devices = as_the_kubelet_lists(claim)
    let_run(node, claim)
    node.lose_state()
    node.cdi.remove(ref.uid)
    node.backend_calls.clear()

    def fail(_lease: Lease) -> object:
        raise Permanent("the hardware is busy")

    node.configure = fail
    assert "the hardware is busy" in " ".join(node.sweep())
    if restarts:
        node.restart()
        assert not node.recover()
    node.configure = lambda _lease: None
    assert node.sweep() == ()
    assert node.backend_calls == []
    row = node.parts.row(ref.uid)
    assert row is not None
    assert (row.phase, len(row.leases or ())) == (Phase.PREPARED, 1)
    assert node.violations() == []


def test_a_file_of_a_lost_state_does_not_prove_a_preparation_that_died(node: LocalNode) -> None:
    """The state is lost at a reboot, and the CDI directory is not: the numbers in the file are those of the earlier boot."""
    (ref,) = node.add(a_claim(results=[a_result(admin=True)]))
    node.prepare(ref)
    text = node.cdi.read(ref.uid)
    assert text is not None
    node.boot_id = ANOTHER_BOOT
    node.lose_state()
    node.cdi.write(ref.uid, text.replace("uuid-gpu-0", "uuid-of-the-earlier-boot"))

    def die(_lease: Lease) -> object:
        raise Killed

    node.configure = die
    with pytest.raises(Killed):
        node.prepare(ref)
    node.configure = lambda _lease: None
    node.restart(boot_id=ANOTHER_BOOT)
    node.recover()
    assert isinstance(node.prepare(ref)[ref.uid], tuple)
    assert node.cdi.read(ref.uid) == text
