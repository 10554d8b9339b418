# SPDX-License-Identifier: Apache-2.0
"""What does a search need to know about the node and its devices?"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dra_driver.allocator.constraints import AttributeLookup
from dra_driver.allocator.counters import AvailableCounters
from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.eligibility import DevicesInUse, Eligibility
from dra_driver.allocator.features import Rules


class SearchInput(NamedTuple):
    """The input of one search. The search changes only the counters. When it goes back, it undoes these changes."""

    rules: Rules
    devices: Sequence[SliceDevice]
    counters: Sequence[AvailableCounters]
    """For each device the available counters of its pool."""
    eligibility: Eligibility
    devices_in_use: DevicesInUse
    lookup: AttributeLookup
    cancelled: Callable[[], bool]
