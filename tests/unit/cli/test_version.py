# SPDX-License-Identifier: Apache-2.0
"""`kubectl dra version`: with a cluster, without one, and with one that answers in part."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver import __version__
from dra_driver.cli.main import kubectl
from dra_driver.testing.fake_api import FakeApi, refusal
from tests.support.fleet_api import small_cluster, write_record

Printed = pytest.CaptureFixture[str]
CLIENT = f"client: dra-driver {__version__}\n"
TEXT = f"""\
{CLIENT}server: Kubernetes v1.37.0+fake
resource.k8s.io: v1
driver: gpu.example.com (4 devices, slices of 2 nodes)
driver: nic.example.com (1 device, slices of 1 node)
"""


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def served(tmp_path: Path, change: Callable[[FakeApi], object], *words: str) -> int:
    with small_cluster() as api:
        change(api)
        api.kubeconfig(tmp_path / "config")
        return kubectl(["version", "--kubeconfig", str(tmp_path / "config"), *words])


def test_a_cluster_and_a_record(tmp_path: Path, capsys: Printed) -> None:
    assert served(tmp_path, lambda _api: None) == 0
    assert capsys.readouterr().out == TEXT
    write_record(tmp_path / "record.json")
    capsys.readouterr()
    assert kubectl(["version", "--from", str(tmp_path / "record.json")]) == 0
    assert capsys.readouterr().out == TEXT


def test_no_cluster_at_all(nowhere: None, capsys: Printed) -> None:
    assert kubectl(["version"]) == 3
    said = capsys.readouterr()
    assert said.out == CLIENT
    assert said.err == (
        "dra-driver: the version of the cluster is not known: no API server is known: --kubeconfig and the variable KUBECONFIG are not set, "
        "there is no ~/.kube/config, and this process does not run in a pod; give --kubeconfig\n"
    )
    assert kubectl(["version", "--client"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (CLIENT, "")


def test_a_cluster_that_does_not_answer(tmp_path: Path, capsys: Printed) -> None:
    def refuse(api: FakeApi) -> None:
        api.faults.add(refusal(403), verb="get", resource="discovery")

    assert served(tmp_path, refuse, "-o", "json") == 3
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["kind"], found["client"], found["isKnown"]) == (
        "ClusterVersion",
        __version__,
        False,
    )
    assert found["problem"] in said.err


def test_slices_that_may_not_be_read(tmp_path: Path, capsys: Printed) -> None:
    def refuse(api: FakeApi) -> None:
        api.faults.add(refusal(403), verb="list", resource="resourceslices")

    assert served(tmp_path, refuse) == 3
    said = capsys.readouterr()
    assert said.out.endswith("resource.k8s.io: v1\ndriver: not known\n")
    assert said.err == (
        "dra-driver: not in the answer: the drivers; you may not list resourceslices. The ClusterRole …-user-cluster of the driver's "
        "chart gives this right (docs/kubectl-dra.md)\n"
    )


def test_a_cluster_without_claims(tmp_path: Path, capsys: Printed) -> None:
    assert served(tmp_path, lambda api: api.serve()) == 0
    said = capsys.readouterr()
    assert "resource.k8s.io: not served; see docs/older-clusters.md\n" in said.out
    assert said.err == ""


def test_a_cluster_that_does_not_say_what_it_serves(tmp_path: Path, capsys: Printed) -> None:
    def refuse(api: FakeApi) -> None:
        api.faults.add(refusal(500), verb="get", resource="discovery", after=1, times=9)

    assert served(tmp_path, refuse) == 3
    said = capsys.readouterr()
    assert said.out.endswith("driver: not known\n")
    assert said.err.startswith("dra-driver: not in the answer: its versions, and the drivers; ")


def test_a_driver_of_the_network_has_no_nodes(tmp_path: Path, capsys: Printed) -> None:
    def network(api: FakeApi) -> None:
        pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
        spec = {
            "driver": "net.example.com",
            "allNodes": True,
            "pool": pool,
            "devices": [{"name": "a"}],
        }
        api.put("resourceslices", {"metadata": {"name": "net"}, "spec": spec})

    assert served(tmp_path, network) == 0
    assert "driver: net.example.com (1 device)\n" in capsys.readouterr().out
