# SPDX-License-Identifier: Apache-2.0
"""What does a search need to know about the node and its devices?"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dra_driver.allocator.constraints import Lookup
from dra_driver.allocator.counters import Ledger
from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.eligibility import Eligibility, Holdings
from dra_driver.allocator.features import Rules


class Board(NamedTuple):
    """The input of one search. Only the counters change during the search; the search undoes its changes."""

    rules: Rules
    devices: Sequence[SliceDevice]
    ledgers: Sequence[Ledger]
    """For each device the available counters of its pool."""
    eligibility: Eligibility
    holdings: Holdings
    lookup: Lookup
    cancelled: Callable[[], bool]
