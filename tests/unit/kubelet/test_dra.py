# SPDX-License-Identifier: Apache-2.0
"""DRAPlugin v1 and v1beta1 as functions from message to message."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import grpc
import pytest
import structlog
from structlog.testing import capture_logs

from dra_driver.kubelet.dra import DraPlugin
from dra_driver.kubelet.dra_v1beta1 import DraPluginV1beta1
from dra_driver.kubelet.pb import dra_v1_pb2 as v1
from dra_driver.kubelet.pb import dra_v1beta1_pb2 as v1beta1
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceName, PoolName, ShareId
from dra_driver.model.plan import Refusal
from dra_driver.model.state import PreparedDevice


class Context:
    """As much of a call as is looked at: the seconds that its caller still waits."""

    def __init__(self, seconds: float | None = 45.0) -> None:
        self.seconds = seconds

    def time_remaining(self) -> float | None:
        return self.seconds


CONTEXT = cast("grpc.ServicerContext", Context())
ONE = ClaimRef("default", "one", ClaimUid("uid-1"))
TWO = ClaimRef("default", "two", ClaimUid("uid-2"))
WHOLE = PreparedDevice(
    ("gpu", "all"), PoolName("node1"), DeviceName("gpu-0"), ("a/b=c", "a/b=d"), "GPU-0"
)
SHARE = PreparedDevice((), PoolName("node1"), DeviceName("gpu-1"), (), "GPU-1", ShareId("s-1"))
NO_ANSWER = "internal error of the driver: no answer for this claim"


class Answers:
    """Answers each call with what it was given, or raises it; remembers the claims of the call."""

    def __init__(self, answer: Mapping[ClaimUid, Any] | BaseException) -> None:
        self.answer = answer
        self.asked: list[ClaimRef] = []

    def __call__(
        self, refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> Mapping[ClaimUid, Any]:
        self.asked += refs
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def plugin(answers: Answers) -> DraPlugin:
    made = DraPlugin(answers, answers, structlog.get_logger())
    MADE.append(made)
    return made


MADE: list[DraPlugin] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Workers end with their test."""
    yield
    while MADE:
        MADE.pop().close()


def prepare(answers: Answers, *claims: v1.Claim) -> dict[str, v1.NodePrepareResourceResponse]:
    request = v1.NodePrepareResourcesRequest(claims=claims or [claim(ONE), claim(TWO)])
    return dict(plugin(answers).prepare_resources(request, CONTEXT).claims)


def unprepare(answers: Answers, *claims: v1.Claim) -> dict[str, str]:
    request = v1.NodeUnprepareResourcesRequest(claims=claims or [claim(ONE), claim(TWO)])
    response = plugin(answers).unprepare_resources(request, CONTEXT)
    return {uid: entry.error for uid, entry in response.claims.items()}


def claim(ref: ClaimRef) -> v1.Claim:
    return v1.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid)


def failed(error: str) -> v1.NodePrepareResourceResponse:
    return v1.NodePrepareResourceResponse(error=error)


def test_each_claim_of_a_prepare_gets_its_devices_or_its_error() -> None:
    answers = Answers({ONE.uid: (WHOLE, SHARE), TWO.uid: Refusal("device gpu-0 is taken")})
    assert prepare(answers) == {
        "uid-1": v1.NodePrepareResourceResponse(
            devices=[
                v1.Device(
                    request_names=["gpu", "all"],
                    pool_name="node1",
                    device_name="gpu-0",
                    cdi_device_ids=["a/b=c", "a/b=d"],
                ),
                v1.Device(pool_name="node1", device_name="gpu-1", share_id="s-1"),
            ]
        ),
        "uid-2": failed("device gpu-0 is taken"),
    }
    assert answers.asked == [ONE, TWO]


def test_a_share_id_is_sent_only_where_there_is_one() -> None:
    devices = prepare(Answers({ONE.uid: (WHOLE, SHARE)}))["uid-1"].devices
    assert [device.HasField("share_id") for device in devices] == [False, True]


def test_each_claim_of_an_unprepare_gets_an_entry() -> None:
    answers = Answers({ONE.uid: None, TWO.uid: Refusal("cannot remove its CDI file")})
    assert unprepare(answers) == {"uid-1": "", "uid-2": "cannot remove its CDI file"}
    assert answers.asked == [ONE, TWO]


def test_a_claim_without_an_answer_is_an_error_and_never_a_success() -> None:
    assert prepare(Answers({})) == {"uid-1": failed(NO_ANSWER), "uid-2": failed(NO_ANSWER)}
    assert unprepare(Answers({ONE.uid: None})) == {"uid-1": "", "uid-2": NO_ANSWER}


def test_an_answer_for_a_claim_that_nobody_asked_about_is_not_sent() -> None:
    answers = Answers({ONE.uid: None, TWO.uid: None, ClaimUid("uid-9"): None})
    assert unprepare(answers, claim(ONE)) == {"uid-1": ""}


def test_an_error_without_text_is_still_an_error() -> None:
    # An empty error in an entry would mean success.
    assert prepare(Answers({ONE.uid: Refusal("")}), claim(ONE)) == {
        "uid-1": failed("refused, without a reason")
    }
    assert unprepare(Answers({ONE.uid: Refusal("")}), claim(ONE)) == {
        "uid-1": "refused, without a reason"
    }


def test_text_that_is_no_unicode_reaches_the_kubelet_escaped() -> None:
    # File names from the operating system may hold such characters; the message could not be sent with them.
    assert unprepare(Answers({ONE.uid: Refusal("cannot read \udcff.json")}), claim(ONE)) == {
        "uid-1": "cannot read \\udcff.json"
    }


@pytest.mark.parametrize("call", [prepare, unprepare])
def test_an_exit_of_the_thread_is_answered_too(call: Any) -> None:
    entries = call(Answers(SystemExit("no such library")))
    assert [getattr(entry, "error", entry) for entry in entries.values()] == [
        "internal error of the driver: SystemExit: no such library; its log has the details"
    ] * 2


@pytest.mark.parametrize("call", [prepare, unprepare])
def test_an_exception_becomes_the_entry_of_each_claim_and_a_log_line(call: Any) -> None:
    with capture_logs() as logs:
        entries = call(Answers(ZeroDivisionError("a fault \udcff")))
    text = (
        "internal error of the driver: ZeroDivisionError: a fault \\udcff; its log has the details"
    )
    assert {uid: getattr(entry, "error", entry) for uid, entry in entries.items()} == {
        "uid-1": text,
        "uid-2": text,
    }
    (line,) = logs
    assert isinstance(line.pop("exc_info"), ZeroDivisionError)
    assert line == {
        "event": "internal_error",
        "log_level": "error",
        "call": call.__name__,
        "claims": ["default/one (uid uid-1)", "default/two (uid uid-2)"],
    }


def test_an_answer_that_cannot_be_encoded_fails_its_call_only_by_entries() -> None:
    broken = PreparedDevice((), PoolName("node1"), DeviceName("\udcff"), (), "GPU-0")
    with capture_logs():
        entries = prepare(Answers({ONE.uid: (broken,), TWO.uid: (WHOLE,)}))
    assert set(entries) == {"uid-1", "uid-2"}
    (error,) = {entry.error for entry in entries.values()}
    assert error.startswith("internal error of the driver: Unicode")


def test_a_uid_that_comes_twice_is_asked_about_once() -> None:
    answers = Answers({ONE.uid: (WHOLE,)})
    again = v1.Claim(namespace="other", name="again", uid=ONE.uid)
    assert list(prepare(answers, claim(ONE), again)) == ["uid-1"]
    assert answers.asked == [ONE]


def test_a_call_without_claims_has_an_empty_answer() -> None:
    request = v1.NodePrepareResourcesRequest()
    response = plugin(Answers({})).prepare_resources(request, CONTEXT)
    assert response == v1.NodePrepareResourcesResponse()


def test_v1beta1_says_the_same_without_share_ids() -> None:
    answers = Answers({ONE.uid: (WHOLE, SHARE), TWO.uid: Refusal("device gpu-0 is taken")})
    request = v1beta1.NodePrepareResourcesRequest(
        claims=[
            v1beta1.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid) for ref in (ONE, TWO)
        ]
    )
    response = DraPluginV1beta1(plugin(answers)).prepare_resources(request, CONTEXT)
    expected = v1beta1.NodePrepareResourcesResponse(
        claims={
            "uid-1": v1beta1.NodePrepareResourceResponse(
                devices=[
                    v1beta1.Device(
                        request_names=["gpu", "all"],
                        pool_name="node1",
                        device_name="gpu-0",
                        cdi_device_ids=["a/b=c", "a/b=d"],
                    ),
                    v1beta1.Device(pool_name="node1", device_name="gpu-1"),
                ]
            ),
            "uid-2": v1beta1.NodePrepareResourceResponse(error="device gpu-0 is taken"),
        }
    )
    assert response == expected  # unknown fields would count as a difference
    assert answers.asked == [ONE, TWO]


def test_v1beta1_unprepares_by_the_same_function() -> None:
    answers = Answers({ONE.uid: Refusal("busy")})
    request = v1beta1.NodeUnprepareResourcesRequest(
        claims=[v1beta1.Claim(namespace="default", name="one", uid="uid-1")]
    )
    response = DraPluginV1beta1(plugin(answers)).unprepare_resources(request, CONTEXT)
    entry = v1beta1.NodeUnprepareResourceResponse(error="busy")
    assert response == v1beta1.NodeUnprepareResourcesResponse(claims={"uid-1": entry})
    assert answers.asked == [ONE]


@pytest.mark.parametrize("call", [prepare, unprepare])
def test_a_call_that_comes_too_late_does_no_work_and_says_so_for_each_claim(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CONTEXT, "seconds", 0.0)
    answers = Answers({ONE.uid: None, TWO.uid: None})
    with capture_logs() as logs:
        entries = call(answers)
    text = (
        f"the {call.__name__} call reached the driver after its deadline; the kubelet tries again"
    )
    assert {uid: getattr(entry, "error", entry) for uid, entry in entries.items()} == {
        "uid-1": text,
        "uid-2": text,
    }
    assert answers.asked == []
    assert [line["event"] for line in logs] == ["call_not_done"]


@pytest.mark.parametrize(
    ("seconds", "until"),
    [(45.0, 1035.0), (None, 1035.0), (1e9, 1035.0), (20.0, 1015.0), (4.0, 1002.0)],
)
def test_the_service_is_told_until_when_its_caller_listens(
    seconds: float | None, until: float
) -> None:
    told: list[float | None] = []

    def answer(_refs: Sequence[ClaimRef], *, until: float | None = None) -> dict[ClaimUid, None]:
        told.append(until)
        return {}

    made = DraPlugin(cast("Any", answer), answer, structlog.get_logger(), clock=lambda: 1000.0)
    context = cast("grpc.ServicerContext", Context(seconds))
    made.prepare_resources(v1.NodePrepareResourcesRequest(), context)
    made.unprepare_resources(v1.NodeUnprepareResourcesRequest(), context)
    made.close()
    assert told == [until, until]
