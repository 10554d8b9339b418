# SPDX-License-Identifier: Apache-2.0
"""`dra-driver migration`: which nodes still use device plugins, what blocks them, and what comes next? It only reads."""

import argparse

import msgspec
from msgspec.structs import replace

from dra_driver.cli import cluster, common_arguments, inputs, render
from dra_driver.errors import DriverError
from dra_driver.model.cluster import ClusterState
from dra_driver.model.exit_codes import COULD_NOT_TELL, DONE, NOT_DONE
from dra_driver.planning.migration import Migration, NodeMigration, plan_migration


def run(chosen: argparse.Namespace) -> int:
    """Print what is known of the nodes. Returns the exit code."""
    try:
        state = (
            inputs.record(chosen.record) if chosen.record else cluster.read(cluster.target(chosen))
        )
    except DriverError as error:
        render.error(str(error))
        if chosen.output in render.DOCUMENTS:
            nothing = plan_migration(ClusterState(), chosen.driver_name)
            render.document(replace(nothing, not_read=(str(error),)), chosen.output)
        return COULD_NOT_TELL
    found = plan_migration(state, chosen.driver_name, node=chosen.node)
    match chosen.output:
        case render.JSON | render.YAML:
            render.document(found, chosen.output)
        case common_arguments.LINES:
            for node in found.nodes:
                render.json_line(msgspec.to_builtins(node))
        case _:
            _show(found)
    for gap in found.not_read:
        render.error(f"could not be read: {gap}")
    if chosen.node and not found.nodes and not found.not_read:
        render.error(
            f"there is no node {chosen.node}; `kubectl get nodes` lists them, or leave --node out"
        )
        return COULD_NOT_TELL
    if found.not_read:
        return COULD_NOT_TELL
    return NOT_DONE if found.order else DONE


def _show(found: Migration) -> None:
    if not found.has_claims:
        render.line(
            "this cluster has no claims: pods ask the nodes for extended resources, and nothing can be moved; see docs/older-clusters.md"
        )
    for node in found.nodes:
        if node.stage != "nothing to move":
            _show_node(node)
    idle = sum(node.stage == "nothing to move" for node in found.nodes)
    if idle:
        render.line(
            f"{idle} node{'s' if idle > 1 else ''} without device plugins and without devices of {found.driver}"
        )
    if found.order:
        render.line(render.plain(f"next, in this order: {', '.join(found.order)}"))
    elif found.nodes and found.has_claims:
        render.line("nothing is left to be moved")


def _show_node(node: NodeMigration) -> None:
    render.heading(render.plain(f"node {node.node}: {node.stage}"))
    if node.resources:
        rows = [
            (
                f"  {one.resource}",
                str(one.capacity),
                str(one.allocatable),
                str(sum(pod.count for pod in one.pods)),
                one.device_class or "-",
            )
            for one in node.resources
        ]
        render.table(("  RESOURCE", "CAPACITY", "ALLOCATABLE", "IN USE", "DEVICECLASS"), rows)
    if node.stage != "no claims":
        kept = sum(map(len, node.kept.values()))
        render.line(
            render.plain(
                f"  devices in slices: {node.devices}, kept for plugins: {kept}; claims: {len(node.claims)}"
            )
        )
    for reason in node.blocked_by:
        render.line(render.plain(f"  blocked: {reason}"))
    for note in node.notes:
        render.line(render.plain(f"  {note}"))
    for number, step in enumerate(node.steps, 1):
        render.line(render.plain(f"  {number}. {step.what}"))
        if step.command:
            render.line(render.plain(f"     {step.command}"))
