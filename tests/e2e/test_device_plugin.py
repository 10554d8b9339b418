# SPDX-License-Identifier: Apache-2.0
"""A vendor's device plugin beside the driver, registered with the real kubelet: it is named, and claims get nothing that it could give out."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.model.names import HELD_BY_TAINT
from hack.testbed.onenode import init, node_files
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
    """Two devices of another owner, until the test's end. Nobody can tell which GPUs they are, so they may be any."""
    folder = init.KUBELET_FOLDER / "device-plugins"
    argv = [sys.executable, str(SERVER), str(folder), RESOURCE, "GPU-1", "GPU-2"]
    program = driver.cluster.run_inside(argv, log="device-plugin")
    yield
    program.stop()
    # The kubelet counts the plugin's devices for five minutes more. A new one without a checkpoint knows nothing of them, and the plugin of
    # another resource makes it write that down.
    driver.cluster.empty_plugin_folder()
    driver.cluster.restart_kubelet()
    other = [*argv[:3], "example.com/other", "one"]
    program = driver.cluster.run_inside(other, log="other-device-plugin")
    wait_until(
        lambda: not kept_from_claims(driver), "the devices are offered again", timeout_seconds=120
    )
    program.stop()
    take_from_status(driver, RESOURCE)


def kept_from_claims(driver: Driver) -> bool:
    """Whether no device is offered: each is tainted, or on a server that drops taints not published."""
    slices = driver.cluster.get("resourceslices")["items"]
    devices = [device for one in slices for device in one["spec"].get("devices", ())]
    return all(HELD_BY_TAINT in {taint["key"] for taint in _taints(device)} for device in devices)


def _taints(device: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = device.get("basic", device).get("taints", [])
    return found


def status(driver: Driver) -> dict[str, str]:
    """What the scheduler believes that the node has."""
    found: dict[str, str] = driver.cluster.get("node", node_files.NODE)["status"]["allocatable"]
    return found


def take_from_status(driver: Driver, resource: str) -> None:
    """Remove the resource from the Node, as the Event StaleCapacity tells an admin to.

    The new kubelet leaves what it finds there if its own socket was in the folder before it looked. The scheduler then believes the status,
    and a pod that asks for the resource runs without a device, whatever DeviceClass has its name.
    """
    patch = {"status": {kind: {resource: None} for kind in ("capacity", "allocatable")}}
    driver.cluster.kubectl(
        *("patch", "node", node_files.NODE, "--subresource=status", "--type=merge"),
        *("--patch", json.dumps(patch)),
    )


def events(driver: Driver) -> list[str]:
    found = driver.cluster.get("events", "--field-selector=reason=DevicePluginBeside")
    return [event["message"] for event in found["items"]]


def test_a_vendors_device_plugin_is_named_and_claims_get_nothing_that_it_could_give_out(
    driver: Driver, plugin: None, story: Story
) -> None:
    wait_until(lambda: events(driver), "the Event on the Node", timeout_seconds=120)
    wait_until(lambda: status(driver).get(RESOURCE) == "2", "the Node's status to say it")
    assert all(f"a device plugin offers {OFFERED} beside" in message for message in events(driver))
    [pod] = driver.release.pods()
    shown = driver.cluster.kubectl(
        "exec", "--namespace", NAMESPACE, pod["metadata"]["name"], "--", "dra-driver", "devices"
    )
    assert shown.splitlines()[-1] == (
        f"device plugin on this node: {OFFERED}, kept from users of this driver while the plugin runs; see docs/moving-to-dra.md"
    )
    wait_until(lambda: kept_from_claims(driver), "the devices are kept from claims")
    story.claim("mine", request())
    story.pod("worker", "mine")
    assert "cannot allocate all claims" in story.why_pending("worker")
