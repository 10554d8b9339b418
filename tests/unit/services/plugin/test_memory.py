# SPDX-License-Identifier: Apache-2.0
"""What is noted of a call stays until the call has an answer, also before it has a row."""

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, PodUid
from dra_driver.model.state import CallBegun, Phase, PreparedClaim, Users
from dra_driver.services.plugin.memory import Memory
from dra_driver.testing.builders import A_BOOT
from tests.support.local_node import ManualClock

UID = ClaimUid("plugin-1")
BEGUN = CallBegun("version-3", frozenset({PodUid("older")}))


def a_row(call: CallBegun | None = None) -> PreparedClaim:
    ref = ClaimRef("device-plugin", "nvidia.com/gpu", UID)
    return PreparedClaim(ref, Phase.STARTED, A_BOOT, (), "", Users(call=call))


def test_a_look_before_the_call_has_a_row_forgets_nothing_of_it() -> None:
    memory = Memory(ManualClock())
    memory.begin(UID, BEGUN.checkpoint, BEGUN)
    memory.keep([])
    found = memory.of(a_row())
    assert (found.in_call, found.begun, found.before) == (True, "version-3", {"older"})


def test_a_call_that_got_no_row_is_forgotten_after_its_answer() -> None:
    memory = Memory(ManualClock())
    memory.begin(UID, BEGUN.checkpoint, BEGUN)
    memory.answered(UID)
    memory.keep([])
    assert memory.of(a_row()).begun is None


def test_another_process_starts_from_what_is_in_the_row() -> None:
    clock = ManualClock()
    clock.now += 7
    found = Memory(clock).of(a_row(BEGUN))
    assert (found.in_call, found.begun, found.before) == (False, "version-3", {"older"})
    assert found.since == clock()
