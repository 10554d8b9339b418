# SPDX-License-Identifier: Apache-2.0
"""The pod's own connection, and the choice between it and a kubeconfig."""

from pathlib import Path

import pytest

from dra_driver.errors import Fatal
from dra_driver.kube.auth import connect
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.testing.fake_api import FakeApi

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def volume(tmp_path: Path, tls: Path) -> Path:
    """A service account's volume."""
    (tmp_path / "token").write_text("pod-token")
    (tmp_path / "ca.crt").write_bytes((tls / "ca.crt").read_bytes())
    return tmp_path


def test_a_pod_uses_its_service_account(volume: Path) -> None:
    connection = connect(None, environment=IN_POD, service_account_dir=volume)
    assert connection.server == "https://10.96.0.1:443"
    assert connection.credentials.headers() == {"Authorization": "Bearer pod-token"}
    assert len(connection.tls.current().get_ca_certs()) == 1
    assert (connection.proxy, connection.source) == ("", "the pod's environment")


def test_an_ipv6_address_stands_in_brackets(volume: Path) -> None:
    environment = {**IN_POD, "KUBERNETES_SERVICE_HOST": "fd00:10:96::1"}
    connection = connect(None, environment=environment, service_account_dir=volume)
    assert connection.server == "https://[fd00:10:96::1]:443"


def test_a_pods_proxy_comes_from_the_environment(volume: Path) -> None:
    environment = {**IN_POD, "HTTPS_PROXY": "http://proxy:3128"}
    connection = connect(None, environment=environment, service_account_dir=volume)
    assert connection.proxy == "http://proxy:3128"


def test_outside_of_a_pod_a_kubeconfig_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(Fatal) as caught:
        connect(None, environment={}, service_account_dir=tmp_path)
    assert str(caught.value) == (
        "no API server is known: neither a kubeconfig was given (--kubeconfig, KUBECONFIG) nor does this process run in a pod "
        "(KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set); give --kubeconfig"
    )


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_pod_without_its_service_account_says_what_is_missing(volume: Path, missing: str) -> None:
    (volume / missing).unlink()
    with pytest.raises(Fatal) as caught:
        connect(None, environment=IN_POD, service_account_dir=volume)
    assert str(caught.value) == (
        f"this process runs in a pod, but {volume / missing} does not exist; give the pod a service account and leave "
        "automountServiceAccountToken on"
    )


def test_a_kubeconfig_wins_over_the_pod(volume: Path, tmp_path: Path) -> None:
    with FakeApi(tokens=["secret"]) as api:
        kubeconfig = api.kubeconfig(tmp_path / "config", token="secret")
        connection = connect(kubeconfig, environment=IN_POD, service_account_dir=volume)
        kube = HttpKubeApi(connection, driver=DriverName("d"), node=NodeName("n"))
        assert kube.list_slices().slices == ()
        kube.close()
    assert connection.source == str(kubeconfig)
