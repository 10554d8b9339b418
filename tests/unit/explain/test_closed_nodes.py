# SPDX-License-Identifier: Apache-2.0
"""On a closed node, to end a claim is not enough: the advice says what else the node or the pod needs."""

from typing import Any

import msgspec

from dra_driver.cli.render_explain import text
from dra_driver.explain.outcome import Report
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.model.api.core import Node
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, HOME, device, device_class, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

OTHER = "n2"
ENDED = "end claim ns/holder, used by ns/user"


def busy(device_: str = "gpu-0", pool: str = HOME, name: str = "holder") -> dict[str, Any]:
    made = holder(device_, name, pool=pool)
    made["status"]["reservedFor"] = [{"resource": "pods", "name": "user", "uid": "u"}]
    return made


def asking(cluster: ClusterState, *requests: dict[str, Any], **spec: Any) -> Report:
    documents = (words.claim(*requests), words.pod(**spec))
    return explain(cluster, ManifestSubject(documents, "ns", "f.yaml"))


def closed(cluster: ClusterState, **spec: Any) -> ClusterState:
    """The cluster with its first node closed: cordoned, or as the keywords say."""
    labels = spec.pop("labels", {})
    made = {
        "metadata": {"name": HOME, "labels": labels},
        "status": {"allocatable": {"cpu": "8", "pods": "9"}},
        "spec": spec or {"unschedulable": True},
    }
    return msgspec.structs.replace(cluster, nodes=(msgspec.convert(made, Node), *cluster.nodes[1:]))


def helps(report: Report) -> list[tuple[str, str]]:
    return [(one.what, one.on) for one in report.changes]


def advice(report: Report) -> str:
    """The last part of the text, in one line."""
    lines = " ".join(text(report, width=200, color=False))
    return " ".join(lines.partition("What to do")[2].split())


def test_beside_a_node_without_devices_the_cordon_is_told_with_the_end() -> None:
    cluster = closed(state(words.node(OTHER), resource_slice(devices(1)), busy()))
    report = asking(cluster)
    assert helps(report) == [(f"{ENDED}; uncordon the node", HOME)]
    assert not advice(report)


def test_devices_of_another_driver_do_not_make_a_node_one_that_could_serve_the_pod() -> None:
    nics = resource_slice([device("nic-0")], driver="nic.example.com", pool=OTHER)
    cluster = closed(state(words.node(OTHER), resource_slice(devices(1)), nics, busy()))
    assert helps(asking(cluster)) == [(f"{ENDED}; uncordon the node", HOME)]


def test_devices_of_another_class_do_not_either() -> None:
    fast = device_class("fast", expression=f'device.attributes["{GPU}"].model == "H100"')
    lost = {"key": f"{GPU}/xid", "value": "79", "effect": "NoSchedule"}
    slow = device("gpu-0", taints=[lost])
    slow["attributes"]["model"] = {"string": "A2"}
    there = resource_slice([slow], pool=OTHER)
    cluster = closed(state(words.node(OTHER), fast, resource_slice(devices(1)), there, busy()))
    report = asking(cluster, request(deviceClassName="fast"))
    assert helps(report) == [(f"{ENDED}; uncordon the node", HOME)]


def test_a_node_needs_devices_for_each_request() -> None:
    nic = device_class("nic", expression='device.driver == "nic.example.com"')
    nics = [
        resource_slice([device("nic-0")], name=f"nic-{pool}", driver="nic.example.com", pool=pool)
        for pool in (HOME, OTHER)
    ]
    cluster = closed(state(words.node(OTHER), nic, *nics, resource_slice(devices(1)), busy()))
    wanted = (request("gpu"), request("nic", deviceClassName="nic"))
    assert helps(asking(cluster, *wanted)) == [(f"{ENDED}; uncordon the node", HOME)]


def test_where_a_node_with_devices_takes_the_pod_nobody_uncordons_another() -> None:
    there = (resource_slice(devices(1), pool=OTHER), busy(pool=OTHER, name="there"))
    cluster = closed(state(words.node(OTHER), resource_slice(devices(1)), busy(), *there))
    assert helps(asking(cluster)) == [("end claim ns/there, used by ns/user", OTHER)]


def test_a_pod_that_chooses_nodes_without_devices_is_not_sent_to_others() -> None:
    cluster = state(words.node(OTHER, labels={"zone": "b"}), resource_slice(devices(1)), busy())
    report = asking(cluster, nodeSelector={"zone": "b"})
    assert report.changes == ()
    assert advice(report) == (
        "- claim ns/holder: to end the pods that use that claim is not enough: the pod's nodeSelector zone=b excludes the node; change "
        "that too, or add nodes"
    )


def test_a_change_on_a_node_that_takes_the_pod_comes_before_the_same_kind_on_a_closed_one() -> None:
    """Both ways write another selector."""
    slow = device("gpu-0")
    slow["attributes"]["model"] = {"string": "A2"}
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    model = f'device.attributes["{GPU}"].model'
    cluster = closed(
        state(words.node(OTHER), resource_slice([slow]), resource_slice([slow], pool=OTHER)),
        taints=[taint],
    )
    report = asking(cluster, request(cel=f'{model} == "H100"'))
    assert [on for _, on in helps(report)] == [OTHER]


def test_of_a_claim_that_has_devices_on_an_open_node_too_nothing_else_is_said() -> None:
    cluster = closed(state(words.node(OTHER), resource_slice(devices(1)), busy()))
    closed_only = msgspec.structs.replace(asking(cluster), changes=())
    assert "is not enough: the node is cordoned; change" in advice(closed_only)
    (cordoned,) = (one for one in closed_only.nodes if one.pod)
    opened = msgspec.structs.replace(cordoned, nodes=(OTHER,), pod=())
    both = msgspec.structs.replace(closed_only, nodes=(*closed_only.nodes, opened))
    assert "wait, end the pods that use that claim" in advice(both)


def test_of_a_node_that_goes_away_nobody_changes_that_too() -> None:
    gone = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    cluster = closed(state(words.node(OTHER), resource_slice(devices(1)), busy()), taints=[gone])
    report = asking(cluster)
    assert helps(report) == []
    assert advice(report) == (
        "- claim ns/holder: to end the pods that use that claim is not enough: the node has taint karpenter.sh/disrupted:NoSchedule; "
        "use other nodes, or add some"
    )
