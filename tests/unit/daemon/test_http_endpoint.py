# SPDX-License-Identifier: Apache-2.0
"""Metrics and checks over a real port."""

import http.client
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread

import pytest
from prometheus_client import CollectorRegistry, Counter

from dra_driver.daemon.http_endpoint import Check, HttpEndpoint
from dra_driver.errors import Fatal

DEADLINE = 30  # seconds, against hanging only


@contextmanager
def serving(
    checks: Mapping[str, Check], *, host: str = "127.0.0.1", registry=None
) -> Iterator[HttpEndpoint]:
    endpoint = HttpEndpoint((host, 0), registry or CollectorRegistry(), checks)
    thread = Thread(target=endpoint.serve)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.close()
        thread.join(DEADLINE)
        assert not thread.is_alive()


def get(endpoint: HttpEndpoint, path: str, host: str = "127.0.0.1") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(host, endpoint.port, timeout=DEADLINE)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.getheader("Content-Type", ""), text


def test_a_check_answers_what_is_wrong_now(capsys) -> None:
    wrong: list[str] = []
    with serving({"/readyz": lambda: tuple(wrong)}) as endpoint:
        assert get(endpoint, "/readyz?verbose") == (200, "text/plain; charset=utf-8", "ok\n")
        wrong += ["not registered", "no slices"]
        assert get(endpoint, "/readyz") == (
            503,
            "text/plain; charset=utf-8",
            "not registered\nno slices\n",
        )
    assert capsys.readouterr().err == ""  # probes make no noise


def test_metrics_are_those_of_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("spoons", "Spoons", registry=registry).inc(3)
    with serving({}, registry=registry) as endpoint:
        status, kind, text = get(endpoint, "/metrics")
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert "spoons_total 3.0" in text.splitlines()


def test_another_path_says_what_is_served() -> None:
    with serving({}) as endpoint:
        assert get(endpoint, "/")[::2] == (404, "/metrics, /livez and /readyz are served here\n")


def test_an_empty_host_answers_on_all_addresses() -> None:
    with serving({"/livez": tuple}, host="") as endpoint:
        assert get(endpoint, "/livez")[0] == 200
        if socket.has_dualstack_ipv6():
            assert get(endpoint, "/livez", "::1")[0] == 200


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Fatal) as caught:
            HttpEndpoint(("127.0.0.1", port), CollectorRegistry(), {})
    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1 port {port}: [Errno 98] Address already in use; choose another --http-address"
    )


def test_closing_before_serving_hangs_nobody() -> None:
    endpoint = HttpEndpoint(("127.0.0.1", 0), CollectorRegistry(), {})
    endpoint.close()
    endpoint.serve()


def test_an_idle_client_does_not_keep_the_others_out() -> None:
    with (
        serving({"/livez": tuple}) as endpoint,
        socket.create_connection(("127.0.0.1", endpoint.port)),
    ):
        assert get(endpoint, "/livez")[0] == 200
