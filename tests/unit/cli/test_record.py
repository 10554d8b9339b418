# SPDX-License-Identifier: Apache-2.0
"""`dra-driver record`: what is written, and what is said."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.cli.main import main
from dra_driver.model.cluster import decode
from dra_driver.testing.fake_api import FakeApi


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with FakeApi() as api:
        api.put("nodes", {"metadata": {"name": "n1"}})
        api.put("deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
        path = tmp_path / "config"
        api.kubeconfig(path)
        yield path


def test_a_record_can_be_read_again(tmp_path: Path, kubeconfig: Path, capsys) -> None:
    file = tmp_path / "cluster.json"
    assert main(["record", "--kubeconfig", str(kubeconfig), str(file)]) == 0
    state = decode(file.read_bytes(), source="this test")
    assert [node.metadata.name for node in state.nodes] == ["n1"]
    captured = capsys.readouterr()
    assert captured.out == (
        f"{file}: Kubernetes v1.37.0+fake: 1 nodes, 0 slices, 1 classes, 0 claims, 0 pods\n"
    )
    assert captured.err.startswith("dra-driver: not in the record: /metrics: get /metrics at ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cluster.json", "config"]


def test_a_record_can_go_to_standard_output(kubeconfig: Path, capfdbinary) -> None:
    assert main(["record", "--kubeconfig", str(kubeconfig), "-"]) == 0
    state = decode(capfdbinary.readouterr().out, source="this test")
    assert [found.metadata.name for found in state.device_classes] == ["gpu"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, kubeconfig: Path, capsys) -> None:
    file = tmp_path / "none" / "cluster.json"
    assert main(["record", "--kubeconfig", str(kubeconfig), str(file)]) == 1
    assert f"cannot write {file}: " in capsys.readouterr().err


def test_a_cluster_that_cannot_be_reached_is_named(tmp_path: Path, capsys) -> None:
    with FakeApi() as api:
        path = tmp_path / "config"
        api.kubeconfig(path)
    assert main(["record", "--kubeconfig", str(path), str(tmp_path / "cluster.json")]) == 1
    assert "get /version at" in capsys.readouterr().err
    assert not (tmp_path / "cluster.json").exists()
