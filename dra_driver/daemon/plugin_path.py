# SPDX-License-Identifier: Apache-2.0
"""The parts of the device plugin API, connected. Imported only where this API is served, because it brings CEL with it."""

from collections.abc import Mapping, Sequence
from threading import Event, Thread

from dra_driver.backends.base import policy_reader_of
from dra_driver.daemon.dependencies import Dependencies, pod_cgroups
from dra_driver.daemon.leader_loops import Loop
from dra_driver.daemon.path_watch import PathWatch
from dra_driver.errors import DriverError
from dra_driver.kubelet.plugin.server import PluginServer
from dra_driver.kubelet.plugin_checkpoint import CheckpointFile
from dra_driver.kubelet.pod_resources import plugin_devices
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.ids import ClaimUid, DeviceName, PodUid, ResourceName, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import ContainerAnswer, KubeletCheckpoint, Path, Strategy
from dra_driver.model.presence import CannotTell
from dra_driver.model.state import PreparedClaim, Unknown
from dra_driver.planning.gfd_labels import GfdRules
from dra_driver.planning.gfd_rules import gfd_rules
from dra_driver.planning.occupied import Occupied
from dra_driver.planning.path import Wishes, minor_version
from dra_driver.planning.plugin.answer import annotation_key_of, answer_of
from dra_driver.planning.plugin.resources import ResourcePlans, Resources
from dra_driver.planning.plugin.rows import owner_paths
from dra_driver.planning.plugin.sides import sides, wanted_paths
from dra_driver.planning.plugin.strategy import strategy_of
from dra_driver.services.foreign.guard import ForeignGuard, without_held
from dra_driver.services.parts import NodeParts
from dra_driver.services.plugin.allocate import AllocateUnits, Answers
from dra_driver.services.plugin.class_sources import ClassSources, no_classes
from dra_driver.services.plugin.holders import Holders
from dra_driver.services.plugin.policy import PolicyOfNode
from dra_driver.services.plugin.serve import Feeds, PluginInputs, PluginResources, PluginWork
from dra_driver.services.plugin.take_up import TakeUp
from dra_driver.services.plugin.witnesses import Witnesses

GRACE_SECONDS = 2.0
TRY_SECONDS = 1.0
BUSY_SECONDS = 2.0  # a call for the units of an ended pod looks for itself
IDLE_SECONDS = 60.0


class PluginPath:
    """The device plugin API of this node. Its loops run until the process ends."""

    def __init__(
        self, deps: Dependencies, parts: NodeParts, path: PathWatch, guard: ForeignGuard
    ) -> None:
        settings = deps.settings
        self._deps = deps
        self._path = path
        self._checkpoint = CheckpointFile(settings.plugin.plugins_dir)
        self._cgroups = pod_cgroups(settings)
        witnesses = Witnesses(self._read_checkpoint, self._pods, self._active_units, self._kubelet)
        self._holders = Holders(parts, deps.store, witnesses, freed=self._wake, log=deps.log)
        chosen = settings.plugin
        self._sources = (
            ClassSources(None, no_classes, log=deps.log)
            if chosen.customary
            else ClassSources(chosen.classes_dir, deps.kube.device_classes, log=deps.log)
        )
        readers = (policy_reader_of(backend) for backend in deps.backends.values())
        self._policy = PolicyOfNode(
            settings.plugin.policy,
            [reader for reader in readers if reader is not None],
            labels=deps.kube.node_labels,
            log=deps.log,
        )
        self._plans = ResourcePlans(driver=deps.place.driver, domain=deps.place.driver)
        inputs = PluginInputs(
            inventory=deps.inventory.known,
            planned=self._planned,
            store=deps.store,
            pool=deps.place.pool,
            here=self._here,
            foreign=guard.devices,
        )
        self._resources = PluginResources(
            inputs, set_resources=self._set_resources, observe=deps.observe, log=deps.log
        )
        free = without_held(self._resources.find, guard.current)
        allocate = AllocateUnits(parts, self._holders, resources=free, answers=self._answers)
        guard.subscribe(self._wake)
        work = PluginWork(self._resources, allocate, self._holders, parts.inventory)
        self._server = PluginServer(
            settings.plugin.plugins_dir, driver=deps.place.driver, work=work, log=deps.log
        )
        self._listed = Event()
        self._take_up = TakeUp(
            parts, self._holders, witnesses, resources=self._resources.planned, log=deps.log
        )

    def needed(self, row: PreparedClaim) -> str:
        """Return why the units of a row must stay; empty if they are free for all that is known."""
        return self._holders.needed(row)

    def reasons(self) -> Mapping[ResourceName, str]:
        """Return for each resource why the kubelet does not know it; empty if it does."""
        return self._server.reasons()

    def resources(self) -> frozenset[str] | None:
        """Return the resources that are offered; None before they have been planned."""
        return frozenset(self._server.reasons()) if self._listed.is_set() else None

    def units(self) -> Mapping[ResourceName, frozenset[UnitId]]:
        """Return the units in the list of each resource."""
        return self._server.listed()

    def listed(self) -> int:
        """Return how many devices the kubelet has in its lists; 0 as long as it lacks one of the lists."""
        return len(self._resources.devices()) if self._server.has_all_lists() else 0

    def gfd_rules(self) -> GfdRules | None:
        """Return what the policy says about the labels of NVIDIA's GPU feature discovery; None before it has been read."""
        if not self._listed.is_set():
            return None
        return gfd_rules(self._policy.current(), customary=not self._sources.current().meant)

    def loops(self) -> Mapping[str, Loop]:
        """Return the loops by the names of their threads."""
        return {
            "plugin-resources": self._run_resources,
            "plugin-classes": lambda stop: self._sources.run(stop, self._wake),
            "plugin-policy": lambda stop: self._policy.run(stop, self._wake),
            "plugin-holders": self._run_holders,
            "plugin-server": self._run_server,
        }

    def _run_resources(self, stop: Event) -> None:
        self._deps.inventory.subscribe(self._wake)
        self._path.subscribe(self._wake)
        self._sources.look()
        self._policy.look()
        # What pods have already is reserved before the kubelet can give out anything, and units are listed only as the admin wants them.
        while not stop.is_set() and not (self._reserved() and self._policy.is_known):
            stop.wait(TRY_SECONDS)
            self._policy.look()
        self._listed.set()
        ender = Thread(target=self._wake_at, args=(stop,), name="plugin-end", daemon=True)
        ender.start()
        self._resources.run(stop)

    def _reserved(self) -> bool:
        """Plan the resources once, and take up what pods have. Returns whether it is known what they have: a device that cannot be set up
        again for its pod costs only this pod.
        """
        try:
            self._resources.once()
            self._take_up.once()
        except DriverError as error:
            self._deps.log.warning(
                "units_not_taken_up", error=str(error), next_step="it is tried again"
            )
        return self._take_up.has_looked

    def _run_holders(self, stop: Event) -> None:
        """Look after each change of the kubelet's checkpoint, and every BUSY_SECONDS while anything is given out."""
        while not stop.is_set():
            try:
                self._holders.once()
                if self._listed.is_set() and not self._take_up.is_done:
                    self._take_up.once()
                busy = bool(self._holders.rows())
            except DriverError as error:
                self._deps.log.warning("units_not_looked_at", error=str(error))
                busy = True
            self._checkpoint.wait_changed(stop, BUSY_SECONDS if busy else IDLE_SECONDS)

    def _run_server(self, stop: Event) -> None:
        while not (self._listed.wait(TRY_SECONDS) or stop.is_set()):
            pass
        if not stop.is_set():
            self._server.start()
            self._server.run(stop)
        self._server.stop(GRACE_SECONDS)

    def _wake_at(self, stop: Event) -> None:
        """Let the threads that wait for something else see `stop`."""
        stop.wait()
        self._checkpoint.wake()
        self._resources.wake()
        self._server.set_resources({})

    def _wake(self) -> None:
        self._resources.wake()

    def _set_resources(self, feeds: Feeds) -> None:
        self._server.set_resources(feeds)

    # What the services ask.

    def _planned(self, inventory: Inventory) -> Resources:
        found = self._sources.current()
        return self._plans.plan(
            inventory,
            found.sources,
            policy=self._policy.current(),
            customary=not found.meant,
        )

    def _here(
        self,
        inventory: Inventory,
        planned: Resources,
        rows: Sequence[PreparedClaim],
        occupied: Occupied,
    ) -> frozenset[DeviceName]:
        """Return the devices that this API offers now, and keep all but those of DRA from claims."""
        path = self._path
        wishes = Wishes(path.wish, self._policy.current().paths)
        wanted = wanted_paths(inventory, planned.resources, planned.classes, path.facts, wishes)
        offer = sides(inventory, wanted, owner_paths(rows), occupied=occupied)
        names = [device.name for device in inventory.devices]
        path.keep_from_dra({one for one in names if offer.paths.get(one) is not Path.DRA})
        return frozenset(one for one in names if offer.paths.get(one) is Path.DEVICE_PLUGIN)

    def _answers(self) -> Answers:
        strategy, driver = self._strategy(), self._deps.place.driver

        def make(
            edits: Sequence[ContainerEdits], cdi_ids: Sequence[str], uid: ClaimUid
        ) -> ContainerAnswer:
            key = annotation_key_of(driver, uid)
            return answer_of(edits, cdi_ids, strategy, annotation_key=key)

        return Answers(make, hooks=strategy is not Strategy.EDITS)

    def _strategy(self) -> Strategy:
        try:
            version = minor_version(self._deps.kube.kubelet_version())
        except DriverError:
            version = None
        return strategy_of(
            self._deps.settings.plugin.strategy, self._policy.current().strategies, version
        )

    def _read_checkpoint(self) -> tuple[str, KubeletCheckpoint | Unknown]:
        return self._checkpoint.versioned()

    def _pods(self) -> frozenset[PodUid] | Unknown:
        found = self._cgroups.pods()
        return Unknown(found.reason) if isinstance(found, CannotTell) else found

    def _active_units(self, name: ResourceName) -> frozenset[UnitId] | Unknown:
        found = plugin_devices(self._deps.settings.kubelet.pod_resources_socket)
        if isinstance(found, Unknown):
            return found
        return frozenset(unit for one in found if one.resource == name for unit in one.units)

    def _kubelet(self) -> object:
        """Each kubelet makes its sockets anew. An inode number alone is used again."""
        try:
            found = self._deps.settings.kubelet.pod_resources_socket.stat()
        except OSError:
            return None
        return found.st_ino, found.st_ctime_ns
