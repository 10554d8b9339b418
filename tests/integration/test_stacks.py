# SPDX-License-Identifier: Apache-2.0
"""Where the threads of the real driver are: told at SIGQUIT, whatever a thread does, and when the process crashes."""

import signal

import pytest

from dra_driver.testing.stage import DRIVER, Stage

HEADING = "most recent call first"
SEVERAL = 10  # threads


def test_a_quit_shows_all_threads_and_a_hangup_does_nothing(node: Stage) -> None:
    node.start_registered()
    node.wait_for(node.published, "the slices are published")
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)
    node.process.send_signal(signal.SIGQUIT)
    # The dump is written piece by piece, and the main thread comes last: it has the signal.
    node.wait_for(lambda: "Current thread" in node.log(), "the stacks")
    assert "daemon/supervisor.py" in node.log()
    assert node.log().count(HEADING) > SEVERAL
    claim = node.claim("one", ["gpu-0"])
    assert node.kubelet.prepare(DRIVER, [claim])[claim.uid]
    node.process.send_signal(signal.SIGQUIT)  # as often as you like
    node.wait_for(lambda: node.log().count("Current thread") > 1, "the stacks again")
    assert node.stop() == 0


@pytest.mark.parametrize("crash", [signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_shows_all_threads(node: Stage, crash: signal.Signals) -> None:
    node.start_registered()
    node.wait_for(node.published, "the slices are published")
    # The other threads go on while a crash reads their stacks, which may crash once more.
    assert node.stop(crash) in {-crash, -signal.SIGSEGV}
    assert "Fatal Python error" in node.log()
    assert HEADING in node.log()
