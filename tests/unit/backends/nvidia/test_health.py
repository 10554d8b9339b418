# SPDX-License-Identifier: Apache-2.0
"""The state machine of a GPU's health: what raises its severity, and what lets it fall."""

import json
from pathlib import Path
from typing import Any

import pytest

import dra_driver
from dra_driver.backends.nvidia.facts import (
    Fabric,
    Gpu,
    HardwareEvent,
    Memory,
    Mig,
    MigDevice,
    Node,
    RemappedRows,
)
from dra_driver.backends.nvidia.findings import answers
from dra_driver.backends.nvidia.health import (
    FORGET_SECONDS,
    FORGIVE_SECONDS,
    KEPT_EVENTS,
    LASTING_SECONDS,
    MAX_HOLD_SECONDS,
    HealthBook,
    Verdict,
)
from dra_driver.backends.nvidia.options import HealthOptions
from dra_driver.backends.nvidia.recorded import node_of
from dra_driver.model.health import HealthStatus

HOLD = HealthOptions().recovery_seconds
LOOK = 10.0


def a_gpu(uuid: str = "GPU-0", **changes: Any) -> Gpu:
    fine = {"index": 0, "uuid": uuid, "memory": Memory(total=80), "recovery_action": 0}
    return Gpu(**fine | {"temperature": 40, "ecc_uncorrected": 0} | changes)


def with_mig(*instances: int, **changes: Any) -> Gpu:
    devices = tuple(
        MigDevice(uuid=f"MIG-{one}", gpu_instance=one, compute_instance=0, profile=19)
        for one in instances
    )
    return a_gpu(mig=Mig(enabled=True, devices=devices), **changes)


def xid(code: int, uuid: str = "GPU-0", **fields: Any) -> HardwareEvent:
    return HardwareEvent(uuid=uuid, type=8, data=code, **fields)


RECORDINGS = sorted((Path(dra_driver.__file__).parent / "backends/recordings").glob("*.json"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_recorded_machine_is_healthy_and_proves_it(path: Path):
    node = node_of(json.loads(path.read_text())["facts"])
    verdicts = HealthBook().judge(node)
    assert list(verdicts.values()) == [Verdict()] * len(verdicts)
    assert all(answers(gpu) for gpu in node.gpus)


class Bench:
    """A book, its clock, and what was said of one device at each look."""

    def __init__(self, **options: Any) -> None:
        self.now = 1e6  # a node that has been up for longer than a device is remembered
        self.book = HealthBook(HealthOptions(**options), clock=lambda: self.now)

    def look(self, *gpus: Gpu) -> dict[str, Verdict]:
        return dict(self.book.judge(Node(gpus=gpus or (a_gpu(),))))

    def taints(self, *gpus: Gpu, of: str = "GPU-0") -> list[str]:
        return named(self.look(*gpus)[of])

    def after(self, seconds: float, gpu: Gpu | None = None) -> list[str]:
        """The taints after this time, in which a look every LOOK seconds found the GPU so."""
        until = self.now + seconds
        while self.now + LOOK < until:
            self.now += LOOK
            self.look(gpu or a_gpu())
        self.now = until
        return self.taints(gpu or a_gpu())


def named(verdict: Verdict) -> list[str]:
    return [f"{one.key.partition('/')[2]}={one.value}:{one.effect}" for one in verdict.taints]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_gpu_without_faults_is_healthy_from_the_first_look(bench: Bench):
    assert bench.look(a_gpu("GPU-0"), a_gpu("GPU-1")) == {"GPU-0": Verdict(), "GPU-1": Verdict()}


def test_a_gpu_without_uuid_is_named_by_its_address(bench: Bench):
    gpu = a_gpu("", pci_bus_id="00000000:65:00.0", problem="it fell off the bus")
    assert bench.taints(gpu, of="00000000:65:00.0") == ["lost=no-answer:NoSchedule"]


def test_an_xid_taints_at_the_next_look_and_says_what_to_do(bench: Bench):
    bench.look()
    bench.book.note(xid(79))
    verdict = bench.look()["GPU-0"]
    assert named(verdict) == ["xid=79:NoSchedule"]
    assert verdict.health.status is HealthStatus.UNHEALTHY
    assert "XID 79" in verdict.health.message
    assert "reboot" in verdict.health.message


def test_the_command_in_a_message_names_the_gpu_also_for_a_mig_device(bench: Bench):
    bench.book.note(xid(95, gpu_instance=1))
    message = bench.look(with_mig(1))["MIG-1"].health.message
    assert "nvidia-smi --gpu-reset -i GPU-0" in message


@pytest.mark.parametrize("state", [1, 2])
def test_a_gpu_that_has_not_joined_its_fabric_for_a_minute_gets_no_claims(bench: Bench, state: int):
    alone = a_gpu(fabric=Fabric(state=state))
    assert bench.taints(alone) == ["fabric=not-ready:None"]
    assert bench.after(LASTING_SECONDS, alone) == ["fabric=not-ready:None"]
    assert bench.after(LOOK, alone) == ["fabric=not-ready:NoSchedule"]
    assert bench.look(alone)["GPU-0"].health.status is HealthStatus.UNHEALTHY
    assert bench.after(LOOK, a_gpu(fabric=Fabric(state=3))) == ["fabric=not-ready:NoSchedule"]
    assert bench.after(HOLD) == []


def test_mig_devices_need_no_fabric(bench: Bench):
    partitioned = with_mig(1, fabric=Fabric(state=1))
    bench.taints(partitioned)
    assert bench.after(2 * LASTING_SECONDS, partitioned) == ["fabric=not-ready:None"]


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 94])
def test_an_error_of_an_application_is_counted_and_taints_nothing(bench: Bench, code: int):
    bench.book.note(xid(code))
    bench.book.note(xid(code))
    assert bench.look()["GPU-0"] == Verdict(errors={f"xid-{code}": 2})


def test_an_unknown_xid_taints_and_says_its_number(bench: Bench):
    bench.book.note(xid(4711))
    verdict = bench.look()["GPU-0"]
    assert named(verdict) == ["xid=4711:NoSchedule"]
    assert "4711" in verdict.health.message


def test_the_xid_that_summarises_others_adds_no_taint_of_its_own(bench: Bench):
    bench.book.note(xid(154))
    assert bench.taints(a_gpu(recovery_action=2)) == ["recovery-action=node-reboot:NoSchedule"]


def test_an_ignored_xid_is_counted_only():
    bench = Bench(ignored_xids=(79,))
    bench.book.note(xid(79))
    assert bench.look()["GPU-0"] == Verdict(errors={"xid-79": 1})


def test_a_watched_gpu_is_healthy_and_has_an_informational_taint(bench: Bench):
    verdict = bench.look(a_gpu(remapped_rows=RemappedRows(pending=True)))["GPU-0"]
    assert named(verdict) == ["memory=row-remap-pending:None"]
    assert verdict.health.status is HealthStatus.HEALTHY
    assert "replaced at the next reset" in verdict.health.message


def test_a_harmless_event_after_a_bad_one_heals_nobody(bench: Bench):
    bench.book.note(xid(79))
    bench.look()
    bench.book.note(xid(43))
    assert bench.taints() == ["xid=79:NoSchedule"]


def test_a_taint_goes_when_the_gpu_has_proved_for_the_hold_time_that_it_works(bench: Bench):
    bench.book.note(xid(48))
    bench.look()
    assert bench.after(HOLD) == ["xid=48:NoSchedule"]  # the proof began at the look after the event
    assert bench.after(LOOK) == []


@pytest.mark.parametrize(
    "ill",
    [
        a_gpu(recovery_action=1),
        a_gpu(memory=None, errors={"nvmlDeviceGetMemoryInfo": 999}),
        a_gpu(recovery_action=None, errors={"nvmlDeviceGetFieldValues": 999}),
        a_gpu(problem="no answer within 5 s"),
    ],
)
def test_a_look_that_proves_nothing_begins_the_hold_time_anew(bench: Bench, ill: Gpu):
    bench.book.note(xid(48))
    bench.look()
    bench.after(HOLD - LOOK)
    bench.look(ill)
    assert "xid=48:NoSchedule" in bench.after(HOLD)
    assert bench.after(2 * LOOK) == []


def test_an_xid_of_a_driver_without_recovery_actions_is_held_longer(bench: Bench):
    old = a_gpu(recovery_action=None)
    bench.book.note(xid(48))
    bench.look(old)
    assert bench.after(MAX_HOLD_SECONDS, old) == ["xid=48:NoSchedule"]
    assert bench.after(LOOK, old) == []


def test_an_unknown_xid_of_such_a_driver_is_held_until_a_recovery_action_is_none(bench: Bench):
    old = a_gpu(recovery_action=None)
    bench.book.note(xid(4711))
    assert bench.taints(old) == ["xid=4711:NoSchedule"]
    bench.book.note(xid(48))
    bench.book.note(xid(43))  # a harmless event heals nothing
    bench.look(old)
    assert bench.after(10 * MAX_HOLD_SECONDS, old) == ["xid=4711:NoSchedule"]
    assert bench.after(LOOK, a_gpu(recovery_action=1)) == [
        "xid=4711:NoSchedule",
        "recovery-action=gpu-reset:NoSchedule",
    ]
    assert "xid=4711:NoSchedule" in bench.after(LOOK)  # the action is none, and has to stay so
    assert bench.after(HOLD + LOOK) == []


def test_an_unknown_xid_ends_when_the_recovery_action_was_none_for_the_hold_time(bench: Bench):
    bench.book.note(xid(4711))
    bench.look()
    assert bench.after(LOOK, a_gpu(recovery_action=2)) == [
        "recovery-action=node-reboot:NoSchedule",
        "xid=4711:NoSchedule",
    ]
    assert bench.after(LOOK) == bench.after(HOLD - LOOK) != []
    assert bench.after(2 * LOOK) == []


def test_a_watched_xid_of_such_a_driver_is_not(bench: Bench):
    bench.book.note(xid(92))
    assert bench.taints(a_gpu(recovery_action=None)) == ["xid=92:None"]
    assert bench.after(HOLD + LOOK, a_gpu(recovery_action=None)) == []


def test_a_fault_that_comes_back_while_it_is_held_is_held_anew(bench: Bench):
    bench.book.note(xid(48))
    bench.look()
    bench.after(HOLD)
    bench.book.note(xid(48))
    bench.look()
    assert bench.after(HOLD) == ["xid=48:NoSchedule"]
    assert bench.after(LOOK) == []


def test_several_faults_after_one_recovery_count_once(bench: Bench):
    bench.look(a_gpu(problem="gone"))
    assert bench.after(HOLD + LOOK) == []
    for code in (46, 48, 95):
        bench.book.note(xid(code))
    bench.look()
    assert bench.after(2 * HOLD) == ["xid=46:NoSchedule"]
    assert bench.after(LOOK) == []


def test_a_fault_that_the_hardware_shows_goes_without_a_recovery_action_too(bench: Bench):
    bench.look(a_gpu(recovery_action=None, problem="no answer within 5 s"))
    assert bench.after(HOLD + LOOK, a_gpu(recovery_action=None)) == []


def test_a_gpu_that_fails_again_and_again_waits_longer_each_time(bench: Bench):
    hold = HOLD
    while hold < MAX_HOLD_SECONDS:
        bench.look(a_gpu(problem="gone"))
        assert bench.after(hold) == ["lost=no-answer:NoSchedule"]
        assert bench.after(LOOK) == []
        hold *= 2
    bench.look(a_gpu(problem="gone"))
    assert bench.after(MAX_HOLD_SECONDS) == ["lost=no-answer:NoSchedule"]
    assert bench.after(LOOK) == []


def test_the_hold_time_is_forgiven_after_a_long_time_without_faults(bench: Bench):
    for _ in range(3):
        bench.look(a_gpu(problem="gone"))
        assert bench.after(8 * HOLD) == []
    assert bench.after(FORGIVE_SECONDS) == []
    bench.look(a_gpu(problem="gone"))
    assert bench.after(HOLD + LOOK) == []


def test_the_temperature_has_hysteresis(bench: Bench):
    assert bench.taints(a_gpu(temperature=91)) == ["temperature=over-limit:NoSchedule"]
    assert bench.after(10 * HOLD, a_gpu(temperature=86)) == ["temperature=over-limit:NoSchedule"]
    assert bench.after(HOLD + LOOK, a_gpu(temperature=85)) == []
    assert bench.taints(a_gpu(temperature=90)) == []


def test_a_gpu_that_was_cool_again_is_hot_above_the_limit_only(bench: Bench):
    bench.look(a_gpu(temperature=91))
    bench.after(HOLD, a_gpu(temperature=85))
    assert bench.after(LOOK, a_gpu(temperature=89)) == []


def test_uncorrected_errors_from_before_the_start_are_no_news(bench: Bench):
    assert bench.taints(a_gpu(ecc_uncorrected=7)) == []
    assert bench.taints(a_gpu(ecc_uncorrected=8)) == ["memory=ecc-uncorrected:NoSchedule"]
    assert bench.after(HOLD + LOOK, a_gpu(ecc_uncorrected=8)) == []
    assert bench.taints(a_gpu(ecc_uncorrected=None)) == []
    assert bench.taints(a_gpu(ecc_uncorrected=9)) == ["memory=ecc-uncorrected:NoSchedule"]


def test_growth_is_seen_after_a_look_that_failed(bench: Bench):
    bench.look()
    bench.look(a_gpu(problem="no answer within 5 s", ecc_uncorrected=0))
    assert "memory=ecc-uncorrected:NoSchedule" in bench.taints(a_gpu(ecc_uncorrected=1))


def test_of_several_faults_the_worst_of_each_key_is_the_taint_and_the_message_has_all(bench: Bench):
    bench.book.note(xid(46))
    bench.book.note(xid(79))
    bench.book.note(xid(95))
    rows = RemappedRows(failed=True)
    verdict = bench.look(a_gpu(recovery_action=4, remapped_rows=rows, temperature=95))["GPU-0"]
    assert named(verdict) == [
        "memory=row-remap-failed:NoSchedule",
        "xid=79:NoSchedule",
        "recovery-action=drain-and-reset:NoSchedule",
    ]
    for word in ("XID 46", "XID 79", "XID 95", "recovery action 4", "spare one"):
        assert word in verdict.health.message


def test_of_equal_faults_the_first_stays_the_taint(bench: Bench):
    bench.book.note(xid(95))
    bench.look()
    bench.book.note(xid(46))
    assert bench.taints() == ["xid=95:NoSchedule"]


def test_a_fault_of_a_gpu_instance_concerns_its_mig_devices_only(bench: Bench):
    bench.book.note(xid(95, gpu_instance=2, compute_instance=0))
    verdicts = bench.look(with_mig(1, 2))
    assert {uuid: named(verdict) for uuid, verdict in verdicts.items()} == {
        "GPU-0": [],
        "MIG-1": [],
        "MIG-2": ["xid=95:NoSchedule"],
    }
    assert verdicts["MIG-2"].errors == {"xid-95": 1}
    assert bench.after(HOLD + LOOK, with_mig(1, 2)) == []
    assert bench.taints(with_mig(1, 2), of="MIG-2") == []


@pytest.mark.parametrize("event", [xid(95), xid(95, gpu_instance=7), xid(95, gpu_instance=0)])
def test_a_fault_of_an_unknown_instance_concerns_the_whole_gpu(bench: Bench, event: HardwareEvent):
    bench.book.note(event)
    verdicts = bench.look(with_mig(1, 2))
    assert [named(verdict) for verdict in verdicts.values()] == [["xid=95:NoSchedule"]] * 3


def test_a_mig_device_has_the_faults_and_the_proof_of_its_gpu(bench: Bench):
    bench.book.note(xid(95, gpu_instance=1))
    ill = with_mig(1, recovery_action=1)
    assert bench.taints(ill, of="MIG-1") == [
        "recovery-action=gpu-reset:NoSchedule",
        "xid=95:NoSchedule",
    ]
    bench.after(10 * HOLD, ill)
    assert "xid=95:NoSchedule" in bench.taints(with_mig(1), of="MIG-1")


def test_an_event_that_names_a_mig_device_concerns_it(bench: Bench):
    bench.book.note(xid(95, uuid="MIG-1"))
    assert bench.taints(with_mig(1, 2), of="MIG-1") == ["xid=95:NoSchedule"]


def test_an_event_of_a_gpu_that_is_not_there_now_waits_for_it(bench: Bench):
    bench.book.note(xid(79))
    assert bench.look(a_gpu("GPU-1")) == {"GPU-1": Verdict()}
    bench.now += LOOK
    assert bench.taints() == ["xid=79:NoSchedule"]


def test_a_gpu_that_comes_back_has_proved_nothing_while_it_was_away(bench: Bench):
    bench.book.note(xid(79))
    bench.look()
    for _ in range(3):
        bench.now += 10 * HOLD
        bench.look(a_gpu("GPU-1"))
    assert bench.taints() == ["xid=79:NoSchedule"]
    assert bench.after(HOLD) == []


def test_a_mig_device_that_comes_back_has_what_it_had(bench: Bench):
    bench.book.note(xid(95, gpu_instance=1))
    bench.look(with_mig(1))
    bench.now += LOOK
    bench.look(with_mig())
    assert bench.taints(with_mig(1), of="MIG-1") == ["xid=95:NoSchedule"]


def test_a_device_that_stays_away_is_forgotten(bench: Bench):
    bench.book.note(xid(79))
    bench.look()
    for _ in range(2):
        bench.now += FORGET_SECONDS / 2
        bench.look(a_gpu("GPU-1"))
    assert bench.look()["GPU-0"] == Verdict()


def test_an_event_without_a_device_is_left_to_the_look(bench: Bench):
    bench.book.note(xid(79, uuid=""))
    assert bench.look() == {"GPU-0": Verdict()}


def test_a_storm_of_one_event_is_counted_and_hides_no_other(bench: Bench):
    bench.book.note(xid(79, uuid="GPU-1"))
    for _ in range(KEPT_EVENTS + 5):
        bench.book.note(xid(31))
    found = bench.look(a_gpu("GPU-0"), a_gpu("GPU-1"))
    assert found["GPU-0"].errors == {"xid-31": KEPT_EVENTS + 5}
    assert named(found["GPU-1"]) == ["xid=79:NoSchedule"]


def test_of_too_many_different_events_the_last_ones_are_dropped(bench: Bench):
    for code in range(1000, 1000 + KEPT_EVENTS + 5):
        bench.book.note(xid(code))
    assert len(bench.look()["GPU-0"].errors) == KEPT_EVENTS


def test_after_a_restart_the_state_follows_from_what_the_hardware_says():
    before, after = Bench(), Bench()
    before.book.note(xid(48))
    ill = a_gpu(recovery_action=1)
    assert before.taints(ill) == ["recovery-action=gpu-reset:NoSchedule", "xid=48:NoSchedule"]
    assert after.taints(ill) == ["recovery-action=gpu-reset:NoSchedule"]
