# SPDX-License-Identifier: Apache-2.0
"""Nothing that this driver itself offers or gave out is taken for somebody else's."""

from threading import Event

from dra_driver.model.state import Unknown
from tests.support.guarded_node import GPU, GuardedNode, entry, own_row


def test_units_that_this_driver_gave_out_are_its_own() -> None:
    node = GuardedNode()
    node.offered = {GPU: frozenset()}
    node.rows = [own_row("gpu-0", "uuid-gpu-0", "p"), own_row("gpu-1", "uuid-gpu-1")]
    node.writes(
        entry("p", "uuid-gpu-0"), entry("q", "uuid-gpu-1"), registered={GPU: ["uuid-gpu-2"]}
    )
    node.counts = {GPU: 1}
    assert node.kept() == set()
    node.rows = node.rows[:1]
    assert node.kept() == {"gpu-1"}
    node.rows.append(own_row("gpu-1", "uuid-gpu-1", "q"))  # it was taken up
    assert node.kept() == set()


def test_an_ended_pod_of_this_driver_that_the_kubelet_still_names_is_nobody() -> None:
    node = GuardedNode()
    node.offered = {GPU: frozenset()}
    node.rows = [own_row("gpu-0", "uuid-gpu-0", "p")]
    node.writes(entry("p", "uuid-gpu-0"), registered={GPU: ["uuid-gpu-0"]})
    assert node.kept() == set()
    node.rows = []  # it has ended
    assert node.after(1) == set()
    checkpoint, node.checkpoint = node.checkpoint, Unknown("being written")
    assert node.after(1) == set()
    node.checkpoint = checkpoint
    assert node.after(1) == set()
    node.writes(entry("q", "uuid-gpu-0"))  # what another plugin gives out counts
    assert node.after(1) == {"gpu-0"}


def test_a_unit_whose_pod_is_not_known_yet_is_looked_at_soon() -> None:
    node = GuardedNode()
    node.rows = [own_row("gpu-0", "uuid-gpu-0")]
    stop, pauses = Event(), list[float]()

    def wait(_stop: Event, seconds: float) -> None:
        pauses.append(seconds)
        node.rows = [own_row("gpu-0", "uuid-gpu-0", "p")]
        if len(pauses) == 2:
            stop.set()

    node.guard.run(stop, wait)
    assert pauses == [2.0, 10.0]


def test_what_this_driver_offered_until_now_is_not_foreign() -> None:
    node = GuardedNode()
    node.offered = {GPU: frozenset()}
    node.serves("uuid-gpu-0")
    assert node.kept() == set()
    node.offered = {}
    assert node.after(1) == set()
    node.counts = {GPU: 0}
    assert node.after(60) == set()
    node.restart()
    assert node.after(60) == set()
    node.serves("uuid-gpu-0")  # by somebody else
    assert node.after(60) == {"gpu-0"}
    node.counts = {GPU: 0}
    assert node.after(60) == {"gpu-0"}
