# SPDX-License-Identifier: Apache-2.0
"""Prepare and unprepare, a crash at any moment, a start and the kubelet's retry: the same disk as without the crash."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.inventory import Inventory
from dra_driver.node.files import never
from dra_driver.testing.builders import a_claim, a_config, a_result, an_inventory
from dra_driver.testing.failpoints import FAILPOINTS
from dra_driver.testing.local_node import LocalNode, ManualClock
from tests.examples import examples

CLAIMS = (
    a_claim("one", configs=[a_config(label="x")]),
    a_claim("two", results=[a_result("gpu-1"), a_result("gpu-2", share="s1")]),
    a_claim("three", results=[a_result("gpu-2", share="s2"), a_result("gpu-0", admin=True)]),
    a_claim("rival"),  # wants the device of "one", which exists: whoever is first has it
)
NAMES = st.lists(
    st.sampled_from([claim.ref for claim in CLAIMS]), min_size=1, max_size=3, unique=True
)
CALLS = st.tuples(st.sampled_from(["prepare", "unprepare"]), NAMES)
INVENTORY: Inventory = an_inventory(3)


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


def a_node(directory: Path, point: Callable[[str], None] = never) -> LocalNode:
    node = LocalNode(directory, point=point, clock=ManualClock(), inventory=INVENTORY)
    node.add(*CLAIMS)
    return node


def call(node: LocalNode, verb: str, refs) -> None:
    (node.prepare if verb == "prepare" else node.unprepare)(*refs)


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
            call(smooth, verb, refs)
            call(crashing, verb, refs)
        crash = CrashAt(name, count)
        crashing.restart(point=crash)
        with suppress(Crash):
            call(crashing, *interrupted)
        crash.dead = True
        boot_id = "boot-2" if reboot else "boot-1"
        crashing.restart(boot_id=boot_id, point=CrashAt(again, 1))
        with suppress(Crash):
            crashing.recover()  # the start may die as well
        crashing.restart(boot_id=boot_id)
        smooth.restart(boot_id=boot_id)
        for node in (crashing, smooth):
            assert node.recover() == {}
            assert node.violations() == []
            call(node, *interrupted)  # the kubelet tries again what it got no answer to
            for verb, refs in after:
                call(node, verb, refs)
            # After a reboot the kubelet prepares what its pods still need.
            prepared = [claim.ref for claim in CLAIMS if claim.ref.uid in node.disk().claims]
            node.prepare(*prepared)
            assert node.violations() == []
        assert crashing.disk() == smooth.disk()
        smooth.close()
        crashing.close()
