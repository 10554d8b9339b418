# SPDX-License-Identifier: Apache-2.0
"""Nobody waits for the reader of the log, and the log says what it lacks. The log is a real pipe."""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from dra_driver.daemon.log_queue import LogQueue
from dra_driver.errors import Fatal

DEADLINE = 300.0  # seconds, against hanging only
PIPE_BYTES = 4096  # the smallest pipe of Linux
LINE = "x" * 99 + "\n"


class Bed:
    """A queue before a pipe of one page, and what it told."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.told: list[tuple[int, int]] = []
        self.queue = LogQueue(self.writer, limit=1000)

    def tell(self, new: int, since_start: int) -> None:
        self.told.append((new, since_start))
        self.queue.write(f"missing {new}\n")

    def fill(self) -> None:
        """Write until the pipe is full and the writing thread hangs in it."""
        os.set_blocking(self.writer, False)
        try:
            while True:
                os.write(self.writer, b"-" * 100)
        except BlockingIOError:
            os.set_blocking(self.writer, True)

    def read_until(self, end: str) -> str:
        text = b""
        while not text.endswith(end.encode()):
            text += os.read(self.reader, 1 << 16)
        return text.decode().lstrip("-")


@pytest.fixture
def bed() -> Iterator[Bed]:
    made = Bed()
    yield made
    os.close(made.reader)
    os.close(made.writer)


def test_lines_keep_their_order_and_are_all_written_at_the_end(bed: Bed) -> None:
    lines = [f"line {number}\n" for number in range(10)]
    for line in lines[:5]:
        bed.queue.write(line)  # before the thread runs
    bed.queue.start(bed.tell)
    for line in lines[5:]:
        bed.queue.write(line)
    assert bed.queue.end(seconds=DEADLINE)
    assert os.read(bed.reader, 1 << 16).decode() == "".join(lines)
    assert (bed.told, bed.queue.dropped(), bed.queue.waiting()) == ([], 0, 0)


def test_a_reader_that_stopped_holds_up_nobody_and_learns_later_how_much_it_lacks(bed: Bed) -> None:
    bed.fill()
    bed.queue.start(bed.tell)
    for _ in range(30):  # a thousand characters fit
        bed.queue.write(LINE)
    assert (bed.queue.waiting(), bed.queue.dropped(), bed.told) == (10, 20, [])
    assert not bed.queue.end(seconds=0.0)  # the process could end now
    assert bed.read_until(LINE * 10) == LINE * 10


def test_what_is_missing_follows_the_lines_before_it(bed: Bed) -> None:
    bed.fill()
    bed.queue.start(bed.tell)
    for _ in range(30):
        bed.queue.write(LINE)
    assert bed.read_until("missing 20\n") == LINE * 10 + "missing 20\n"
    bed.queue.write("after\n")
    assert bed.read_until("after\n") == "after\n"
    assert (bed.told, bed.queue.dropped()) == ([(20, 20)], 20)


def test_one_line_longer_than_the_queue_is_written_if_it_is_alone(bed: Bed) -> None:
    bed.queue.start(bed.tell)
    bed.queue.write("y" * 2000 + "\n")
    assert bed.queue.end(seconds=DEADLINE)
    assert bed.queue.dropped() == 0


def test_lines_that_cannot_be_written_are_counted_and_told_when_one_can() -> None:
    """Standard error is a full disk for two lines, and a pipe from the third on."""
    full = os.open("/dev/full", os.O_WRONLY)
    reader, writer = os.pipe()
    told: list[tuple[int, int]] = []
    failed, queue = threading.Event(), LogQueue(full)
    queue.start(lambda new, since_start: told.append((new, since_start)))
    try:
        queue.write("one\n")
        queue.write("two\n")
        until(lambda: queue.waiting() == 0, failed)
        assert (queue.dropped(), told) == (2, [])
        os.dup2(writer, full)
        queue.write("three\n")
        assert queue.end(seconds=DEADLINE)
        assert (queue.dropped(), told, os.read(reader, 100)) == (2, [(2, 2)], b"three\n")
    finally:
        for file in (full, reader, writer):
            os.close(file)


def until(condition: Callable[[], bool], never: threading.Event) -> None:
    while not condition():
        assert not never.wait(0.001)


def test_text_that_is_no_utf_8_is_written(bed: Bed) -> None:
    bed.queue.start(bed.tell)
    bed.queue.write("half \ud800\n")
    assert bed.queue.end(seconds=DEADLINE)
    assert os.read(bed.reader, 100) == b"half \\ud800\n"


def test_without_a_thread_the_start_says_what_to_raise(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(Fatal, match="raise the limit of processes and threads"):
        bed.queue.start(bed.tell)


def test_a_line_may_be_written_while_a_line_is_written(bed: Bed) -> None:
    """As when garbage is collected there, and what is collected logs."""
    queue = bed.queue._queue

    class Collecting:
        def put(self, line: str) -> None:
            if line == "outer\n":
                bed.queue.write("inner\n")
            queue.put(line)

    bed.queue._queue = Collecting()
    bed.queue.write("outer\n")
    bed.queue._queue = queue
    assert bed.queue.waiting() == 2
    bed.queue.start(bed.tell)
    assert bed.read_until("outer\n") == "inner\nouter\n"
    assert bed.queue.end(seconds=DEADLINE)
    assert bed.queue.waiting() == 0
