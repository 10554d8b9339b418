# SPDX-License-Identifier: Apache-2.0
"""Does `kubectl describe` say why a pod waits for devices, once the chart's controller runs with the rights that the chart gives it?

A real control plane with hollow nodes. The controller is the program itself, with a token of the chart's ServiceAccount.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.onenode import build, node_files, preflight
from hack.testbed.onenode.hollow import HollowCluster
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.selection import kubernetes_version
from tests.e2e import fleet
from tests.e2e.rendering import Object, of_kind, render

pytestmark = [pytest.mark.real, pytest.mark.needs("SchedulerVerdicts")]
NAME = "dra-driver-pending-events"
ON = "pendingEvents: {enabled: true, after: 2}"
API = ("--kube-version", "1.37.0", "--api-versions", "resource.k8s.io/v1")


def of_controller(tmp_path: Path) -> list[Object]:
    return [one for one in render(tmp_path, *API, values=ON) if one["metadata"]["name"] == NAME]


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HollowCluster]:
    """A node with one GPU, and what the chart makes for the controller but its Deployment."""
    preflight.require()
    hollow = HollowCluster(kubernetes_version())
    failed_before = request.session.testsfailed
    keep: Path | None = build.cache_folder() / "logs" / time.strftime("pending-%Y%m%d-%H%M%S")
    try:
        hollow.start()
        hollow.create(fleet.node(fleet.HOME), fleet.device_class(), namespace="default")
        hollow.apply(fleet.resource_slice(fleet.devices(1)))
        hollow.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dra"}})
        objects = [one for one in of_controller(tmp_path) if one["kind"] != "Deployment"]
        assert len(objects) == 3
        hollow.apply(*objects)
        yield hollow
        keep = None
    finally:
        if request.session.testsfailed > failed_before:
            keep = Path(os.environ.get("E2E_LOGS") or build.cache_folder() / "logs") / "pending"
        hollow.stop(keep=keep)


def events(cluster: HollowCluster) -> dict[str, list[Any]]:
    """The messages and counts of the controller's Events, by pod."""
    found: dict[str, list[Any]] = {}
    listed = cluster.get("events", "-A", "--field-selector", "reason=WaitingForDevices")
    for one in listed["items"]:
        said = (one["message"], one["count"])
        found.setdefault(one["involvedObject"]["name"], []).append(said)
    return found


def test_describe_shows_what_is_in_the_way_once_and_only_of_pods_that_wait_for_devices(
    cluster: HollowCluster, tmp_path: Path
) -> None:
    (deployment,) = of_kind(of_controller(tmp_path), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    token = cluster.kubectl("--namespace", "dra", "create", "token", NAME).strip()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(node_files.kubeconfig(cluster.root, token))
    arguments = [one for one in container["args"] if not one.startswith("--http-address")]
    argv = [sys.executable, "-m", "dra_driver", *arguments, "--http-address="]
    argv += ["--kubeconfig", str(kubeconfig)]

    both = fleet.claim(fleet.request(count=2), name="greedy")
    elsewhere = {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}
    cluster.create(both, fleet.pod("greedy"), namespace="default")
    cluster.create(fleet.claim(name="lost"), fleet.pod("lost", **elsewhere), namespace="default")
    cluster.run_inside(argv, log="pending-events")
    wait_until(lambda: events(cluster), "an Event on the pod that asks for too much")

    said = "the devices fit on no node; 2 devices are needed on one node, 1 can be had"
    described = cluster.kubectl("describe", "pod", "greedy")
    assert "WaitingForDevices" in described
    assert said in described
    # Another one with the same rights, as after a restart: nothing is said twice, nor of the pod that waits for a node.
    cluster.run_inside(argv, log="pending-events-again")
    log = cluster.root / "log" / "pending-events-again.log"
    wait_until(lambda: "watching" in log.read_text(), "the second controller")
    time.sleep(5)
    assert [count for _message, count in events(cluster)["greedy"]] == [1]
    assert events(cluster).keys() == {"greedy"}
