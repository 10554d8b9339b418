# SPDX-License-Identifier: Apache-2.0
"""What the state says of devices whose name or hardware has changed, also while it cannot be read."""

from contextlib import AbstractContextManager

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from dra_driver.errors import Temporary
from dra_driver.model.inventory import Inventory
from dra_driver.services.moved import MovedDevices
from dra_driver.testing.builders import A_POOL, a_claim, a_device
from tests.support.local_node import LocalNode


@pytest.fixture
def node(node: LocalNode) -> LocalNode:
    (ref,) = node.add(a_claim())
    node.prepare(ref)
    return node


OTHER = Inventory((replace(a_device("gpu-0"), uuid="uuid-y"),))


def test_the_rows_are_read_each_time(node: LocalNode) -> None:
    moved = MovedDevices(node.store, A_POOL)
    assert moved.uuids() == {"gpu-0": "uuid-gpu-0"}
    assert moved(node.inventory) == {}
    assert moved(OTHER).keys() == {"gpu-0"}


def test_while_the_state_cannot_be_read_the_last_answer_counts(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = MovedDevices(node.store, A_POOL)
    before = moved(OTHER)

    def fails() -> AbstractContextManager[object]:
        raise Temporary("the disk is away")

    monkeypatch.setattr(node.store, "reading", fails)
    with capture_logs() as logs:
        assert moved(OTHER) == before
    assert [line["event"] for line in logs] == ["prepared_devices_unknown"]
    assert moved.uuids() == {}
