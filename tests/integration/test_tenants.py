# SPDX-License-Identifier: Apache-2.0
"""The real daemon beside tenants who store what they like: it serves the others, in bounded memory."""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.kube.transport import LARGEST_BODY_BYTES
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import PodUid
from dra_driver.testing.fake_api import FakeApi, RawJson
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER, Stage, wait_for

LARGEST_MIB = 128
HOSTILE = (
    b'{"a":"\\ud800"}',
    b'{"a":"\xff"}',
    b'{"a":' + b"[" * 1_100 + b"]" * 1_100 + b"}",
    b'{"a":' + b"[" * 9_990 + b"]" * 9_990 + b"}",
)

# Each "<" is six bytes in an answer: the metadata alone are larger than a page.
FAT_OWNER = {"apiVersion": "v1", "kind": "Pod", "uid": "x", "name": "<" * 1_300_000}


def config(parameters: bytes, driver: str) -> dict[str, Any]:
    return {
        "source": "FromClaim",
        "requests": [],
        "opaque": {"driver": driver, "parameters": RawJson(parameters)},
    }


def devices_of(node: Stage) -> list[str]:
    return [device["name"] for found in node.slices() for device in found["spec"]["devices"]]


def vanish(node: Stage, device: str) -> None:
    """Take a free device away; when it left its slice, all claims have been listed."""
    faults = {"devices": {device: {"vanished": True}}}
    (node.root / "faults.yaml").write_text(yaml.safe_dump(faults))
    wait_for(lambda: device not in devices_of(node), f"{device} withdrawn; log:\n{node.log()}")


def start(node: Stage, *extra: str) -> None:
    faults = node.root / "faults.yaml"
    faults.write_text("{}")
    node.start_registered("--simulated-faults", str(faults), *extra)
    wait_for(node.slices, "the slice")


def told(node: Stage, event: str) -> list[dict[str, Any]]:
    """The log's lines of this event."""
    lines = [json.loads(line) for line in node.log().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("event") == event]


def peak_mib(node: Stage) -> float:
    """The most memory that the driver ever had."""
    assert node.process is not None
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def test_hostile_claims_cost_nobody_else_anything(node: Stage) -> None:
    for number, parameters in enumerate(HOSTILE):
        node.claim(f"theirs-{number}", [], config=[config(parameters, "other.example.com")])
    start(node, "--http-address", "127.0.0.1:0")
    bad = [
        node.claim(f"bad-{number}", [f"gpu-{number}"], config=[config(parameters, DRIVER)])
        for number, parameters in enumerate(HOSTILE)
    ]
    good = node.claim("good", ["gpu-5"], config=[config(HOSTILE[0], "other.example.com")])
    with pytest.raises(KubeletError, match=r"opaque\.parameters cannot be read"):
        node.kubelet.prepare(DRIVER, [*bad, good])
    wait_for(lambda: len(told(node, "claim_not_prepared")) >= len(bad), "a line for each")
    refused = {line["claim_name"]: line["error"] for line in told(node, "claim_not_prepared")}
    assert sorted(refused) == [ref.name for ref in bad]
    assert all(f"get resourceclaims default/{name} at" in error for name, error in refused.items())
    assert list(node.rows()) == [good.uid]

    vanish(node, "gpu-7")
    unreadable = [
        line["name"].partition(" (uid")[0] for line in told(node, "object_cannot_be_read")
    ]
    names = ["bad-0", "bad-1", "bad-2", "bad-3", "good"]
    names += ["theirs-0", "theirs-1", "theirs-2", "theirs-3"]
    assert sorted(unreadable) == [f"default/{name}" for name in names]
    assert not told(node, "thread_failed")
    (line,) = told(node, "http")
    with urllib.request.urlopen(f"http://127.0.0.1:{line['port']}/metrics") as page:
        metrics = page.read().decode()
    assert 'dra_driver_unreadable_objects_total{resource="resourceclaims"} 9.0' in metrics


def test_explain_and_record_answer_beside_hostile_claims(tmp_path: Path) -> None:
    with FakeApi() as api:
        api.tell_gates({})
        kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
        asked = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}  # fmt: skip
        good = {"metadata": {"name": "good"}, "spec": {"devices": {"requests": [asked]}}}
        pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "d", "nodeName": "n1", "pool": pool, "devices": [{"name": "gpu-0"}]}
        api.put("nodes", {"metadata": {"name": "n1"}})
        api.put("namespaces", {"metadata": {"name": "default"}})
        api.put("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        api.put("resourceslices", {"metadata": {"name": "s"}, "spec": spec})
        api.put("resourceclaims", good)
        for number, parameters in enumerate(HOSTILE):
            devices = {"requests": [asked], "config": [config(parameters, "d")]}
            api.put("resourceclaims", {"metadata": {"name": f"bad-{number}"}, "spec": {"devices": devices}})  # fmt: skip

        def run(*arguments: str) -> tuple[int, str]:
            command = [sys.executable, "-m", "dra_driver", *arguments, "--kubeconfig", str(kubeconfig)]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout + done.stderr

        said = [run("explain", "claim/good"), run("explain", "claim/bad-3")]
        said.append(run("record", str(tmp_path / "record")))
    # The record lacks something, and says so by its exit code.
    assert [code for code, _ in said] == [0, 0, 3], said
    for _, text in said:
        for number in range(len(HOSTILE)):
            assert f"opaque content of resourceclaims default/bad-{number}" in text
    assert "devices fit" in said[0][1]
    assert "devices fit" in said[1][1]
    assert json.loads((tmp_path / "record").read_bytes())["cluster"]["resourceClaims"]


def test_a_thousand_fat_claims_fit_into_the_drivers_memory(node: Stage) -> None:
    fat = [config(b'{"a":"' + b"x" * 10_220 + b'"}', "other.example.com")] * 32
    hostile = [config(b'{"a":"' + b"\xff" * 10_220 + b'"}', "other.example.com")] * 32
    for number in range(1_000):
        node.claim(f"fat-{number:04}", [], config=fat if number % 100 else hostile)
    start(node)
    before = peak_mib(node)
    vanish(node, "gpu-7")
    assert len(told(node, "object_cannot_be_read")) == 10
    peak = peak_mib(node)
    print(f"{before:.0f} MiB before the list, {peak:.0f} MiB at its most")
    assert peak < LARGEST_MIB


def test_a_claim_with_fat_metadata_keeps_no_vanished_device_in_the_slice(node: Stage) -> None:
    metadata = {"name": "fat", "namespace": "default", "ownerReferences": [FAT_OWNER]}
    node.api.put("resourceclaims", {"metadata": metadata, "spec": {"devices": {}}})
    start(node)
    vanish(node, "gpu-7")
    assert not told(node, "allocations_unknown")


@pytest.mark.parametrize(
    ("name", "is_read"),
    [(FAT_OWNER["name"], True), ("x" * LARGEST_BODY_BYTES, False)],
    ids=["as the store takes them", "as it takes nowhere"],
)
def test_explain_and_record_see_the_other_claims_beside_one_with_fat_metadata(
    tmp_path: Path, name: str, is_read: bool
) -> None:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    asked = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "nodeName": "n1", "pool": pool, "devices": [{"name": "gpu-0"}]}
    with FakeApi() as api:
        api.tell_gates({})
        kubeconfig = str(api.kubeconfig(tmp_path / "kubeconfig"))
        api.put("nodes", {"metadata": {"name": "n1"}})
        api.put("namespaces", {"metadata": {"name": "default"}})
        api.put("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        api.put("resourceslices", {"metadata": {"name": "s"}, "spec": spec})
        api.put("resourceclaims", {"metadata": {"name": "good"}, "spec": asked})
        owner = {**FAT_OWNER, "name": name}
        fat = {"metadata": {"name": "fat", "ownerReferences": [owner]}, "spec": asked}
        api.put("resourceclaims", fat)
        record = tmp_path / "record"
        answers = {}
        for words in (["explain", "claim/good"], ["record", str(record)]):
            command = [sys.executable, "-m", "dra_driver", *words, "--kubeconfig", kubeconfig]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            answers[words[0]] = done.returncode, done.stdout + done.stderr
    # A claim of which nothing but its name is known may hold any device: that is said, and everything else answered.
    assert answers["explain"][0] == (0 if is_read else 2), answers
    assert answers["record"][0] == (0 if is_read else 3), answers
    assert "n1: the devices fit" in answers["explain"][1]
    assert all(("resourceclaims fat" in text) != is_read for _, text in answers.values())
    claims = json.loads(record.read_bytes())["cluster"]["resourceClaims"]
    assert [claim["metadata"]["name"] for claim in claims] == (["fat"] if is_read else []) + [
        "good"
    ]


def reserve(node: Stage, ref: ClaimRef, pods: Sequence[PodUid], **metadata: Any) -> None:
    """Let the claim name these pods."""
    claim = node.api.object("resourceclaims", ref.name)
    users = [{"resource": "pods", "name": "pod", "uid": pod} for pod in pods]
    content = {**claim, "metadata": {**claim["metadata"], **metadata}, "status": {**claim["status"], "reservedFor": users}}  # fmt: skip
    node.api.put("resourceclaims", content)


@pytest.mark.parametrize("hostile", [False, True])
def test_a_device_without_user_is_free_whatever_stands_under_its_claims_name(node: Stage, hostile: bool) -> None:  # fmt: skip
    node.start_registered()
    kubelet = node.kubelet
    theirs = node.claim("theirs", ["gpu-0"])
    pod = kubelet.pod_uid("default/a")
    reserve(node, theirs, [pod])
    kubelet.prepare(DRIVER, [theirs], pod="default/a")
    # Nobody follows a claim of more than 4 MiB; ownerReferences may be changed at any time.
    reserve(node, theirs, [pod], ownerReferences=[FAT_OWNER])
    kubelet.force_delete("default/a")
    node.api.remove("resourceclaims", "theirs")
    # Of the same name, allocated on another node or of another driver altogether: only its configuration names this one.
    parameters = b'{"a":"\\ud800"}' if hostile else b"{}"
    other = {"request": "r", "driver": "other.example.com", "pool": "p", "device": "d"}
    status = {
        "allocation": {"devices": {"results": [other], "config": [config(parameters, DRIVER)]}}
    }
    metadata = {"name": "theirs", "namespace": "default"}
    node.api.put("resourceclaims", {"metadata": metadata, "spec": {"devices": {}}, "status": status})  # fmt: skip
    kubelet.reconcile(DRIVER)
    kubelet.end_containers(pod)
    second = node.claim("second", ["gpu-0"])
    reserve(node, second, [kubelet.pod_uid("default/b")])
    kubelet.prepare(DRIVER, [second], pod="default/b")
    assert node.owners() == {"gpu-0": second.uid}
