# SPDX-License-Identifier: Apache-2.0
"""The real driver with a log that nobody reads: standard error is a pipe, and its reader stops."""

import fcntl
import json
import os
import signal
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest

from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.stage import DRIVER, Stage
from tests.support import starting

PIPE_BYTES = 4096  # the smallest pipe of Linux: about ten lines
CALLS = 20  # more lines than fit


class Log:
    """The pipe, and what was read of it."""

    def __init__(self) -> None:
        self.lines: list[dict[str, str | int]] = []

    def start_child(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], _log: IO[bytes]
    ) -> starting.Process:
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        with os.fdopen(writer, "wb") as ours:
            process = starting.start(module, arguments, stdout=ours, stderr=ours, env=environment)
        self.pipe = os.fdopen(reader, "rb", buffering=0)
        return process

    def read_until(self, event: str) -> dict[str, str | int]:
        while not self.lines or self.lines[-1]["event"] != event:
            self.lines.append(json.loads(self.pipe.readline()))
        return self.lines[-1]


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.pipe.close()


@pytest.fixture
def node(log: Log) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(dir="/tmp") as root, FakeApi(versions=("v1",)) as api:
        flags = ("--http-address", "127.0.0.1:0")
        found = Stage(Path(root), api, *flags, start_child=log.start_child)
        yield found
        found.close()


def prepare_and_unprepare(node: Stage) -> list[str]:
    """More claims than the pipe has room for their lines; returns their names."""
    names = [f"claim-{number}" for number in range(CALLS)]
    for name in names:
        ref = node.claim(name, ["gpu-0"])
        assert node.kubelet.prepare(DRIVER, [ref])[ref.uid]
        node.kubelet.unprepare(DRIVER, [ref])
    return names


def test_claims_are_prepared_and_nothing_is_lost_when_the_log_is_read_again(
    node: Stage, log: Log
) -> None:
    node.start_registered()
    node.wait_for(node.published, "the slices are published")
    port = log.read_until("http")["port"]
    names = prepare_and_unprepare(node)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        metrics = dict(line.rsplit(b" ", 1) for line in page if not line.startswith(b"#"))
    assert float(metrics[b"dra_driver_log_lines_waiting"]) > CALLS
    assert float(metrics[b"dra_driver_log_lines_dropped_total"]) == 0
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez") as page:
        assert page.status == 200
    while not (
        log.lines[-1]["event"] == "claim_unprepared" and log.lines[-1]["claim_name"] == names[-1]
    ):
        log.lines.append(json.loads(log.pipe.readline()))
    told = [line["claim_name"] for line in log.lines if line["event"] == "claim_prepared"]
    assert told == names


def test_the_process_ends_in_time(node: Stage) -> None:
    node.start_registered()
    node.wait_for(node.published, "the slices are published")
    prepare_and_unprepare(node)
    assert node.stop(signal.SIGTERM) == 0


def test_the_last_lines_of_a_process_that_ends_are_written(node: Stage, log: Log) -> None:
    node.start_registered()
    node.wait_for(node.published, "the slices are published")
    node.process.send_signal(signal.SIGTERM)  # type: ignore[union-attr]
    assert log.read_until("ended")["level"] == "info"
    assert log.pipe.read() == b""
