# SPDX-License-Identifier: Apache-2.0
"""Which device plugins on this node may hand out the devices that this driver offers?

A device plugin and a DRA driver do not know of each other, and neither do the two halves of the scheduler: both can give
the same GPU to different pods. Device plugins are known by the extended resources that they offer to the kubelet.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dra_driver.model.device import plain
from dra_driver.model.inventory import Inventory

# Extended resources of accelerators, by the vendor whose devices they are (as in the attribute `vendor`). Domains alone would
# not do: NICs and appliances are offered under them as well.
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


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One extended resource of a device plugin; `overlaps` when this driver offers devices of that vendor too."""

    resource: str
    count: int
    vendor: str
    overlaps: bool

    def __str__(self) -> str:
        return f"{self.resource} ({self.count})"


def find_neighbours(resources: Mapping[str, int], inventory: Inventory) -> tuple[Neighbour, ...]:
    """The accelerators among the extended resources (name → devices), by name."""
    vendors = {plain((device.api.attributes or {}).get("vendor")) for device in inventory.devices}
    return tuple(
        # A device that does not say its vendor may be anybody's.
        Neighbour(name, count, vendor, overlaps=bool(vendors & {vendor, None}))
        for name, count in sorted(resources.items())
        if (vendor := _vendor(name))
    )


def _vendor(resource: str) -> str:
    return next(
        (
            vendor
            for vendor, patterns in RESOURCES.items()
            if any(re.fullmatch(pattern, resource) for pattern in patterns)
        ),
        "",
    )
