# SPDX-License-Identifier: Apache-2.0
"""What pod-resources said earlier counts only together with what they say now."""

from dra_driver.model.ids import UnitId
from dra_driver.model.plugin import KubeletCheckpoint
from dra_driver.model.state import Unknown
from dra_driver.services.plugin.witnesses import LIST_SECONDS, ActiveLists, Witnesses
from tests.unit.planning.plugin.test_listed import a_row, a_unit

ROW = a_row(a_unit("gpu-0"))
UNIT = frozenset({UnitId("gpu-0")})


class Node:
    """What its kubelet lists, look by look."""

    def __init__(self) -> None:
        self.active: frozenset[UnitId] | Unknown = UNIT
        self.now = 0.0
        witnesses = Witnesses(
            lambda: ("", KubeletCheckpoint()), frozenset, lambda _resource: self.active, lambda: 1
        )
        self.lists = ActiveLists(witnesses, lambda: self.now)

    def look(self, active: frozenset[UnitId] | Unknown) -> bool:
        """Returns whether the row was listed once, and is not now."""
        self.active = active
        self.now += LIST_SECONDS
        return bool(self.lists.look([ROW]))


def test_a_row_is_gone_only_while_an_answer_says_so() -> None:
    node = Node()
    nothing: frozenset[UnitId] = frozenset()
    assert not node.look(nothing)
    assert not node.look(UNIT)
    assert node.look(nothing)
    assert not node.look(Unknown("the socket does not answer"))
    assert node.look(nothing)
    assert not node.look(UNIT)
