# SPDX-License-Identifier: Apache-2.0
"""The requests of the driver: one connection, one thread, one request.

A call of the library that hangs cannot be interrupted. So each request has a deadline, and when it is over, the whole process ends:
whoever started it starts another one. The timer is one of the C library, so it also ends a process that hangs with Python's lock.
"""

import faulthandler
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from threading import BoundedSemaphore, Lock, Thread, Timer
from typing import Protocol

import msgspec

from dra_driver.backends.nvidia.hardware.nvml import Failed, Replaced
from dra_driver.backends.nvidia.hardware.wire import (
    DEADLINES,
    Answer,
    Broken,
    Failure,
    Happened,
    Request,
    arrives,
    receive,
    send,
)

MOST_REQUESTS = 32
"""Requests at the same time. The driver has one look, one stream, and few claims at a time."""
_WORDS_SECONDS = 0.05  # before the end of the process
_SECONDS = 5.0  # for the bytes of a request, and of an answer


class Answers(Protocol):
    """What is asked: `verbs.Verbs`."""

    ends: int | None

    def table(self) -> Mapping[str, Callable[[Request], object]]:
        """The verbs by name."""

    def events(self) -> Generator[Happened | None, None, None]:
        """The stream; its first item comes when it has begun."""


class Watchdog:
    """Ends the process when a call is over its deadline, and writes to standard error what hangs, and where each thread was."""

    def __init__(
        self,
        start: Callable[[float], None] | None = None,
        stop: Callable[[], None] = faulthandler.cancel_dump_traceback_later,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._start = start or _end_later
        self._stop = stop
        self._say = say or _said
        self._mutex = Lock()
        self._deadlines: list[float] = []

    @contextmanager
    def within(self, seconds: float, what: str) -> Iterator[None]:
        """A call that must return within this time. A hang that keeps Python's lock prevents the words, and not the end."""
        deadline = time.monotonic() + seconds
        words = Timer(max(seconds - _WORDS_SECONDS, 0), self._say, [_hangs(what, seconds)])
        words.daemon = True
        words.start()
        with self._mutex:
            self._deadlines.append(deadline)
            self._set()
        try:
            yield
        finally:
            words.cancel()
            with self._mutex:
                self._deadlines.remove(deadline)
                self._set()

    def _set(self) -> None:
        if self._deadlines:
            self._start(max(min(self._deadlines) - time.monotonic(), 0.001))
        else:
            self._stop()


class Server:
    """Answers requests. `end` ends the process with an exit code, and does not return."""

    def __init__(self, answers: Answers, watchdog: Watchdog, end: Callable[[int], None]) -> None:
        self._answers = answers
        self._table = answers.table()
        self._watchdog = watchdog
        self._end = end
        self._places = BoundedSemaphore(MOST_REQUESTS)

    def take(self, connection: socket.socket) -> None:
        """Answer the request of a connection, on a thread of its own."""
        if not self._places.acquire(blocking=False):
            connection.close()
            return
        Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: socket.socket) -> None:
        try:
            with closing(connection):
                self._serve(connection)
        except (Broken, TimeoutError):
            return  # whoever asked has gone, or sent no request
        except Replaced:
            self._end(0)  # without an answer: the next process gives it
        finally:
            self._places.release()
        if self._answers.ends is not None:
            self._end(self._answers.ends)

    def _serve(self, connection: socket.socket) -> None:
        request = receive(connection, Request, seconds=_SECONDS)
        if request.verb == "events":
            self._stream(connection)
            return
        verb = self._table.get(request.verb)
        if verb is None:
            message = f"the hardware process has no verb {request.verb!a:.40}; run both containers with the same image"
            send(connection, Answer(error=Failure(message)), seconds=_SECONDS)
            return
        with self._watchdog.within(DEADLINES[request.verb], request.verb):
            answer = _answer(lambda: verb(request))
        send(connection, answer, seconds=_SECONDS)

    def _stream(self, connection: socket.socket) -> None:
        events = self._answers.events()
        with closing(events):
            with self._watchdog.within(DEADLINES["events"], "events"):
                answer = _answer(lambda: next(events, None))
            send(connection, answer, seconds=_SECONDS)
            if answer.error is not None:
                return
            try:
                for happened in events:
                    if happened is not None:
                        send(connection, happened, seconds=_SECONDS)
                    elif arrives(connection, seconds=0):
                        return  # nobody sends anything here: the other side has closed
            except Failed as failure:
                print(f"the stream of events ends: {failure}", file=sys.stderr)  # noqa: T201


def _answer(ask: Callable[[], object]) -> Answer:
    try:
        return Answer(msgspec.Raw(msgspec.json.encode(ask())))
    except Failed as failure:
        return Answer(error=failure.failure)
    except Replaced:
        raise
    except Exception as error:  # noqa: BLE001  the library and pynvml are other people's code
        traceback.print_exc()
        return Answer(
            error=Failure(
                f"the hardware process cannot answer this, which is a fault of it: {type(error).__name__}: {error}; "
                "its log has the traceback",
                retry=True,
            )
        )


def _hangs(what: str, seconds: float) -> str:
    return (
        f"hardware process: the request `{what}` has not returned within {seconds:.0f} s, because a call of NVIDIA's library hangs; this "
        "process ends now, and the next request gets another one. The kernel's log of the node (dmesg) may say why. For a report, this is "
        "where each thread was:"
    )


def _said(words: str) -> None:
    print(words, file=sys.stderr, flush=True)  # noqa: T201


def _end_later(seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True)


def end(code: int = 0) -> None:
    """End the process at once, whatever its threads do."""
    os._exit(code)
