# SPDX-License-Identifier: Apache-2.0
"""What others wait for is given back when nothing runs any more that relies on it, and by the process's end otherwise."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from threading import enumerate as all_threads
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from structlog.testing import CapturingLogger

from dra_driver.config.settings import Settings
from dra_driver.daemon import lifecycle
from dra_driver.daemon.compose import Daemon
from dra_driver.daemon.lifecycle import _Background, serve, shutdown, startup
from dra_driver.daemon.supervisor import Supervisor
from dra_driver.errors import DriverError, Fatal, Temporary
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import DriverEvent, ThreadFailed
from dra_driver.model.ids import ClaimUid

HANG_SECONDS = 60


class Parts:
    """Parts that write down what is asked of them; work and a loop that go on until the test says so."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.captured = CapturingLogger()
        self.log = structlog.wrap_logger(self.captured, processors=[])
        self.events: list[DriverEvent] = []
        self.failed: list[BaseException] = []
        self.supervisor = Supervisor(self.log, self.events.append)
        self.workers = ThreadPoolExecutor(2, thread_name_prefix="work")
        self.go_on = Event()
        self.unfinished: tuple[ClaimRef, ...] = ()

    def noting(self, what: str) -> Callable[..., None]:
        return lambda *_arguments: self.done.append(what)

    def stop_workers(self) -> None:
        self.done.append("stop_workers")
        self.workers.shutdown(wait=False, cancel_futures=True)

    def shutdown(self) -> bool:
        """The end of a daemon of these parts."""
        daemon = SimpleNamespace(
            kubelet=SimpleNamespace(stop=self.noting("kubelet")),
            http=SimpleNamespace(close=self.noting("http")),
            supervisor=self.supervisor,
            close_connections=self.noting("close_connections"),
            stop_workers=self.stop_workers,
            unfinished=lambda: self.unfinished,
            close=self.noting("close"),
        )
        return shutdown(cast("Daemon", cast("Any", daemon)), self.log)

    def startup(
        self,
        *,
        recover: Callable[[], Mapping[ClaimUid, DriverError]] = dict,
        scanned: bool = True,
    ) -> None:
        """The start of a daemon of these parts."""
        inventory = SimpleNamespace(
            loops=lambda: {"inventory-simulated": lambda stop: stop.wait() and None},
            tried_within=lambda _seconds: scanned,
        )
        daemon = SimpleNamespace(
            http=None,
            membership=SimpleNamespace(join=self.noting("join")),
            adopt_claims=self.noting("adopt_claims"),
            recover=recover,
            inventory=inventory,
            kubelet=SimpleNamespace(start=self.noting("serve"), endpoint="/dra.sock"),
            supervisor=self.supervisor,
            threads={},
        )
        startup(cast("Daemon", cast("Any", daemon)), self.log, self.failed.append)

    def told(self) -> list[str]:
        return [call.kwargs["event"] for call in self.captured.calls]

    def still_running(self) -> list[str]:
        return [
            call.kwargs["thread"]
            for call in self.captured.calls
            if call.kwargs["event"] == "thread_still_running"
        ]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parts]:
    monkeypatch.setattr(lifecycle, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(lifecycle, "RECOVER_SECONDS", 0.2)
    monkeypatch.setattr(lifecycle, "FIRST_SCAN_SECONDS", 0.2)
    others = set(all_threads())  # those of other tests
    monkeypatch.setattr(lifecycle, "all_threads", lambda: set(all_threads()) - others)
    found = Parts()
    yield found
    found.go_on.set()
    found.workers.shutdown()
    found.supervisor.end(seconds=HANG_SECONDS)


def test_the_sockets_come_after_what_must_agree_before_them(parts: Parts) -> None:
    def recover() -> Mapping[ClaimUid, DriverError]:
        parts.done.append("recover")
        return {ClaimUid("uid-1"): Temporary("busy")}

    parts.startup(recover=recover)
    assert parts.done == ["join", "adopt_claims", "recover", "serve"]
    assert parts.told() == ["not_recovered", "serving"]


def test_a_recovery_that_hangs_does_not_keep_claims_from_being_released(parts: Parts) -> None:
    parts.startup(recover=lambda: (parts.go_on.wait(HANG_SECONDS) and {}) or {})
    assert parts.done == ["join", "adopt_claims", "serve"]
    assert parts.told() == ["recovery_takes_long", "serving"]
    assert not parts.shutdown()
    assert parts.still_running() == ["recover"]


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (Fatal("the state file is gone"), True),
        (Temporary("the disk hangs"), False),
        (RuntimeError("nobody foresaw"), False),
    ],
)
@pytest.mark.parametrize("waited_for", ["until it is told", "until it has failed"])
def test_a_recovery_that_fails_late_is_told_and_ends_the_process_if_that_is_the_only_cure(
    parts: Parts,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    ends: bool,
    waited_for: str,
) -> None:
    def recover() -> Mapping[ClaimUid, DriverError]:
        assert parts.go_on.wait(HANG_SECONDS)
        raise error

    def not_in_time(recovery: _Background, _seconds: float) -> bool:
        if waited_for == "until it has failed":  # just after the time was up
            parts.go_on.set()
            recovery._thread.join(HANG_SECONDS)
        else:
            started.append(recovery)
        return False

    started: list[_Background] = []
    monkeypatch.setattr(_Background, "ends_within", not_in_time)
    parts.startup(recover=recover)
    parts.go_on.set()
    for recovery in started:
        recovery._thread.join(HANG_SECONDS)
    assert parts.events == [ThreadFailed("recover", f"{type(error).__name__}: {error}", 0.0)]
    assert sorted(parts.told()) == ["recovery_takes_long", "serving", "thread_error"]
    assert parts.failed == [error] * ends


def test_a_process_that_is_ended_by_a_late_error_says_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = Fatal("the state file is gone")
    done: list[str] = []

    def started(_daemon: object, _log: object, fail: Callable[[BaseException], None]) -> None:
        fail(error)

    def ended(_daemon: object, _log: object) -> bool:
        done.append("shutdown")
        return True

    monkeypatch.setattr(lifecycle, "compose", lambda _settings, **_parts: object())
    monkeypatch.setattr(lifecycle, "startup", started)
    monkeypatch.setattr(lifecycle, "shutdown", ended)
    settings = SimpleNamespace(
        log=SimpleNamespace(level="error", format="json"),
        node=SimpleNamespace(name="node-1", driver="gpu.example.com"),
        notes=(),
    )
    with pytest.raises(Fatal, match="the state file is gone"):
        serve(cast("Settings", cast("Any", settings)))
    assert done == ["shutdown"]


def test_a_recovery_that_is_not_possible_ends_the_start(parts: Parts) -> None:
    def recover() -> Mapping[ClaimUid, DriverError]:
        raise Fatal("the state file is gone")

    with pytest.raises(Fatal, match="the state file is gone"):
        parts.startup(recover=recover)
    assert parts.done == ["join", "adopt_claims"]


def test_a_first_scan_that_hangs_is_not_waited_for_long(parts: Parts) -> None:
    parts.startup(scanned=False)
    assert parts.done[-1] == "serve"
    assert parts.told() == ["first_scan_takes_long", "serving"]


def test_in_order_and_everything_is_given_back_at_the_end(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "GRACE_SECONDS", HANG_SECONDS)
    parts.supervisor.start("publish", lambda stop: stop.wait() and None)
    parts.workers.submit(len, "").result()  # a worker that has nothing to do any more
    assert parts.shutdown()
    assert parts.done == ["kubelet", "http", "close_connections", "stop_workers", "close"]
    assert parts.still_running() == []


def test_work_that_hangs_keeps_state_and_locks(parts: Parts) -> None:
    parts.workers.submit(parts.go_on.wait, HANG_SECONDS)
    assert not parts.shutdown()
    assert parts.done == ["kubelet", "http", "close_connections", "stop_workers"]
    assert parts.still_running() == ["work_0"]


def test_work_that_no_thread_has_begun_keeps_them_too(parts: Parts) -> None:
    parts.unfinished = (ClaimRef("team", "gpu", ClaimUid("uid-1")),)
    assert not parts.shutdown()
    assert "close" not in parts.done
    assert parts.told() == ["work_goes_on"]


def test_a_loop_that_hangs_keeps_them_too(parts: Parts) -> None:
    parts.supervisor.start("publish", lambda _stop: parts.go_on.wait(HANG_SECONDS) and None)
    assert not parts.shutdown()
    assert "close" not in parts.done
    assert parts.still_running() == ["publish"]
