# SPDX-License-Identifier: Apache-2.0
"""Which processes serve the kubelet under this driver name?

During a rolling update, two processes do, and both are of this driver. A foreign plugin (a plugin of somebody else with the same
name) would receive our claims from the kubelet. So the driver refuses to start beside a foreign plugin, and warns when one appears
later.
"""

import os
from collections.abc import Callable
from pathlib import Path
from threading import Event

from structlog.typing import FilteringBoundLogger

from dra_driver import __version__
from dra_driver.errors import DriverError, Fatal
from dra_driver.kube.base import NodeEvent
from dra_driver.kubelet.foreign import ForeignPlugin, foreign_plugins
from dra_driver.kubelet.server import KubeletSockets
from dra_driver.model.ids import DriverName
from dra_driver.model.names import FOREIGN_PLUGIN
from dra_driver.node.peers import Peer, Peers

WATCH_SECONDS = 30.0


class Membership:
    """Call `join` before the sockets are made and `leave` after they are removed.

    `join` locks a file with the name of our socket. From the lock, other processes know that a running driver uses the socket.
    """

    def __init__(
        self, peers: Peers, driver: DriverName, sockets: KubeletSockets, log: FilteringBoundLogger
    ) -> None:
        self._peers = peers
        self._driver = driver
        self._sockets = sockets
        self._log = log

    def join(self) -> None:
        """Remove the sockets that killed processes left, and lock our own name.

        Raises Fatal if a foreign plugin answers with our driver name.
        """
        for dead in self._peers.bury():
            self._log.info("killed_process_cleared_away", endpoint=dead.endpoint)
        foreign = self.foreign_plugins()
        if foreign:
            raise Fatal(_warning(self._driver, foreign))
        self._peers.join(
            Peer(
                os.getpid(),
                __version__,
                str(self._sockets.endpoint),
                str(self._sockets.registration),
            )
        )
        alive = [
            peer for peer in self._peers.alive() if peer.endpoint != str(self._sockets.endpoint)
        ]
        for peer in alive:
            self._log.info("beside_another_process", endpoint=peer.endpoint, version=peer.version)

    def leave(self) -> None:
        """Release the lock on our name."""
        self._peers.leave()

    def watch(
        self,
        stop: Event,
        emit_event: Callable[[NodeEvent], None],
        *,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        """Until `stop` is set: log each new foreign plugin once, and write an Event on the Node."""
        # If the Event of a plugin could not be written, the plugin is not added to `reported`, so the next round tries again.
        reported: set[Path] = set()
        while not wait(stop, WATCH_SECONDS):
            foreign = self.foreign_plugins()
            reported &= {found.socket for found in foreign}
            new = tuple(found for found in foreign if found.socket not in reported)
            if new:
                message = _warning(self._driver, new)
                self._log.error("foreign_plugin", error=message)
                try:
                    emit_event(NodeEvent("Warning", FOREIGN_PLUGIN, message))
                except DriverError as error:
                    self._log.warning("event_not_written", reason=FOREIGN_PLUGIN, error=str(error))
                else:
                    reported |= {found.socket for found in new}

    def foreign_plugins(self) -> tuple[ForeignPlugin, ...]:
        """Return the plugins that answer with our driver name and are not processes of this driver."""
        return foreign_plugins(
            self._sockets.registration.parent, self._driver, is_ours=self._is_ours
        )

    def _is_ours(self, endpoint: Path) -> bool:
        return endpoint.parent == self._sockets.endpoint.parent and self._peers.serves(endpoint)


def _warning(driver: DriverName, foreign: tuple[ForeignPlugin, ...]) -> str:
    return (
        f"another plugin answers the kubelet under the name {driver}: {', '.join(map(str, foreign))}; the kubelet would give "
        f"this driver's claims to it: remove it from this node, or choose another name with --driver-name"
    )
