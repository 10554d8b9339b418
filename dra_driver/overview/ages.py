# SPDX-License-Identifier: Apache-2.0
"""How long ago was a time of the API, and how does kubectl write that?

Source: k8s.io/apimachinery/pkg/util/duration (HumanDuration).
"""

from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR = 365 * _DAY


def age_seconds(text: str, now: datetime) -> int:
    """Return the whole seconds from the time to now. A time in the future, or one that cannot be read, was now."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return 0
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(int((now - at).total_seconds()), 0)


def age(text: str, now: datetime) -> str:
    """Return how long ago the time was, as kubectl writes it: 90s, 5m10s, 3h, 8d; "" without a time."""
    return human(age_seconds(text, now)) if text else ""


def human(seconds: int) -> str:
    """Return a duration with at most two units, as kubectl writes it."""
    for least, unit, letter, below in _STEPS:
        if seconds < least:
            whole, rest = divmod(seconds, unit[0])
            small = rest // unit[1]
            detail = f"{small}{letter[1]}" if small and seconds < below else ""
            return f"{whole}{letter[0]}{detail}"
    return f"{seconds // _YEAR}y"


_STEPS = (
    (2 * _MINUTE, (1, 1), "ss", 0),
    (10 * _MINUTE, (_MINUTE, 1), "ms", 10 * _MINUTE),
    (3 * _HOUR, (_MINUTE, 1), "ms", 0),
    (8 * _HOUR, (_HOUR, _MINUTE), "hm", 8 * _HOUR),
    (2 * _DAY, (_HOUR, _MINUTE), "hm", 0),
    (8 * _DAY, (_DAY, _HOUR), "dh", 8 * _DAY),
    (2 * _YEAR, (_DAY, _HOUR), "dh", 0),
    (8 * _YEAR, (_YEAR, _DAY), "yd", 8 * _YEAR),
)
"""Durations below the first number are written in these units; the smaller one only below the last number."""
