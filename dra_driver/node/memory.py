# SPDX-License-Identifier: Apache-2.0
"""What the pool's slices held when they were last written, kept in the state file."""

from collections.abc import Sequence

from dra_driver.model.api.resource_slice import Device
from dra_driver.model.ids import PoolName
from dra_driver.node.state import StateStore


class PublishedMemory:
    """The memory of one pool; errors are the store's."""

    def __init__(self, store: StateStore, pool: PoolName) -> None:
        self._store = store
        self._pool = pool

    def read(self) -> tuple[Device, ...]:
        """What was written last."""
        with self._store.reading() as state:
            return state.published(self._pool)

    def write(self, devices: Sequence[Device], /) -> None:
        """Remember this instead, on disk when it returns."""
        with self._store.transaction("published") as transaction:
            transaction.set_published(self._pool, devices)
