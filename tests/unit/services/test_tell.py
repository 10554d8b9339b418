# SPDX-License-Identifier: Apache-2.0
"""What is written on the Node as an Event."""

from threading import Event

import structlog
from structlog.testing import capture_logs

from dra_driver.errors import Temporary
from dra_driver.kube.base import NodeEvent
from dra_driver.model.events import DeviceNotClean, DevicesHeld, SecondOwnerRefused, StillHeld
from dra_driver.services.tell import Teller
from dra_driver.testing.builders import a_ref

REFUSED = SecondOwnerRefused(a_ref("two"), a_ref("one"), "gpu-0", "it still exists")
HELD = StillHeld(a_ref("one"), "node-1/gpu-0", "2027-01-15T08:00:00Z", "pod one still runs")
TOLD_REFUSED = NodeEvent(
    "Warning",
    "SecondOwnerRefused",
    "device gpu-0 was allocated to claim default/two (uid uid-two) and belongs to claim default/one (uid uid-one) on this node: "
    "it still exists",
)
TOLD_HELD = NodeEvent(
    "Warning",
    "DevicesHeld",
    "node-1/gpu-0 of claim default/one (uid uid-one): not needed since 2027-01-15T08:00:00Z, and not given to other claims: "
    "pod one still runs; end what uses it, and the driver releases it. Run `dra-driver release default/one` on this node if you "
    "know that nothing uses it",
)


def a_teller() -> Teller:
    return Teller(structlog.get_logger())


def test_refused_owners_and_long_holds_are_written_once_each_and_in_order() -> None:
    teller, written = a_teller(), []
    for event in (REFUSED, HELD, REFUSED, DevicesHeld(a_ref(), "gpu-0", "a moment only")):
        teller(event)
    looks = iter([False, False, True])
    teller.run(Event(), written.append, wait=lambda _stop, _seconds: next(looks))
    assert written == [TOLD_REFUSED, TOLD_HELD]


def test_what_cannot_be_written_now_is_written_later() -> None:
    teller, written = a_teller(), []
    errors = [Temporary("503")]

    def emit(event: NodeEvent) -> None:
        if errors:
            raise errors.pop()
        written.append(event)

    teller(REFUSED)
    with capture_logs() as lines:
        teller.once(emit)
    assert [line["error"] for line in lines] == ["503"]
    teller.once(emit)
    assert written == [TOLD_REFUSED]


def test_a_device_that_is_not_clean_is_told_with_what_is_found() -> None:
    teller, written = a_teller(), []
    teller(DeviceNotClean("gpu-0", "process 4711 uses it"))
    teller.once(written.append)
    assert written == [
        NodeEvent(
            "Warning",
            "DeviceNotClean",
            "device gpu-0 belongs to no claim, and is not given to one: process 4711 uses it; end what uses it, and the driver removes "
            "the taint gpu.dra-driver.dev/not-clean",
        )
    ]
