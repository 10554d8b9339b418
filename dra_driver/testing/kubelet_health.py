# SPDX-License-Identifier: Apache-2.0
"""How does a kubelet store health reports? By the rules of k8s.io/kubernetes 1.37, pkg/kubelet/cm/dra/healthinfo.go.

The time of a report is the time of its arrival; the kubelet ignores the time in the report. A device that is not reported again within
its timeout is Unknown.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

DEFAULT_TIMEOUT_SECONDS = 30.0
UNKNOWN = 0


class _Known(Struct, frozen=True):
    health: int
    message: str
    timeout: float
    arrived_at: float


class HealthCache:
    """The health of one driver's devices. All times are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Known] = {}

    def update(self, reports: Iterable[Any], *, now: float) -> None:
        """Store the DeviceHealth messages of one response."""
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
        """Return the health and the message for the pod's status."""
        known = self._known.get((pool, device))
        if known is None or now - known.arrived_at > known.timeout:
            return UNKNOWN, ""
        return known.health, known.message
