# SPDX-License-Identifier: Apache-2.0
"""The life of the daemon: start up, serve, shut down; in this order, for these reasons.

The start runs on a thread of its own: hardware and file systems may hang in it, and a signal is heard all the same. The first
SIGTERM or SIGINT asks the process to end, the second ends it at once. Ending deletes nothing that a claim or the cluster
needs: slices, CDI files and state stay, since pods go on running and the next process takes over.

State, leadership and the sockets' names are given back only when nothing runs any more that relies on them. Where something
hangs beyond the grace time, the process leaves at once instead, and its end is what gives them back: nobody works on a device
then whose locks another process has.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock, Thread, current_thread
from threading import enumerate as all_threads
from types import FrameType
from typing import NoReturn

from structlog.typing import FilteringBoundLogger

from dra_driver import __version__
from dra_driver.config import Settings
from dra_driver.daemon.compose import Daemon, compose
from dra_driver.daemon.logs import make_logger
from dra_driver.errors import Fatal
from dra_driver.node.files import never

GRACE_SECONDS = 5.0
FIRST_SCAN_SECONDS = 2.0
RECOVER_SECONDS = 5.0
FORCED_EXIT_CODE = 130


def serve(settings: Settings, *, point: Callable[[str], None] = never) -> int:
    """Run until a signal; answers the exit code. Raises Fatal when the process cannot start."""
    log = make_logger(level=settings.log.level, form=settings.log.format)
    log.info("starting", version=__version__, node=settings.node.name, driver=settings.node.driver)
    made: list[Daemon] = []
    failed: list[BaseException] = []

    def fail(error: BaseException) -> None:
        failed.append(error)
        asked.wake()

    def start() -> None:
        try:
            made.append(compose(settings, log=log, point=point))
            startup(made[0], log, fail)
        except BaseException:
            asked.wake()
            raise

    with _signals() as asked:
        starting = _Apart("start", start)
        name = asked.wait()
        if name:
            log.info("stopping", signal=name)
        if not starting.ends_within(GRACE_SECONDS):
            log.warning("start_still_running", next_step=_LEFT)
            _leave()
        if made and not shutdown(made[0], log):
            _leave()
    if starting.error is not None:
        raise starting.error
    if failed:
        raise failed[0]
    log.info("ended")
    return 0


def startup(
    daemon: Daemon, log: FilteringBoundLogger, fail: Callable[[BaseException], None]
) -> None:
    """Bring the parts up. What fails here is Fatal, except what the API server or the hardware could cure later.

    What turns out to be Fatal only after this has returned is given to `fail`, on any thread: it ends the process.
    """
    # Metrics and liveness first: an operator wants to look at a start that hangs.
    http = daemon.http
    if http is not None:
        log.info("http", port=http.port)
        daemon.supervisor.start("http", lambda _stop: http.serve())
    # Alone under our name, or one of our own: before anything on this node is touched.
    daemon.membership.join()
    daemon.take_stock()
    # State and CDI files agree before anybody can ask for a claim, unless a device that was half set up takes its time: its
    # claim is locked while it does, and the others can be served.
    recovery = _Apart("recover", lambda: _recover(daemon, log))
    if not recovery.ends_within(RECOVER_SECONDS):
        log.warning(
            "recovery_takes_long", next_step="served meanwhile; see what its device's driver says"
        )
        recovery.when_it_fails(partial(_failed_late, daemon, fail))
    elif recovery.error is not None:
        raise recovery.error
    # Devices are known before a claim that names one can arrive, unless the hardware takes its time: then claims can at
    # least be released, and those that are prepared be answered.
    daemon.supervisor.start("inventory", daemon.inventory.run)
    if not daemon.inventory.tried.wait(FIRST_SCAN_SECONDS):
        log.warning(
            "first_scan_takes_long",
            next_step="served without devices until it ends; see what the hardware's driver says",
        )
    # The DRA socket listens before the registration socket tells the kubelet about it.
    daemon.kubelet.start()
    # Everything that may wait for hardware or the API server runs on threads.
    for name, run in daemon.threads.items():
        daemon.supervisor.start(name, run)
    log.info("serving", endpoint=str(daemon.kubelet.endpoint))


def _recover(daemon: Daemon, log: FilteringBoundLogger) -> None:
    for uid, error in daemon.recover().items():
        log.warning("not_recovered", claim_uid=uid, error=str(error))


def _failed_late(
    daemon: Daemon, fail: Callable[[BaseException], None], error: BaseException
) -> None:
    daemon.supervisor.tell("recover", error)
    if isinstance(error, Fatal):
        fail(error)


def shutdown(daemon: Daemon, log: FilteringBoundLogger) -> bool:
    """Take the parts down: no new calls, running ones may end, then the threads. Answers whether nothing runs any more.

    Otherwise the state and all locks are kept.
    """
    # The registration socket goes first, so that the kubelet does not take a socket that is about to close.
    daemon.kubelet.stop(GRACE_SECONDS)
    if daemon.http is not None:
        daemon.http.close()
    # A request that is being tried again, since nobody answers, would keep its thread.
    daemon.supervisor.stop.set()
    daemon.hang_up()
    deadline = time.monotonic() + GRACE_SECONDS
    running = list(daemon.supervisor.end(seconds=GRACE_SECONDS))
    daemon.dismiss()
    running += _workers_left(deadline)
    for name in running:
        log.warning("thread_still_running", thread=name, next_step=_LEFT)
    if running:
        return False
    daemon.close()
    return True


_LEFT = "the process leaves it behind and ends; the next one finds the state as after a kill and goes on from it"


def _workers_left(deadline: float) -> tuple[str, ...]:
    """Workers of pools that still have work then: threads that would keep the process, after their pools were shut."""
    workers = [
        thread for thread in all_threads() if not thread.daemon and thread is not current_thread()
    ]
    for thread in workers:
        thread.join(max(0.0, deadline - time.monotonic()))
    return tuple(thread.name for thread in workers if thread.is_alive())


def _leave() -> NoReturn:
    """End without waiting for anybody. It was asked for, so it is no failure."""
    sys.stderr.flush()
    os._exit(0)


class _Apart:
    """Does something on a thread of its own, which keeps the process as a worker does, and keeps its error."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._act = act
        self._mutex = Lock()
        self._failed: Callable[[BaseException], None] | None = None
        self._thread = Thread(target=self._run, name=name)
        self._thread.start()

    def ends_within(self, seconds: float) -> bool:
        """Wait for it, at most so long."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def when_it_fails(self, failed: Callable[[BaseException], None]) -> None:
        """Give its error to who waits no longer: now, or later on its own thread."""
        with self._mutex:
            self._failed = failed
            error = self.error
        if error is not None:
            failed(error)

    def _run(self) -> None:
        try:
            self._act()
        except BaseException as error:  # noqa: BLE001  whoever waits for it raises it
            with self._mutex:
                self.error = error
                failed = self._failed
            if failed is not None:
                failed(error)


class _Asked:
    """The first signal asks for the end; the second leaves the process at once.

    A handler runs in the middle of whatever the main thread is doing. So it takes no lock, neither a logger's nor an Event's:
    the main thread may be holding it. It writes into a pipe.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._number = 0

    def take(self, number: int, _frame: FrameType | None) -> None:
        if self._number:
            os._exit(FORCED_EXIT_CODE)
        self._number = number
        self.wake()

    def wake(self) -> None:
        """Let `wait` return."""
        os.write(self._writer, b"!")

    @property
    def writer(self) -> int:
        """What is written to ends the waiting."""
        return self._writer

    def wait(self) -> str:
        """Wait for the first signal; answers its name, or nothing when somebody else woke it."""
        os.read(self._reader, 1)
        return signal.Signals(self._number).name if self._number else ""

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


@contextmanager
def _signals() -> Iterator[_Asked]:
    """Listen to SIGTERM and SIGINT. Handlers are restored at the end."""
    asked = _Asked()
    before = {
        number: signal.signal(number, asked.take) for number in (signal.SIGTERM, signal.SIGINT)
    }
    # A signal that another thread takes, or that comes just before the main thread waits, interrupts no waiting of its: the byte does.
    woken_before = signal.set_wakeup_fd(asked.writer, warn_on_full_buffer=False)
    try:
        yield asked
    finally:
        signal.set_wakeup_fd(woken_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        asked.close()
