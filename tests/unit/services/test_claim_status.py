# SPDX-License-Identifier: Apache-2.0
"""What becomes of the entries in status.devices when the API server accepts, refuses, or does not answer."""

import dataclasses
from collections.abc import Callable, Sequence
from threading import Event

import pytest
from msgspec.structs import replace

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.kube.base import Conflict, Forbidden, Invalid, NotFound
from dra_driver.model.api.resource_claim import AllocatedDeviceStatus
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import ClaimPrepared, DeviceStatusForbidden, Published, WorkEnded
from dra_driver.model.ids import ClaimUid
from dra_driver.model.inventory import Inventory
from dra_driver.services.claim_status import FORBIDDEN_SECONDS, LOOK_SECONDS, ClaimStatuses
from dra_driver.testing.builders import a_claim, a_ref, a_result
from tests.support.local_node import LocalNode, ManualClock

NewNode = Callable[..., LocalNode]


class Server:
    """An API server that keeps what is reported to it. `errors` has the next errors for each claim; None in place of a claim: for all."""

    def __init__(self, node: LocalNode) -> None:
        self.node = node
        self.errors: dict[str | None, list[DriverError]] = {}
        self.reported: list[str] = []
        self.gets = 0
        self.statuses = ClaimStatuses(node.parts, node.store, (self.get, self.report))

    def get(self, ref: ClaimRef) -> Claim:
        self.gets += 1
        return self.node.stored(ref)

    def report(self, ref: ClaimRef, devices: Sequence[AllocatedDeviceStatus]) -> None:
        for key in (ref.name, None):
            if self.errors.get(key):
                raise self.errors[key].pop(0)
        self.reported.append(ref.name)
        claim = self.node.claims[ref.namespace, ref.name]
        self.node.claims[ref.namespace, ref.name] = dataclasses.replace(
            claim, statuses=tuple(devices)
        )

    def entries(self, name: str) -> tuple[AllocatedDeviceStatus, ...]:
        return self.node.claims["default", name].statuses


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(new_node: NewNode, clock: ManualClock) -> Server:
    node = new_node(clock=clock)
    node.prepare(*node.add(a_claim("one"), a_claim("two", results=[a_result("gpu-1")])))
    node.events.clear()
    return Server(node)


def test_each_prepared_claim_gets_its_entries_once(server: Server) -> None:
    for _ in range(3):
        server.statuses.once()
    assert sorted(server.reported) == ["one", "two"]
    (entry,) = server.entries("two")
    assert (entry.device, (entry.conditions or [])[0].status) == ("gpu-1", "True")


def test_after_a_restart_nothing_is_written_again(server: Server) -> None:
    server.statuses.once()
    again = Server(server.node)
    again.statuses.once()
    assert (again.gets, again.reported) == (2, [])


def test_claims_that_are_not_prepared_get_none(new_node: NewNode) -> None:
    node = new_node()
    (ref,) = node.add(a_claim("one"))

    def fails(_lease: object) -> None:
        raise Permanent("no")

    node.configure = fails
    node.prepare(ref)
    server = Server(node)
    server.statuses.once()
    assert server.gets == 0


@pytest.mark.parametrize("what", ["another boot", "no name"])
def test_rows_that_are_not_prepared_here_and_now_get_none(server: Server, what: str) -> None:
    """A claim that was found only in a CDI file has no name by which it could be read."""
    row = server.node.parts.row(a_ref("one").uid)
    assert row is not None
    changed = (
        replace(row, boot_id="another boot")
        if what == "another boot"
        else replace(row, ref=replace(row.ref, name=""))
    )
    with server.node.store.transaction("started") as transaction:
        transaction.start(changed)
    server.statuses.once()
    assert (server.gets, server.reported) == (1, ["two"])


def test_a_device_that_vanishes_is_not_ready_any_more(server: Server) -> None:
    server.statuses.once()
    server.node.inventory = Inventory()
    server.statuses.once()
    (entry,) = server.entries("one")
    assert (entry.conditions or [])[0].reason == "Vanished"


@pytest.mark.parametrize("kind", [NotFound, Conflict, Invalid, Forbidden])
def test_a_refused_claim_costs_no_other_one(
    server: Server, clock: ManualClock, kind: type[DriverError]
) -> None:
    server.errors["one"] = [kind("refused")]
    again_at = server.statuses.once()
    assert server.reported == ["two"]
    assert again_at > clock()
    server.statuses.once()
    assert server.reported == ["two"]  # not before its pause is over
    clock.sleep(again_at - clock())
    server.statuses.once()
    assert server.reported == ["two", "one"]


def test_without_an_answer_the_others_wait(server: Server, clock: ManualClock) -> None:
    server.errors[None] = [Temporary("nobody there")]
    server.statuses.once()
    assert (server.gets, server.reported) == (1, [])
    clock.sleep(1.0)
    server.statuses.once()
    assert sorted(server.reported) == ["one", "two"]


def test_each_failure_makes_the_pause_longer(server: Server, clock: ManualClock) -> None:
    server.errors["one"] = [Invalid("no")] * 5
    pauses = []
    for _ in range(4):
        again_at = server.statuses.once()
        pauses.append(again_at - clock())
        clock.sleep(again_at - clock())
    assert pauses == [1.0, 2.0, 5.0, 10.0]


def test_a_missing_right_is_told_once_and_asked_for_again(
    server: Server, clock: ManualClock
) -> None:
    server.errors[None] = [Forbidden("no right")] * 4
    for _ in range(2):
        again_at = server.statuses.once()
        assert again_at == clock() + FORBIDDEN_SECONDS
        clock.sleep(FORBIDDEN_SECONDS)
    told = [event for event in server.node.events if isinstance(event, DeviceStatusForbidden)]
    assert [event.reason for event in told] == ["no right"]
    server.statuses.once()
    assert sorted(server.reported) == ["one", "two"]
    server.errors[None] = [Forbidden("again")]
    server.node.inventory = Inventory()
    server.statuses.once()
    assert [type(event) for event in server.node.events].count(DeviceStatusForbidden) == 2


@pytest.mark.parametrize(
    "other",
    [
        a_claim("one", uid="another"),
        a_claim("one", results=[a_result("gpu-2")]),
        dataclasses.replace(a_claim("one"), results=None),
    ],
)
def test_a_claim_that_is_another_one_now_is_not_written(server: Server, other: Claim) -> None:
    server.node.add(other)
    server.statuses.once()
    assert server.reported == ["two"]


def test_a_claim_that_ends_is_forgotten(server: Server) -> None:
    server.errors["one"] = [NotFound("gone")]
    assert server.statuses.once() < float("inf")
    server.node.unprepare(a_ref("one"))
    assert server.statuses.once() == float("inf")


# The loop


@pytest.mark.parametrize("hostile", ["one", "two"])
def test_a_claim_to_which_the_server_never_answers_keeps_no_other_one_waiting(
    server: Server, clock: ManualClock, hostile: str
) -> None:
    """A claim may be so large that the server cannot store one more entry: it answers 500, each time."""
    server.errors[hostile] = [Temporary("request is too large")] * 99
    rounds(server, clock, count=60, wake=False)
    assert server.reported == [{"one": "two", "two": "one"}[hostile]]


def rounds(server: Server, clock: ManualClock, *, count: int, wake: bool) -> None:
    stop, left = Event(), [count]

    def wait(_woken: Event, seconds: float) -> bool:
        clock.sleep(seconds)
        left[0] -= 1
        if not left[0]:
            stop.set()
        if wake:
            server.statuses(ClaimPrepared(a_ref(), 0.1))
        else:
            server.statuses(Published(1, 1))
        return False

    server.statuses.run(stop, wait=wait)


def test_the_loop_looks_at_its_start_and_from_time_to_time(
    server: Server, clock: ManualClock
) -> None:
    rounds(server, clock, count=1, wake=False)
    assert sorted(server.reported) == ["one", "two"]
    server.node.inventory = Inventory()
    rounds(server, clock, count=1, wake=False)
    assert len(server.reported) == 4


def test_a_new_claim_wakes_the_loop_and_other_events_do_not(
    server: Server, clock: ManualClock
) -> None:
    server.errors["one"] = [Forbidden("no")] * 99
    begun = clock()
    rounds(server, clock, count=5, wake=True)
    assert clock() < begun + LOOK_SECONDS
    (ref,) = server.node.add(a_claim("three", results=[a_result("gpu-3")]))
    server.node.prepare(ref)
    rounds(server, clock, count=1, wake=False)
    assert "three" in server.reported


@pytest.mark.parametrize("wakes", [True, False])
def test_a_claim_whose_set_up_ended_after_its_call_wakes_the_loop(
    server: Server, *, wakes: bool
) -> None:
    stop, waits = Event(), 0
    (ref,) = server.node.add(a_claim("three", results=[a_result("gpu-3")]))

    def wait(_woken: Event, _seconds: float) -> bool:
        nonlocal waits
        waits += 1
        if waits == 1:
            server.node.prepare(ref)
            server.statuses(WorkEnded(ref, "") if wakes else Published(1, 1))
        else:
            stop.set()
        return False

    server.statuses.run(stop, wait=wait)
    assert ("three" in server.reported) is wakes


def test_a_failed_claim_is_tried_before_the_next_look(server: Server, clock: ManualClock) -> None:
    server.errors["one"] = [Conflict("busy")]
    rounds(server, clock, count=3, wake=False)
    assert server.reported == ["two", "one"]


def test_a_state_that_cannot_be_read_ends_no_loop(
    server: Server, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[ClaimUid] = []

    def fails(_stop: Event | None = None) -> float:
        tries.append(ClaimUid("x"))
        raise Permanent("damaged")

    monkeypatch.setattr(server.statuses, "once", fails)
    rounds(server, clock, count=2, wake=True)
    assert len(tries) == 2


def test_the_end_comes_between_two_claims(server: Server) -> None:
    stop = Event()
    stop.set()
    server.statuses.once(stop)
    assert server.gets == 0
