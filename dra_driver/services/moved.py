# SPDX-License-Identifier: Apache-2.0
"""Which devices that claims own have other hardware, or another name, than when they were prepared? As the state has it now."""

from collections.abc import Mapping

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.state import PreparedClaim
from dra_driver.planning.moved import known_hardware, moved_devices
from dra_driver.services.recover import WholeStore


class MovedDevices:
    """Reads the rows when called. While they cannot be read, its last answer counts."""

    def __init__(
        self, store: WholeStore, pool: PoolName, *, log: FilteringBoundLogger | None = None
    ) -> None:
        self._store = store
        self._pool = pool
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._last: Mapping[DeviceName, str] = {}

    def __call__(self, inventory: Inventory) -> Mapping[DeviceName, str]:
        """Return a sentence for each of these devices."""
        try:
            rows = self._rows()
        except DriverError as error:
            self._log.warning(
                "prepared_devices_unknown",
                error=str(error),
                next_step="devices count as those that they were; the next look asks again",
            )
            return self._last
        self._last = moved_devices(rows, inventory, self._pool, self._store.boot_id)
        return self._last

    def uuids(self) -> Mapping[DeviceName, str]:
        """Return what `known_hardware` says of the rows; nothing while they cannot be read."""
        try:
            rows = self._rows()
        except DriverError:
            return {}
        return known_hardware(rows, self._pool, self._store.boot_id)

    def _rows(self) -> tuple[PreparedClaim, ...]:
        with self._store.reading() as state:
            return state.all_claims()
