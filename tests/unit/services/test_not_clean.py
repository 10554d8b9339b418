# SPDX-License-Identifier: Apache-2.0
"""A device that something uses although no claim has it: when it gets its taint, and that a release does not make the taint flap."""

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from dra_driver.errors import Temporary
from dra_driver.model.events import DeviceNotClean
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.services.not_clean import AGAIN_SECONDS
from dra_driver.services.vanished import KEPT_SECONDS
from tests.support.publishing_node import Node, devices

BACKEND = "acme"
FOUND = "process 4711 uses it"
GPU = DeviceName("gpu-0")
TAINTED = ["gpu.dra-driver.dev/not-clean"]


class Dirty(Node):
    """A node whose first device is not clean."""

    def __init__(self) -> None:
        super().__init__(0, 1)
        self.scanned(FOUND)

    def scanned(self, found: str = "") -> None:
        """A scan begins and ends now."""
        first, *others = devices(0, 1)
        self.inventory = Inventory((replace(first, not_clean=found, backend=BACKEND), *others))
        self.scanned_at = self.now

    def looks(self) -> None:
        self.ages = {BACKEND: self.now - self.scanned_at}
        super().looks()

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.ages = {BACKEND: self.now - self.scanned_at}
        self.step()

    def taints(self) -> list[str]:
        (spec,) = self.stored().values()
        return [taint.key for one in spec.devices or () for taint in one.taints or ()]


@pytest.fixture
def node() -> Dirty:
    return Dirty()


def test_a_free_device_is_tainted_when_two_scans_find_something_on_it(node: Dirty) -> None:
    node.follow(node.looks)
    assert node.taints() == []
    node.passes(AGAIN_SECONDS)
    assert node.taints() == []
    node.scanned(FOUND)
    node.passes(AGAIN_SECONDS)
    assert node.taints() == TAINTED
    assert node.told(DeviceNotClean) == [DeviceNotClean("gpu-0", FOUND)]
    node.scanned()
    node.looks()
    assert node.taints() == []


def test_a_device_that_a_claim_owns_is_not_tainted(node: Dirty) -> None:
    node.prepared = frozenset({GPU})
    node.follow(node.looks)
    for _ in range(3):
        node.scanned(FOUND)
        node.passes(AGAIN_SECONDS)
    assert (node.taints(), node.told(DeviceNotClean)) == ([], [])


def test_a_release_does_not_taint_the_device_for_what_the_scan_before_it_saw(node: Dirty) -> None:
    node.prepared = frozenset({GPU})
    node.follow(node.looks)
    node.passes(8.0)
    node.prepared = frozenset()
    writes = len(node.api.requests)
    node.publisher.released()
    node.passes(0.0)
    node.passes(AGAIN_SECONDS)
    node.scanned()  # the process ended with its claim
    node.looks()
    node.passes(KEPT_SECONDS)
    assert (node.taints(), node.told(DeviceNotClean)) == ([], [])
    assert len(node.api.requests) == writes


def test_a_release_is_judged_by_the_next_scan_even_if_that_changes_nothing(node: Dirty) -> None:
    node.prepared = frozenset({GPU})
    node.follow(node.looks)
    node.prepared = frozenset()
    node.publisher.released()
    node.passes(0.0)
    node.now += 2.0
    node.scanned(FOUND)
    node.passes(AGAIN_SECONDS)
    assert node.taints() == TAINTED


def test_a_release_by_another_process_is_noticed_within_a_minute(node: Dirty) -> None:
    node.prepared = frozenset({GPU})
    node.follow(node.looks)
    node.prepared = frozenset()
    node.passes(KEPT_SECONDS)
    node.now += 1.0
    node.scanned(FOUND)
    node.passes(AGAIN_SECONDS)
    assert node.taints() == TAINTED


def test_a_restart_keeps_the_taint_that_is_published(node: Dirty) -> None:
    node.follow(node.looks)
    node.now += 1.0
    node.scanned(FOUND)
    node.passes(AGAIN_SECONDS)
    node.restarted()
    node.follow(node.looks)
    assert node.taints() == TAINTED
    assert len(node.told(DeviceNotClean)) == 2


def test_an_admin_who_prepares_a_tainted_device_has_it_until_it_is_free_again(node: Dirty) -> None:
    node.follow(node.looks)
    node.now += 1.0
    node.scanned(FOUND)
    node.passes(AGAIN_SECONDS)
    node.prepared = frozenset({GPU})
    node.looks()
    assert node.taints() == []
    node.prepared = frozenset()
    node.looks()
    assert node.taints() == []
    node.now += 1.0
    node.scanned(FOUND)
    node.passes(AGAIN_SECONDS)
    assert node.taints() == TAINTED


def test_while_the_owners_cannot_be_read_the_taints_stay(
    node: Dirty, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.follow(node.looks)
    node.now += 1.0
    node.scanned(FOUND)
    node.passes(AGAIN_SECONDS)

    def fail(_self: Dirty) -> frozenset[DeviceName]:
        raise Temporary("the state is locked")

    monkeypatch.setattr(Dirty, "_prepared", fail)
    with capture_logs() as logs:
        node.looks()
        assert node.taints() == TAINTED
        node.restarted()
        node.follow(node.looks)
    assert {line["event"] for line in logs} >= {"owners_unknown"}
