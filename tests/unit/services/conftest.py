# SPDX-License-Identifier: Apache-2.0
"""The node on which services are tried; what stands on its disk is checked after every test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.model.inventory import Inventory
from dra_driver.node.files import never
from tests.support.local_node import LocalNode, ManualClock


@pytest.fixture
def new_node(tmp_path: Path) -> Iterator[Callable[..., LocalNode]]:
    made: list[LocalNode] = []

    def make(
        *,
        point: Callable[[str], None] = never,
        clock: ManualClock | None = None,
        inventory: Inventory | None = None,
        metadata: bool = False,
    ) -> LocalNode:
        made.append(
            LocalNode(tmp_path, point=point, clock=clock, inventory=inventory, metadata=metadata)
        )
        return made[-1]

    yield make
    for node in made:
        wrong = node.violations()
        node.close()
        assert wrong == []


@pytest.fixture
def node(new_node: Callable[..., LocalNode]) -> LocalNode:
    return new_node()
