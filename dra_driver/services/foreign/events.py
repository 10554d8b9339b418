# SPDX-License-Identifier: Apache-2.0
"""What are people told of foreign plugins? Each sentence once, as an Event on the Node, as long as it is true."""

from collections.abc import Callable, Collection, Iterable, Mapping

from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.kube.base import NodeEvent
from dra_driver.model.ids import DeviceName, ResourceName, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.names import DEVICE_GIVEN_TWICE, DEVICE_PLUGIN_BESIDE
from dra_driver.model.state import PreparedClaim
from dra_driver.planning.guard import Divided, ForeignPod, ForeignResource, beyond, few
from dra_driver.planning.prepare import NodePlace
from dra_driver.services.foreign.own import LEAVING_SECONDS


class ForeignEvents:
    """Tells of a device with two users, and of a plugin that lists more than its share or takes a resource of this driver over. `tell_node` writes an Event on the Node."""

    def __init__(
        self,
        place: NodePlace,
        divided: Divided,
        tell_node: Callable[[NodeEvent], None],
        *,
        log: FilteringBoundLogger,
        clock: Callable[[], float],
    ) -> None:
        self._place = place
        self._divided = divided
        self._tell_node = tell_node
        self._log = log
        self._clock = clock
        self._taken: dict[ResourceName, float] = {}
        self._told: dict[str, tuple[NodeEvent, ...]] = {}

    def beyond_share(self, resources: Iterable[ForeignResource], inventory: Inventory) -> None:
        """Tell of plugins that list devices which the admin left to this driver."""
        more = beyond(resources, self._divided, inventory)
        self._say("beyond", (_beyond(*one) for one in sorted(more.items())))

    def given_twice(self, running: Iterable[ForeignPod], rows: Iterable[PreparedClaim]) -> None:
        """Tell of devices that a foreign pod has although they have an owner in the state."""
        self._say("twice", self._given_twice(running, rows))

    def _given_twice(
        self, running: Iterable[ForeignPod], rows: Iterable[PreparedClaim]
    ) -> Iterable[NodeEvent]:
        owners = {
            key.device: row for row in rows for key in row.owned if key.pool == self._place.pool
        }
        for pod in running:
            # Of a unit whose device cannot be told nobody knows that it is this one.
            for name in sorted(pod.devices & owners.keys()) if pod.told else ():
                yield NodeEvent(
                    "Warning",
                    DEVICE_GIVEN_TWICE,
                    f"device {name} has two users: {owners[name].ref.word}, and pod {pod.pod}, to which the device plugin of {pod.resource} gave "
                    f"it. End one of them; keep that plugin off this node while pods use {self._place.driver}",
                )

    def taken_over(
        self,
        offered: Mapping[ResourceName, Collection[UnitId]],
        registered: Mapping[ResourceName, frozenset[UnitId]],
    ) -> None:
        """Tell of resources of this driver that the kubelet has from another plugin. Right after a change it still has the list before."""
        now = self._clock()
        strange = {
            name: units
            for name, own in offered.items()
            if (units := registered.get(name, frozenset()).difference(own))
        }
        self._taken = {name: self._taken.get(name, now) for name in strange}
        lasting = (name for name, at in self._taken.items() if now - at >= LEAVING_SECONDS)
        self._say("taken", [self._taken_event(name, strange[name]) for name in sorted(lasting)])

    def _taken_event(self, name: ResourceName, units: Collection[UnitId]) -> NodeEvent:
        return NodeEvent(
            "Warning",
            DEVICE_PLUGIN_BESIDE,
            f"the kubelet lists units of {name} that {self._place.driver} does not offer: {few(units)}. Another device plugin has taken over this "
            f"driver's resource, and the kubelet asks that one for devices. Keep that plugin off this node, and then delete the pod of this "
            f"driver on it, so that it registers again; or let the two have different names (docs/older-clusters.md)",
        )

    def _say(self, what: str, events: Iterable[NodeEvent]) -> None:
        """Tell each sentence once, as long as it is true. One that cannot be written is tried again at the next look."""
        now = tuple(events)
        told = self._told.get(what, ())
        kept = [event for event in now if event in told]
        for event in now:
            if event in told:
                continue
            try:
                self._tell_node(event)
            except DriverError as error:
                self._log.info("event_not_written", error=str(error))
                continue
            self._log.warning("foreign_plugin", what=what, message=event.message)
            kept.append(event)
        self._told[what] = tuple(kept)


def _beyond(name: ResourceName, devices: Collection[DeviceName]) -> NodeEvent:
    return NodeEvent(
        "Warning",
        DEVICE_PLUGIN_BESIDE,
        f"the device plugin of {name} lists {few(devices)}, which devicePlugin.foreign leaves to this driver: a device can be given to two "
        f"pods. Restrict that plugin to its own devices, or change devicePlugin.foreign",
    )
