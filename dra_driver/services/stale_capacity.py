# SPDX-License-Identifier: Apache-2.0
"""Find extended resources in the node's status that no device plugin serves, and tell the command that removes each.

The kubelet and the Node are not equally new: the Node is written some seconds later. So a resource is told when two looks have found it.
"""

from collections.abc import Callable, Collection, Mapping
from threading import Event
from typing import Any

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.kube.base import NodeEvent
from dra_driver.model.ids import PoolName
from dra_driver.model.names import STALE_CAPACITY
from dra_driver.model.printable import printable
from dra_driver.planning.stale import patch_command, stale_resources

LOOK_SECONDS = 300.0  # a request to the API server; nobody writes such a resource often
_SHOWN_CHARACTERS = 317  # a name of an extended resource has no more

Amounts = tuple[Mapping[str, Any], Mapping[str, Any]]


class StaleCapacity:
    """`amounts` returns capacity and allocatable of the Node, `served` the resources of plugins that the kubelet knows; None: not known."""

    def __init__(
        self,
        node: PoolName,
        amounts: Callable[[], Amounts],
        served: Callable[[], Collection[str] | None],
        tell_node: Callable[[NodeEvent], None],
        *,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._node = node
        self._amounts = amounts
        self._served = served
        self._tell_node = tell_node
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._found: frozenset[str] = frozenset()
        self._told: frozenset[str] = frozenset()

    def run(self, stop: Event, *, wait: Callable[[Event, float], bool] = Event.wait) -> None:
        """Look every LOOK_SECONDS until `stop`."""
        while not wait(stop, LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Look once."""
        served = self._served()
        if served is None:
            return
        try:
            capacity, allocatable = self._amounts()
            found = frozenset(stale_resources(capacity, served))
            self._told &= found
            for name in sorted((found & self._found) - self._told):
                self._tell(name, allocatable)
            self._found = found
        except DriverError as error:
            self._log.info("stale_capacity_not_looked_for", error=str(error))

    def _tell(self, name: str, allocatable: Mapping[str, Any]) -> None:
        fields = ["capacity", *(["allocatable"] if name in allocatable else [])]
        command = patch_command(self._node, name, fields)
        shown = printable(name, most=_SHOWN_CHARACTERS)
        effect = (
            f"pods that ask for it come here and fail, and a DeviceClass with this extendedResourceName is not used here. "
            f"To remove it: {command}"
            if command
            else "it is no name of an extended resource, so no pod can ask for it. Find out who wrote it, and remove it by hand"
        )
        message = f"{shown} is in the status of node {self._node}, and no device plugin serves it: {effect}"
        self._tell_node(NodeEvent("Warning", STALE_CAPACITY, message))
        self._log.warning("stale_capacity", resource=shown, next_step=message)
        self._told |= {name}
