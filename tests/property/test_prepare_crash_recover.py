# SPDX-License-Identifier: Apache-2.0
"""Prepare and unprepare, a crash at any moment, a start and the kubelet's retry: the same disk as without the crash."""

import dataclasses
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.model.presence import Alive
from dra_driver.model.state import Phase
from dra_driver.node.files import never
from dra_driver.testing.builders import a_claim, a_config, a_device, a_pod, a_result, an_inventory
from dra_driver.testing.failpoints import FAILPOINTS
from tests.support.examples import examples
from tests.support.local_node import LocalNode, ManualClock

CLAIMS = (
    a_claim("one", configs=[a_config(label="x")]),
    a_claim("two", results=[a_result("gpu-1"), a_result("gpu-2", share="s1")]),
    a_claim("three", results=[a_result("gpu-2", share="s2"), a_result("gpu-0", admin=True)]),
    a_claim("rival"),  # wants the device of "one", which exists: whoever is first has it
    a_claim("left", results=[a_result("gpu-1-left")]),  # a partition of what "two" wants as a whole
    a_claim("right", results=[a_result("gpu-1-right")]),  # beside "left"
)
NAMES = st.lists(
    st.sampled_from([claim.ref for claim in CLAIMS]), min_size=1, max_size=3, unique=True
)
LOCK_SECONDS = 0.1  # the longest pause between two tries to take a lock
CALLS = st.tuples(st.sampled_from(["prepare", "unprepare", "run", "end"]), NAMES)
PARTS = {
    "gpu-1-left": Hardware("uuid-gpu-1", ("s0",)),
    "gpu-1-right": Hardware("uuid-gpu-1", ("s1",)),
}
INVENTORY: Inventory = dataclasses.replace(
    an_inventory(3),
    devices=(
        *an_inventory(2).devices,
        a_device("gpu-2", shared=True),
        *(replace(a_device(name), hardware=resource) for name, resource in PARTS.items()),
    ),
)


def hardware_violations(node: LocalNode, *, running: frozenset[str]) -> list[str]:
    """What the devices themselves have seen since the last look: set up for one claim while still set up for another, or reset
    while a pod of the claim runs."""
    wrong = []
    for verb, device, claim, share in node.backend_calls:
        if verb == "reset":
            node.set_up.discard((device, claim, share))
            if claim in running:
                wrong.append(f"{device} was reset while a pod of {claim} runs")
            continue
        wrong += [
            f"{device} was set up for {claim} while it is set up for {other}"
            for there, other, theirs in node.set_up
            if other != claim
            and is_same_hardware(there, device)
            and (not share or not theirs or share == theirs)
        ]
        node.set_up.add((device, claim, share))
    node.backend_calls.clear()
    return wrong


def is_same_hardware(one: str, other: str) -> bool:
    """Whether two devices have a part in common."""
    first, second = INVENTORY.by_name[one].resource, INVENTORY.by_name[other].resource
    apart = first.parts and second.parts and not {*first.parts} & {*second.parts}
    return first.parent == second.parent and not apart


class Crash(BaseException):
    """The process dies here; no part of the driver may swallow it."""


class CrashAt:
    """Dies at the `count`-th passing of a failpoint, and at every one after it: a dead process does nothing more."""

    def __init__(self, name: str, count: int) -> None:
        self._name, self._left = name, count
        self.dead = False

    def __call__(self, name: str) -> None:
        if name == self._name:
            self._left -= 1
        if self._left <= 0:
            self.dead = True
        if self.dead:
            raise Crash(name)


class ClockOfThreads(ManualClock):
    """Short pauses take a little real time too: somebody waits for a lock on hardware that another thread works on."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if seconds <= LOCK_SECONDS:
            time.sleep(0.002)


def a_node(directory: Path, point: Callable[[str], None] = never) -> LocalNode:
    node = LocalNode(
        directory, point=point, clock=ClockOfThreads(), inventory=INVENTORY, metadata=True
    )
    node.add(*CLAIMS)
    node.set_up = set()
    return node


def running(node: LocalNode) -> frozenset[str]:
    return frozenset(f"uid-{pod.removeprefix('pod-')}" for pod in node.presences)


def checked_call(node: LocalNode, verb: str, refs) -> None:
    alive = running(node)
    try:
        call(node, verb, refs)
    finally:
        # Whose pod has just ended may be reset by the look that noticed it.
        assert hardware_violations(node, running=alive & running(node)) == []


def call(node: LocalNode, verb: str, refs) -> None:
    """What the kubelet asks; and processes of the claims' pods that begin, or end and are noticed."""
    match verb:
        case "prepare":
            node.prepare(*refs)
        case "unprepare":
            node.unprepare(*refs)
        case "run":
            # The kubelet starts a pod when its claims were prepared in this boot.
            rows = (node.parts.row(ref.uid) for ref in refs)
            ready = (row for row in rows if row and row.phase is Phase.PREPARED)
            node.presences |= {
                a_pod(row.ref.name): Alive("a process")
                for row in ready
                if row.boot_id == node.store.boot_id
            }
        case "end":
            for ref in refs:
                node.presences.pop(a_pod(ref.name), None)
            node.look_at_held()


@examples(60)
@given(
    before=st.lists(CALLS, max_size=4),
    interrupted=CALLS,
    after=st.lists(CALLS, max_size=2),
    name=st.sampled_from(FAILPOINTS),
    count=st.integers(1, 2),
    again=st.sampled_from(FAILPOINTS),
    reboot=st.booleans(),
)
def test_a_crash_a_start_and_a_retry_reach_the_disk_of_no_crash(
    *, before, interrupted, after, name: str, count: int, again: str, reboot: bool
) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        smooth, crashing = a_node(Path(one)), a_node(Path(two))
        for verb, refs in before:
            checked_call(smooth, verb, refs)
            checked_call(crashing, verb, refs)
        crash = CrashAt(name, count)
        crashing.restart(point=crash)
        with suppress(Crash):
            checked_call(crashing, *interrupted)
        crash.dead = True
        boot_id = "boot-2" if reboot else "boot-1"
        if reboot:  # nothing runs, and devices have forgotten everything
            for node in (crashing, smooth):
                node.presences.clear()
                node.set_up.clear()
        crashing.restart(boot_id=boot_id, point=CrashAt(again, 1))
        with suppress(Crash):
            crashing.recover()  # the start may die as well
        crashing.restart(boot_id=boot_id)
        smooth.restart(boot_id=boot_id)
        for node in (crashing, smooth):
            assert node.recover() == {}
            assert node.violations() == []
            assert hardware_violations(node, running=running(node)) == []
            checked_call(node, *interrupted)  # the kubelet tries again what it got no answer to
            for verb, refs in after:
                checked_call(node, verb, refs)
            # After a reboot the kubelet prepares what its pods still need.
            prepared = [claim.ref for claim in CLAIMS if claim.ref.uid in node.disk().claims]
            node.prepare(*prepared)
            assert node.violations() == []
        assert crashing.disk() == smooth.disk()
        smooth.close()
        crashing.close()
