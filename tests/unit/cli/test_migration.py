# SPDX-License-Identifier: Apache-2.0
"""`dra-driver migration`: what is printed for a cluster and for a record, and what the exit code says."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.cli.main import kubectl, main
from dra_driver.testing.fake_api import FakeApi, refusal

GPU = "nvidia.com/gpu"
Command = Callable[..., int]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as found:
        amounts = {"cpu": "4", GPU: "2"}
        found.put(
            "nodes",
            {
                "metadata": {"name": "n1"},
                "status": {"capacity": amounts, "allocatable": amounts},
            },
        )
        found.put("nodes", {"metadata": {"name": "n2"}})
        yield found


@pytest.fixture
def migration(tmp_path: Path, api: FakeApi) -> Command:
    path = tmp_path / "config"
    api.kubeconfig(path)
    return lambda *words, run=main: run(["migration", "--kubeconfig", str(path), *words])


TEXT = """\
node n1: no driver
  RESOURCE         CAPACITY   ALLOCATABLE   IN USE   DEVICECLASS
  nvidia.com/gpu   2          2             0        -
  devices in slices: 0, kept for plugins: 0; claims: 0
  blocked: a device plugin offers 2 nvidia.com/gpu
  blocked: there is no ResourceSlice of this driver for the node
  no DeviceClass has extendedResourceName nvidia.com/gpu: pods that ask for it will not start here
  1. install the driver on the node, and wait for its slices; it offers nothing that the plugin has (gpu.dra-driver.dev)
     kubectl get resourceslices --field-selector spec.nodeName=n1
  2. let no new pod come to the node
     kubectl cordon n1
  3. keep the plugin off the node; the label is that of NVIDIA's operator, for another plugin change its nodeSelector
     kubectl label node n1 --overwrite nvidia.com/gpu.deploy.device-plugin=false
  4. wait until no device has the taint gpu.dra-driver.dev/held-by and allocatable is 0: up to 5 minutes after the plugin's end
     kubectl dra migration --node n1
  5. let pods come again
     kubectl uncordon n1
1 node without device plugins and without devices of gpu.dra-driver.dev
next, in this order: n1
"""


def test_text(migration: Command, capsys: pytest.CaptureFixture[str]) -> None:
    for run in (main, kubectl):
        assert migration(run=run) == 1
        assert capsys.readouterr().out == TEXT


def test_json(migration: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert migration("-o", "json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["order"]) == ("Migration", ["n1"])
    assert found["nodes"][0]["resources"][0]["deviceClass"] == ""
    assert migration("--json") == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["stage"] for line in lines] == ["no driver", "nothing to move"]


def test_one_node(migration: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert migration("--node", "n2") == 0
    assert capsys.readouterr().out == (
        "1 node without device plugins and without devices of gpu.dra-driver.dev\nnothing is left to be moved\n"
    )
    assert migration("--node", "n9") == 2
    assert "there is no node n9; `kubectl get nodes` lists them" in capsys.readouterr().err


def test_a_record(migration: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "record.json")
    assert main(["record", "--kubeconfig", str(tmp_path / "config"), file]) == 0
    capsys.readouterr()
    assert main(["migration", "--from", file]) == 1
    assert capsys.readouterr().out == TEXT


def test_a_cluster_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migration", "--from", str(tmp_path / "none")]) == 2
    assert "`dra-driver record` writes one" in capsys.readouterr().err


def test_nodes_that_may_not_be_read(
    migration: Command, api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.faults.add(refusal(403), verb="list", resource="pods")
    assert migration() == 2
    assert "could not be read: pods: " in capsys.readouterr().err


OLD = """\
this cluster has no claims: pods ask the nodes for extended resources, and nothing can be moved; see docs/older-clusters.md
node n1: no claims
  RESOURCE         CAPACITY   ALLOCATABLE   IN USE   DEVICECLASS
  nvidia.com/gpu   2          2             0        -
  the status of the node does not tell who serves them; `dra-driver devices` in the driver's pod does
1 node without device plugins and without devices of gpu.dra-driver.dev
"""


def test_a_cluster_without_claims(
    migration: Command, api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.serve()
    assert migration() == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == (OLD, "")


def test_programs_get_a_document_also_when_nothing_could_be_read(tmp_path: Path, capsys) -> None:
    missing = tmp_path / "missing.json"
    assert kubectl(["migration", "--from", str(missing), "-o", "json"]) == 2
    found = json.loads(capsys.readouterr().out)
    problem = (
        f"cannot read the record {missing}: there is no such file; `dra-driver record` writes one"
    )
    assert (found["kind"], found["nodes"], found["notRead"]) == ("Migration", [], [problem])
