# SPDX-License-Identifier: Apache-2.0
"""This process among those that serve the kubelet: it may join its own kind, and nobody else under its name."""

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
from dra_driver.node.peers import Peer, Peers

WATCH_SECONDS = 30.0


class Membership:
    """From `join`, before the sockets exist, to `leave`, after they are gone."""

    def __init__(
        self, peers: Peers, driver: DriverName, sockets: KubeletSockets, log: FilteringBoundLogger
    ) -> None:
        self._peers = peers
        self._driver = driver
        self._sockets = sockets
        self._log = log

    def join(self) -> None:
        """Clear away killed processes' sockets and take our place. Raises Fatal when the place is somebody else's."""
        for dead in self._peers.bury():
            self._log.info("killed_process_cleared_away", endpoint=dead.endpoint)
        foreign = self.foreigners()
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
        """Let go of the place."""
        self._peers.leave()

    def watch(
        self,
        stop: Event,
        tell_node: Callable[[NodeEvent], None],
        *,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        """Say it, once for each, when a stranger comes after us."""
        told: set[Path] = set()
        while not wait(stop, WATCH_SECONDS):
            foreign = self.foreigners()
            told &= {found.socket for found in foreign}
            new = tuple(found for found in foreign if found.socket not in told)
            if new:
                message = _warning(self._driver, new)
                self._log.error("foreign_plugin", error=message)
                try:
                    tell_node(NodeEvent("Warning", "ForeignPlugin", message))
                except DriverError as error:
                    self._log.warning("event_not_written", reason="ForeignPlugin", error=str(error))
                else:
                    told |= {found.socket for found in new}

    def foreigners(self) -> tuple[ForeignPlugin, ...]:
        """Plugins that answer under our name and are none of our processes."""
        return foreign_plugins(
            self._sockets.registration.parent, self._driver, is_ours=self._is_ours
        )

    def _is_ours(self, endpoint: Path) -> bool:
        return endpoint.parent == self._sockets.endpoint.parent and self._peers.serves(endpoint)


def _warning(driver: DriverName, foreign: tuple[ForeignPlugin, ...]) -> str:
    return (
        f"another plugin answers the kubelet under the name {driver}: {', '.join(map(str, foreign))}; the kubelet would give "
        f"it this driver's claims: remove it from this node, or choose another name with --driver-name"
    )
