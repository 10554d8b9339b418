# SPDX-License-Identifier: Apache-2.0
"""Starts the device plugin API when the node needs it, and never imports it before: most nodes have DRA."""

from collections.abc import Callable, Mapping
from threading import Event
from typing import TYPE_CHECKING

from dra_driver.daemon.dependencies import Dependencies
from dra_driver.daemon.path_watch import LOOK_SECONDS, PathWatch
from dra_driver.daemon.supervisor import Supervisor
from dra_driver.errors import DriverError, Temporary
from dra_driver.model.ids import ResourceName, UnitId
from dra_driver.model.plugin import Path
from dra_driver.model.state import PreparedClaim
from dra_driver.planning.gfd_labels import GfdRules
from dra_driver.services.foreign.guard import ForeignGuard
from dra_driver.services.node_condition import nothing
from dra_driver.services.parts import NodeParts
from dra_driver.services.release import nobody_told

if TYPE_CHECKING:
    from dra_driver.daemon.plugin_path import PluginPath


def _nobody_listens(_devices: int) -> None:
    """What is done with news until somebody else is named."""


class PluginStarter:
    """The device plugin API of this process: there, or not needed so far. Its loops begin once and run until the process ends.

    `took_list` is called with the devices that the kubelet has in its lists when their number changes, and `rules_changed` when
    `gfd_rules` returns something else. Both must not block.
    """

    def __init__(self, deps: Dependencies, supervisor: Supervisor) -> None:
        self._deps = deps
        self._supervisor = supervisor
        self._path: PathWatch | None = None
        self._served: PluginPath | None = None
        self._told: tuple[int, GfdRules | None] = 0, None
        self.took_list: Callable[[int], None] = _nobody_listens
        self.rules_changed: Callable[[], None] = nothing

    def units_needed(self, row: PreparedClaim) -> str:
        """Return why the units of a row must stay (`Releasable.units_needed`)."""
        served = self._served
        return nobody_told(row) if served is None else served.needed(row)

    def units(self) -> Mapping[ResourceName, frozenset[UnitId]]:
        """Return the units of the extended resources that this driver offers."""
        return {} if self._served is None else self._served.units()

    def resources(self) -> frozenset[str] | None:
        """Return the extended resources that this driver offers; None as long as it is not known which ones."""
        path, served = self._path, self._served
        if path is None or path.choice.path is None:
            return None
        if served is not None:
            return served.resources()
        return None if self._is_offering(path) else frozenset()

    def problems(self) -> tuple[str, ...] | None:
        """Return what the kubelet does not know yet; None if the node offers its devices by claims."""
        path, served = self._path, self._served
        if path is None or path.choice.path is not Path.DEVICE_PLUGIN:
            return None
        reasons = {} if served is None else served.reasons()
        if not reasons:
            return ("no resource has been offered to the kubelet yet",)
        return tuple(f"resource {name}: {why}" for name, why in reasons.items() if why)

    def gfd_rules(self) -> GfdRules:
        """Return what the device plugin API says about NVIDIA's labels, if it offers devices. Raises Temporary if this is not known yet."""
        rules = self._rules()
        if rules is None:
            raise Temporary("it is not known yet through which API the devices are offered")
        return rules

    def run(self, parts: NodeParts, path: PathWatch, guard: ForeignGuard, stop: Event) -> None:
        """Look at the path until `stop`, and start the API when it is needed."""
        self._path = path
        while not stop.is_set():
            path.look()
            if self._served is None and self._is_needed(path):
                self._start(parts, path, guard)
            self._tell()
            stop.wait(LOOK_SECONDS)

    def _tell(self) -> None:
        """Tell what changed since the last look."""
        (listed, rules), self._told = self._told, (self._listed(), self._rules())
        if self._told[0] != listed:
            self.took_list(self._told[0])
        if self._told[1] != rules:
            self.rules_changed()

    def _listed(self) -> int:
        """How many devices the kubelet has in its lists; 0 on a node that offers its devices by claims, whatever classes say."""
        path, served = self._path, self._served
        if path is None or served is None or path.choice.path is not Path.DEVICE_PLUGIN:
            return 0
        return served.listed()

    def _rules(self) -> GfdRules | None:
        """The rules for labels; None if they are not known yet."""
        path, served = self._path, self._served
        if path is None or path.choice.path is None:
            return None
        if not self._is_offering(path):
            return GfdRules()
        return None if served is None else served.gfd_rules()

    def _is_offering(self, path: PathWatch) -> bool:
        """Whether the device plugin API offers any devices."""
        named = self._deps.settings.plugin.policy.paths.values()
        return path.choice.path is Path.DEVICE_PLUGIN or Path.DEVICE_PLUGIN in named

    def _is_needed(self, path: PathWatch) -> bool:
        if self._is_offering(path):
            return True
        try:
            # What the device plugin API has given out, it has to take back.
            with self._deps.store.reading() as state:
                return state.has_plugin_rows()
        except DriverError:
            return False

    def _start(self, parts: NodeParts, path: PathWatch, guard: ForeignGuard) -> None:
        from dra_driver.daemon.plugin_path import PluginPath  # noqa: PLC0415  see the head of this file

        served = PluginPath(self._deps, parts, path, guard)
        self._served = served
        for name, loop in served.loops().items():
            self._supervisor.start(name, loop)
