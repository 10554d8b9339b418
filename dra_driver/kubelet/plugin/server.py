# SPDX-License-Identifier: Apache-2.0
"""All extended resources of this process at the kubelet: each has a socket in the kubelet's folder of device plugins.

The thread in `run` does all the work: it sleeps until something happens in the folder, the kubelet leaves a stream, or the resources
change. Once a second it looks at the sockets itself, in case the kernel did not report a change.
"""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Lock

from structlog.typing import FilteringBoundLogger

from dra_driver.kubelet.folder_watch import LOOK_SECONDS, FolderWatch
from dra_driver.kubelet.plugin.endpoint import NOT_YET, Endpoint, Parts
from dra_driver.kubelet.plugin.kubelet_socket import SOCKET_NAME, KubeletSocket
from dra_driver.kubelet.plugin.place import Place
from dra_driver.kubelet.plugin.service import PluginWork, UnitSource
from dra_driver.model.ids import DriverName, ResourceName, UnitId

FOLDER = Path("/var/lib/kubelet/device-plugins")


class PluginServer:
    """Serves a changing set of resources from `start` to `stop`, and registers them while `run` runs.

    Two processes of a driver must not offer the same resource at the same time.
    """

    def __init__(
        self,
        folder: Path,
        *,
        driver: DriverName,
        work: PluginWork,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = time.monotonic,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._log = log
        self._clock = clock
        self._kubelet = KubeletSocket(folder)
        self._place = Place(self._kubelet, driver)
        self._watch = FolderWatch(folder, self._concerns, look_seconds=look_seconds)
        self._parts = Parts(self._place, work, log, self._watch.wake, clock)
        self._mutex = Lock()  # protects the wanted resources; held for moments only
        self._wanted: Mapping[ResourceName, UnitSource] = {}
        self._turn = Lock()  # protects the endpoints; held during a whole round
        self._endpoints: dict[ResourceName, Endpoint] = {}
        self._running = Lock()  # held while `run` runs, which needs the watch
        self._stopped = Event()

    def set_resources(self, resources: Mapping[ResourceName, UnitSource]) -> None:
        """The resources to offer from now on. Does not wait: `run` ends those that are gone, and registers new ones."""
        with self._mutex:
            self._wanted = dict(resources)
        self._watch.wake()

    def start(self) -> None:
        """Make the sockets. Raises Fatal if one cannot be made."""
        with self._turn:
            self._place.remove_dead()
            self._adjust()
            for endpoint in self._endpoints.values():
                endpoint.listen()

    def stop(self, grace_seconds: float) -> None:
        """Remove the sockets: the kubelet then gives no more units. Running calls have `grace_seconds` to end."""
        self._stopped.set()
        self._kubelet.cancel()
        self._watch.wake()
        until = self._clock() + grace_seconds
        with self._turn:
            for endpoint in self._endpoints.values():
                endpoint.close(max(0.0, until - self._clock()))
            self._endpoints.clear()
        with self._running:
            self._watch.close()

    def run(self, stop: Event) -> None:
        """Register, and register again when it is needed, until `stop` is set or `stop()` is called."""
        with self._running:
            while not stop.is_set() and not self._stopped.is_set():
                self._watch.wait(self.round())

    def round(self) -> float:
        """Do what is due. Returns in how many seconds the next thing is."""
        with self._turn:
            if self._stopped.is_set():
                return 0.0
            self._adjust()
            next_at = math.inf
            for endpoint in self._endpoints.values():
                next_at = min(next_at, endpoint.look())
        return max(0.0, next_at - self._clock())

    def reason(self, resource: ResourceName) -> str:
        """Why the kubelet does not know the resource; empty when it does."""
        return self.reasons().get(resource, "this driver does not offer it")

    def reasons(self) -> Mapping[ResourceName, str]:
        """For each resource: why the kubelet does not know it, empty when it does."""
        with self._mutex:
            wanted = list(self._wanted)
        known = dict(self._endpoints)
        return {name: known[name].reason if name in known else NOT_YET for name in wanted}

    def listed(self) -> Mapping[ResourceName, frozenset[UnitId]]:
        """For each resource: the units in its list."""
        with self._mutex:
            wanted = dict(self._wanted)
        return {
            name: frozenset(unit.id for unit in source.snapshot()[1])
            for name, source in wanted.items()
        }

    def has_all_lists(self) -> bool:
        """Whether there is a resource, and the kubelet knows each of them and reads its list."""
        with self._mutex:
            wanted = list(self._wanted)
        known = dict(self._endpoints)
        return bool(wanted) and all(name in known and known[name].has_list for name in wanted)

    def _adjust(self) -> None:
        """End the resources that are not wanted, and make those that are missing."""
        with self._mutex:
            wanted = self._wanted
        for name, endpoint in list(self._endpoints.items()):
            if wanted.get(name) is not endpoint.source:
                endpoint.close(0)
                del self._endpoints[name]
                self._log.info("plugin_resource_ended", resource=name)
        for name, source in wanted.items():
            if name not in self._endpoints:
                self._endpoints[name] = Endpoint(name, source, self._parts)

    def _concerns(self, name: str) -> bool:
        return name == SOCKET_NAME or self._place.owns(name)
