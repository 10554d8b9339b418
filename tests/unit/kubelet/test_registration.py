# SPDX-License-Identifier: Apache-2.0
"""What the kubelet is told about this driver, and what is made of its answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from structlog.testing import capture_logs

from dra_driver.kubelet.pb import pluginregistration_v1_pb2 as pb
from dra_driver.kubelet.registration import NOT_YET, Registrar
from dra_driver.model.ids import DriverName

HANG_SECONDS = 300


@pytest.fixture
def registrar(root: Path) -> Iterator[Registrar]:
    found = Registrar(
        root / "plugins_registry" / "gpu.example.com-reg.sock",
        driver=DriverName("gpu.example.com"),
        endpoint=root / "plugins" / "dra.sock",
        log=structlog.get_logger(),
    )
    found.start()
    yield found
    found.stop(0)


def get_info(registrar: Registrar) -> pb.PluginInfo:
    info: pb.PluginInfo = call(registrar, "GetInfo", pb.InfoRequest(), pb.PluginInfo)
    return info


def notify(registrar: Registrar, *, registered: bool, error: str = "") -> None:
    status = pb.RegistrationStatus(plugin_registered=registered, error=error)
    call(registrar, "NotifyRegistrationStatus", status, pb.RegistrationStatusResponse)


def call(registrar: Registrar, method: str, request: Any, response: Any) -> Any:
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(f"unix:{registrar.path}", options=options) as channel:
        function = channel.unary_unary(
            f"/pluginregistration.Registration/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        return function(request, timeout=HANG_SECONDS)


def test_the_kubelet_is_told_the_endpoint_and_every_service_best_first(
    root: Path, registrar: Registrar
) -> None:
    assert get_info(registrar) == pb.PluginInfo(
        type="DRAPlugin",
        name="gpu.example.com",
        endpoint=str(root / "plugins" / "dra.sock"),
        supported_versions=[
            "v1.DRAPlugin",
            "v1beta1.DRAPlugin",
            "v1.DRAResourceHealth",
            "v1alpha1.DRAResourceHealth",
        ],
    )


def test_nothing_is_registered_before_the_kubelet_says_so(registrar: Registrar) -> None:
    assert (registrar.registered, registrar.reason) == (False, NOT_YET)
    get_info(registrar)
    assert not registrar.registered


def test_a_registration_is_kept_and_logged(registrar: Registrar) -> None:
    with capture_logs() as logs:
        notify(registrar, registered=True)
    assert (registrar.registered, registrar.reason) == (True, "")
    endpoint = get_info(registrar).endpoint
    assert logs == [{"event": "registered", "log_level": "info", "endpoint": endpoint}]


@pytest.mark.parametrize(
    ("error", "shown"), [("no such type", "no such type"), ("", "without a reason")]
)
def test_a_refusal_is_logged_kept_and_answered_with_an_error(
    registrar: Registrar, error: str, shown: str
) -> None:
    notify(registrar, registered=True)
    with capture_logs() as logs, pytest.raises(grpc.RpcError) as answer:
        notify(registrar, registered=False, error=error)
    assert answer.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert answer.value.details() == f"registration refused by the kubelet: {shown}"
    assert not registrar.registered
    assert registrar.reason == f"the kubelet refused the registration: {shown}"
    assert logs == [
        {
            "event": "registration_refused",
            "log_level": "error",
            "error": shown,
            "next_step": "see the kubelet's log; it tries again, at once when the driver restarts",
        }
    ]
    notify(registrar, registered=True)
    assert (registrar.registered, registrar.reason) == (True, "")


def test_a_refusal_that_repeats_itself_is_logged_once(registrar: Registrar) -> None:
    """A kubelet without DRA refuses for ever."""
    with capture_logs() as logs:
        for error in ("no handler", "no handler", "another reason"):
            with pytest.raises(grpc.RpcError):
                notify(registrar, registered=False, error=error)
    assert [line["error"] for line in logs] == ["no handler", "another reason"]


def test_a_socket_that_somebody_removed_comes_back_unregistered(registrar: Registrar) -> None:
    notify(registrar, registered=True)
    assert not registrar.ensure()
    assert registrar.registered
    registrar.path.unlink()
    with capture_logs() as logs:
        assert registrar.ensure()
    assert [line["event"] for line in logs] == ["registration_socket_removed"]
    assert (registrar.registered, registrar.reason) == (False, NOT_YET)
    notify(registrar, registered=True)
    assert registrar.registered


def test_after_the_end_nothing_comes_back(registrar: Registrar) -> None:
    registrar.stop(0)
    with capture_logs() as logs:
        assert not registrar.ensure()
    assert logs == []
    assert not registrar.path.exists()
