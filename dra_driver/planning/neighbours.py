# SPDX-License-Identifier: Apache-2.0
"""Which device plugins on this node may offer the same devices as this driver?

A device plugin and a DRA driver do not know each other, and the scheduler allocates their devices separately: it can give the same
GPU to two pods. The driver recognizes device plugins by the extended resources that the kubelet lists.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from dra_driver.model.device import plain
from dra_driver.model.inventory import Inventory

# Extended resources of accelerators, by vendor (as in the attribute `vendor`). The domain alone is not enough: network cards and
# other devices have the same domains.
RESOURCES: Mapping[str, tuple[str, ...]] = {
    "nvidia": (
        r"nvidia\.com/gpu(\.shared)?",
        r"nvidia\.com/mig-.+",
        r"nvidia\.com/gpu(mem|mem-percentage|cores)",  # HAMi
        r"aliyun\.com/gpu-(mem|count)",
    ),
    "amd": (r"amd\.com/gpu", r"amd\.com/[a-z]px_nps\d+", r"amd\.com/gpu(mem|cores)"),
    "intel": (r"gpu\.intel\.com/.+",),
    "habana": (r"habana\.ai/.+",),
}


class Neighbour(Struct, frozen=True):
    """One extended resource of a device plugin. `overlaps`: this driver offers devices of the same vendor. `own`: this driver itself
    serves it.
    """

    resource: str
    count: int
    vendor: str
    overlaps: bool
    own: bool = False

    def __str__(self) -> str:
        return f"{self.resource} ({self.count})"


def find_neighbours(resources: Mapping[str, int], inventory: Inventory) -> tuple[Neighbour, ...]:
    """Return the accelerators among the extended resources (name → number of devices), sorted by name."""
    vendors = {plain((device.api.attributes or {}).get("vendor")) for device in inventory.devices}
    return tuple(
        # A device without the attribute `vendor` may be of any vendor.
        Neighbour(name, count, vendor, overlaps=bool(vendors & {vendor, None}))
        for name, count in sorted(resources.items())
        if (vendor := vendor_of(name))
    )


def vendor_of(resource: str) -> str:
    """Return the vendor of the accelerators that this extended resource counts; empty if it counts something else."""
    return next(
        (
            vendor
            for vendor, patterns in RESOURCES.items()
            if any(re.fullmatch(pattern, resource) for pattern in patterns)
        ),
        "",
    )
