# SPDX-License-Identifier: Apache-2.0
"""What only the API server and the kubelet can answer after a start."""

import dataclasses
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from msgspec.structs import replace

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.kube.base import Malformed, TooLarge
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import Recovered
from dra_driver.model.plan import Refusal
from dra_driver.model.presence import Alive
from dra_driver.model.state import NOBODY_KNOWN, PodDevice, Unknown, Users
from dra_driver.planning.prepare import users_of
from dra_driver.services.sweep import Sweep
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
from tests.support.local_node import Disk, LocalNode, ManualClock

NewNode = Callable[..., LocalNode]
UNKNOWN = Unknown("pod-resources are not served")


def held_by(ref: ClaimRef, device: str = "gpu-0", driver: str = A_DRIVER) -> PodDevice:
    claim = a_claim(ref.name, results=[a_result(device)])
    ids = (a_cdi_id(claim, device),)
    return PodDevice(ref.namespace, ref.name, driver, A_POOL, device, cdi_ids=ids)


def forget_users(node: LocalNode) -> None:
    """As a driver that knows nothing of users leaves the rows."""
    with closing(sqlite3.connect(node.directory / "state.db")) as db, db:
        db.execute("UPDATE claims SET users = NULL")


def nobody_may_ask() -> tuple[()]:
    raise AssertionError("the API server was asked without need")


def test_nobody_is_asked_when_there_is_nothing_to_ask(node: LocalNode) -> None:
    assert Sweep(node.parts, node.store, node.cdi.documents, nobody_may_ask).once() == ()
    assert node.events == []


def test_a_prepared_claim_that_a_pod_holds_costs_no_request(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.pod_devices = frozenset({held_by(ref), held_by(a_ref("x"), driver="nic.example.com")})

    def fetch(wanted: ClaimRef):
        raise AssertionError("asked without need")

    node.fetch = fetch
    assert Sweep(node.parts, node.store, node.cdi.documents, nobody_may_ask).once() == ()


@pytest.mark.parametrize("held", [True, False])
def test_a_lost_state_is_rebuilt_and_no_running_pod_loses_its_device(
    node: LocalNode, held: bool
) -> None:
    (ref,) = node.add(a_claim())
    answer = node.prepare(ref)
    before = node.disk()
    node.lose_state()
    node.pod_devices = frozenset({held_by(ref)}) if held else UNKNOWN
    assert [sentence for sentence in node.sweep() if "is not known" not in sentence] == []
    assert node.disk() == before
    assert node.prepare(ref) == answer


def test_a_claim_that_a_pod_holds_is_taken_up_even_when_its_file_is_lost_too(
    node: LocalNode,
) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    node.cdi.remove(ref.uid)
    node.lose_state()
    node.pod_devices = frozenset({held_by(ref)})
    node.presences = {
        pod: Alive("its cgroup has processes") for pod in users_of(a_claim()).pods or ()
    }
    assert node.sweep() == ()
    assert node.disk() == before


def test_of_a_claim_whose_file_cannot_be_made_anew_the_devices_stay_its_own(
    node: LocalNode,
) -> None:
    claim = a_claim(results=[a_result("gpu-0"), a_result("gpu-1")])
    (ref,) = node.add(claim)
    node.prepare(ref)
    before = node.disk()
    (node.directory / "cdi" / node.cdi.file(ref.uid).name).write_bytes(b"")
    node.lose_state()
    held = frozenset(
        replace(held_by(ref, device), cdi_ids=(a_cdi_id(claim, device),))
        for device in ("gpu-0", "gpu-1")
    )
    node.pod_devices = held
    pods = users_of(a_claim()).pods or ()
    node.presences = {pod: Alive("its cgroup has processes") for pod in pods}
    all_devices, node.inventory = node.inventory, an_inventory(1)
    for _ in range(2):
        (sentence,) = node.sweep()
        assert "cannot be taken up: device gpu-1 of ResourceClaim default/claim" in sentence
        assert node.recover() == {}  # a restart makes no more of it, and takes nothing back
        assert (node.disk().claims, node.disk().owners) == (
            {ref.uid: ("Started", "boot-1")},
            before.owners,
        )
    (other,) = node.add(a_claim("other"))
    node.pod_devices = frozenset()
    refused = node.prepare(other, until=node.parts.clock())[other.uid]
    assert isinstance(refused, Refusal)
    assert "device gpu-0 is prepared for claim default/claim" in refused.reason
    node.delete(other)
    # The device is back: the file too, without a call of the kubelet.
    node.pod_devices, node.inventory = held, all_devices
    assert node.sweep() == ()
    assert node.disk() == before


def test_a_lost_claim_of_which_no_pod_runs_is_prepared_anew_for_the_kubelet_may_not_ask_again(
    node: LocalNode,
) -> None:
    (ref,) = node.add(a_claim())
    answer = node.prepare(ref)
    node.cdi.remove(ref.uid)
    node.lose_state()
    # The kubelet regards the claim as prepared. None of its pods runs: after a boot, or because the file is missing.
    node.pod_devices = frozenset({held_by(ref)})
    configured: list[str] = []
    node.configure = lambda lease: configured.append(lease.device)
    assert node.sweep() == ()
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}
    assert configured == ["gpu-0"]
    assert node.prepare(ref) == answer
    assert configured == ["gpu-0"]


def test_a_lost_claim_whose_device_cannot_be_set_up_now_is_tried_again_by_the_next_sweep(
    node: LocalNode,
) -> None:
    (ref,) = node.add(a_claim())
    answer = node.prepare(ref)
    node.cdi.remove(ref.uid)
    node.lose_state()
    node.pod_devices = frozenset({held_by(ref)})

    def fail(lease) -> None:
        raise Permanent("the fan is stuck")

    works, node.configure = node.configure, fail
    (told,) = node.sweep()
    assert "the fan is stuck" in told
    assert node.disk().claims == {ref.uid: ("Started", "boot-1")}
    node.configure = works
    assert node.sweep() == ()
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}
    assert node.prepare(ref) == answer


def test_a_claim_that_nobody_holds_and_that_has_no_file_waits_for_the_kubelet(
    node: LocalNode,
) -> None:
    (ref,) = node.add(a_claim("held"))
    node.add(a_claim("waiting", results=[a_result("gpu-1")]))
    node.pod_devices = frozenset({held_by(ref)})
    assert node.sweep() == ()
    assert set(node.disk().claims) == {ref.uid}


def test_a_file_whose_claim_is_gone_and_that_no_pod_holds_is_removed_and_its_devices_are_held(
    node: LocalNode,
) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.lose_state()
    node.delete(ref)
    assert node.sweep() == ()
    assert (node.disk().claims, node.disk().files) == ({ref.uid: ("Started", "boot-1")}, {})
    row = node.parts.row(ref.uid)
    assert row is not None
    assert row.held is not None
    assert node.events[-1] == Recovered(rewritten=0, released=0, removed_files=1)
    # Until the next boot.
    node.restart(boot_id="boot-2")
    node.recover()
    node.look_at_held()
    assert node.disk() == Disk()


def test_a_file_whose_claim_is_gone_stays_while_a_pod_may_hold_it(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    files = node.disk().files
    node.lose_state()
    node.delete(ref)
    node.pod_devices = UNKNOWN
    assert node.sweep() == (
        "CDI file of claim uid uid-claim: the claim is gone, but a pod may use it; the file stays",
        "whether pods use claims is not known: pod-resources are not served",
    )
    assert node.disk().files == files
    node.pod_devices = frozenset()
    assert node.sweep() == ()


@pytest.mark.parametrize("outage", [False, True])
def test_a_running_pods_claim_is_taken_up_without_the_api_server(
    new_node: Callable[..., LocalNode], outage: bool
) -> None:
    node = new_node(clock=ManualClock())  # somebody waits for the held device, all of a call's time
    ref, other = node.add(a_claim(), a_claim("other"))
    answer = node.prepare(ref)[ref.uid]
    before = node.disk()
    node.lose_state()
    node.pod_devices = frozenset({held_by(ref)})
    if outage:

        def allocated():
            raise Temporary("no answer")

        node.allocated = allocated
        with pytest.raises(Temporary, match="no answer"):
            node.sweep()
    else:
        node.delete(ref)  # the API server was restored to yesterday
        assert node.sweep() == ()
    assert node.disk() == before
    # Its device stays its own, and the kubelet gets its answer again, for all requests.
    refusal = node.prepare(other)[other.uid]
    assert isinstance(refusal, Refusal)
    assert "a pod on this node uses it" in refusal.reason
    assert node.prepare(ref)[ref.uid] == (dataclasses.replace(answer[0], request_names=()),)
    assert node.unprepare(ref) == {ref.uid: None}
    if outage:
        assert node.disk() == Disk()  # the API server named the pod in the end, and it has ended
    else:
        assert node.disk().claims == {ref.uid: ("Started", "boot-1")}
        assert "which pods used it is not known any more" in node.prepare(other)[other.uid].reason


def test_a_running_pods_claim_with_a_foreign_file_is_named(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.lose_state()
    node.delete(ref)
    node.pod_devices = frozenset({held_by(ref)})
    node.cdi.write(ref.uid, "{}")
    (sentence,) = node.sweep()
    assert sentence.startswith(
        f"claim {ref} is not in the state and cannot be taken up: its CDI file describes nothing that can be read"
    )
    node.cdi.remove(ref.uid)


def test_a_running_pods_claim_that_was_prepared_meanwhile_is_not_taken_up(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.lose_state()
    node.pod_devices = frozenset({held_by(ref)})

    def allocated():
        node.prepare(ref)
        return ()

    node.allocated = allocated
    assert node.sweep() == ()
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}


def test_a_file_that_a_prepare_wrote_meanwhile_stays(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())

    def allocated() -> tuple[()]:
        node.prepare(ref)  # the kubelet, at this moment, while the list that is read here is old
        return ()

    node.cdi.write(ref.uid, "{}")
    assert Sweep(node.parts, node.store, node.cdi.documents, allocated).once() == ()
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}


def test_a_claim_that_the_kubelet_prepared_meanwhile_is_not_taken_up_again(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.pod_devices = frozenset({held_by(ref)})

    def allocated():
        node.prepare(ref)
        return tuple(node.claims.values())

    assert Sweep(node.parts, node.store, node.cdi.documents, allocated).once() == ()
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}


def test_a_claim_that_cannot_be_taken_up_is_named_with_the_reason(node: LocalNode) -> None:
    (owner,) = node.add(a_claim("owner"))
    node.prepare(owner)
    rival, lost = node.add(a_claim("rival"), a_claim("lost", results=[a_result("gpu-99")]))
    node.pod_devices = frozenset({held_by(owner), held_by(rival), held_by(lost, "gpu-99")})
    assert node.sweep() == (
        (
            "claim default/rival (uid uid-rival) is not in the state and cannot be taken up: "
            "its device gpu-0 is prepared for claim default/owner (uid uid-owner)"
        ),
        (
            "claim default/lost (uid uid-lost) is not in the state and cannot be taken up: "
            "device gpu-99 of ResourceClaim default/lost is not found on this node (any more); `dra-driver devices` shows what is; "
            "delete the pod and the claim, so that the scheduler chooses another device"
        ),
    )


def test_nothing_is_set_up_for_a_claim_that_a_pod_holds(node: LocalNode) -> None:
    """The state is lost, and the container uses one of the two devices: the kubelet names only that one."""
    claim = a_claim(results=[a_result(), a_result("gpu-1", request="other")])
    (ref,) = node.add(claim)
    answer = node.prepare(ref)
    before = node.disk()
    node.lose_state()
    node.backend_calls.clear()
    used = replace(held_by(ref), cdi_ids=(a_cdi_id(claim),))
    node.pod_devices = frozenset({used})
    node.presences = {
        pod: Alive("its cgroup has processes") for pod in users_of(a_claim()).pods or ()
    }
    assert node.sweep() == ()
    assert node.backend_calls == []
    assert node.disk() == before
    assert node.prepare(ref) == answer
    # The same without the file.
    node.lose_state()
    node.cdi.remove(ref.uid)
    assert node.sweep() == ()
    assert node.backend_calls == []
    assert node.disk() == before
    # And with one that was cut off in the middle.
    node.lose_state()
    node.cdi.file(ref.uid).write_text("{")
    assert node.sweep() == ()
    assert node.disk() == before


def test_a_file_and_a_pod_that_do_not_fit_the_allocation_are_named(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.lose_state()
    node.add(a_claim(results=[a_result("gpu-1")]))
    node.pod_devices = frozenset({replace(held_by(ref), cdi_ids=(a_cdi_id(a_claim()), "more"))})
    (sentence,) = node.sweep()
    assert (
        "the kubelet names k8s.gpu.dra-driver.dev/claim=uid-claim-a5186d79-gpu-0, more" in sentence
    )
    node.pod_devices = UNKNOWN
    assert "which is not what it is allocated now; delete its pods" in node.sweep()[0]
    node.pod_devices = frozenset()
    (sentence,) = node.sweep()
    assert "which is not what it is allocated now; delete its pods" in sentence
    node.cdi.remove(ref.uid)


def test_pods_that_another_version_did_not_write_down_are_read_from_the_claims(
    node: LocalNode,
) -> None:
    kept, other, gone = node.add(
        a_claim("kept", sole=False, pods=["one", "two"]),
        a_claim("other", results=[a_result("gpu-1")]),
        a_claim("gone", results=[a_result("gpu-2")]),
    )
    node.prepare(kept, other, gone)
    forget_users(node)
    node.delete(gone)
    node.add(a_claim("other", results=[a_result("gpu-3")]))  # allocated anew: its pods are others
    node.pod_devices = frozenset(
        held_by(ref, f"gpu-{n}") for n, ref in enumerate((kept, other, gone))
    )
    assert node.sweep() == ()
    with node.store.reading() as state:
        users = {row.ref: row.users for row in state.all_claims()}
    assert users == {
        kept: Users(("one", "two")),
        other: NOBODY_KNOWN,
        gone: NOBODY_KNOWN,
    }


def test_a_claim_that_nobody_needs_keeps_its_device_while_a_pod_of_it_runs(
    node: LocalNode,
) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.delete(ref)
    node.presences[a_pod("claim")] = Alive("one process")
    for _ in range(2):
        assert node.sweep() == ()
        assert node.disk().claims == {ref.uid: ("Started", "boot-1")}
        assert node.disk().files == {}
    assert [call[0] for call in node.backend_calls] == ["configure"]
    del node.presences[a_pod("claim")]
    node.look_at_held()
    assert node.disk() == Disk()


def test_a_claim_that_nobody_needs_any_more_is_released(node: LocalNode) -> None:
    gone, kept = node.add(a_claim("gone"), a_claim("kept", results=[a_result("gpu-1")]))
    node.prepare(gone, kept)
    node.delete(gone)
    assert node.sweep() == ()
    assert node.disk().claims == {kept.uid: ("Prepared", "boot-1")}
    assert node.events[-1] == Recovered(rewritten=0, released=1, removed_files=0)


def test_nothing_is_released_when_the_kubelet_cannot_be_asked(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    node.delete(ref)
    node.pod_devices = UNKNOWN
    assert node.sweep() == ("whether pods use claims is not known: pod-resources are not served",)
    assert node.disk() == before


def test_an_api_server_that_does_not_answer_is_not_asked_about_every_claim(node: LocalNode) -> None:
    refs = node.add(
        *(a_claim(f"c{index}", results=[a_result(f"gpu-{index}")]) for index in range(3))
    )
    node.prepare(*refs)
    before = node.disk()
    asked: list[ClaimRef] = []

    def fetch(ref: ClaimRef):
        asked.append(ref)
        raise Temporary("connection refused")

    node.fetch = fetch
    assert node.sweep() == (
        (
            "claim default/c0 (uid uid-c0) cannot be checked: "
            "the API server cannot tell whether it still exists: connection refused"
        ),
    )
    assert asked == [refs[0]]
    assert node.disk() == before


@pytest.mark.parametrize("error", [Malformed("no UTF-8"), TooLarge("20 MiB")])
def test_a_claim_whose_name_leads_to_what_cannot_be_read_stops_no_other(
    node: LocalNode, error: DriverError
) -> None:
    refs = node.add(
        *(a_claim(f"c{index}", results=[a_result(f"gpu-{index}")]) for index in range(3))
    )
    node.prepare(*refs)
    for ref in refs[1:]:
        node.delete(ref)

    def fetch(ref: ClaimRef):
        if ref == refs[0]:
            raise error
        return node.stored(ref)

    node.fetch = fetch
    assert node.sweep() == (
        (
            "claim default/c0 (uid uid-c0) cannot be checked: "
            f"what the API server has under its name cannot be read: {error}"
        ),
    )
    assert list(node.disk().claims) == [refs[0].uid]
    assert node.events[-1] == Recovered(rewritten=0, released=2, removed_files=0)


def test_who_asks_for_a_prepared_claim_does_not_wait_while_an_absent_api_server_is_asked(
    node: LocalNode,
) -> None:
    (ref,) = node.add(a_claim())
    answer = node.prepare(ref)
    meanwhile = []

    def fetch(ref: ClaimRef):
        meanwhile.append(node.prepare(ref))
        raise Temporary("connection refused")

    node.fetch = fetch
    node.sweep()
    assert meanwhile == [answer]


def test_a_release_that_fails_is_named_and_does_not_stop_the_next(node: LocalNode) -> None:
    one, two = node.add(a_claim("one"), a_claim("two", results=[a_result("gpu-1")]))
    node.prepare(one, two)
    node.delete(one)
    node.delete(two)

    def reset(lease) -> None:
        if lease.device == "gpu-0":
            raise Permanent("device busy")

    node.reset = reset
    assert node.sweep() == (
        "claim default/one (uid uid-one) is gone and could not be released: device busy",
    )
    assert set(node.disk().claims) == {one.uid}
    node.reset = lambda lease: None
    assert node.sweep() == ()


def test_a_list_that_cannot_be_read_reaches_the_caller(node: LocalNode) -> None:
    node.cdi.write(a_ref().uid, "{}")

    def refuse() -> Iterator[None]:
        raise Temporary("503")

    with pytest.raises(DriverError, match="503"):
        Sweep(node.parts, node.store, node.cdi.documents, refuse).once()
    node.cdi.remove(a_ref().uid)


@pytest.mark.parametrize("file", [True, False])
def test_a_claim_that_the_kubelet_unprepared_meanwhile_is_not_taken_up(
    node: LocalNode, file: bool
) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.lose_state()
    node.pod_devices = frozenset({held_by(ref)})
    if not file:
        node.cdi.remove(ref.uid)

    def allocated():
        found = tuple(node.claims.values())
        node.unprepare(ref)
        node.pod_devices = frozenset()
        return found

    node.allocated = allocated
    assert node.sweep() == ()
    assert node.disk() == Disk()
