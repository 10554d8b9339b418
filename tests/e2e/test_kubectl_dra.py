# SPDX-License-Identifier: Apache-2.0
"""`kubectl dra` at a real API server: what it says, whether kubectl takes its names, and whether -w outlives a restart of the server."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.testbed.onenode.cluster import Cluster
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.node_files import NODE
from tests.support.fleet_api import Object, device_slice, gpu, waiting

pytestmark = pytest.mark.real
CALL = "import sys; from dra_driver.cli.main import kubectl; sys.exit(kubectl(sys.argv[1:]))"
DRA = (sys.executable, "-c", CALL)
KUBE_SYSTEM = ("-n", "kube-system")
CLASS = "gpu-of-nobody"


def whole(kind: str, made: Object) -> Object:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, **made}


def claim(name: str) -> Object:
    made = waiting(name)
    (asked,) = made["spec"]["devices"]["requests"]
    asked["exactly"]["deviceClassName"] = CLASS
    return whole("ResourceClaim", made)


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> Iterator[Cluster]:
    """A class, two devices, and two claims that wait; gone afterwards, since other files use the cluster, too."""
    spec = {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]}
    devices = whole("ResourceSlice", device_slice(NODE, gpu("gpu-0"), gpu("gpu-1")))
    cluster.apply(whole("DeviceClass", {"metadata": {"name": CLASS}, "spec": spec}), devices)
    cluster.apply(*map(claim, ("first", "second")), namespace="kube-system")
    yield cluster
    cluster.kubectl("delete", *KUBE_SYSTEM, "resourceclaims", "first", "second", "third")
    cluster.kubectl("delete", "deviceclass", CLASS)
    cluster.kubectl("delete", "resourceslice", devices["metadata"]["name"])


def dra(cluster: Cluster, *words: str) -> str:
    return cluster.output_of([*DRA, *words])


def test_each_command_answers(filled: Cluster) -> None:
    shown = dra(filled, "devices", "--driver", "gpu.example.com", "--no-headers")
    assert [line.split()[2] for line in shown.splitlines()] == ["gpu-0", "gpu-1"]
    assert dra(filled, "free", CLASS, "--no-headers").split()[:3] == [CLASS, "2", "2"]
    shown = dra(filled, "claims", *KUBE_SYSTEM, "--no-headers")
    assert [line.split()[:2] for line in shown.splitlines()] == [
        ["first", "pending"],
        ["second", "pending"],
    ]
    assert "driver: gpu.example.com (2 devices, slices of 1 node)\n" in dra(filled, "version")


def test_kubectl_takes_the_names(filled: Cluster) -> None:
    names = dra(filled, "claims", *KUBE_SYSTEM, "-o", "name")
    assert names.count("\n") == 2
    assert filled.kubectl("get", *KUBE_SYSTEM, "-o", "name", *names.split()) == names
    names = dra(filled, "free", "-o", "name")
    assert filled.kubectl("get", "-o", "name", *names.split()) == names


def test_it_follows_the_claims_over_a_restart_of_the_api_server(filled: Cluster) -> None:
    log = filled.root / "log" / "follow.log"
    program = filled.run_inside([*DRA, "claims", *KUBE_SYSTEM, "-w"], log="follow")
    assert_says(log, "second ")
    filled.stop_apiserver()
    assert_says(log, "; what is shown may be old; trying again")
    filled.start_apiserver()
    assert_says(log, "the cluster can be read again")
    filled.apply(claim("third"), namespace="kube-system")
    assert_says(log, "\nthird ")
    assert " is gone" not in log.read_text()
    assert program.stop(signal.SIGINT) == 0


def assert_says(log: Path, words: str) -> None:
    wait_until(lambda: words in log.read_text(), f"{words!r} in {log}", timeout_seconds=300)
