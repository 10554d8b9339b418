# SPDX-License-Identifier: Apache-2.0
"""What if a thread ends with an error that nobody catches? It is a line of the log and counts, as an error of a guarded thread does.

gRPC's own thread ends so when the system gives it no thread for a call (a limit of pids). Its socket stays and answers nobody any
more. So the process ends at once then, and the kubelet starts it again. The state on disk is made for that: as after a kill.
"""

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from structlog.typing import FilteringBoundLogger

PROCESS = Path("/proc/self")
CGROUPS = Path("/sys/fs/cgroup")
_SERVING = "grpc._server"  # the module whose thread takes the calls of a socket


@contextmanager
def uncaught_errors(
    log: FilteringBoundLogger,
    report: Callable[[str, BaseException], None],
    end: Callable[[], None],
) -> Iterator[None]:
    """Inside the block, call `report` with the name and the error of each thread that ends with one; `end` if it served a socket."""

    def hook(ended: threading.ExceptHookArgs) -> None:
        error = ended.exc_value or ended.exc_type()
        report(_name(ended.thread), error)
        if _is_in(ended.exc_traceback, _SERVING):
            try:
                log.error(
                    "socket_not_served",
                    error=f"the thread that takes the calls of a socket has ended: {type(error).__name__}: {error}",
                    found=threads_and_limits(),
                    next_step="the process ends, and the kubelet starts it again; if a thread could not be started, raise the limit of pids: "
                    "podPidsLimit of the kubelet, or pids.max of the container",
                )
            finally:
                end()

    before = threading.excepthook
    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


def threads_and_limits(process: Path = PROCESS, cgroups: Path = CGROUPS) -> str:
    """Return how many threads this process has, and which limits it can see. Limits of a pod or a node are not visible in a container."""
    try:
        return _threads_and_limits(process, cgroups)
    except OSError as error:  # no file descriptor is left either
        return f"the threads cannot be counted: {error.strerror}"


def _threads_and_limits(process: Path, cgroups: Path) -> str:
    threads = len(list((process / "task").iterdir()))
    seen = [f"RLIMIT_NPROC is {_limit(resource.getrlimit(resource.RLIMIT_NPROC)[0])}"]
    for line in (process / "cgroup").read_text().splitlines():
        _, controllers, folder = line.split(":", 2)
        if controllers in ("", "pids"):
            file = cgroups / controllers / folder.strip("/") / "pids.max"
            with suppress(OSError):
                seen.append(f"{file} is {file.read_text().strip()}")
    return f"the process has {threads} threads; {', '.join(seen)}"


def _limit(number: int) -> str:
    return "unlimited" if number == resource.RLIM_INFINITY else str(number)


def _name(thread: threading.Thread | None) -> str:
    """The name for the metric: of a thread without a name of its own, "Thread-7 (_serve)", the function."""
    name = "" if thread is None else thread.name
    return name.partition("(")[2].rstrip(")") or name


def _is_in(traceback: TracebackType | None, module: str) -> bool:
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__") == module:
            return True
        traceback = traceback.tb_next
    return False
