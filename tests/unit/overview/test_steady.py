# SPDX-License-Identifier: Apache-2.0
"""Two answers say the same although time has passed."""

from datetime import UTC, datetime

from dra_driver.overview.claims import claims_of
from dra_driver.overview.steady import steady
from dra_driver.overview.usage import usage_of
from tests.unit.overview.scene import ANYWHERE, held, overview

FIRST, LATER = "2026-01-01T00:00:00Z", "2026-01-01T09:00:00Z"


def test_the_time_of_the_reading_says_nothing() -> None:
    claim = held("x", {"device": "a"})
    first, later = (claims_of(overview(claim, recordedAt=at), ANYWHERE) for at in (FIRST, LATER))
    assert first != later
    assert steady(first) == steady(later)
    assert steady(first) != steady(claims_of(overview(), ANYWHERE))


def test_hours_pass_by_themselves() -> None:
    whole = overview(held("x", {"device": "a"}, allocated=FIRST))
    first, later = (
        usage_of(whole, ANYWHERE, "namespace", now=datetime(2026, 1, 1, hour, tzinfo=UTC))
        for hour in (1, 9)
    )
    assert [one.rows[0].device_hours for one in (first, later)] == [1.0, 9.0]
    assert steady(first) == steady(later)
    assert steady(first).rows[0].devices == 1
