# SPDX-License-Identifier: Apache-2.0
"""A short walk beside a foreign device plugin, and mistakes that a walk has to notice. `hack/guard-walk` takes longer walks."""

import os
from collections.abc import Callable, Iterable

import pytest

from dra_driver.services.foreign import pods
from dra_driver.services.foreign.guard import ForeignGuard
from dra_driver.services.foreign.pods import ForeignPods
from tests.faults.guard_walk import ACTIONS, Broken, walk

STEPS = 300
SEEDS = [int(seed) for seed in os.environ.get("WALK_SEEDS", "1 2").split()]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_device_is_given_out_that_a_foreign_pod_has(seed: int) -> None:
    walked = walk(STEPS, seed)
    assert walked.taken.total() == STEPS
    assert set(walked.taken) <= set(ACTIONS)
    assert {"claim", "foreign"} <= set(walked.by_path)
    assert walked.summary().startswith(f"seed {seed}: {STEPS} steps")


def nothing_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ForeignGuard, "refusing", lambda _self, get_claim: get_claim)


def nothing_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ForeignPods, "remember_again", lambda _self: ())


def no_patience(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pods, "GRACE_SECONDS", 0.0)
    patch.setattr(ForeignPods, "_is_listed", lambda *_args: False)


@pytest.mark.parametrize("mistake", [nothing_refused, nothing_remembered, no_patience])
def test_a_walk_notices(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(Broken):
        walks(range(20))


def walks(seeds: Iterable[int]) -> None:
    for seed in seeds:
        walk(STEPS, seed)
