# SPDX-License-Identifier: Apache-2.0
"""The guard against plugins of others, connected to the kubelet's files and sockets."""

from collections.abc import Callable, Collection, Mapping
from threading import Event, Thread

from dra_driver.daemon.dependencies import Dependencies
from dra_driver.daemon.leader_loops import Loop
from dra_driver.kubelet.plugin_checkpoint import CheckpointFile
from dra_driver.kubelet.pod_resources import allocatable, plugin_devices
from dra_driver.model.ids import ResourceName, UnitId
from dra_driver.model.state import PreparedClaim
from dra_driver.node.foreign_memory import FILE_NAME, ForeignMemory
from dra_driver.services.foreign.guard import ForeignGuard, ForeignInputs
from dra_driver.services.foreign.kubelet import ForeignWitnesses
from dra_driver.services.parts import PresenceOf


def foreign_guard(
    deps: Dependencies,
    presence: PresenceOf | None,
    units: Callable[[], Mapping[ResourceName, Collection[UnitId]]],
) -> tuple[ForeignGuard, Loop]:
    """Return the guard, and the loop that looks. `units` are those of the extended resources that this driver itself offers."""
    settings, store = deps.settings, deps.store
    checkpoint = CheckpointFile(settings.plugin.plugins_dir)
    socket = settings.kubelet.pod_resources_socket

    def rows() -> tuple[PreparedClaim, ...]:
        with store.reading() as state:
            return tuple(state.all_claims())

    guard = ForeignGuard(
        ForeignWitnesses(
            checkpoint.versioned,
            lambda: allocatable(socket),
            lambda: plugin_devices(socket),
            presence,
        ),
        ForeignInputs(deps.inventory.known, rows, units, settings.plugin.divided),
        ForeignMemory(settings.state_dir / FILE_NAME, store.boot_id),
        place=deps.place,
        tell_node=deps.kube.emit_event,
        log=deps.log,
    )

    def loop(stop: Event) -> None:
        def wake() -> None:
            stop.wait()
            checkpoint.wake()

        Thread(target=wake, name="foreign-end", daemon=True).start()
        guard.run(stop, checkpoint.wait_changed)

    return guard, loop
