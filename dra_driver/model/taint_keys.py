# SPDX-License-Identifier: Apache-2.0
"""The keys of the taints that this driver sets itself.

Their domain is the project's, whatever `--driver-name` is: tolerations and alerts in a cluster then fit every node. Each taint has the
effect NoSchedule: no new claim gets the device, and no pod is evicted.
"""

DOMAIN = "gpu.dra-driver.dev"

VANISHED = f"{DOMAIN}/vanished"
"""The last scan did not find the device, and a claim still owns it."""
UNHEALTHY = f"{DOMAIN}/unhealthy"
"""The backend reports the device as unhealthy."""
HELD = f"{DOMAIN}/held"
"""The device's claim has ended, and processes of its pods may still use the device."""

OWN_KEYS = frozenset({VANISHED, UNHEALTHY, HELD})
