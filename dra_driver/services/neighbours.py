# SPDX-License-Identifier: Apache-2.0
"""Report a vendor's device plugin that offers this node's devices too.

The driver keeps from its own users what such a plugin could give out (`foreign`), and it still prepares claims. It
reports the plugin once, in the log and as an Event on the Node, and again when the plugin's resources change.
"""

from collections.abc import Callable, Mapping
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
_NEXT_STEP = (
    "this driver offers none of the devices that the plugin could give out, but the plugin does not know what pods have through this driver, and "
    "can give it to a second pod; remove the plugin from this node to move it, or divide the node (devicePlugin.foreign; docs/moving-to-dra.md)"
)


class NeighbourWatch:
    """Reports device plugins. `resources` asks the kubelet for the extended resources of the node."""

    def __init__(
        self,
        driver: DriverName,
        resources: Callable[[], Mapping[str, int] | Unknown],
        inventory: Callable[[], Inventory],
        tell_node: Callable[[NodeEvent], None],
        *,
        log: FilteringBoundLogger | None = None,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        self._driver = driver
        self._resources = resources
        self._inventory = inventory
        self._tell_node = tell_node
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._wait = wait
        self._told: tuple[str, ...] = ()

    def run(self, stop: Event) -> None:
        """Check every LOOK_SECONDS until `stop`."""
        while not stop.is_set():
            self.look()
            self._wait(stop, LOOK_SECONDS)

    def look(self) -> None:
        """Check once, and report device plugins that appeared or disappeared."""
        resources = self._resources()
        if isinstance(resources, Unknown):
            return  # the kubelet is starting; if it does not answer for long, the sweep reports it
        try:
            found = find_neighbours(resources, self._inventory())
            self._tell(tuple(neighbour for neighbour in found if neighbour.overlaps))
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
