# SPDX-License-Identifier: Apache-2.0
"""How does a caller end an evaluation early?

An expression near the cost limit takes seconds. The caller passes a function, and the evaluation calls it from time to time.
If it returns True, the evaluation ends with `Cancelled`. This package has no clock; the caller compares times.
`Cancelled` is no EvaluationError, so that no operator of the expression can ignore it. It is no result for the device.
"""

from collections.abc import Callable

Check = Callable[[], bool]
"""A function that returns True when the caller no longer waits for the result."""

STEPS_BETWEEN_CHECKS = 1_000


class Cancelled(Exception):
    """The caller ended an evaluation or a compilation before it had a result."""


def never() -> bool:
    """The caller waits until the evaluation has a result."""
    return False
