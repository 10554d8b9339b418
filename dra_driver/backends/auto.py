# SPDX-License-Identifier: Apache-2.0
"""Which devices does the node have if no backend is named? Those of hardware that the driver knows itself; there is none yet.

So the node has no devices, and the driver says so in its log. It does not use the simulated backend by default: otherwise pods
would get devices that do not exist, in a cluster where nobody chose this.
"""

from collections.abc import Iterator, Sequence
from threading import Event

from dra_driver.backends.base import BackendContext
from dra_driver.errors import Fatal, Permanent
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import InUse, Lease

AUTO = "auto"


def next_step(installed: Sequence[str]) -> str:
    """What to do about a node without devices."""
    return (
        f"this release knows no hardware by itself; name a backend with --backend (installed: {', '.join(installed) or 'none'}; "
        "`simulated` invents devices)"
    )


class AutoBackend:
    """A node without devices."""

    def __init__(self, context: BackendContext, installed: Sequence[str]) -> None:
        if context.options:
            raise Fatal(
                f"--backend-option {', '.join(sorted(context.options))} is for a backend: name it with --backend "
                f"(installed: {', '.join(installed) or 'none'})"
            )
        self._next_step = next_step(installed)

    def scan(self) -> Inventory:
        """Always an empty inventory."""
        return Inventory(())

    def watch(self, _stop: Event) -> Iterator[None]:
        """Returns at once: the inventory never changes."""
        yield from ()

    def configure(self, lease: Lease, /) -> ContainerEdits:
        """Raises Permanent: there is no device to configure."""
        raise Permanent(f"device {lease.device} is not known: {self._next_step}")

    def reset(self, _lease: Lease, /) -> None:
        """Does nothing. A claim in the state file may be from a time with another backend."""

    def in_use(self, _device: DeviceName, /) -> InUse:
        """Always CANNOT_TELL."""
        return InUse.CANNOT_TELL
