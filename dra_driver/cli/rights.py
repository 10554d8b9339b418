# SPDX-License-Identifier: Apache-2.0
"""Which role has the rights that `explain` and `record` lack? `kubectl dra devices` and the others say it in `overview.rights`."""

from dra_driver.model.cluster import GATES_PATH, ClusterState, NotRead

HINT = "the ClusterRole …-explain of the driver's chart gives the rights to read all of this (docs/kubectl-dra.md)"


def lacking_rights(state: ClusterState) -> tuple[NotRead, ...]:
    """Return what the user may not read, without the feature gates: the defaults of the release stand in for them."""
    return tuple(
        gap for gap in state.not_read if gap.reason == "forbidden" and gap.resource != GATES_PATH
    )
