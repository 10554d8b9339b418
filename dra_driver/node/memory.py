# SPDX-License-Identifier: Apache-2.0
"""Keep a record of the devices that this driver published last, in the state file."""

from collections.abc import Sequence

from dra_driver.model.api.resource_slice import Device
from dra_driver.model.ids import PoolName
from dra_driver.node.state import StateStore


class PublishedMemory:
    """The record of one pool. Raises the errors of the state store."""

    def __init__(self, store: StateStore, pool: PoolName) -> None:
        self._store = store
        self._pool = pool

    def read(self) -> tuple[Device, ...]:
        """Return the devices that were published last."""
        with self._store.reading() as state:
            return state.published(self._pool)

    def write(self, devices: Sequence[Device], /) -> None:
        """Replace the record by these devices. The record is on disk when this returns."""
        with self._store.transaction("published") as transaction:
            transaction.set_published(self._pool, devices)
