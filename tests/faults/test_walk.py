# SPDX-License-Identifier: Apache-2.0
"""A short random walk through all faults; `hack/random-walk` takes longer ones."""

import os

import pytest

from tests.faults.walk import walk
from tests.faults.walk_tables import ACTIONS

STEPS = 80
SEEDS = [int(seed) for seed in os.environ.get("WALK_SEEDS", "1 2").split()]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_after_each_step_of_a_walk(seed: int) -> None:
    walked = walk(STEPS, seed)
    assert walked.taken.total() == STEPS
    assert set(walked.taken) <= {*ACTIONS, "settle"}
