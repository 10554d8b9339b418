# SPDX-License-Identifier: Apache-2.0
"""What a start finds, and what it makes of it before it serves."""

from collections.abc import Callable

from dra_driver.errors import Permanent
from dra_driver.model.events import Recovered
from dra_driver.model.state import Phase
from dra_driver.services.recover import recover
from dra_driver.testing.builders import a_claim, a_result
from dra_driver.testing.failpoints import Failpoints
from tests.support.local_node import Disk, LocalNode

NewNode = Callable[..., LocalNode]


def test_a_start_with_nothing_wrong_does_nothing(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    points = Failpoints()
    node.restart(point=points)
    assert node.recover() == {}
    assert node.disk() == before
    assert points.passed == ()
    assert node.events[-1] == Recovered(rewritten=0, released=0, removed_files=0)


def test_a_missing_or_changed_file_is_written_again_byte_for_byte(node: LocalNode) -> None:
    one, two = node.add(a_claim("one"), a_claim("two", results=[a_result("gpu-1")]))
    node.prepare(one, two)
    before = node.disk()
    node.cdi.file(one.uid).unlink()
    node.cdi.file(two.uid).write_bytes(b"\xff\xfe")
    node.restart()
    assert node.recover() == {}
    assert node.disk() == before
    assert node.events[-1] == Recovered(rewritten=2, released=0, removed_files=0)


def test_after_a_reboot_files_go_and_claims_keep_their_devices(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    owners = node.disk().owners
    node.restart(boot_id="boot-2")
    assert node.recover() == {}
    assert node.disk() == Disk({ref.uid: ("Started", "boot-1")}, owners, {})
    assert node.events[-1] == Recovered(rewritten=0, released=0, removed_files=1)
    assert node.recover() == {}
    assert node.disk() == Disk({ref.uid: ("Started", "boot-1")}, owners, {})
    assert isinstance(node.prepare(ref)[ref.uid], tuple)
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-2")}


def test_a_half_done_claim_is_undone_and_keeps_its_device(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    with node.store.transaction("recovered") as transaction:
        transaction.set_phase(ref.uid, Phase.STARTED)
    node.cdi.write(ref.uid, "{}")
    resets: list[str] = []
    node.reset = lambda lease: resets.append(lease.device)
    assert node.recover() == {}
    assert resets == ["gpu-0"]
    assert node.disk() == Disk(
        {ref.uid: ("Started", "boot-1")}, frozenset({("node-1", "gpu-0", "", ref.uid)}), {}
    )


def test_what_fails_is_answered_and_does_not_stop_the_others(node: LocalNode) -> None:
    one, two = node.add(a_claim("one"), a_claim("two", results=[a_result("gpu-1")]))
    node.prepare(one, two)
    before = node.disk()
    blocked = node.cdi.file(one.uid)
    blocked.unlink()
    blocked.mkdir()
    node.cdi.file(two.uid).unlink()
    failures = node.recover()
    assert {uid: str(error) for uid, error in failures.items()} == {
        one.uid: f"cannot write {blocked}: Is a directory"
    }
    assert all(isinstance(error, Permanent) for error in failures.values())
    blocked.rmdir()
    assert node.recover() == {}
    assert node.disk() == before


def test_a_claim_that_another_process_finished_meanwhile_is_left_alone(node: LocalNode) -> None:
    """The rolling update: it looked half done before its lock was taken, and is Prepared under it."""
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    finished = node.disk()
    with node.store.transaction("recovered") as transaction:
        transaction.set_phase(ref.uid, Phase.STARTED)
    resets: list[str] = []
    node.reset = lambda lease: resets.append(lease.device)

    def documents():
        found = node.cdi.documents()
        with node.store.transaction("prepared") as transaction:  # the other process, at this moment
            transaction.set_phase(ref.uid, Phase.PREPARED)
        return found

    assert recover(node.parts, node.store, documents, boot_id="boot-1") == {}
    assert node.disk() == finished
    assert resets == []


def test_a_half_done_claim_without_a_file_needs_no_removal(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())

    def fail(lease) -> None:
        raise Permanent("no")

    node.configure = fail
    node.prepare(ref)
    assert node.recover() == {}
    assert node.disk().files == {}


def test_a_claim_whose_file_stands_whole_lacks_only_the_word_prepared(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    with node.store.transaction("recovered") as transaction:
        transaction.set_phase(ref.uid, Phase.STARTED)

    def reset(lease) -> None:
        raise AssertionError("a running pod may have it")

    node.reset = reset
    assert node.recover() == {}
    assert node.disk() == before
    node.reset = lambda lease: None
