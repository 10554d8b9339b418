# SPDX-License-Identifier: Apache-2.0
"""What do pods keep when the control plane goes away, comes back, or comes back as it was yesterday?"""

import os
import shutil
import signal
from pathlib import Path

import pytest

from hack.testbed.onenode.driver import DRIVER_NAME
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.node_files import NODE
from tests.e2e.agreement import assert_agreement, published, read_state
from tests.e2e.story import Story, memory_at_least, request

pytestmark = pytest.mark.real


def _run(story: Story, name: str, cel: str = "") -> None:
    story.claim(name, request(cel=cel or memory_at_least("40Gi")))
    story.pod(name, name)
    story.wait_ready(name)
    story.assert_has_claimed(name, name)


def test_a_driver_that_dies_while_the_api_server_is_away_serves_again_without_it(
    story: Story,
) -> None:
    driver = story.driver
    _run(story, "worker")
    before = read_state(driver)
    driver.cluster.stop_apiserver()
    [dying] = driver.processes()
    os.kill(dying, signal.SIGKILL)
    # The kubelet starts the container again, and the driver finds its claims without asking anybody.
    wait_until(
        lambda: [pid for pid in driver.processes() if pid != dying] and driver.listens(),
        "the driver's next process",
        timeout_seconds=120,
    )
    assert read_state(driver) == before
    driver.cluster.start_apiserver()

    driver.wait_leading()
    story.assert_has_claimed("worker", "worker")
    _run(story, "later")
    assert_agreement(driver)


def test_a_node_object_that_is_made_again_gets_the_slices_back(story: Story) -> None:
    driver = story.driver
    devices = published(driver)
    driver.cluster.kubectl("delete", "node", NODE)
    # They belong to the Node object, whose end they follow; a renamed node leaves none behind for the same reason.
    wait_until(lambda: not published(driver), "the old Node's slices to go", timeout_seconds=120)
    driver.cluster.stop_kubelet()
    driver.cluster.start_kubelet()
    driver.cluster.wait_node_ready()

    driver.start()
    wait_until(lambda: published(driver) == devices, "the slices", timeout_seconds=120)
    owner = driver.cluster.get("resourceslices")["items"][0]["metadata"]["ownerReferences"][0]
    assert owner["uid"] == driver.cluster.get("node", NODE)["metadata"]["uid"]
    _run(story, "worker")


def test_an_etcd_of_yesterday_takes_no_device_twice_and_yesterdays_pod_runs_again(
    story: Story, tmp_path: Path
) -> None:
    driver, cluster = story.driver, story.driver.cluster
    _run(story, "stays")
    _run(story, "yesterday")
    [there], devices = story.allocated("yesterday"), published(driver)
    uuid = devices[there]["attributes"]["uuid"]["string"]
    cluster.stop_control_plane()
    shutil.copytree(cluster.etcd_folder, tmp_path / "etcd")
    cluster.start_control_plane()

    story.delete_pod("yesterday")
    story.delete_claim("yesterday")
    _run(story, "today", f'device.attributes["{DRIVER_NAME}"].uuid == "{uuid}"')
    assert list(story.allocated("today")) == [there]
    cluster.stop_control_plane()
    cluster.start_control_plane(etcd=tmp_path / "etcd")
    # A kubelet's watches would wait for a version that lies in the future now; etcd's manual says to restart it.
    cluster.restart_kubelet()
    wait_until(lambda: published(driver) == devices, "the slices", timeout_seconds=120)

    # For the API server there never was a claim "today", and its device belongs to "yesterday".
    claim = cluster.get("--namespace", story.namespace, "resourceclaim", "yesterday")
    wait_until(
        lambda: claim["metadata"]["uid"] in read_state(driver)[0],
        "yesterday's claim to be prepared again",
        timeout_seconds=240,
    )
    story.assert_has_claimed("yesterday", "yesterday")
    story.assert_has_claimed("stays", "stays")
    assert story.restarts("stays") == 0
    assert_agreement(driver)
    _run(story, "tomorrow")
