# SPDX-License-Identifier: Apache-2.0
"""The rules of the fake API server, held against this cluster's kube-apiserver."""

import sys
from pathlib import Path

import pytest

from hack.testbed.onenode.cluster import Cluster

pytestmark = pytest.mark.real
CONTRACT = Path(__file__).resolve().parents[1] / "contract"


def test_the_real_api_server_answers_as_the_fake_does(cluster: Cluster) -> None:
    _assert_passes_inside(cluster, "test_kube_api.py")


def test_what_the_real_api_server_keeps_of_a_slice_is_known_before_it_is_written(
    cluster: Cluster,
) -> None:
    _assert_passes_inside(cluster, "test_served_fields.py")


def test_the_real_api_server_takes_the_entries_of_a_driver_as_the_fake_does(
    cluster: Cluster,
) -> None:
    _assert_passes_inside(cluster, "test_device_statuses.py")


@pytest.mark.needs("FakeSliceRules")
def test_the_real_api_server_keeps_the_rules_that_the_fake_enforces(cluster: Cluster) -> None:
    _assert_passes_inside(cluster, "test_slice_rules.py")


@pytest.mark.needs("FakeSliceRules")
def test_the_real_api_server_refuses_the_manifests_that_check_calls_wrong(
    cluster: Cluster,
) -> None:
    _assert_passes_inside(cluster, "test_manifests.py")


def _assert_passes_inside(cluster: Cluster, file: str) -> None:
    # The API server's address exists only inside the cluster's namespaces, so its tests run there.
    command = [sys.executable, "-m", "pytest", "-q", "-m", "real", "-p", "no:cacheprovider"]
    kubeconfig = f"KUBE_CONTRACT_KUBECONFIG={cluster.root}/admin.kubeconfig"
    tests = str(CONTRACT / file)
    output = cluster.output_of(["env", kubeconfig, *command, tests], check=False)
    last = output.strip().splitlines()[-1]
    assert " passed" in last, output
    assert all(word not in last for word in ("failed", "error", "skipped")), output
