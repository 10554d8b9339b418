# SPDX-License-Identifier: Apache-2.0
"""A short random walk through all faults; `hack/random-walk` takes longer ones."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.model.ids import ClaimUid
from dra_driver.testing.stage import DRIVER, wait_for
from tests.faults.departures import force_delete, lose_answer, reallocate, reconcile
from tests.faults.machines import MACHINES, clash, given_in, result
from tests.faults.newer import bind, end_either, fall_ill, start_second
from tests.faults.still_open import is_named
from tests.faults.walk import Walk, walk
from tests.faults.walk_tables import ACTIONS
from tests.support.invariants import Rule, Violation, violations

STEPS = 80
SEEDS = [int(seed) for seed in os.environ.get("WALK_SEEDS", "1").split()]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_after_each_step_of_a_walk(seed: int, machine: str) -> None:
    walked = walk(STEPS, seed, machine=machine)
    assert walked.taken.total() == STEPS
    assert set(walked.taken) <= {*ACTIONS, "settle"}


@pytest.fixture
def fresh() -> Iterator[Walk]:
    """A walk that has taken no step yet."""
    with tempfile.TemporaryDirectory(prefix="walk-", dir="/tmp") as root:
        found = Walk(Path(root), 1)
        found.bed.start_registered()
        found.steps.append("by hand")
        yield found
        found.bed.close()


@pytest.fixture
def mixed() -> Iterator[Walk]:
    """A walk over the machine with partitions, shares and binding conditions that has taken no step yet."""
    with tempfile.TemporaryDirectory(prefix="walk-", dir="/tmp") as root:
        found = Walk(Path(root), 1, MACHINES["mixed"])
        found.bed.start_registered()
        found.bed.wait_for(found.bed.published, "the slices")
        found.steps.append("by hand")
        yield found
        found.bed.close()


@pytest.fixture
def walked(fresh: Walk) -> Walk:
    """A walk whose one pod died before it was prepared; then its CDI file was edited, and the state was lost."""
    fresh.bed.arm("step.WriteCdiSpec.after", "die")
    fresh.unsettled.add("armed")
    fresh.new_and_prepare()
    fresh._came_back()
    (file,) = fresh.bed.cdi_files()
    (fresh.bed.cdi_dir / file).write_text("{}\n")
    fresh.tampered.add(file)
    fresh._end_process()
    for path in fresh.bed.state_files():
        path.unlink()
    fresh.unsettled.add("state")
    fresh._start()
    fresh._wait_for_sweep()
    return fresh


def left_over(walked: Walk, uid: str) -> Violation:
    name = walked._file(ClaimUid(uid))
    return Violation(Rule.NOTHING_LEFT, f"CDI file {name}", "no claim of the state has it")


def test_a_file_that_the_driver_says_it_cannot_take_up_is_waited_for_by_nobody(
    walked: Walk,
) -> None:
    (pod,) = walked.pods.values()
    wait_for(lambda: '"sweep_incomplete"' in walked.bed.log(), "the driver says so")
    assert is_named(walked.bed, left_over(walked, pod.claim.uid))
    walked._settle()
    walked._check()
    assert pod.runs
    assert not is_named(walked.bed, left_over(walked, pod.claim.uid))


def test_a_left_over_file_that_no_event_names_is_a_failure(walked: Walk) -> None:
    (pod,) = walked.pods.values()
    wait_for(lambda: '"sweep_incomplete"' in walked.bed.log(), "the driver says so")
    assert not is_named(walked.bed, left_over(walked, "0000-1"))
    others = Violation(Rule.SAME_BOOKS, f"claim {pod.claim.uid}", "it has no CDI file")
    assert not is_named(walked.bed, others)
    # Another claim may have the devices now: then the driver must remove the file, whatever it said before.
    walked.bed.deallocate(pod.claim)
    assert not is_named(walked.bed, left_over(walked, pod.claim.uid))


def test_what_the_driver_said_long_ago_excuses_nothing(walked: Walk) -> None:
    (pod,) = walked.pods.values()
    wait_for(lambda: '"sweep_incomplete"' in walked.bed.log(), "the driver says so")
    walked.bed.kill()
    log = walked.bed.log().replace('"timestamp": "20', '"timestamp": "19')
    walked.bed.log_file.write_text(log)
    assert not is_named(walked.bed, left_over(walked, pod.claim.uid))


def test_the_answer_for_an_older_allocation_is_no_lost_answer(fresh: Walk) -> None:
    claim = fresh.bed.new_claim("c1", ["gpu-0"], pod=None)
    fresh.place(claim, ("gpu-0",))
    (pod,) = fresh.pods.values()
    fresh.bed.kubelet.prepare(DRIVER, [claim], pod="default/p1", uid=pod.uid)
    fresh.bed.kubelet.cgroups.end(pod.uid)
    fresh.pods.clear()  # it goes, and nobody tells the kubelet
    fresh.bed.deallocate(claim)
    fresh.place(claim, ("gpu-7",))
    lose_answer(fresh)
    assert [device.device_name for device in fresh.bed.kubelet.claims[claim.uid].devices] == [
        "gpu-0"
    ]


def test_a_claim_may_have_other_devices_while_forgotten_containers_only_watch(fresh: Walk) -> None:
    claim = fresh.bed.new_claim("c1", ["gpu-6"], pod=None, admin=True)
    fresh.place(claim, ("gpu-6",), admin=True)
    (watches,) = fresh.pods.values()
    fresh.try_to_start(watches)
    assert watches.runs
    force_delete(fresh)
    reconcile(fresh)
    fresh.bed.deallocate(claim)
    fresh.idle = [claim]
    reallocate(fresh)
    (pod,) = fresh.pods.values()
    fresh.try_to_start(pod)
    assert (list(fresh.lingering.values()), pod.runs) == ([watches], True)
    fresh._check()
    fresh.end(pod)
    fresh._check()


def test_a_pod_that_waits_for_a_claim_gets_what_it_is_allocated_anew(fresh: Walk) -> None:
    claim = fresh.bed.new_claim("c1", ["gpu-6"], pod=None)
    fresh.place(claim, ("gpu-6",))
    (waits,) = fresh.pods.values()
    fresh.bed.unreserve(claim, waits.uid)  # as in an etcd of before its reservation
    fresh.bed.deallocate(claim)
    fresh.idle = [claim]
    reallocate(fresh)
    for pod in fresh.pods.values():
        fresh.try_to_start(pod)
    assert [pod.runs for pod in fresh.pods.values()] == [True, True]
    assert len({pod.devices for pod in fresh.pods.values()}) == 1


def test_what_a_claim_has_is_read_from_its_result_again() -> None:
    for given in ("gpu-0", "gpu-2/0000-1/8Gi"):
        assert given_in(result(given, admin=False)) == given
    assert clash("gpu-2/a/8Gi", "gpu-2/a/8Gi")
    assert not clash("gpu-2/a/8Gi", "gpu-2/b/8Gi")
    assert clash("gpu-2/a/8Gi", "gpu-2")


def test_the_scheduler_of_the_mixed_machine_gives_no_hardware_away_twice(mixed: Walk) -> None:
    for _ in range(12):
        mixed._new_pod()
    given = [one for pod in mixed.pods.values() if not pod.admin for one in pod.devices]
    assert {len(one.split("/")) for one in given} == {1, 3}
    for index, one in enumerate(given):
        assert not any(clash(one, other) for other in given[index + 1 :])
    for pod in list(mixed.pods.values()):
        mixed.try_to_start(pod)
        assert pod.runs is pod.bound
    mixed._check()
    mixed._settle()
    mixed._check()
    assert all(pod.runs for pod in mixed.pods.values())


def test_a_pod_starts_when_its_device_is_ready_or_never(mixed: Walk) -> None:
    claim = mixed.bed.new_claim("c1", ["gpu-4"], pod=None)
    mixed.place(claim, ("gpu-4",))
    (pod,) = mixed.pods.values()
    mixed.try_to_start(pod)
    assert not pod.runs
    bind(mixed)
    assert pod.runs or pod.name not in mixed.pods


def test_of_two_processes_either_one_goes_on(mixed: Walk) -> None:
    start_second(mixed)
    assert len({process.pid for process in mixed.bed.processes()}) == 2
    end_either(mixed)
    assert mixed.bed.beside is None
    claim = mixed.bed.new_claim("c1", ["gpu-0-mig-1g-10gb-3"], pod=None)
    mixed.place(claim, ("gpu-0-mig-1g-10gb-3",))
    (pod,) = mixed.pods.values()
    mixed.try_to_start(pod)
    assert pod.runs
    mixed._check()


def test_an_ill_device_is_tainted_at_once(mixed: Walk) -> None:
    fall_ill(mixed)
    picture = mixed.bed.picture(
        ill=mixed.ill | {"gpu-5"} if "gpu-5" not in mixed.ill else frozenset()
    )
    assert {one.rule for one in violations(picture)} == {Rule.TAINTED}
