# SPDX-License-Identifier: Apache-2.0
"""A vendor's device plugin beside the driver, registered with the real kubelet: it is named, and nothing is refused."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.testbed.onenode import init
from hack.testbed.onenode.driver import Driver
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.release import NAMESPACE
from tests.e2e.story import Story, request

pytestmark = pytest.mark.real

SERVER = Path(__file__).with_name("device_plugin_server.py")
RESOURCE = "nvidia.com/gpu"
OFFERED = f"{RESOURCE} (2)"


@pytest.fixture
def plugin(driver: Driver) -> Iterator[None]:
    """Two devices of another owner, until the test's end."""
    folder = init.KUBELET_FOLDER / "device-plugins"
    argv = [sys.executable, str(SERVER), str(folder), RESOURCE, "GPU-1", "GPU-2"]
    program = driver.cluster.run_inside(argv, log="device-plugin")
    yield
    program.stop()


def events(driver: Driver) -> list[str]:
    found = driver.cluster.get("events", "--field-selector=reason=DevicePluginBeside")
    return [event["message"] for event in found["items"]]


def test_a_vendors_device_plugin_is_named_and_pods_still_get_their_devices(
    driver: Driver, plugin: None, story: Story
) -> None:
    wait_until(lambda: events(driver), "the Event on the Node", timeout_seconds=120)
    assert all(f"a device plugin offers {OFFERED} beside" in message for message in events(driver))
    [pod] = driver.release.pods()
    shown = driver.cluster.kubectl(
        "exec", "--namespace", NAMESPACE, pod["metadata"]["name"], "--", "dra-driver", "devices"
    )
    assert shown.splitlines()[-1] == (
        f"device plugin on this node: {OFFERED}, the same device may be given to two pods; see docs/nodes.md"
    )
    story.claim("mine", request())
    story.pod("worker", "mine")
    story.wait_ready("worker")
    story.assert_has_claimed("worker", "mine")
