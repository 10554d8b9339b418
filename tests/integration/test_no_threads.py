# SPDX-License-Identifier: Apache-2.0
"""The real driver in a system that gives it no more threads, as with a limit of pids: it ends at once, and the next one serves."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO

from dra_driver.model.exit_codes import NOT_DONE
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DEADLINE_SECONDS, DRIVER, Stage

CALLS = 16
# The driver, which gets no thread any more after SIGUSR1.
LIMITED = """
import signal, sys, threading
from dra_driver.cli.main import main
def refuse(_thread):
    raise RuntimeError("can't start new thread")
def limit(*_):
    threading.Thread.start = refuse
    print("LIMITED", file=sys.stderr, flush=True)
signal.signal(signal.SIGUSR1, limit)
raise SystemExit(main())
"""


def start_limited(
    _module: str, arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    command = (sys.executable, "-c", LIMITED, *arguments)
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )


def test_the_process_ends_and_says_why_and_the_next_one_serves(node: Stage) -> None:
    normal, node.start_child = node.start_child, start_limited
    node.start_registered()
    node.wait_for(node.published, "the slices are published")
    assert node.process is not None
    node.process.send_signal(signal.SIGUSR1)
    node.wait_for(lambda: "LIMITED" in node.log(), "the limit")
    claims = [node.claim(f"c-{number}", [f"gpu-{number % 8}"]) for number in range(CALLS)]

    def prepare(number: int) -> None:
        with suppress(KubeletError):
            node.kubelet.prepare(DRIVER, [claims[number]], pod=f"default/p-{number}")

    with ThreadPoolExecutor(CALLS) as kubelet:
        list(kubelet.map(prepare, range(CALLS)))
    assert node.process.wait(DEADLINE_SECONDS) == NOT_DONE
    last = json.loads(node.log().splitlines()[-1])
    assert last["event"] == "socket_not_served"
    assert "RuntimeError: can't start new thread" in last["error"]
    assert "raise the limit of pids" in last["next_step"]
    node.start_child = normal
    node.start_registered()
    assert node.kubelet.prepare(DRIVER, claims[:1], pod="default/p-0")[claims[0].uid]
