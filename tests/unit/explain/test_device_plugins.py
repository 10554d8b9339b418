# SPDX-License-Identifier: Apache-2.0
"""A node whose device plugin has too few devices left lacks devices, whatever else it has."""

from typing import Any

import msgspec

from dra_driver.cli.render_explain import text
from dra_driver.explain.outcome import Report
from dra_driver.explain.remedy import fix
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.explain.verdict import ChosenDevice, NodeResources, NotEnoughDevices
from dra_driver.model.api.core import Node
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import devices, resource_slice
from tests.unit.explain.clusters import state

RESOURCE = "example.com/gpu"
EIGHT = {RESOURCE: "8"}


def node(name: str, offers: str = "", **spec: Any) -> Node:
    allocatable = {"cpu": "4", "pods": "9"} | ({RESOURCE: offers} if offers else {})
    return msgspec.convert(
        words.node(name) | {"spec": spec, "status": {"allocatable": allocatable}}, Node
    )


def asked(requests: dict[str, str], cluster: ClusterState, *claims: dict[str, Any]) -> Report:
    pod = words.pod(cpu="1")
    if not claims:
        pod["spec"].pop("resourceClaims", None)
    pod["spec"]["containers"] = [{"name": "c", "image": "i", "resources": {"limits": requests}}]
    pod["spec"]["containers"][0]["resources"]["requests"] = requests
    return explain(cluster, ManifestSubject((*claims, pod), "ns", "f.yaml"))


def mixed(*nodes: Node, **dra: int) -> ClusterState:
    """A cluster during a move: these nodes, and the number of DRA devices on some of them."""
    slices = [resource_slice(devices(count), pool=name) for name, count in dra.items()]
    made = state(*slices)
    provides = [
        msgspec.structs.replace(
            one, spec=msgspec.structs.replace(one.spec, extended_resource_name=RESOURCE)
        )
        for one in made.device_classes
    ]
    return msgspec.structs.replace(made, nodes=nodes, device_classes=tuple(provides))


def test_a_plugin_with_too_few_devices_is_a_lack_of_devices() -> None:
    report = asked(EIGHT, msgspec.structs.replace(state(), nodes=(node("old", "4"),)))
    assert (report.outcome, report.exit_code) == ("devices do not fit", 1)
    (group,) = report.nodes
    short = NodeResources(RESOURCE, "8", "4")
    assert (group.devices, group.pod) == ((short,), ())
    assert "the devices fit, but" not in "\n".join(text(report, width=200, color=False))
    assert fix(short).startswith("ask for fewer")
    assert fix(NodeResources("cpu", "8", "4")).startswith("lower the pod's requests")


def test_with_enough_devices_the_pod_asks_for_devices() -> None:
    report = asked(EIGHT, msgspec.structs.replace(state(), nodes=(node("old", "8"),)))
    assert report.exit_code == 0
    assert report.summary == "the devices fit on 1 of 1 nodes"


def test_neither_the_old_nor_the_new_node_of_a_move_has_enough() -> None:
    cluster = mixed(node("old", "4"), node("new"), new=2)
    report = asked(EIGHT, cluster)
    assert report.exit_code == 1
    told = {one.nodes: [type(reason) for reason in one.devices] for one in report.nodes}
    assert told[("old",)] == [NodeResources]
    assert NotEnoughDevices in told[("new",)]


def test_equal_nodes_are_told_apart_by_what_their_plugins_have_left() -> None:
    nodes = (node("a", "4"), node("b", "2"), node("c", "8"), node("d", "8", unschedulable=True))
    report = asked(EIGHT, msgspec.structs.replace(state(), nodes=nodes))
    told = {one.nodes: one.devices for one in report.nodes}
    assert told[("a", "b")] == (NodeResources(RESOURCE, "8", "4", "2"),)
    assert told[("c",)] == told[("d",)] == ()
    assert (
        report.summary
        == "the devices fit on 1 of 4 nodes (and on 1 more, which would not take the pod)"
    )


def test_a_placement_is_that_of_a_node_with_enough_devices() -> None:
    nodes = (node("a", "4"), node("b", "8"))
    slices = [resource_slice(devices(1), pool=name) for name in "ab"]
    cluster = msgspec.structs.replace(state(*slices), nodes=nodes)
    report = asked(EIGHT, cluster, words.claim())
    assert report.exit_code == 0
    placed = {one.nodes: one.placement for one in report.nodes}
    (chosen,) = placed[("b",)]
    assert isinstance(chosen, ChosenDevice)
    assert chosen.pool == "b"
    assert placed[("a",)] == ()
