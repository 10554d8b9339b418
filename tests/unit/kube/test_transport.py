# SPDX-License-Identifier: Apache-2.0
"""One request: repetitions, deadlines, credentials, TLS, proxies, compression."""

import base64
import contextlib
import gc
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest

from dra_driver.errors import Permanent, Temporary
from dra_driver.kube.base import TooLarge
from dra_driver.kube.connection import Connection, FixedHeaders, TlsContext, TlsFiles, TokenFile
from dra_driver.kube.failures import ApiCall
from dra_driver.kube.transport import LARGEST_BODY_BYTES, Exchange, Transport
from dra_driver.kube.watch import read_lines
from dra_driver.model.events import ApiAnswered, DriverEvent
from dra_driver.testing.fake_api import Answer, FakeApi, Object, Reset, refusal
from tests.support.connect_proxy import copy

NODES = Exchange(ApiCall("list", "nodes"), "GET", "/api/v1/nodes")
NEW_NODE: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-2"}}
CREATE = Exchange(ApiCall("create", "nodes", "node-2"), "POST", "/api/v1/nodes", body=NEW_NODE)
NAME = "kubernetes.default.svc"

MakeTransport = Callable[[Connection], Transport]


class Time(Protocol):
    """The fixture `time`."""

    now: float
    slept: list[float]

    def clock(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


@pytest.fixture
def make_transport(time: Time) -> Iterator[MakeTransport]:
    made: list[Transport] = []

    def make(connection: Connection) -> Transport:
        made.append(Transport(connection, sleep=time.sleep, clock=time.clock))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


@pytest.fixture
def transport(make_transport: MakeTransport, api: FakeApi) -> Transport:
    return make_transport(Connection(api.url, source="this test"))


@pytest.fixture
def secure_api(tls: Path) -> Iterator[FakeApi]:
    """An API server whose certificate is for the name kubernetes.default.svc only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "server.crt", tls / "server.key")
    with FakeApi(tls=context) as server:
        yield server


@pytest.fixture
def certified_api(tls: Path) -> Iterator[FakeApi]:
    """An API server that asks for a client certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "server.crt", tls / "server.key")
    context.load_verify_locations(tls / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    with FakeApi(tls=context) as server:
        yield server


# Repetitions


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_a_read_is_repeated_when_the_server_asks_for_it(
    transport: Transport, api: FakeApi, time: Time, code: int
) -> None:
    api.faults.status(code, times=3)
    assert transport.request(NODES)["kind"] == "NodeList"
    assert [round(pause, 1) for pause in time.slept] == pytest.approx([0.1, 0.2, 0.4], abs=0.1)


def test_the_time_to_come_back_is_honoured(transport: Transport, api: FakeApi, time: Time) -> None:
    api.faults.status(429, retry_after=4)
    transport.request(NODES)
    (pause,) = time.slept
    assert 4 <= pause <= 4.8


def test_a_time_to_come_back_after_the_deadline_is_passed_on(
    transport: Transport, api: FakeApi, time: Time
) -> None:
    api.faults.status(503, retry_after=60)
    with pytest.raises(
        Temporary, match=r"list nodes at .* 503: “the server is currently unable"
    ) as caught:
        transport.request(NODES)
    assert caught.value.retry_after_seconds == 60
    assert time.slept == []


def test_a_read_is_given_up_at_its_deadline(transport: Transport, api: FakeApi, time: Time) -> None:
    api.faults.status(503, times=1000)
    with pytest.raises(Temporary):
        transport.request(NODES)
    assert 5 <= sum(time.slept) <= 10


@pytest.mark.parametrize("code", [500, 505])
def test_other_failures_of_the_server_are_not_repeated(
    transport: Transport, api: FakeApi, code: int
) -> None:
    api.faults.status(code)
    with pytest.raises(Temporary, match=f"{code}: .* retried later"):
        transport.request(NODES)
    assert len(api.requests) == 1


def test_a_read_survives_a_connection_reset(transport: Transport, api: FakeApi) -> None:
    api.faults.add(Reset(), times=2)
    assert transport.request(NODES)["kind"] == "NodeList"


def test_a_write_is_not_repeated_after_a_reset(transport: Transport, api: FakeApi) -> None:
    api.faults.add(Reset())
    with pytest.raises(Temporary, match=f"create nodes node-2 at {api.url}: no answer: "):
        transport.request(CREATE)
    assert len(api.requests) == 1


def test_connections_are_used_again(transport: Transport, api: FakeApi) -> None:
    for _ in range(3):
        transport.request(NODES)
    assert len({request.client for request in api.requests}) == 1


def test_a_redirect_is_not_followed(transport: Transport, api: FakeApi) -> None:
    api.faults.add(Answer(302, {"Location": "http://192.0.2.1/"}))
    with pytest.raises(
        Permanent, match=r"302: an empty body; a Kubernetes API server does not redirect"
    ):
        transport.request(NODES)


# Bodies


def test_long_answers_arrive_compressed_and_whole(transport: Transport, api: FakeApi) -> None:
    for number in range(20):
        annotations = {"filler": f"{number}" * 10_000}
        api.put("nodes", {"metadata": {"name": f"n-{number:02}", "annotations": annotations}})
    items = transport.request(NODES)["items"]
    names = [item["metadata"]["name"] for item in items if item["metadata"]["name"] != "node-1"]
    assert names == [f"n-{number:02}" for number in range(20)]
    transport.request(NODES)
    assert len({request.client for request in api.requests}) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"kind":"NodeL',
        b"\xff\xfe",
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b"[" * 10_000,
    ],
)
def test_a_success_without_a_json_object_is_temporary(
    transport: Transport, api: FakeApi, body: bytes
) -> None:
    api.faults.add(Answer(200, body=body))
    with pytest.raises(Temporary, match=r"list nodes at .* sent no JSON object"):
        transport.request(NODES)


def test_an_error_page_of_something_else_is_quoted_in_part(
    transport: Transport, api: FakeApi
) -> None:
    api.faults.add(Answer(500, body=b"<html>\n" + b"bad gateway " * 100))
    with pytest.raises(Temporary) as caught:
        transport.request(NODES)
    quoted = str(caught.value).partition("answered 500: “")[2].partition("”; ")[0]
    assert quoted.startswith("<html> bad gateway bad gateway")
    assert len(quoted) == 300


def test_an_answer_that_trickles_is_given_up_at_the_deadline(time: Time) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def trickle() -> None:
            connection, _address = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while not done.is_set():
                    time.now += 3
                    with contextlib.suppress(OSError):  # the reader may have given up
                        connection.sendall(b" ")
                    done.wait(0.01)

        server = threading.Thread(target=trickle, daemon=True)
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        transport = Transport(Connection(url), sleep=time.sleep, clock=time.clock)
        try:
            with pytest.raises(
                Temporary, match=f"list nodes at {url}: the answer did not end within 10 s"
            ):
                transport.request(NODES)
        finally:
            done.set()
            server.join()
            transport.close()


def test_an_answer_without_end_is_not_kept_in_memory(transport: Transport, api: FakeApi) -> None:
    api.faults.add(Answer(200, body=b" " * (LARGEST_BODY_BYTES + 1)))
    with pytest.raises(TooLarge) as caught:
        transport.request(NODES)
    assert str(caught.value) == (
        f"list nodes at {api.url}: the answer is larger than 16 MiB, which is more than this program reads at once; make the "
        "object smaller, or delete it"
    )


def test_a_silent_server_is_given_up(time: Time) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        silent = Transport(
            Connection(url), sleep=time.sleep, clock=time.clock, deadline_seconds=0.05
        )
        with pytest.raises(
            Temporary, match=r"no answer: .*; the server took the request and was silent"
        ):
            silent.request(CREATE)
        silent.close()


# Credentials


def test_a_refused_token_is_read_anew_and_works(
    make_transport: MakeTransport, tmp_path: Path, time: Time
) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    with FakeApi(tokens=["old"]) as api:
        credentials = TokenFile(token, clock=time.clock)
        transport = make_transport(Connection(api.url, credentials=credentials))
        transport.request(NODES)
        token.write_text("new\n")
        api.accept_tokens("new")
        transport.request(CREATE)
        assert [node["metadata"]["name"] for node in api.objects("nodes")] == ["node-2"]
        assert len(api.requests) == 3


def test_a_watch_gets_the_new_token_too(
    make_transport: MakeTransport, tmp_path: Path, time: Time
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    with FakeApi(tokens=["old"]) as api:
        credentials = TokenFile(token, clock=time.clock)
        transport = make_transport(Connection(api.url, credentials=credentials))
        transport.request(NODES)
        token.write_text("new")
        api.accept_tokens("new")
        watch = Exchange(ApiCall("watch", "nodes"), "GET", "/api/v1/nodes", {"watch": "1"})
        transport.open_watch(watch, read_timeout_seconds=60).close()


def test_credentials_that_stay_refused_name_the_next_step(
    make_transport: MakeTransport, time: Time
) -> None:
    with FakeApi(tokens=["right"]) as api:
        secret = FixedHeaders({"Authorization": "Bearer wrong-secret"})
        transport = make_transport(Connection(api.url, credentials=secret))
        with pytest.raises(Temporary) as caught:
            transport.request(NODES)
        assert str(caught.value) == (
            f"list nodes at {api.url}: the server answered 401: “Unauthorized”; the credentials were read anew and still refused: "
            "check that the service account exists and its token is mounted, or that the kubeconfig's user is still valid"
        )
        assert len(api.requests) == 2
        assert time.slept == []
        assert "wrong-secret" not in repr(transport) + repr(secret)


def test_a_password_in_the_address_is_not_shown(make_transport: MakeTransport) -> None:
    with FakeApi() as api:
        address = f"127.0.0.1:{api.port}"
    transport = make_transport(Connection(f"http://name:secret@{address}"))
    with pytest.raises(Temporary) as caught:
        transport.request(NODES)
    assert f"list nodes at http://{address}: no answer" in str(caught.value)
    assert "secret" not in str(caught.value)


# TLS


def trusting(tls: Path, **more: object) -> TlsContext:
    return TlsContext(TlsFiles(ca_file=tls / "ca.crt", **more))  # type: ignore[arg-type]  # a test's shorthand


def test_the_name_in_the_certificate_may_differ_from_the_address(
    make_transport: MakeTransport, secure_api: FakeApi, tls: Path
) -> None:
    connection = Connection(secure_api.url, tls=trusting(tls), tls_server_name=NAME)
    assert make_transport(connection).request(NODES)["items"] == []


def test_a_certificate_for_another_name_is_refused(
    make_transport: MakeTransport, secure_api: FakeApi, tls: Path
) -> None:
    transport = make_transport(Connection(secure_api.url, tls=trusting(tls), source="/k"))
    with pytest.raises(
        Temporary,
        match=r"no answer: .*127.0.0.1.*; check the certificate authority, the server name .* in /k",
    ):
        transport.request(CREATE)


def test_an_unknown_authority_is_refused(
    make_transport: MakeTransport, secure_api: FakeApi, tls: Path
) -> None:
    context = TlsContext(TlsFiles(ca_file=tls / "other-ca.crt"))
    transport = make_transport(Connection(secure_api.url, tls=context, tls_server_name=NAME))
    with pytest.raises(
        Temporary, match=r"CERTIFICATE_VERIFY_FAILED.*; check the certificate authority"
    ):
        transport.request(CREATE)


def test_verification_can_be_switched_off(
    make_transport: MakeTransport, secure_api: FakeApi
) -> None:
    connection = Connection(secure_api.url, tls=TlsContext(TlsFiles(verify=False)))
    assert make_transport(connection).request(NODES)["items"] == []


def test_a_rotated_authority_is_taken_up(
    make_transport: MakeTransport, secure_api: FakeApi, tls: Path, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes((tls / "other-ca.crt").read_bytes())
    context = TlsContext(TlsFiles(ca_file=ca))
    transport = make_transport(Connection(secure_api.url, tls=context, tls_server_name=NAME))
    with pytest.raises(Temporary):
        transport.request(CREATE)
    ca.write_bytes((tls / "ca.crt").read_bytes())
    assert transport.request(NODES)["items"] == []


def test_a_client_certificate_from_files_is_shown(
    make_transport: MakeTransport, certified_api: FakeApi, tls: Path
) -> None:
    context = trusting(tls, certificate_file=tls / "client.crt", key_file=tls / "client.key")
    connection = Connection(certified_api.url, tls=context, tls_server_name=NAME)
    assert make_transport(connection).request(NODES)["items"] == []


def test_a_client_certificate_from_texts_is_shown_and_leaves_no_file(
    make_transport: MakeTransport, certified_api: FakeApi, tls: Path
) -> None:
    context = trusting(
        tls,
        certificate_text=(tls / "client.crt").read_text(),
        key_text=(tls / "client.key").read_text(),
    )
    connection = Connection(certified_api.url, tls=context, tls_server_name=NAME)
    assert make_transport(connection).request(NODES)["items"] == []


def test_a_server_that_wants_a_client_certificate_refuses_without(
    make_transport: MakeTransport, certified_api: FakeApi, tls: Path
) -> None:
    connection = Connection(certified_api.url, tls=trusting(tls), tls_server_name=NAME)
    with pytest.raises(Temporary, match=r"create nodes node-2 at .*: no answer: "):
        make_transport(connection).request(CREATE)


def test_a_silent_tls_watch_ends_when_it_is_stopped(
    make_transport: MakeTransport, secure_api: FakeApi, tls: Path
) -> None:
    connection = Connection(secure_api.url, tls=trusting(tls), tls_server_name=NAME)
    watch = Exchange(ApiCall("watch", "nodes"), "GET", "/api/v1/nodes", {"watch": "1"})
    response = make_transport(connection).open_watch(watch, read_timeout_seconds=600)
    stop = threading.Event()
    stopper = threading.Timer(0.05, stop.set)
    stopper.start()
    assert list(read_lines(response, stop)) == []
    stopper.join()


# Proxies


class Proxy(socketserver.ThreadingTCPServer):
    """A forward proxy: CONNECT tunnels and plain requests; `seen` are the heads that arrived."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ProxiedConnection)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.seen: list[bytes] = []


class ProxiedConnection(socketserver.BaseRequestHandler):
    """Copies bytes both ways until the client ends."""

    def handle(self) -> None:
        assert isinstance(self.server, Proxy)
        head = self.request.recv(65536)
        self.server.seen.append(head)
        method, target, _rest = head.split(b" ", 2)
        authority = target if method == b"CONNECT" else target.split(b"/")[2]
        host, port = authority.decode().split(":")
        with socket.create_connection((host, int(port))) as upstream:
            if method == b"CONNECT":
                self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                upstream.sendall(head)
            backwards = threading.Thread(target=copy, args=(upstream, self.request), daemon=True)
            backwards.start()
            copy(self.request, upstream)
            backwards.join()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_requests_go_through_a_proxy(
    make_transport: MakeTransport, api: FakeApi, proxy: Proxy
) -> None:
    transport = make_transport(Connection(api.url, proxy=proxy.url))
    assert transport.request(NODES)["kind"] == "NodeList"
    transport.close()
    assert proxy.seen[0].startswith(f"GET {api.url}/api/v1/nodes HTTP/1.1\r\n".encode())


def test_tls_goes_through_a_tunnel_with_the_proxys_password(
    make_transport: MakeTransport, secure_api: FakeApi, proxy: Proxy, tls: Path
) -> None:
    address = proxy.url.replace("http://", "http://user:pass%40word@")
    connection = Connection(secure_api.url, tls=trusting(tls), tls_server_name=NAME, proxy=address)
    transport = make_transport(connection)
    assert transport.request(NODES)["items"] == []
    transport.close()
    expected = base64.b64encode(b"user:pass@word")
    assert proxy.seen[0].startswith(b"CONNECT 127.0.0.1:")
    assert b"proxy-authorization: basic " + expected.lower() in proxy.seen[0].lower()


def test_a_dead_proxy_is_named_without_its_password(
    make_transport: MakeTransport, secure_api: FakeApi, tls: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    connection = Connection(
        secure_api.url,
        tls=trusting(tls),
        tls_server_name=NAME,
        proxy=f"http://u:secret@127.0.0.1:{port}",
    )
    with pytest.raises(Temporary) as caught:
        make_transport(connection).request(CREATE)
    assert f"through proxy http://127.0.0.1:{port}: no answer" in str(caught.value)
    assert str(caught.value).endswith(
        "check that the proxy runs and lets this host through, or add the host to NO_PROXY"
    )
    assert "secret" not in str(caught.value)


def test_the_retry_time_of_a_status_object_counts_too(transport: Transport, api: FakeApi) -> None:
    body = b'{"kind":"Status","message":"later","details":{"retryAfterSeconds":60}}'
    api.faults.add(Answer(503, body=body))
    with pytest.raises(Temporary) as caught:
        transport.request(NODES)
    assert caught.value.retry_after_seconds == 60


def test_a_wrong_time_to_come_back_is_ignored(transport: Transport, api: FakeApi) -> None:
    answer = refusal(500)
    api.faults.add(Answer(500, {"Retry-After": "tomorrow"}, answer.body))
    with pytest.raises(Temporary) as caught:
        transport.request(NODES)
    assert caught.value.retry_after_seconds is None


def test_what_is_being_tried_again_ends_when_the_transport_is_closed(api: FakeApi) -> None:
    transport = Transport(Connection(api.url, source="this test"), deadline_seconds=3600)
    api.faults.add(refusal(503), times=1000)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(transport.request, NODES)
        while not api.requests:
            assert not asked.done()
        transport.close()
        assert isinstance(asked.exception(timeout=300), Temporary)
    # Without the close there would be more than a dozen.
    assert len(api.requests) < 5


def test_each_attempt_is_told_with_its_status(api: FakeApi, time: Time) -> None:
    told: list[DriverEvent] = []
    transport = Transport(
        Connection(api.url), sleep=time.sleep, clock=time.clock, observe=told.append
    )
    api.faults.status(503)
    transport.request(NODES)
    assert told == [ApiAnswered("list", "nodes", "503"), ApiAnswered("list", "nodes", "200")]
    transport.close()


def test_an_attempt_without_an_answer_is_told_as_unreachable(time: Time) -> None:
    told: list[DriverEvent] = []
    nobody = Connection("http://127.0.0.1:1")
    transport = Transport(nobody, sleep=time.sleep, clock=time.clock, observe=told.append)
    with pytest.raises(Temporary):
        transport.request(CREATE)
    assert told == [ApiAnswered("create", "nodes", "unreachable")]
    transport.close()


def test_a_close_ends_the_idle_connection(make_transport: MakeTransport, api: FakeApi) -> None:
    transport = make_transport(Connection(api.url))
    assert transport.request(NODES)["kind"] == "NodeList"
    door, _ = transport._current_door()
    (connection,) = [one for one in door.pool.queue if one is not None]
    transport.close()
    assert connection.sock is not None  # a thread has it still
    del door
    gc.collect()
    assert connection.sock is None
    assert transport.request(NODES)["kind"] == "NodeList"
