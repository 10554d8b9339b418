# SPDX-License-Identifier: Apache-2.0
"""Claims that wait for binding conditions get them, whatever becomes of other claims."""

import dataclasses
from collections.abc import Callable, Sequence
from threading import Event
from typing import cast

import pytest
from msgspec import structs
from msgspec.structs import replace
from structlog.testing import capture_logs

from dra_driver.errors import DriverError, Temporary
from dra_driver.kube.base import Invalid, KubeApi
from dra_driver.model.api.resource_claim import AllocatedDeviceStatus
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.ids import PoolName
from dra_driver.services.binding import LOOK_SECONDS, BindingController
from dra_driver.testing.builders import A_POOL, a_claim, a_result, an_inventory
from tests.support.local_node import A_MOMENT_TEXT, LocalNode, ManualClock

NewNode = Callable[..., LocalNode]


class Server:
    """An API server with claims. `errors` are raised by the next writes of a claim, `unread` by the next lists."""

    def __init__(self, *names: str) -> None:
        result = structs.replace(a_result(), binding_conditions=["Attached"])
        self.claims = {name: a_claim(name, results=[result]) for name in names}
        self.errors: dict[str, list[DriverError]] = {}
        self.unread: list[DriverError] = []
        self.lists = 0
        self.written: list[tuple[str, str]] = []

    def allocated_claims(self, pool: PoolName) -> tuple[Claim, ...]:
        assert pool == A_POOL
        self.lists += 1
        if self.unread:
            raise self.unread.pop(0)
        return tuple(self.claims.values())

    def report_devices(
        self, ref: ClaimRef, devices: Sequence[AllocatedDeviceStatus], *, part: str = ""
    ) -> None:
        if self.errors.get(ref.name):
            raise self.errors[ref.name].pop(0)
        self.written.append((ref.name, part))
        self.claims[ref.name] = dataclasses.replace(self.claims[ref.name], statuses=tuple(devices))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def node(new_node: NewNode, clock: ManualClock) -> LocalNode:
    made = new_node(clock=clock)
    made.inventory = an_inventory(1)
    bound = tuple(replace(device, binds=True) for device in made.inventory.devices)
    made.inventory = dataclasses.replace(made.inventory, devices=bound)
    return made


def controller(node: LocalNode, server: Server) -> BindingController:
    return BindingController(node.parts, cast("KubeApi", server))


def test_a_waiting_claim_gets_its_condition_once(node: LocalNode):
    server = Server("one")
    made = controller(node, server)
    made.once()
    made.once()
    assert server.written == [("one", "binding")]
    (entry,) = server.claims["one"].statuses
    (condition,) = entry.conditions or ()
    assert (condition.type, condition.status, condition.last_transition_time) == (
        "Attached",
        "True",
        A_MOMENT_TEXT,
    )


def test_without_devices_to_bind_nothing_is_asked(node: LocalNode):
    server = Server("one")
    plain = tuple(replace(device, binds=False) for device in node.inventory.devices)
    node.inventory = dataclasses.replace(node.inventory, devices=plain)
    controller(node, server).once()
    assert (server.lists, server.written) == (0, [])


def test_a_claim_that_is_refused_costs_only_itself_and_is_tried_again_later(
    node: LocalNode, clock: ManualClock
):
    server = Server("one", "two")
    server.errors["one"] = [Invalid("no"), Invalid("no")]
    made = controller(node, server)
    with capture_logs() as logs:
        made.once()
        made.once()
    assert server.written == [("two", "binding")]
    (failed,) = [line for line in logs if line["event"] == "binding_conditions_not_set"]
    assert failed["error"] == "no"

    clock.now += failed["again_in_seconds"]
    made.once()
    clock.now += failed["again_in_seconds"]
    made.once()
    assert server.errors["one"] == []  # the second pause is longer than the first
    assert server.written == [("two", "binding")]
    clock.now += 60
    made.once()
    assert server.written == [("two", "binding"), ("one", "binding")]


def test_a_claim_that_is_gone_is_forgotten(node: LocalNode):
    server = Server("one")
    server.errors["one"] = [Invalid("no")]
    made = controller(node, server)
    made.once()
    claim = server.claims.pop("one")
    made.once()
    server.claims["one"] = claim
    made.once()  # a new object is tried at once
    assert server.written == [("one", "binding")]


def test_it_looks_every_second_and_later_while_the_api_server_does_not_answer(node: LocalNode):
    server = Server("one")
    server.unread = [Temporary("away"), Temporary("away")]
    pauses: list[float] = []

    def wait(_stop: Event, seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) > 4

    controller(node, server).run(Event(), wait=wait)
    assert pauses == [LOOK_SECONDS, 1.0, 2.0, LOOK_SECONDS, LOOK_SECONDS]
    assert server.written == [("one", "binding")]
