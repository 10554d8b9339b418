# SPDX-License-Identifier: Apache-2.0
"""What a kubelet makes of health reports, by its rules (k8s.io/kubernetes 1.37, pkg/kubelet/cm/dra/healthinfo.go).

A report counts from its arrival: the time that it carries is not looked at. What was not reported again within its time-out
is Unknown, both when it is asked for and when another report comes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

DEFAULT_TIMEOUT_SECONDS = 30.0
UNKNOWN = 0


@dataclass(frozen=True, slots=True)
class _Known:
    health: int
    message: str
    timeout: float
    arrived_at: float


class HealthCache:
    """One driver's devices. Times are seconds of any clock that the caller likes."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Known] = {}

    def update(self, reports: Iterable[Any], *, now: float) -> None:
        """Take the DeviceHealth messages of one response."""
        for report in reports:
            key = (report.device.pool_name, report.device.device_name)
            timeout = report.health_check_timeout_seconds
            self._known[key] = _Known(
                report.health,
                report.message,
                timeout if timeout > 0 else DEFAULT_TIMEOUT_SECONDS,
                now,
            )

    def health(self, pool: str, device: str, *, now: float) -> tuple[int, str]:
        """What a pod's status says: the health and its message."""
        known = self._known.get((pool, device))
        if known is None or now - known.arrived_at > known.timeout:
            return UNKNOWN, ""
        return known.health, known.message
