# SPDX-License-Identifier: Apache-2.0
"""What `explain --watch` relies on: every API server tells of a change in a watch of metadata alone, and lists workloads."""

from threading import Thread

import pytest

from dra_driver.kube.changes import Changes, deciding
from dra_driver.kube.cluster import Scope, read_cluster
from tests.contract.conftest import ApiServer


def test_a_change_is_noticed_and_every_resource_that_decides_can_be_watched(
    server: ApiServer,
) -> None:
    served = read_cluster(server.connection).served
    resources = deciding(served, ["Deployment", "CronJob", "ReplicationController"], "default")
    with Changes(server.connection, resources, tell=pytest.fail) as watched:
        waiting = Thread(target=watched.wait, kwargs={"rest": 0.0}, daemon=True)
        waiting.start()
        server.made(f"{server.group}/resourceslices", server.slice(f"{server.node}-a"))
        waiting.join(30)
        assert not waiting.is_alive()


def test_workloads_can_be_listed_in_a_namespace(server: ApiServer) -> None:
    kinds = ("Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController")
    state = read_cluster(server.connection, scope=Scope("default", kinds))
    plurals = {f"{kind.lower()}s" for kind in (*kinds, "ReplicaSet")}
    assert [gap for gap in state.not_read if gap.resource in plurals] == []
