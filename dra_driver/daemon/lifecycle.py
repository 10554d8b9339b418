# SPDX-License-Identifier: Apache-2.0
"""The life of the daemon: start up, serve, shut down; in this order, for these reasons.

The first SIGTERM or SIGINT asks the process to end, the second ends it at once. Ending deletes nothing that a claim or
the cluster needs: slices, CDI files and state stay, since pods go on running and the next process takes over.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from structlog.typing import FilteringBoundLogger

from dra_driver import __version__
from dra_driver.config import Settings
from dra_driver.daemon.compose import Daemon, compose
from dra_driver.daemon.logs import make_logger
from dra_driver.node.files import never

GRACE_SECONDS = 5.0
FORCED_EXIT_CODE = 130


def serve(settings: Settings, *, point: Callable[[str], None] = never) -> int:
    """Run until a signal; answers the exit code. Raises Fatal when the process cannot start."""
    log = make_logger(level=settings.log.level, form=settings.log.format)
    log.info("starting", version=__version__, node=settings.node.name, driver=settings.node.driver)
    with _signals() as asked:
        daemon = compose(settings, log=log, point=point)
        try:
            startup(daemon, log)
            log.info("stopping", signal=asked.wait())
        finally:
            shutdown(daemon, log)
    log.info("ended")
    return 0


def startup(daemon: Daemon, log: FilteringBoundLogger) -> None:
    """Bring the parts up. What fails here is Fatal, except what the API server could cure later."""
    # Metrics and liveness first: an operator wants to look at a start that hangs.
    http = daemon.http
    if http is not None:
        log.info("http", port=http.port)
        daemon.supervisor.start("http", lambda _stop: http.serve())
    # Alone under our name, or one of our own: before anything on this node is touched.
    daemon.membership.join()
    # State and CDI files agree before anybody can ask for a claim.
    for uid, error in daemon.recover().items():
        log.warning("not_recovered", claim_uid=uid, error=str(error))
    # Devices are known before a claim that names one can arrive.
    daemon.inventory.scan()
    # The DRA socket listens before the registration socket tells the kubelet about it.
    daemon.kubelet.start()
    # Everything that may wait for hardware or the API server runs on threads.
    for name, run in daemon.threads.items():
        daemon.supervisor.start(name, run)
    log.info("serving", endpoint=str(daemon.kubelet.endpoint))


def shutdown(daemon: Daemon, log: FilteringBoundLogger) -> None:
    """Take the parts down: no new calls, running ones may end, then the threads."""
    # The registration socket goes first, so that the kubelet does not take a socket that is about to close.
    daemon.kubelet.stop(GRACE_SECONDS)
    if daemon.http is not None:
        daemon.http.close()
    # A request that is being tried again, since nobody answers, would keep its thread.
    daemon.supervisor.stop.set()
    daemon.hang_up()
    for name in daemon.supervisor.end(seconds=GRACE_SECONDS):
        log.warning("thread_still_running", thread=name)
    daemon.close()


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
        os.write(self._writer, b"!")

    @property
    def writer(self) -> int:
        """What is written to ends the waiting."""
        return self._writer

    def wait(self) -> str:
        """Wait for the first signal; answers its name."""
        os.read(self._reader, 1)
        return signal.Signals(self._number).name

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
