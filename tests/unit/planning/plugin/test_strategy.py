# SPDX-License-Identifier: Apache-2.0
"""Which way devices go to a container, by the admin's words and the kubelet's version."""

import pytest

from dra_driver.model.plugin import Strategy
from dra_driver.planning.plugin.strategy import strategy_of

CDI, EDITS, NOTES = Strategy.CDI, Strategy.EDITS, Strategy.CDI_ANNOTATIONS


@pytest.mark.parametrize(
    ("chosen", "allowed", "kubelet", "expected"),
    [
        (None, (), (1, 31), CDI),
        (None, (), (1, 30), EDITS),
        (None, (), None, EDITS),
        (CDI, (EDITS,), (1, 20), CDI),
        (None, (CDI, EDITS), (1, 30), EDITS),
        (None, (CDI, NOTES, EDITS), (1, 30), NOTES),
        (None, (CDI, NOTES), (1, 37), CDI),
        (None, (EDITS,), (1, 37), EDITS),
        # Nothing else is allowed: its gate may be on.
        (None, (CDI,), (1, 28), CDI),
    ],
)
def test_the_first_way_counts_that_is_allowed_and_that_the_kubelet_passes_on(
    chosen: Strategy | None,
    allowed: tuple[Strategy, ...],
    kubelet: tuple[int, int] | None,
    expected: Strategy,
) -> None:
    assert strategy_of(chosen, allowed, kubelet) is expected
