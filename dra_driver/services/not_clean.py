# SPDX-License-Identifier: Apache-2.0
"""Which free devices get the taint not-clean? Those on which the backend finds something that belongs to nobody.

A scan sees the process of a claim too, and its result is used until the next scan. So when a claim ends, the inventory may still say
what was true before. A new taint therefore needs a scan that began after the device was first seen without an owner and not clean. A
taint that is published already stays until a scan finds the device clean, also over a restart.
"""

from collections.abc import Callable, Iterable, Mapping

from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.events import DeviceNotClean, Observer
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.names import NOT_CLEAN_TAINT

AGAIN_SECONDS = 5.0
"""How soon to look whether a scan is new enough."""


class NotClean:
    """Decides at each plan. `owned` returns the devices that claims own, and may raise DriverError. Only one thread uses it."""

    def __init__(
        self,
        owned: Callable[[], frozenset[DeviceName]],
        *,
        clock: Callable[[], float],
        observe: Observer,
        log: FilteringBoundLogger,
    ) -> None:
        self._owned = owned
        self._clock = clock
        self._observe = observe
        self._log = log
        self._free_since: Mapping[DeviceName, float] = {}
        self._tainted: frozenset[DeviceName] = frozenset()
        self.watches = False
        """Whether something is found on a device. When its claim ends, somebody must decide whether it gets the taint."""

    @property
    def unsure(self) -> bool:
        """Whether a device is not tainted only because its scan is too old."""
        return bool(self._free_since.keys() - self._tainted)

    def tainted(
        self, inventory: Inventory, published: Iterable[Device], ages: Mapping[str, float]
    ) -> frozenset[DeviceName]:
        """Return the devices that get the taint. `ages` are the seconds since the last scan of each backend began, asked for before the
        inventory; of two devices in `published` with the same name, the later one counts.
        """
        found = {device.name: device for device in inventory.devices if device.not_clean}
        self.watches = bool(found)
        free = self._free(frozenset(found))
        now = self._clock()
        self._free_since = {name: self._free_since.get(name, now) for name in free}
        before = _tainted_before(published)
        tainted = frozenset(
            name
            for name in free
            if name in before or now - self._free_since[name] > ages.get(found[name].backend, 0.0)
        )
        for name in sorted(tainted - self._tainted):
            self._observe(DeviceNotClean(name, found[name].not_clean))
        self._tainted = tainted
        return tainted

    def _free(self, names: frozenset[DeviceName]) -> frozenset[DeviceName]:
        if not names:
            return names
        try:
            return names - self._owned()
        except DriverError as error:
            self._log.warning(
                "owners_unknown",
                error=str(error),
                next_step="devices keep their taints; it is asked again with the next change",
            )
            return names & self._tainted


def _tainted_before(published: Iterable[Device]) -> frozenset[DeviceName]:
    latest = {DeviceName(device.name): device for device in published}
    return frozenset(
        name
        for name, device in latest.items()
        if any(taint.key == NOT_CLEAN_TAINT for taint in device.taints or ())
    )
