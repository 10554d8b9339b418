# SPDX-License-Identifier: Apache-2.0
"""Keep a record of the devices that this driver published last, and of their backends, in the state file."""

from collections.abc import Callable, Mapping, Sequence

from dra_driver.model.api.resource_slice import Device
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.node.state import StateStore


def not_known(_device: DeviceName) -> str:
    """The backend of each device, if nobody knows it."""
    return ""


class PublishedMemory:
    """The record of one pool. `backend_of` returns the backend of a device, or "". Raises the errors of the state store."""

    def __init__(
        self,
        store: StateStore,
        pool: PoolName,
        *,
        backend_of: Callable[[DeviceName], str] = not_known,
    ) -> None:
        self._store = store
        self._pool = pool
        self._backend_of = backend_of

    def read(self) -> tuple[Device, ...]:
        """Return the devices that were published last."""
        with self._store.reading() as state:
            return state.published(self._pool)

    def backends(self) -> Mapping[DeviceName, str]:
        """Return the backend of each device that was published last; "" if the record does not have it."""
        with self._store.reading() as state:
            return state.published_by(self._pool)

    def write(self, devices: Sequence[Device], /) -> None:
        """Replace the record by these devices. The record is on disk when this returns."""
        names = [DeviceName(device.name) for device in devices]
        backends = {name: self._backend_of(name) for name in names}
        with self._store.transaction("published") as transaction:
            transaction.set_published(self._pool, devices, backends)

    def is_complete(self) -> bool:
        """Whether the record has the backend of each device, as far as it is known. An older driver wrote no backends."""
        return all(
            backend or not self._backend_of(device) for device, backend in self.backends().items()
        )
