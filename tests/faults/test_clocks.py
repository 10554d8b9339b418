# SPDX-License-Identifier: Apache-2.0
"""Clocks jump: the wall clock by years in both directions, the monotonic clock forward when a machine was suspended.

Decisions are made by the monotonic clock alone; the wall clock is only written down (log lines, Events, the time of a health
report). The first test keeps it so.
"""

import ast
import time
from pathlib import Path

import pytest

import dra_driver
from dra_driver.kube.base import NodeEvent
from dra_driver.kube.connection import TOKEN_LIFE_SECONDS, TokenFile
from dra_driver.kube.events import Repeats
from dra_driver.model.claim import ClaimRef
from dra_driver.model.plan import Refusal
from dra_driver.node.lock import Locks
from dra_driver.services.watch_health import HealthFeed
from dra_driver.testing.builders import A_POOL, a_claim, an_inventory
from dra_driver.testing.failpoints import Failpoints
from tests.support.local_node import LocalNode, ManualClock

DEADLINE_SECONDS = 60.0
YEARS = 3 * 365 * 86400.0
# Where the wall clock is read, and what for.
WALL_CLOCK = {
    "cli/follow.py": "when an answer of `explain --watch` came",
    "cli/pending_events.py": "the time of an Event, and how long a pod has waited, beside the API server's times",
    "kube/exec_login.py": "until when a token of a login program is good, which the program says as a time",
    "cli/overview.py": "ages and device-hours of claims, for people",
    "kube/cluster.py": "when a cluster was recorded",
    "kube/events.py": "the time of an Event",
    "services/parts.py": "since when a device is held, for people",
    "services/vanished.py": "the time of a taint",
    "services/watch_health.py": "the time of a health report",
    "services/node_condition.py": "the times of a Node's condition",
}


def reads_wall_clock(path: Path) -> bool:
    """Whether `time.time`, or `now` or `today` of datetime, occurs."""
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr)
        in {("time", "time"), ("datetime", "now"), ("datetime", "today"), ("time", "time_ns")}
        for node in ast.walk(ast.parse(path.read_text()))
    )


def test_the_wall_clock_is_read_only_to_be_written_down() -> None:
    root = Path(dra_driver.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if "testing" not in path.parts and reads_wall_clock(path)
    }
    assert found == set(WALL_CLOCK)


def test_a_health_report_follows_the_wall_clock_wherever_it_jumps() -> None:
    times = iter([1000.0, 1000.0 + YEARS, 1000.0 - 900.0])
    feed = HealthFeed(
        lambda: an_inventory(1), A_POOL, age=lambda _backend: 0.0, clock=lambda: next(times)
    )
    reports = [feed.snapshot() for _ in range(3)]
    versions = {version for version, _ in reports}
    assert len(versions) == 1  # a jump is no news
    assert [entry.checked_at for _, (entry,) in reports] == [1000, int(1000 + YEARS), 100]


def wait_for_the_work_on(node: LocalNode, ref: ClaimRef) -> None:
    """Wait in real time: the node's own clock runs out between two tries of another thread."""
    with Locks(node.directory / "locks").locked(
        [f"claim-{ref.uid}"], until=time.monotonic() + DEADLINE_SECONDS, purpose="testing"
    ):
        pass


@pytest.mark.parametrize("moment", ["step.ConfigureDevice.before", "commit.started.after"])
@pytest.mark.parametrize("seconds", [3600.0, YEARS])
def test_a_machine_that_was_suspended_in_a_call_leaves_nothing_half_done(
    tmp_path: Path, moment: str, seconds: float
) -> None:
    clock = ManualClock()
    suspend = Failpoints({moment: lambda: clock.sleep(seconds)})
    node = LocalNode(tmp_path, clock=clock, point=suspend)
    (ref,) = node.add(a_claim())
    first = node.prepare(ref)[ref.uid]
    suspend.disarm()
    # In time or too late: either it is done, or it goes on, and the kubelet's next try gets its result.
    wait_for_the_work_on(node, ref)
    again = node.prepare(ref)[ref.uid]
    assert node.violations() == []
    assert not isinstance(again, Refusal)
    assert isinstance(first, Refusal) or first == again
    assert node.disk().claims == {ref.uid: ("Prepared", "boot-1")}
    assert node.unprepare(ref) == {ref.uid: None}
    node.close()


def test_a_call_that_waited_through_a_suspension_gives_up_its_locks(tmp_path: Path) -> None:
    clock = ManualClock()
    node = LocalNode(tmp_path, clock=clock)
    (ref,) = node.add(a_claim())
    with node.lock([f"claim-{ref.uid}"], 0.0, "testing"):
        node.parts.sleep(YEARS)
        refused = node.prepare(ref)[ref.uid]
        assert isinstance(refused, Refusal)
        assert "is locked by process" in refused.reason
    assert not isinstance(node.prepare(ref)[ref.uid], Refusal)
    node.close()


@pytest.mark.parametrize("jump", [YEARS, -YEARS, 0.0])
def test_a_token_is_read_again_at_the_latest_when_it_is_refused(
    tmp_path: Path, jump: float
) -> None:
    """Even a monotonic clock that went backwards, which none does, costs one request and not the driver."""
    file = tmp_path / "token"
    file.write_text("first")
    clock = ManualClock()
    token = TokenFile(file, clock=clock)
    assert token.headers() == {"Authorization": "Bearer first"}
    file.write_text("second")
    clock.now += jump
    if jump < TOKEN_LIFE_SECONDS:
        token.forget()
    assert token.headers() == {"Authorization": "Bearer second"}


def test_an_event_that_was_quiet_for_long_is_told_again() -> None:
    clock = ManualClock()
    repeats = Repeats(clock=clock)
    event = NodeEvent("Warning", "Reason", "message")
    assert [repeats.claim(event), repeats.claim(event)] == [True, False]
    clock.now += YEARS
    assert repeats.claim(event)
