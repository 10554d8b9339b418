# SPDX-License-Identifier: Apache-2.0
"""When does an evaluation end early? When whoever waits for it says so.

An expression near the cost limit takes seconds. So an evaluation asks its caller again and again whether to go on; there is no
clock here. `Cancelled` is no EvaluationError: nothing in the expression may absorb it, and it says nothing about the device.
"""

from collections.abc import Callable

Check = Callable[[], bool]
"""Whether nobody waits any more."""

STEPS_BETWEEN_CHECKS = 1_000


class Cancelled(Exception):
    """The evaluation was ended before there was an answer."""


def never() -> bool:
    """Whoever asks waits as long as it takes."""
    return False
