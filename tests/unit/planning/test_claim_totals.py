# SPDX-License-Identifier: Apache-2.0
"""Device-seconds and memory-byte-seconds of claims, from one look to the next."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.model.state import Held, Phase, PreparedClaim
from dra_driver.model.usage import ClaimDevice, ClaimTotals, DeviceUsage, UsageSample
from dra_driver.planning import claim_totals
from dra_driver.planning.claim_totals import KEPT_SECONDS, advanced, device_seconds
from tests.support.usage_rows import a_plugin_row, a_prepared_device, a_row

GPU_0 = DeviceName("gpu-0")
KEY = ClaimDevice(ClaimUid("uid-train"), GPU_0)


def used(count: int | None, taken: float) -> Mapping[DeviceName, UsageSample]:
    return {GPU_0: UsageSample(DeviceUsage(memory_used_bytes=count), taken)}


def look(
    before: Mapping[ClaimDevice, ClaimTotals],
    now: float,
    *rows: PreparedClaim,
    samples: Mapping[DeviceName, UsageSample] | None = None,
    begun: Mapping[ClaimUid, float] | None = None,
) -> Mapping[ClaimDevice, ClaimTotals]:
    return advanced(before, rows, samples or {}, now, begun or {})


def test_a_claim_counts_from_the_first_look_and_between_looks() -> None:
    first = look({}, 100.0, a_row())
    assert first == {KEY: ClaimTotals("default", "train", 100.0, 100.0)}
    assert device_seconds(first[KEY], 107.5) == 7.5
    assert device_seconds(look(first, 130.0, a_row())[KEY], 131.0) == 31.0


def test_a_claim_counts_from_when_it_was_prepared_if_that_is_known() -> None:
    found = look({}, 100.0, a_row(), begun={KEY.uid: 92.0}, samples=used(10, 100.0))
    assert device_seconds(found[KEY], 100.0) == 8.0
    assert found[KEY].memory_byte_seconds == 80.0


def test_memory_is_added_up_by_the_last_sample() -> None:
    first = look({}, 100.0, a_row())
    second = look(first, 110.0, a_row(), samples=used(1000, 109.0))
    third = look(second, 120.0, a_row(), samples=used(3000, 119.0))
    assert third[KEY].memory_byte_seconds == 1000 * 10 + 3000 * 10


def test_a_sample_speaks_for_a_minute_only() -> None:
    first = look({}, 100.0, a_row())
    second = look(first, 200.0, a_row(), samples=used(10, 105.0))
    assert second[KEY].memory_byte_seconds == 10 * 65.0
    third = look(second, 300.0, a_row(), samples=used(10, 105.0))
    assert third[KEY].memory_byte_seconds == 10 * 65.0


@pytest.mark.parametrize("samples", [{}, used(None, 105.0)])
def test_without_a_value_nothing_is_added(samples) -> None:
    first = look({}, 100.0, a_row())
    assert look(first, 110.0, a_row(), samples=samples)[KEY].memory_byte_seconds == 0.0


def test_nobody_knows_whose_memory_it_is_on_a_device_of_several() -> None:
    first = look({}, 100.0, a_row("train", a_prepared_device(share="s1")))
    both = (
        a_row("train", a_prepared_device(share="s1")),
        a_row("other", a_prepared_device(share="s2")),
    )
    second = look(first, 110.0, *both, samples=used(10, 110.0))
    assert [one.memory_byte_seconds for one in second.values()] == [None, None]
    # Alone again: what was used meanwhile stays unknown, so there is no sum any more.
    third = look(second, 120.0, both[0], samples=used(10, 120.0))
    assert third[KEY].memory_byte_seconds is None
    assert device_seconds(third[KEY], 120.0) == 20.0


def test_a_claim_that_ended_stands_still_and_is_shown_a_while() -> None:
    first = look({}, 100.0, a_row())
    ended = look(first, 110.0)
    assert device_seconds(ended[KEY], 500.0) == 10.0
    assert look(ended, 110.0 + KEPT_SECONDS) == ended
    assert look(ended, 110.1 + KEPT_SECONDS) == {}


@pytest.mark.parametrize(
    "row",
    [
        a_row(held=Held("a process still runs", ""), phase=Phase.STARTED),
        a_row("train", a_prepared_device(admin=True)),
        a_plugin_row(),
    ],
)
def test_what_is_no_running_claim_does_not_count(row: PreparedClaim) -> None:
    assert look({}, 100.0, row) == {}


def test_a_new_claim_of_the_same_name_takes_the_place_of_the_old_one() -> None:
    first = look({}, 100.0, a_row())
    second = look(first, 110.0, a_row(uid="again"))
    assert second == {
        ClaimDevice(ClaimUid("again"), GPU_0): ClaimTotals("default", "train", 110.0, 110.0)
    }


def test_the_number_is_bounded_and_the_oldest_end_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_totals, "MOST", 2)
    one = look({}, 100.0, a_row("one"))
    two = look(one, 110.0, a_row("two"))
    three = look(two, 120.0, a_row("three"))
    assert [each.claim for each in three.values()] == ["three", "two"]
    many = look(three, 130.0, a_row("a"), a_row("b"), a_row("c"))
    assert [each.claim for each in many.values()] == ["a", "b"]


def test_a_claim_that_is_prepared_again_begins_at_0() -> None:
    ended = look(look({}, 0.0, a_row()), 60.0)
    again = look(ended, 120.0, a_row(), samples=used(10, 119.0))
    assert (again[KEY].since, again[KEY].ended, again[KEY].memory_byte_seconds) == (
        120.0,
        None,
        0.0,
    )
    later = look(again, 150.0, a_row(), samples=used(10, 149.0))
    assert device_seconds(later[KEY], 150.0) == 30.0
    assert later[KEY].memory_byte_seconds == 10 * 30.0


def test_what_was_measured_before_a_claim_began_is_not_its_memory() -> None:
    first = look({}, 100.0, a_row())
    second = look(first, 110.0, a_row(), samples=used(1000, 99.0))
    assert second[KEY].memory_byte_seconds == 0.0


def test_of_two_claims_of_one_name_the_last_one_counts() -> None:
    other = replace(a_row(), ref=replace(a_row().ref, uid=ClaimUid("made-anew")))
    assert [key.uid for key in look({}, 0.0, a_row(), other)] == ["made-anew"]
