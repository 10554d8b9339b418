# SPDX-License-Identifier: Apache-2.0
"""IPv6 clusters and clusters behind a proxy, over real sockets: from the pod's environment to a stored slice."""

import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.kube.auth import connect
from dra_driver.kube.connection import Connection
from dra_driver.kube.http import HttpKubeApi
from dra_driver.model.ids import PoolName
from dra_driver.model.slices import CreateSlice
from dra_driver.testing.fake_api import FakeApi
from tests.support.api_values import published, slice_spec
from tests.support.connect_proxy import ConnectProxy

MakeKube = Callable[[Connection], HttpKubeApi]
SPEC = slice_spec(PoolName("node-1"), 1, 1, (published("gpu-0"),))
ELSEWHERE = "fd00:10:96::1"  # a service address as clusters have it; not reachable from here but through a proxy


@pytest.fixture(params=["::1", "127.0.0.1"])
def api(request: pytest.FixtureRequest, tls: Path) -> Iterator[FakeApi]:
    """An API server on the loopback of each family, with a certificate for its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "address.crt", tls / "address.key")
    with FakeApi(tls=context, host=request.param, tokens=["pod-token"]) as server:
        server.put("nodes", {"metadata": {"name": "node-1"}})
        yield server


@pytest.fixture
def volume(tmp_path: Path, tls: Path) -> Path:
    """A service account's volume."""
    (tmp_path / "token").write_text("pod-token")
    (tmp_path / "ca.crt").write_bytes((tls / "address-ca.crt").read_bytes())
    return tmp_path


def host_of(api: FakeApi) -> str:
    return api.url.removeprefix("https://").rpartition(":")[0].strip("[]")


def in_pod(api: FakeApi, **more: str) -> dict[str, str]:
    """The environment that a kubelet gives to a pod: an IPv6 address has no brackets there."""
    return {
        "KUBERNETES_SERVICE_HOST": host_of(api),
        "KUBERNETES_SERVICE_PORT": str(api.port),
        **more,
    }


def publishes_and_watches(kube: HttpKubeApi) -> None:
    """Every kind of request: a read, a write, a watch."""
    version = kube.list_slices().resource_version
    kube.apply_slice_change(CreateSlice("one", SPEC))
    events = kube.watch_slices(version, threading.Event())
    event = next(events)
    assert (event.type, event.slice.spec if event.slice else None) == ("ADDED", SPEC)
    events.close()


def test_a_pod_reaches_its_api_server_by_address(
    api: FakeApi, volume: Path, make_kube: MakeKube
) -> None:
    connection = connect(None, environment=in_pod(api), service_account_dir=volume)
    assert (connection.server, connection.proxy) == (api.url, "")
    publishes_and_watches(make_kube(connection))


def test_a_kubeconfig_names_it_by_address(
    api: FakeApi, volume: Path, tls: Path, make_kube: MakeKube
) -> None:
    kubeconfig = api.kubeconfig(
        volume / "config", token="pod-token", certificate_authority=tls / "address-ca.crt"
    )
    assert api.url in kubeconfig.read_text()
    publishes_and_watches(make_kube(connect(kubeconfig, environment={})))


@pytest.mark.parametrize("proxy_host", ["::1", "127.0.0.1"])
def test_a_pod_behind_a_proxy_is_tunnelled_to_the_service_address(
    api: FakeApi, volume: Path, make_kube: MakeKube, proxy_host: str
) -> None:
    with ConnectProxy(proxy_host, (host_of(api), api.port)) as proxy:
        environment = {
            "KUBERNETES_SERVICE_HOST": ELSEWHERE,
            "KUBERNETES_SERVICE_PORT": "443",
            "HTTPS_PROXY": proxy.url,
            "NO_PROXY": "10.96.0.0/12,fd00:10:97::/64,.svc,[fd00:10:96::2]",
        }
        kube = make_kube(connect(None, environment=environment, service_account_dir=volume))
        publishes_and_watches(kube)
        kube.close()
    # RFC 9110 wants brackets around an IPv6 address here; proxies refuse or misread it without.
    assert {line.rpartition(" ")[0] for line in proxy.seen} == {f"CONNECT [{ELSEWHERE}]:443"}


@pytest.mark.parametrize(
    "excluded",
    ["fd00:10:96::/112", "fd00::/8", ELSEWHERE, f"[{ELSEWHERE}]", f"[{ELSEWHERE}]:443", "*"],
)
def test_a_pod_goes_past_the_proxy_where_no_proxy_says_so(volume: Path, excluded: str) -> None:
    environment = {
        "KUBERNETES_SERVICE_HOST": ELSEWHERE,
        "KUBERNETES_SERVICE_PORT": "443",
        "HTTPS_PROXY": "http://proxy:3128",
        "NO_PROXY": f".cluster.local, {excluded}",
    }
    assert connect(None, environment=environment, service_account_dir=volume).proxy == ""


def test_a_server_on_the_loopback_is_never_proxied(
    api: FakeApi, volume: Path, make_kube: MakeKube
) -> None:
    environment = in_pod(api, HTTPS_PROXY="http://127.0.0.1:1", HTTP_PROXY="http://127.0.0.1:1")
    publishes_and_watches(
        make_kube(connect(None, environment=environment, service_account_dir=volume))
    )
