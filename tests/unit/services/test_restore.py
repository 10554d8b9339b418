# SPDX-License-Identifier: Apache-2.0
"""CDI files that somebody touches while nobody asks."""

from collections.abc import Callable, Mapping
from threading import Event

import pytest
from msgspec.structs import replace

from dra_driver.errors import Permanent, Temporary
from dra_driver.model.events import Recovered
from dra_driver.model.ids import ClaimUid
from dra_driver.node.cdi_dir import CdiDirectory
from dra_driver.node.metadata_dir import MetadataDirectory
from dra_driver.services.restore import RestoreFiles
from dra_driver.testing.builders import a_claim, a_result
from dra_driver.testing.failpoints import Failpoints, raising
from tests.support.local_node import LocalNode

NewNode = Callable[..., LocalNode]


def watcher(node: LocalNode) -> RestoreFiles:
    return RestoreFiles(node.parts, node.store, node.cdi.entries)


@pytest.mark.parametrize("text", [None, "{}", ""])
def test_a_file_that_somebody_touched_is_put_back(node: LocalNode, text: str | None) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    files = watcher(node)
    assert files.once() == {}
    node.events.clear()
    node.cdi.remove(ref.uid)
    if text is not None:
        node.cdi.write(ref.uid, text)
    assert files.once() == {}
    assert node.disk() == before
    assert node.events == [Recovered(rewritten=1, released=0, removed_files=0)]


def test_a_metadata_file_that_somebody_touched_is_put_back(new_node: NewNode) -> None:
    node = new_node(metadata=True)
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    files = watcher(node)
    assert (files.once(), before.metadata.keys()) == ({}, {f"{ref.uid}/gpu.json"})
    (node.directory / "metadata" / ref.uid / "gpu.json").write_text("{}")
    assert files.once() == {}
    assert node.disk() == before
    assert node.events[-1] == Recovered(rewritten=1, released=0, removed_files=0)


def test_only_what_changed_is_read(new_node: NewNode) -> None:
    node = new_node()
    refs = node.add(a_claim(), a_claim("two", results=[a_result("gpu-1")]))
    node.prepare(*refs)
    reads: list[ClaimUid] = []

    class Counted(CdiDirectory):
        def read(self, uid: ClaimUid) -> str | None:
            reads.append(uid)
            return super().read(uid)

    cdi = Counted(
        node.directory / "cdi",
        node.parts.place.cdi_kind,
        MetadataDirectory(node.directory / "metadata"),
    )
    files = RestoreFiles(replace(node.parts, cdi=cdi), node.store, cdi.entries)
    for _ in range(3):
        files.once()
    assert sorted(reads) == sorted(ref.uid for ref in refs)
    reads.clear()
    (late,) = node.add(a_claim("three", results=[a_result("gpu-2")]))
    node.prepare(late)
    files.once()
    assert reads == [late.uid]


def test_half_done_claims_and_those_of_another_boot_are_others_business(node: LocalNode) -> None:
    def configure(lease) -> None:
        raise Permanent("no")

    (ref, old) = node.add(a_claim(), a_claim("old", results=[a_result("gpu-1")]))
    node.prepare(old)
    node.cdi.remove(old.uid)
    node.restart(boot_id="boot-2")
    node.configure = configure
    node.prepare(ref)
    assert watcher(node).once() == {}
    assert node.disk().files == {}


def test_a_claim_that_was_released_meanwhile_gets_no_file(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    node.cdi.remove(ref.uid)

    class Slow(CdiDirectory):
        asked = False

        def read(self, uid: ClaimUid) -> str | None:
            if not self.asked:
                self.asked = True
                node.unprepare(ref)
            return super().read(uid)

    metadata = MetadataDirectory(node.directory / "metadata")
    cdi = Slow(node.directory / "cdi", node.parts.place.cdi_kind, metadata)
    assert RestoreFiles(replace(node.parts, cdi=cdi), node.store, cdi.entries).once() == {}
    assert node.disk().files == {}


def test_what_cannot_be_written_is_answered_and_tried_again(new_node: NewNode) -> None:
    points = Failpoints()
    node = new_node(point=points)
    refs = node.add(a_claim(), a_claim("two", results=[a_result("gpu-1")]))
    node.prepare(*refs)
    before = node.disk()
    for ref in refs:
        node.cdi.remove(ref.uid)
    node.restart(point=Failpoints({"rename.file.before": raising(Temporary("full"))}))
    files = watcher(node)
    assert {uid: str(error) for uid, error in files.once().items()} == {
        ref.uid: "full" for ref in refs
    }
    node.point.disarm()
    assert files.once() == {}
    assert node.disk() == before


def test_the_loop_looks_until_it_is_asked_to_end_and_survives_errors(node: LocalNode) -> None:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    before = node.disk()
    stop, waits = Event(), []

    def entries() -> Mapping[ClaimUid, object]:
        if len(waits) == 1:
            raise Permanent("cannot list")
        return node.cdi.entries()

    def wait(stop: Event, seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 2:
            node.cdi.remove(ref.uid)
        if len(waits) == 3:
            assert node.disk() == before
            (node.directory / "cdi" / node.cdi.file(ref.uid).name).unlink()
            node.cdi.file(ref.uid).mkdir()  # so that it cannot be written
        if len(waits) == 4:
            node.cdi.file(ref.uid).rmdir()
            stop.set()
        return stop.is_set()

    RestoreFiles(node.parts, node.store, entries).run(stop, wait=wait)
    assert waits == [5.0] * 4  # docs/faults.md promises it
    node.prepare(ref)
