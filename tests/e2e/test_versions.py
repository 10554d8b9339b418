# SPDX-License-Identifier: Apache-2.0
"""Is this the release that was asked for, and does the driver speak its newest API?"""

import pytest

from hack.testbed.onenode.driver import DRIVER_NAME
from hack.testbed.onenode.node_files import NODE
from hack.testbed.onenode.selection import kubernetes_version
from tests.e2e.story import Story

pytestmark = pytest.mark.real


def test_api_server_and_kubelet_are_of_the_release_that_was_asked_for(story: Story) -> None:
    cluster, wanted = story.driver.cluster, f"v{kubernetes_version()}"

    assert f"Server Version: {wanted}" in cluster.kubectl("version")
    assert cluster.get("node", NODE)["status"]["nodeInfo"]["kubeletVersion"] == wanted


def test_the_driver_writes_slices_in_the_newest_version_that_the_cluster_serves(
    story: Story,
) -> None:
    cluster = story.driver.cluster
    chosen = ("--field-selector", f"spec.driver={DRIVER_NAME}", "--show-managed-fields")
    slices = cluster.get("resourceslices", *chosen)["items"]

    written = {entry["apiVersion"] for one in slices for entry in one["metadata"]["managedFields"]}
    assert written == {f"resource.k8s.io/{cluster.resource_api}"}
