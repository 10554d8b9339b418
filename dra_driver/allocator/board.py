# SPDX-License-Identifier: Apache-2.0
"""What a search plays on: the devices that the node may have, and who judges them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dra_driver.allocator.constraints import Lookup
from dra_driver.allocator.counters import Ledger
from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.eligibility import Eligibility, Holdings
from dra_driver.allocator.features import Rules


class Board(NamedTuple):
    """The same during the whole search, but for the ledgers."""

    rules: Rules
    devices: Sequence[SliceDevice]
    ledgers: Sequence[Ledger]
    """For each device the ledger of its pool."""
    eligibility: Eligibility
    holdings: Holdings
    lookup: Lookup
    cancelled: Callable[[], bool]
