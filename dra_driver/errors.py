# SPDX-License-Identifier: Apache-2.0
"""Errors say who must act; nothing here knows any library.

The message of each is an operator's next step: what was tried, on which object, what was found, what to do.
A refusal inside planning is a returned value (`dra_driver.model.plan.Refusal`); exceptions are for edges.
"""


class DriverError(Exception):
    """Any failure that the driver understands."""


class Temporary(DriverError):
    """Trying again later may succeed; the caller retries, no sooner than `retry_after_seconds` where that is known."""

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Permanent(DriverError):
    """Trying again is useless until a person or the scheduler acts."""


class Fatal(DriverError):
    """This process cannot go on and must be restarted or configured differently."""
