# SPDX-License-Identifier: Apache-2.0
"""Both sockets as one part: order, repair, and whether they answer."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
import structlog
from structlog.testing import capture_logs

from dra_driver.errors import Fatal
from dra_driver.kubelet.pb import grpc_health_v1_pb2 as pb
from dra_driver.kubelet.server import KubeletServer, KubeletSockets
from dra_driver.model.claim import ClaimRef
from dra_driver.model.health import DeviceHealth
from dra_driver.model.ids import ClaimUid, DriverName

HANG_SECONDS = 300


class NoHealth:
    """A feed without devices that never changes."""

    def snapshot(self) -> tuple[int, tuple[DeviceHealth, ...]]:
        return 0, ()

    def wait(self, version: int, timeout: float) -> bool:
        raise AssertionError("no stream is open")

    def wake(self) -> None:
        """Nobody waits."""


def nothing(_refs: Sequence[ClaimRef], *, until: float | None = None) -> dict[ClaimUid, Any]:
    return {}


class Rounds(Event):
    """A stop signal that lets `count` rounds pass; records how long each would have waited."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.waits: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return len(self.waits) > self.count


@pytest.fixture
def sockets(root: Path) -> KubeletSockets:
    return KubeletSockets(root / "plugins" / "dra.sock", root / "registry" / "x-reg.sock")


@pytest.fixture
def server(sockets: KubeletSockets) -> Iterator[KubeletServer]:
    found = KubeletServer(
        sockets,
        driver=DriverName("gpu.example.com"),
        calls=(nothing, nothing),
        feed=NoHealth(),
        checks={"": lambda: (), "readiness": lambda: ("not registered",)},
        log=structlog.get_logger(),
    )
    yield found
    found.stop(0)


def test_the_registration_socket_does_not_appear_without_the_other(
    server: KubeletServer, sockets: KubeletSockets
) -> None:
    sockets.endpoint.parent.write_text("in the way")
    with pytest.raises(Fatal, match="cannot listen on"):
        server.start()
    assert not sockets.registration.exists()


def test_both_sockets_answer_between_start_and_stop(
    server: KubeletServer, sockets: KubeletSockets
) -> None:
    server.start()
    assert server.unanswered() == ()
    server.stop(0)
    wrong = server.unanswered()
    assert [text.split(": ")[0] for text in wrong] == [
        f"socket {sockets.endpoint} does not answer",
        f"socket {sockets.registration} does not answer",
    ]
    assert all("UNAVAILABLE" in text and "\n" not in text for text in wrong)


def test_removed_sockets_are_put_back(server: KubeletServer, sockets: KubeletSockets) -> None:
    server.start()
    sockets.endpoint.unlink()
    sockets.registration.unlink()
    rounds = Rounds(2)
    with capture_logs() as logs:
        server.run(rounds)
    assert rounds.waits == [5.0] * 3
    assert server.unanswered() == ()
    assert logs == [
        {
            "event": "dra_socket_removed",
            "log_level": "warning",
            "path": str(sockets.endpoint),
        },
        {
            "event": "registration_socket_removed",
            "log_level": "warning",
            "path": str(sockets.registration),
        },
    ]


@pytest.mark.parametrize(
    ("name", "status"),
    [("", pb.HealthCheckResponse.SERVING), ("readiness", pb.HealthCheckResponse.NOT_SERVING)],
)
def test_the_health_check_of_a_service_follows_its_check(
    server: KubeletServer, sockets: KubeletSockets, name: str, status: int
) -> None:
    server.start()
    assert health_check(sockets, "Check", name).status == status


@pytest.mark.parametrize(
    ("method", "name", "code"),
    [
        ("Check", "liveness", grpc.StatusCode.NOT_FOUND),
        ("Watch", "", grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_what_the_health_check_does_not_know_is_an_error(
    server: KubeletServer, sockets: KubeletSockets, method: str, name: str, code: grpc.StatusCode
) -> None:
    server.start()
    with pytest.raises(grpc.RpcError) as error:
        health_check(sockets, method, name)
    assert error.value.code() is code


def health_check(sockets: KubeletSockets, method: str, name: str) -> pb.HealthCheckResponse:
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(f"unix:{sockets.endpoint}", options=options) as channel:
        call = channel.unary_unary(
            f"/grpc.health.v1.Health/{method}",
            request_serializer=pb.HealthCheckRequest.SerializeToString,
            response_deserializer=pb.HealthCheckResponse.FromString,
        )
        response: pb.HealthCheckResponse = call(
            pb.HealthCheckRequest(service=name), timeout=HANG_SECONDS
        )
        return response
