# SPDX-License-Identifier: Apache-2.0
"""The driver's errors. The class says who must act: nobody (Temporary), a person (Permanent), or whoever restarts it (Fatal).

Every message tells an operator four things: what was tried, on which object, what was found, and what to do.

Errors of libraries (gRPC, HTTP, OSError) are turned into these classes where they occur. Code that only decides raises nothing:
it returns a `dra_driver.model.plan.Refusal`.
"""


class DriverError(Exception):
    """Base class of all failures that the driver expects. Any other exception is a bug."""


class Temporary(DriverError):
    """A later attempt may succeed. The caller tries again, after `retry_after_seconds` if that is set."""

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Permanent(DriverError):
    """Another attempt fails too, until a person or the scheduler changes something."""


class Refused(Permanent):
    """What an admin asked for would harm something that is still used. Nothing was changed."""


class Fatal(DriverError):
    """This process cannot continue. It must be restarted, or configured differently."""


class BackendMissing(Temporary):
    """Only a backend that this process does not have can do it."""
