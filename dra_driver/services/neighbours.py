# SPDX-License-Identifier: Apache-2.0
"""Report a vendor's device plugin that offers this node's devices too.

The driver keeps from its own users what such a plugin could give out (`foreign`), and it still prepares claims. It
reports the plugin once, in the log and as an Event on the Node, and again when the plugin's resources change.

A resource of this driver's own may have the same name. Who served it before this driver began is somebody else; later the kubelet's
answer does not tell the two apart, and the guard tells a takeover by the units that the kubelet lists (`foreign/events.py`).
"""

from collections.abc import Callable, Collection, Mapping
from threading import Event

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.kube.base import NodeEvent
from dra_driver.model.ids import DriverName
from dra_driver.model.inventory import Inventory
from dra_driver.model.names import DEVICE_PLUGIN_BESIDE
from dra_driver.model.state import Unknown
from dra_driver.planning.neighbours import Neighbour, find_neighbours

LOOK_SECONDS = 30.0  # one call to the kubelet's socket; plugins start and stop with their pods
SOON_SECONDS = 2.0  # until it is known what this driver offers itself
_NEXT_STEP = (
    "this driver offers none of the devices that the plugin could give out, but the plugin does not know what pods have through this driver, and "
    "can give it to a second pod; remove the plugin from this node to move it, or divide the node (devicePlugin.foreign; docs/moving-to-dra.md)"
)
_SHARED = (
    "kubelets before 1.37 know one plugin for each resource, the one that registered last, and later ones call that one; units that the "
    "other plugin gave out stay with their pods. Keep the other plugin off this node, or let the two have different names (docs/older-clusters.md)"
)


class NeighbourWatch:
    """Reports device plugins. `resources` asks the kubelet for the extended resources of the node; `own` are those that this driver offers
    by the device plugin API, None as long as it is not known which ones.
    """

    def __init__(  # noqa: PLR0913  named at its only call
        self,
        driver: DriverName,
        resources: Callable[[], Mapping[str, int] | Unknown],
        inventory: Callable[[], Inventory],
        tell_node: Callable[[NodeEvent], None],
        *,
        own: Callable[[], Collection[str] | None] = frozenset,
        log: FilteringBoundLogger | None = None,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        self._driver = driver
        self._resources = resources
        self._inventory = inventory
        self._tell_node = tell_node
        self._own = own
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._wait = wait
        self._told: tuple[str, ...] = ()
        self._told_shared: tuple[str, ...] = ()
        self._before: frozenset[str] = frozenset()

    def run(self, stop: Event) -> None:
        """Check every LOOK_SECONDS until `stop`."""
        while not stop.is_set():
            self.look()
            self._wait(stop, SOON_SECONDS if self._own() is None else LOOK_SECONDS)

    def look(self) -> None:
        """Check once, and report device plugins that appeared or disappeared."""
        resources = self._resources()
        if isinstance(resources, Unknown):
            return  # the kubelet is starting; if it does not answer for long, the sweep reports it
        own = self._own()
        if own is None:
            self._before |= {name for name, count in resources.items() if count}
            return
        try:
            found = find_neighbours(resources, self._inventory())
            beside = [neighbour for neighbour in found if neighbour.overlaps]
            self._tell(tuple(one for one in beside if one.resource not in own))
            self._tell_shared(tuple(sorted(self._before.intersection(own))))
        except DriverError as error:
            self._log.warning(
                "neighbours_not_told", error=str(error), next_step="it is tried again"
            )

    def _tell(self, beside: tuple[Neighbour, ...]) -> None:
        names = tuple(neighbour.resource for neighbour in beside)
        if names == self._told:
            return
        if beside:
            self._log.warning("device_plugin_beside", resources=names, next_step=_NEXT_STEP)
            message = f"a device plugin offers {', '.join(map(str, beside))} beside the devices of {self._driver}: {_NEXT_STEP}"
            self._tell_node(NodeEvent("Warning", DEVICE_PLUGIN_BESIDE, message))
        else:
            self._log.info("device_plugin_gone", resources=self._told)
        self._told = names

    def _tell_shared(self, names: tuple[str, ...]) -> None:
        if names and names != self._told_shared:
            self._log.warning("device_plugin_has_own_resource", resources=names, next_step=_SHARED)
            message = f"another device plugin offers {', '.join(names)}, and so does {self._driver}: {_SHARED}"
            self._tell_node(NodeEvent("Warning", DEVICE_PLUGIN_BESIDE, message))
        self._told_shared = names
