# SPDX-License-Identifier: Apache-2.0
"""Which backend works on a lease, if the process has several? The one that has the device, or had it."""

import dataclasses
from collections.abc import Callable, Mapping

from dra_driver.backends.base import Backend, config_kinds_of
from dra_driver.errors import BackendMissing, Permanent, Temporary
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.ids import DeviceName
from dra_driver.model.lease import InUse, Lease
from dra_driver.planning.config import restored


class Route:
    """Passes each call to the backend of the device. `backend_of` returns the name of this backend, or "" if none is known."""

    def __init__(
        self, backends: Mapping[str, Backend], backend_of: Callable[[DeviceName], str]
    ) -> None:
        self._backends = backends
        self._backend_of = backend_of

    def configure(self, lease: Lease, /) -> ContainerEdits:
        """Set up the lease and return the container edits. Raises DriverError."""
        backend = self._backend(lease)
        if backend is None:
            raise Temporary(
                f"device {lease.device} has no backend in this process; `dra-driver devices` shows which there are"
            )
        typed = _typed(lease, backend)
        if typed.config.kind and typed.config.value is None:
            raise Permanent(
                f"device {lease.device}: this release of backend {lease.backend} cannot read the stored configuration "
                f"{lease.config.api_version} {lease.config.kind}; delete the pod and the claim, and create them again"
            )
        return backend.configure(typed)

    def reset(self, lease: Lease, /) -> None:
        """Undo the lease. If nobody knows whose device it is, all backends are asked: the reset of a stranger's device does nothing.

        Raises BackendMissing if the device's backend is not in this process: only that backend can undo what it set up.
        """
        if lease.backend and lease.backend not in self._backends:
            raise BackendMissing(
                f"device {lease.device} was set up by backend {lease.backend}, which this process does not have; choose it again "
                f"(backends in the config document, or --backend) until its devices are released, or run `dra-driver release` for the "
                f"claim: then nobody undoes the set-up"
            )
        backend = self._backend(lease)
        for one in self._backends.values() if backend is None else (backend,):
            one.reset(_typed(lease, one))

    def in_use(self, device: DeviceName, /) -> InUse:
        """Whether the hardware sees a process that uses the device."""
        backend = self._backends.get(self._backend_of(device))
        return InUse.CANNOT_TELL if backend is None else backend.in_use(device)

    def _backend(self, lease: Lease) -> Backend | None:
        return self._backends.get(lease.backend or self._backend_of(lease.device))


def _typed(lease: Lease, backend: Backend) -> Lease:
    """A lease from the state has a configuration without its type; the backend gets the structure that it declares."""
    return dataclasses.replace(lease, config=restored(lease.config, config_kinds_of(backend)))
