# SPDX-License-Identifier: Apache-2.0
"""What does a claim say of its devices, what does a container read of them, and which claims can a driver's pod not write?

The driver runs with the chart's `deviceStatus` and `deviceMetadata`; what it may write is tried with a token like its own.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.onenode import node_files
from hack.testbed.onenode.driver import DRIVER_NAME, Driver
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.release import NAME, NAMESPACE
from tests.e2e.agreement import published
from tests.e2e.story import Story, request

pytestmark = pytest.mark.real
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"
INSIDE = "/var/run/kubernetes.io/dra-device-attributes"
# The beginning: messages of the driver are cut.
NOT_HERE = f"{ACCOUNT} runs on node {node_files.NODE} and may write"
VICTIM = "other-node"
Object = dict[str, Any]


@pytest.fixture(scope="module")
def reporting(installed_driver: Driver) -> Iterator[Driver]:
    """The driver with both options; afterwards without them."""
    driver = installed_driver
    driver.ensure_running()
    driver.release.upgrade({**driver.values(), "deviceStatus": "write", "deviceMetadata": "files"})
    driver.wait_leading()
    yield driver
    driver.ensure_running()
    driver.release.upgrade(driver.values())
    driver.wait_leading()


def a_claim(story: Story, name: str) -> Object:
    found: Object = story.driver.cluster.get("--namespace", story.namespace, "resourceclaim", name)
    return found


def entries(story: Story, claim: str) -> dict[str, Object]:
    """The claim's status.devices by device, once there are some."""

    def found() -> dict[str, Object]:
        listed = a_claim(story, claim)["status"].get("devices") or []
        return {entry["device"]: entry for entry in listed}

    return wait_until(found, f"status.devices of claim {claim}")


def test_a_claim_says_what_it_has(reporting: Driver, story: Story) -> None:
    story.claim("two", request("gpu", count=2))
    story.pod("worker", "two")
    story.wait_ready("worker")
    told = entries(story, "two")
    devices = published(reporting)
    assert told.keys() == story.allocated("two").keys()
    for name, entry in told.items():
        (ready,) = entry["conditions"]
        assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "True", "Prepared")
        attributes, capacity = devices[name]["attributes"], devices[name]["capacity"]
        assert entry["data"] == {
            "uuid": attributes["uuid"]["string"],
            "productName": attributes["productName"]["string"],
            "driverVersion": attributes["driverVersion"]["version"],
            "memory": capacity["memory"]["value"],
        }


def test_a_container_reads_what_it_has_and_cannot_change_it(
    reporting: Driver, story: Story
) -> None:
    story.claim("one", request("gpu"))
    story.pod("worker", "one")
    story.wait_ready("worker")
    path = f"{INSIDE}/resourceclaims/one/gpu/{DRIVER_NAME}-metadata.json"
    text = story.shell("worker", f"cat {path}")
    document, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    assert document["apiVersion"] == "metadata.resource.k8s.io/v1beta1"
    ((entry,),) = (asked["devices"] for asked in document["requests"])
    (device,) = story.allocated("one")
    assert entry["name"] == device
    assert entry["attributes"]["uuid"] == published(reporting)[device]["attributes"]["uuid"]
    assert "ead-only" in story.shell("worker", f"echo x > {path}")


# What a pod of the driver may not write


@pytest.fixture(scope="module")
def token(reporting: Driver, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig with a token like that of the driver's pod."""
    cluster = reporting.cluster
    (pod, *_) = reporting.release.pods()
    bound = ("--bound-object-kind", "Pod", "--bound-object-name", pod["metadata"]["name"])
    made = cluster.kubectl("create", "token", NAME, "--namespace", NAMESPACE, *bound).strip()
    path = tmp_path_factory.mktemp("token") / "kubeconfig"
    path.write_text(node_files.kubeconfig(cluster.root, made))
    return path


# kubectl reads the status before it patches it, and the driver has no right to that.
PATCH = """
import json, sys
from pathlib import Path
from dra_driver.errors import DriverError
from dra_driver.kube.auth import connect
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.transport import Exchange, Transport

kubeconfig, path, status = sys.argv[1:]
call = ApiCall("patch", "resourceclaims/status")
body = {"status": json.loads(status)}
merge = "application/merge-patch+json"
try:
    Transport(connect(Path(kubeconfig))).request(
        Exchange(call, "PATCH", path, body=body, content_type=merge)
    )
except DriverError as error:
    print(error)
"""


def refusal(story: Story, token: Path, claim: str, status: Object) -> str:
    """How a merge patch of a claim's status is refused; empty if it is not."""
    cluster = story.driver.cluster
    path = f"/apis/resource.k8s.io/{cluster.resource_api}/namespaces/{story.namespace}/resourceclaims/{claim}/status"
    command = [sys.executable, "-c", PATCH, str(token), path, json.dumps(status)]
    ended: subprocess.CompletedProcess[str] = cluster.namespaces.run(
        command, env=cluster.environment
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def allocated_elsewhere(story: Story, name: str) -> None:
    """A claim that an administrator allocates on another node."""
    cluster = story.driver.cluster
    story.claim(name, request("gpu"))
    result = {"request": "gpu", "driver": DRIVER_NAME, "pool": VICTIM, "device": "gpu-0"}
    field = {"key": "metadata.name", "operator": "In", "values": [VICTIM]}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    patch = json.dumps({"status": {"allocation": allocation}})
    where = ("--namespace", story.namespace, "patch", "resourceclaim", name)
    cluster.kubectl(*where, "--subresource=status", "--type=merge", "--patch", patch)


def test_a_claim_of_another_node_cannot_be_written(
    reporting: Driver, story: Story, token: Path
) -> None:
    allocated_elsewhere(story, "theirs")
    before = a_claim(story, "theirs")
    wrong = {"driver": DRIVER_NAME, "pool": VICTIM, "device": "gpu-0", "data": {"uuid": "x"}}
    # A newer API server refuses an entry itself, before it asks the policy; the policy refuses even what changes nothing.
    assert refusal(story, token, "theirs", {"devices": [wrong]}) != ""
    assert NOT_HERE in refusal(story, token, "theirs", {"devices": []})
    assert refusal(story, token, "theirs", {"allocation": None}) != ""
    assert a_claim(story, "theirs") == before


def test_in_its_own_claim_a_pod_changes_its_entries_only(
    reporting: Driver, story: Story, token: Path
) -> None:
    story.claim("ours", request("gpu"))
    story.pod("worker", "ours")
    story.wait_ready("worker")
    (entry,) = entries(story, "ours").values()
    status = a_claim(story, "ours")["status"]
    assert refusal(story, token, "ours", {"devices": [{**entry, "data": {"uuid": "y"}}]}) == ""
    assert refusal(story, token, "ours", {"devices": [entry]}) == ""
    assert refusal(story, token, "ours", {"allocation": None}) != ""
    assert refusal(story, token, "ours", {"reservedFor": []}) != ""
    left = a_claim(story, "ours")["status"]
    assert (left["allocation"], left["reservedFor"]) == (
        status["allocation"],
        status["reservedFor"],
    )


def test_the_policys_expressions_fit_the_types_that_they_look_at(reporting: Driver) -> None:
    name = f"{NAME}-device-status"

    def checked() -> list[Object]:
        found: Object = reporting.cluster.get("validatingadmissionpolicy", name)
        return [found] if found.get("status") else []

    (policy,) = wait_until(checked, "the type check of the policy")
    assert policy["status"]["typeChecking"] == {}
