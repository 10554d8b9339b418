# SPDX-License-Identifier: Apache-2.0
"""What one look at a GPU shows of its health."""

from typing import Any

import pytest

from dra_driver.backends.nvidia.facts import Fabric, Gpu, HardwareEvent, Memory, RemappedRows
from dra_driver.backends.nvidia.findings import answers, error_of, findings, of_event
from dra_driver.backends.nvidia.options import HealthOptions
from dra_driver.backends.nvidia.xids import Severity

OPTIONS = HealthOptions()


def a_gpu(**changes: Any) -> Gpu:
    fine = {"index": 0, "uuid": "GPU-0", "memory": Memory(total=80), "recovery_action": 0}
    return Gpu(**fine | {"temperature": 40, "ecc_uncorrected": 0} | changes)


def found(gpu: Gpu, *, hot: bool = False, ecc_before: int | None = 0) -> list[tuple[str, str, int]]:
    seen = findings(gpu, OPTIONS, hot=hot, ecc_before=ecc_before)
    return [(one.key.partition("/")[2], one.value, one.severity) for one in seen]


def test_a_gpu_without_faults_shows_nothing_and_proves_that_it_works():
    assert found(a_gpu()) == []
    assert answers(a_gpu())


@pytest.mark.parametrize(
    ("action", "value", "severity"),
    [
        (1, "gpu-reset", Severity.RESET),
        (2, "node-reboot", Severity.REBOOT),
        (3, "drain-p2p", Severity.DRAIN),
        (4, "drain-and-reset", Severity.DRAIN),
        (5, "5", Severity.REBOOT),
        (99, "99", Severity.REBOOT),
    ],
)
def test_a_recovery_action_is_found_and_an_unknown_one_by_its_number(action, value, severity):
    gpu = a_gpu(recovery_action=action)
    assert found(gpu) == [("recovery-action", value, severity)]
    assert not answers(gpu)
    (one,) = findings(gpu, OPTIONS, hot=False, ecc_before=0)
    name = f"{action} ({value})" if value != str(action) else value
    assert f"recovery action {name}:" in one.text


@pytest.mark.parametrize(
    "gpu",
    [
        a_gpu(problem="no answer within 5 s", recovery_action=2, temperature=99),
        a_gpu(errors={"nvmlDeviceGetTemperature": 15}),
    ],
)
def test_a_gpu_that_does_not_answer_is_lost_and_its_other_values_are_old(gpu: Gpu):
    assert found(gpu) == [("lost", "no-answer", Severity.LOST)]
    assert not answers(gpu)


def test_a_required_reset_is_a_recovery_action_of_older_drivers():
    gpu = a_gpu(recovery_action=None, errors={"nvmlDeviceGetTemperature": 16})
    assert found(gpu) == [("recovery-action", "gpu-reset", Severity.RESET)]
    assert not answers(gpu)


@pytest.mark.parametrize(
    "errors",
    [
        {"nvmlDeviceGetMemoryInfo_v2": 999},
        {"nvmlDeviceGetMemoryInfo_v2": 2},
        {"nvmlDeviceGetMemoryInfo_v2": 13, "nvmlDeviceGetMemoryInfo": 999},
    ],
)
def test_a_memory_query_that_fails_is_a_fault(errors: dict[str, int]):
    gpu = a_gpu(memory=None, errors=errors)
    assert found(gpu) == [("memory", "query-failed", Severity.RESET)]
    assert not answers(gpu)


@pytest.mark.parametrize(
    "gpu",
    [
        a_gpu(memory=None, errors={"nvmlDeviceGetMemoryInfo_v2": 13, "nvmlDeviceGetMemoryInfo": 3}),
        a_gpu(memory=None, errors={"nvmlDeviceGetMemoryInfo_v2": 25, "nvmlDeviceGetMemoryInfo": 3}),
        a_gpu(errors={"nvmlDeviceGetMemoryInfo_v2": 999}),
        a_gpu(recovery_action=None),
        a_gpu(recovery_action=None, errors={"nvmlDeviceGetFieldValues": 3}),
        a_gpu(temperature=None, ecc_uncorrected=None, errors={"nvmlDeviceGetTemperature": 3}),
    ],
)
def test_what_a_gpu_or_its_driver_is_too_old_to_say_is_no_fault(gpu: Gpu):
    assert found(gpu) == []
    assert answers(gpu)


def test_a_recovery_action_that_cannot_be_read_proves_nothing():
    gpu = a_gpu(recovery_action=None, errors={"nvmlDeviceGetFieldValues": 999})
    assert found(gpu) == []
    assert not answers(gpu)


@pytest.mark.parametrize(
    ("temperature", "hot", "over"),
    [
        (90, False, False),
        (91, False, True),
        (86, True, True),
        (85, True, False),
        (86, False, False),
    ],
)
def test_the_temperature_has_a_limit_and_a_lower_one_to_come_back(temperature, hot, over):
    expected = [("temperature", "over-limit", Severity.DRAIN)] if over else []
    assert found(a_gpu(temperature=temperature), hot=hot) == expected


def test_a_limit_of_0_is_none():
    options = HealthOptions(max_temperature=0)
    assert not list(findings(a_gpu(temperature=120), options, hot=False, ecc_before=0))


@pytest.mark.parametrize(
    ("count", "before", "grew"), [(3, 2, True), (2, 2, False), (1, 2, False), (9, None, False)]
)
def test_uncorrected_errors_count_when_they_grow(count, before, grew):
    expected = [("memory", "ecc-uncorrected", Severity.DRAIN)] if grew else []
    assert found(a_gpu(ecc_uncorrected=count), ecc_before=before) == expected


def test_rows_and_pages_of_memory_that_are_bad():
    failed = RemappedRows(pending=True, failed=True)
    assert found(a_gpu(remapped_rows=failed)) == [("memory", "row-remap-failed", Severity.SERVICE)]
    pending = a_gpu(remapped_rows=RemappedRows(pending=True))
    assert found(pending) == [("memory", "row-remap-pending", Severity.WATCHED)]
    assert found(a_gpu(remapped_rows=RemappedRows(correctable=4))) == []
    old = a_gpu(retired_pages_pending=True)
    assert found(old) == [("memory", "retired-pages-pending", Severity.DRAIN)]


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        (Fabric(state=0), []),
        (Fabric(state=2), [("not-ready", Severity.WATCHED)]),
        (Fabric(state=3, health_summary=1, health_mask=0b10101010), []),
        (Fabric(state=3, health_summary=2), [("unhealthy", Severity.DRAIN)]),
        (Fabric(state=3, health_summary=3), [("limited-capacity", Severity.WATCHED)]),
        (Fabric(state=3, health_mask=1), [("degraded-bandwidth", Severity.WATCHED)]),
        (Fabric(state=3, health_mask=1 << 2), [("route-recovery", Severity.WATCHED)]),
        (Fabric(state=3, health_mask=1 << 4), [("route-unhealthy", Severity.DRAIN)]),
        (Fabric(state=3, health_mask=1 << 6), [("access-timeout", Severity.WATCHED)]),
        (Fabric(state=3, health_mask=1 << 14), []),
        (Fabric(state=3, health_mask=2 << 14), [("manager-disconnected", Severity.WATCHED)]),
        (Fabric(state=3, health_mask=1 << 8), []),
        (Fabric(state=3, health_mask=5 << 8), [("wrong-configuration", Severity.DRAIN)]),
        (Fabric(state=3, status=999), [("registration-failed", Severity.DRAIN)]),
        (Fabric(state=1, health_mask=5 << 8), [("not-ready", Severity.WATCHED)]),
    ],
)
def test_the_fabric_by_its_summary_and_its_mask(fabric, expected):
    assert found(a_gpu(fabric=fabric)) == [("fabric", *one) for one in expected]


def test_a_wrong_configuration_says_what_is_wrong():
    def text(number: int) -> str:
        gpu = a_gpu(fabric=Fabric(state=3, health_mask=number << 8))
        return next(findings(gpu, OPTIONS, hot=False, ecc_before=0)).text

    assert "(too few NVLinks)" in text(5)
    assert "(number 12)" in text(12)


def an_xid(code: int, **fields: Any) -> HardwareEvent:
    return HardwareEvent(uuid="GPU-0", type=8, data=code, **fields)


def test_an_xid_becomes_a_finding_that_says_its_number_and_what_to_do():
    finding = of_event(an_xid(48), OPTIONS)
    assert finding is not None
    assert (finding.value, finding.severity) == ("48", Severity.RESET)
    assert "XID 48 (ROBUST_CHANNEL_GPU_ECC_DBE)" in finding.text
    assert "nvidia-smi --gpu-reset" in finding.text
    assert error_of(an_xid(48)) == "xid-48"


def test_an_unknown_xid_says_its_number():
    finding = of_event(an_xid(4711), OPTIONS)
    assert finding is not None
    assert "XID 4711, an error that this version of the driver does not know" in finding.text


def test_an_ignored_xid_is_counted_and_says_nothing():
    assert of_event(an_xid(79), HealthOptions(ignored_xids=(79,))) is None
    assert error_of(an_xid(79)) == "xid-79"


def test_a_double_bit_error_is_counted_and_a_change_of_mig_is_no_error():
    event = HardwareEvent(uuid="GPU-0", type=2)
    finding = of_event(event, OPTIONS)
    assert finding is not None
    assert (finding.value, error_of(event)) == ("ecc-uncorrected", "ecc-uncorrected")
    other = HardwareEvent(uuid="GPU-0", type=256)
    assert (of_event(other, OPTIONS), error_of(other)) == (None, "")
    gone = HardwareEvent(uuid="GPU-0", type=0x4000)
    assert (of_event(gone, OPTIONS), error_of(gone)) == (None, "gpu-unavailable")


@pytest.mark.parametrize(
    "ill",
    [
        a_gpu(recovery_action=1),
        a_gpu(recovery_action=4),
        a_gpu(retired_pages_pending=True),
        a_gpu(ecc_uncorrected=1),
        a_gpu(memory=None, errors={"nvmlDeviceGetMemoryInfo_v2": 999}),
    ],
)
def test_whoever_is_to_reset_a_gpu_is_told_to_let_the_driver_let_go_of_it_first(ill: Gpu):
    (one,) = findings(ill, OPTIONS, hot=False, ecc_before=0)
    hint, _, command = one.text.partition("dra-driver hardware --let-go")
    assert "end the pods that use the GPU" in hint
    assert "nvidia-smi --gpu-reset -i GPU-UUID" in command
