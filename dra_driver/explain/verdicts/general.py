# SPDX-License-Identifier: Apache-2.0
"""The verdicts for any subject: it fits, or something could not be read."""

import msgspec

from dra_driver.explain.verdicts.base import Case

BUG = "bug"
GATE_UNKNOWN = "feature gate unknown"
NOT_COUNTED = "not counted"


class ChosenDevice(msgspec.Struct, frozen=True, rename="camel"):
    """A device that the allocation takes for a request ("main" or "main/sub") of a claim."""

    claim: str
    request: str
    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class Fits(Case, frozen=True):
    """Everything fits; `devices` are the devices that the scheduler would take, if known."""

    devices: tuple[ChosenDevice, ...] = ()

    def __str__(self) -> str:
        return "fits"


class CouldNotTell(Case, frozen=True):
    """Something that the answer depends on could not be read or understood.

    `cause`: forbidden, malformed, timeout, not_served, failed, bug, feature gate unknown, not counted.
    """

    cause: str
    what: str

    def __str__(self) -> str:
        return f"could not tell ({self.cause}): {self.what}"
