# SPDX-License-Identifier: Apache-2.0
"""Which cluster is meant: the arguments, the environment, the home directory, or the pod."""

import argparse
from pathlib import Path

import pytest
import yaml

from dra_driver.cli.cluster import read, target
from dra_driver.errors import Fatal
from dra_driver.testing.fake_api import FakeApi


def chosen(kubeconfig: Path | None = None, context: str = "") -> argparse.Namespace:
    return argparse.Namespace(kubeconfig=kubeconfig and str(kubeconfig), context=context)


def written(path: Path, server: str, *, namespace: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    contexts = [
        {"name": "one", "context": {"cluster": "c", "namespace": namespace}},
        {"name": "two", "context": {"cluster": "d", "namespace": "two-ns"}},
    ]
    clusters = [
        {"name": "c", "cluster": {"server": server}},
        {"name": "d", "cluster": {"server": "http://two:1"}},
    ]
    config = {"current-context": "one", "contexts": contexts, "clusters": clusters}
    path.write_text(yaml.safe_dump(config))
    return path


def test_the_argument_wins_over_the_environment(tmp_path: Path) -> None:
    given = written(tmp_path / "given", "http://given:1", namespace="team")
    named = written(tmp_path / "named", "http://named:1")
    found = target(chosen(given), environment={"KUBECONFIG": str(named)})
    assert (found.connection.server, found.namespace) == ("http://given:1", "team")


def test_the_first_file_of_the_environment_that_exists_is_taken(tmp_path: Path) -> None:
    named = written(tmp_path / "named", "http://named:1")
    home = written(tmp_path / ".kube" / "config", "http://home:1")
    environment = {"KUBECONFIG": f"{tmp_path}/none::{named}", "HOME": str(tmp_path)}
    assert target(chosen(), environment=environment).connection.server == "http://named:1"
    assert home.exists()


def test_a_missing_file_of_the_environment_is_named(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=f"cannot read kubeconfig {tmp_path}/none"):
        target(chosen(), environment={"KUBECONFIG": f"{tmp_path}/none"})


def test_the_home_directory_comes_third_and_its_namespace_may_be_missing(tmp_path: Path) -> None:
    written(tmp_path / ".kube" / "config", "http://home:1")
    found = target(chosen(), environment={"HOME": str(tmp_path)})
    assert (found.connection.server, found.namespace) == ("http://home:1", "default")


def test_another_context_of_the_file_can_be_chosen(tmp_path: Path) -> None:
    given = written(tmp_path / "given", "http://given:1")
    found = target(chosen(given, "two"), environment={})
    assert (found.connection.server, found.namespace) == ("http://two:1", "two-ns")
    with pytest.raises(
        Fatal, match="the command line asks for context 'three', but contexts has one, two"
    ):
        target(chosen(given, "three"), environment={})


def test_without_any_the_pod_is_asked(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="no API server is known"):
        target(chosen(), environment={"HOME": str(tmp_path)})


def test_what_is_read_holds_no_annotations(tmp_path: Path) -> None:
    with FakeApi() as api:
        api.put("nodes", {"metadata": {"name": "n", "annotations": {"secret": "s"}}})
        path = tmp_path / "config"
        api.kubeconfig(path)
        state = read(target(chosen(path), environment={}))
    assert [node.metadata.annotations for node in state.nodes] == [None]
