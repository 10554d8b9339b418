# SPDX-License-Identifier: Apache-2.0
"""Which backend sets up a device, if the process has several? The one that has the device, or had it."""

from collections.abc import Callable, Mapping

from dra_driver.backends.base import Backend
from dra_driver.errors import Temporary
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import ClaimUid, DeviceName, ShareId


class Route:
    """Passes each call to the backend of the device. `backend_of` returns the name of this backend, or "" if none is known."""

    def __init__(
        self, backends: Mapping[str, Backend], backend_of: Callable[[DeviceName], str]
    ) -> None:
        self._backends = backends
        self._backend_of = backend_of

    def configure(
        self,
        device: AllocatableDevice,
        config: DeviceConfig,
        /,
        *,
        claim_uid: ClaimUid,
        share_id: ShareId,
    ) -> None:
        """Set up a device for a claim. Raises DriverError."""
        backend = self._backends.get(device.backend)
        if backend is None:
            raise Temporary(
                f"device {device.name} has no backend in this process; `dra-driver devices` shows which there are"
            )
        backend.configure(device, config, claim_uid=claim_uid, share_id=share_id)

    def reset(self, device: DeviceName, /, *, claim_uid: ClaimUid, share_id: ShareId) -> None:
        """Undo the set-up. If nobody knows whose device it was, all backends are asked: a reset of a stranger's device does nothing."""
        owner = self._backends.get(self._backend_of(device))
        for backend in [owner] if owner is not None else self._backends.values():
            backend.reset(device, claim_uid=claim_uid, share_id=share_id)
