# SPDX-License-Identifier: Apache-2.0
"""The real driver process with both options: what stands in a claim and beside it, and what a refusal costs."""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.model.claim import ClaimRef
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_api.faults import refusal
from dra_driver.testing.stage import DRIVER, Stage, wait_for
from tests.support.stages import a_stage

STATUS = "resourceclaims/status"
NewStage = Callable[..., Stage]


@pytest.fixture(params=["v1", "v1beta1"])
def stage_with(request: pytest.FixtureRequest) -> Iterator[NewStage]:
    """Make a node whose driver has these flags."""
    made: list[Stage] = []
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as root,
        FakeApi(versions=(request.param,)) as api,
    ):

        def make(*flags: str) -> Stage:
            made.append(a_stage(Path(root), api, *flags))
            return made[-1]

        yield make
        for node in made:
            node.close()


def told(node: Stage, ref: ClaimRef) -> list[Any]:
    status = node.api.object("resourceclaims", ref.name)["status"]
    return [(entry["device"], entry["data"]["uuid"]) for entry in status.get("devices", [])]


def writes(node: Stage) -> int:
    return sum(request.resource == STATUS for request in node.api.requests)


def test_a_prepared_claim_says_what_it_has(stage_with: NewStage) -> None:
    node = stage_with("--device-status", "write")
    ref = node.claim("one", ["gpu-0", "gpu-3"])
    node.start_registered()
    node.kubelet.prepare(DRIVER, [ref])
    wait_for(lambda: len(told(node, ref)) == 2, "status.devices")
    found = dict(told(node, ref))
    assert found.keys() == {"gpu-0", "gpu-3"}
    assert all(found.values())


def test_after_a_restart_a_claim_that_says_it_already_is_not_written(stage_with: NewStage) -> None:
    node = stage_with("--device-status", "write")
    ref = node.claim("one", ["gpu-0"])
    node.start_registered()
    node.kubelet.prepare(DRIVER, [ref])
    wait_for(lambda: told(node, ref), "status.devices")
    node.kill()
    before = writes(node)
    later = node.claim("two", ["gpu-1"])
    node.start_registered()
    node.kubelet.prepare(DRIVER, [later], pod="default/other")
    wait_for(lambda: told(node, later), "status.devices of the second claim")
    assert writes(node) == before + 1


def test_without_the_right_claims_are_prepared_and_the_node_says_so(stage_with: NewStage) -> None:
    node = stage_with("--device-status", "write")
    ref = node.claim("one", ["gpu-0"])
    node.api.faults.add(refusal(403), verb="patch", resource=STATUS, times=9)
    node.start_registered()
    assert node.kubelet.prepare(DRIVER, [ref])[ref.uid]

    def reasons() -> list[str]:
        return [event["reason"] for event in node.api.objects("events", namespace="default")]

    wait_for(lambda: "DeviceStatusForbidden" in reasons(), "the Event")
    wait_for(lambda: "device_status_forbidden" in node.log(), "the line")
    assert told(node, ref) == []


def test_without_the_option_no_status_is_written(stage_with: NewStage) -> None:
    node = stage_with()
    ref = node.claim("one", ["gpu-0"])
    node.start_registered()
    node.kubelet.prepare(DRIVER, [ref])
    node.kubelet.unprepare(DRIVER, [ref])
    assert writes(node) == 0


def test_metadata_files_come_and_go_with_their_claim(stage_with: NewStage) -> None:
    node = stage_with("--device-metadata", "files")
    ref = node.claim("one", ["gpu-0"])
    node.start_registered()
    node.kubelet.prepare(DRIVER, [ref])
    (text,) = node.cdi_files().values()
    ((mount,),) = (device["containerEdits"]["mounts"] for device in json.loads(text)["devices"])
    file = Path(mount["hostPath"])
    document, _ = json.JSONDecoder().raw_decode(file.read_text())
    assert document["metadata"]["uid"] == ref.uid
    before = file.read_text()
    file.write_text("{}")
    wait_for(lambda: file.read_text() == before, "the file to be restored")
    node.kubelet.unprepare(DRIVER, [ref])
    assert not file.parent.exists()
