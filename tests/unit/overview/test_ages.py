# SPDX-License-Identifier: Apache-2.0
"""How long ago was a time, and how is it written?"""

from datetime import UTC, datetime

import pytest

from dra_driver.overview.ages import age, age_seconds, human

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        # The answers of HumanDuration of k8s.io/apimachinery.
        (0, "0s"),
        (1, "1s"),
        (70, "70s"),
        (119, "119s"),
        (120, "2m"),
        (190, "3m10s"),
        (599, "9m59s"),
        (600, "10m"),
        (70 * 60, "70m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (47 * 3600, "47h"),
        (49 * 3600, "2d1h"),
        (3 * 3600 + 600, "3h10m"),
        (8 * 3600 + 600, "8h"),
        (8 * 86400 + 3600, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (8 * 365 * 86400 - 1, "7y364d"),
        (8 * 365 * 86400, "8y"),
    ],
)
def test_a_duration_as_kubectl_writes_it(seconds: int, text: str) -> None:
    assert human(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-01T23:59:59Z", 1),
        ("2026-01-01T23:59:58.9Z", 1),
        ("2026-01-02T01:00:00+02:00", 3600),
        ("2026-01-01T23:00:00", 3600),
        ("2026-01-03T00:00:00Z", 0),
        ("yesterday", 0),
        ("", 0),
    ],
)
def test_the_seconds_since_a_time(text: str, seconds: int) -> None:
    assert age_seconds(text, NOW) == seconds


def test_without_a_time_there_is_no_age() -> None:
    assert age("", NOW) == ""
    assert age("2026-01-01T00:00:00Z", NOW) == "24h"
