# SPDX-License-Identifier: Apache-2.0
"""Which loops write about this Node: its labels, its condition, its startup taint? None, if the admin chose none."""

from collections.abc import Callable, Mapping
from threading import Event

from dra_driver.daemon.dependencies import Dependencies
from dra_driver.daemon.plugin_starter import PluginStarter
from dra_driver.model.events import Observer
from dra_driver.node.feature_file import FeatureFile
from dra_driver.planning.labels import LabelRules
from dra_driver.services.node_condition import NodeDoor, NodeReadiness
from dra_driver.services.node_labels import FeatureFileWriter, NodeLabels, NodeLabelWriter, Writer
from dra_driver.services.node_writes import NodeWrites

Loop = Callable[[Event], None]


def node_loops(
    deps: Dependencies, observers: list[Observer], plugin: PluginStarter
) -> Mapping[str, Loop]:
    """Return the loops of the leader by the names of their threads. What must hear events is added to `observers`, and what must hear
    of the device plugin API is named to `plugin`.
    """
    chosen = deps.settings.about_node
    loops: dict[str, Loop] = {}
    if chosen.labels != "none":
        rules = LabelRules(dict(chosen.aliases))
        labels = NodeLabels(deps.inventory.known, _writer(deps), rules, gfd=plugin.gfd_rules)
        writes = NodeWrites("labels", labels.look, observe=deps.observe, log=deps.log)
        deps.inventory.subscribe(writes.wake)
        plugin.rules_changed = writes.wake
        loops["node-labels"] = writes.run
    if chosen.condition != "none" or chosen.startup_taint:
        readiness = _readiness(deps)
        writes = NodeWrites("condition", readiness.look, observe=deps.observe, log=deps.log)
        readiness.changed = writes.wake
        observers.append(readiness)
        plugin.took_list = readiness.took_list
        loops["node-condition"] = writes.run
    return loops


def _writer(deps: Dependencies) -> Writer:
    chosen = deps.settings.about_node
    file = FeatureFile(chosen.features_dir, deps.place.driver)
    if chosen.labels == "patch":
        return NodeLabelWriter(deps.kube.own_node(), file, observe=deps.observe, log=deps.log)
    return FeatureFileWriter(file, observe=deps.observe, log=deps.log)


def _readiness(deps: Dependencies) -> NodeReadiness:
    chosen = deps.settings.about_node
    door = NodeDoor(
        slices=lambda: deps.kube.list_slices().slices,
        unknown=deps.inventory.unknown,
        node=deps.kube.own_node(),
    )
    return NodeReadiness(
        door,
        writes=chosen.condition == "write",
        startup_taint=chosen.startup_taint,
        observe=deps.observe,
    )
