# SPDX-License-Identifier: Apache-2.0
"""In which order does the daemon start, serve and shut down? A comment at each step says why the order matters.

The start runs on its own thread, because hardware and file systems may hang during the start, and the main thread must still
react to a signal (`signals.py`). The first SIGTERM or SIGINT starts the shutdown. The second one ends the process at once.

Shutdown deletes nothing that a claim or the cluster needs. Slices, CDI files and the state file stay: the pods continue to run,
and the next process takes over.

The process has locks on its state file, its leadership and its socket names. It releases them only when none of its threads
needs them any more. If a thread hangs longer than the grace time, the process exits without releasing the locks, and the kernel
releases them at the exit. So two processes never work on one device at the same time.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock, Thread, current_thread
from threading import enumerate as all_threads
from typing import NoReturn

from structlog.typing import FilteringBoundLogger

from dra_driver import __version__
from dra_driver.config.settings import Settings
from dra_driver.daemon.compose import Daemon, compose
from dra_driver.daemon.log_queue import LogQueue
from dra_driver.daemon.logs import library_lines, make_logger, share_form
from dra_driver.daemon.signals import STANDARD_ERROR, signals, stack_dumps
from dra_driver.daemon.uncaught import uncaught_errors
from dra_driver.errors import Fatal
from dra_driver.model.exit_codes import DONE, NOT_DONE
from dra_driver.node.files import never

GRACE_SECONDS = 5.0
FIRST_SCAN_SECONDS = 2.0
RECOVER_SECONDS = 5.0
LOG_SECONDS = 1.0  # for the last lines, at the end


def serve(settings: Settings, *, point: Callable[[str], None] = never) -> int:
    """Run until a signal arrives. Returns the exit code. Raises Fatal when the process cannot start."""
    lines = LogQueue(STANDARD_ERROR)
    log = make_logger(level=settings.log.level, form=settings.log.format, file=lines)
    share_form(level=settings.log.level, form=settings.log.format, file=lines)
    lines.start(partial(_tell_missing, log))
    code = NOT_DONE
    try:
        with library_lines(log):
            code = _serve(settings, log, lines, point)
    finally:
        if not lines.end(seconds=LOG_SECONDS):
            os._exit(code)  # nobody reads the log: the message of an error would wait for ever
    return code


def _tell_missing(log: FilteringBoundLogger, lines: int, since_start: int) -> None:
    log.warning(
        "log_lines_dropped",
        lines=lines,
        since_start=since_start,
        next_step="the log was not read, or could not be written, for a while; see the container runtime and the disk of its logs",
    )


def _serve(
    settings: Settings, log: FilteringBoundLogger, lines: LogQueue, point: Callable[[str], None]
) -> int:
    # The start thread hands its results to the main thread in these lists; each gets at most one entry.
    composed: list[Daemon] = []
    failures: list[BaseException] = []

    def fail(error: BaseException) -> None:
        failures.append(error)
        end_signal.wake()

    def start() -> None:
        try:
            composed.append(compose(settings, log=log, lines=lines, point=point))
            startup(composed[0], log, fail)
        except BaseException:
            end_signal.wake()
            raise

    uncaught = uncaught_errors(log, partial(_report, composed, log), partial(_leave, lines))
    with stack_dumps(), signals() as end_signal, uncaught:
        log.info(
            "starting", version=__version__, node=settings.node.name, driver=settings.node.driver
        )
        for note in settings.notes:
            log.warning("setting_has_an_older_form", note=note)
        starting = _Background("start", start)
        name = end_signal.wait()
        if name:
            log.info("stopping", signal=name)
        if not starting.ends_within(GRACE_SECONDS):
            log.warning("start_still_running", next_step=_LEFT_BEHIND)
            _leave(lines, DONE)
        if composed and not shutdown(composed[0], log):
            _leave(lines, DONE)
    if starting.error is not None:
        raise starting.error
    if failures:
        raise failures[0]
    log.info("ended")
    return DONE


def _report(
    composed: Sequence[Daemon], log: FilteringBoundLogger, thread: str, error: BaseException
) -> None:
    if composed:
        composed[0].supervisor.report(thread, error)
    else:  # there are no metrics yet
        log.error("thread_error", thread=thread, exc_info=error)


def startup(
    daemon: Daemon, log: FilteringBoundLogger, fail: Callable[[BaseException], None]
) -> None:
    """Start the parts. Raises Fatal when a step fails and a later retry would not help.

    The recovery may raise Fatal after this function returned. Its thread then calls `fail` with the error, and `fail` ends the
    process.
    """
    # Metrics and liveness start first, so that an operator can examine a start that hangs.
    http = daemon.http
    if http is not None:
        log.info("http", port=http.port)
        daemon.supervisor.start("http", lambda _stop: http.serve())
    # `join` fails if a foreign plugin uses our driver name. So it comes before the driver changes anything on this node.
    daemon.membership.join()
    daemon.adopt_claims()
    # State and CDI files must agree before the kubelet can call. But undoing a half-prepared claim may wait for slow hardware.
    # Recovery locks that claim, so all other claims can be served meanwhile.
    recovery = _Background("recover", lambda: _recover(daemon, log))
    if not recovery.ends_within(RECOVER_SECONDS):
        log.warning(
            "recovery_takes_long",
            next_step="other claims are served meanwhile; see the log of the device's kernel driver",
        )
        recovery.when_it_fails(partial(_failed_late, daemon, fail))
    elif recovery.error is not None:
        raise recovery.error
    # Normally the devices are known before the first call. Slow hardware must not delay the sockets: without a scan the driver
    # can still unprepare claims, and answer for claims that are prepared already.
    for name, run in daemon.inventory.loops().items():
        daemon.supervisor.start(name, run)
    if not daemon.inventory.tried_within(FIRST_SCAN_SECONDS):
        log.warning(
            "first_scan_takes_long",
            next_step="the driver serves without devices until the scan ends; see the log of the hardware's kernel driver",
        )
    daemon.kubelet.start()
    # Each of these loops may wait for hardware or for the API server, so each has its own thread.
    for name, run in daemon.threads.items():
        daemon.supervisor.start(name, run)
    log.info("serving", endpoint=str(daemon.kubelet.endpoint))


def _recover(daemon: Daemon, log: FilteringBoundLogger) -> None:
    for uid, error in daemon.recover().items():
        log.warning("not_recovered", claim_uid=uid, error=str(error))


def _failed_late(
    daemon: Daemon, fail: Callable[[BaseException], None], error: BaseException
) -> None:
    daemon.supervisor.report("recover", error)
    if isinstance(error, Fatal):
        fail(error)


def shutdown(daemon: Daemon, log: FilteringBoundLogger) -> bool:
    """Stop the parts: first new calls, then running calls, then the threads. Returns whether everything has stopped.

    If not, this process keeps the state file open and keeps all locks, because one of its threads may still use a device. Only
    the exit of this process proves that no thread uses a device any more.
    """
    daemon.kubelet.stop(GRACE_SECONDS)
    if daemon.http is not None:
        daemon.http.close()
    # A thread may repeat a request to an API server that does not answer. The request ends when its connection is closed.
    daemon.supervisor.stop.set()
    daemon.close_connections()
    deadline = time.monotonic() + GRACE_SECONDS
    running = list(daemon.supervisor.end(seconds=GRACE_SECONDS))
    daemon.stop_workers()
    running += _busy_workers(deadline)
    for name in running:
        log.warning("thread_still_running", thread=name, next_step=_LEFT_BEHIND)
    # The executor knows which claims these threads work on. It also knows of work that no worker had begun yet.
    claims = daemon.unfinished()
    if claims:
        log.warning("work_goes_on", claims=", ".join(map(str, claims)))
    if running or claims:
        return False
    daemon.close()
    return True


_LEFT_BEHIND = (
    "the process exits without waiting for it; the next process recovers the state as after a kill"
)


def _busy_workers(deadline: float) -> tuple[str, ...]:
    """Return the names of the pool threads that still work at the deadline. Python would wait for them at a normal exit."""
    workers = [
        thread for thread in all_threads() if not thread.daemon and thread is not current_thread()
    ]
    for thread in workers:
        thread.join(max(0.0, deadline - time.monotonic()))
    return tuple(thread.name for thread in workers if thread.is_alive())


def _leave(lines: LogQueue, code: int = NOT_DONE) -> NoReturn:
    """Exit without waiting for threads. The code is 0 if a signal requested the end: then this is no failure."""
    lines.end(seconds=LOG_SECONDS)
    os._exit(code)


class _Background:
    """Runs one function on its own thread and stores its error.

    The thread is not a daemon thread, so `_busy_workers` includes it, and the process keeps its locks while it runs.
    """

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._act = act
        self._mutex = Lock()
        self._failed: Callable[[BaseException], None] | None = None
        self._thread = Thread(target=self._run, name=name)
        self._thread.start()

    def ends_within(self, seconds: float) -> bool:
        """Wait at most `seconds`. Returns whether the function has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def when_it_fails(self, failed: Callable[[BaseException], None]) -> None:
        """Call `failed` with the error: now if the function has failed already, else on its thread when it fails."""
        # The mutex makes sure that exactly one side reports: this call, or `_run` at the same moment.
        with self._mutex:
            self._failed = failed
            error = self.error
        if error is not None:
            failed(error)

    def _run(self) -> None:
        try:
            self._act()
        except BaseException as error:  # noqa: BLE001  the thread that waits for this one raises it
            with self._mutex:
                self.error = error
                failed = self._failed
            if failed is not None:
                failed(error)
