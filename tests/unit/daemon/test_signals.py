# SPDX-License-Identifier: Apache-2.0
"""A signal is noted whatever the main thread is doing."""

import fcntl
import os
import signal
import subprocess
import sys

from dra_driver.daemon.signals import signals
from dra_driver.model.exit_codes import INTERRUPTED

# The handler runs while the main thread is inside the logger, which has a lock.
LOGGING = """
import os, signal, sys
from dra_driver.daemon.signals import signals
from dra_driver.daemon.logs import make_logger

class Stream:
    sent = False
    def write(self, text):
        if not self.sent:
            self.sent = True
            os.kill(os.getpid(), signal.SIGTERM)
    def flush(self):
        pass

sys.stderr = Stream()
log = make_logger(level="info", form="json")
with signals() as end_signal:
    log.info("serving")
    log.info("stopping", signal=end_signal.wait())
    print("ended")
"""


def test_the_first_signal_is_waited_for_and_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with signals() as end_signal:
        os.kill(os.getpid(), signal.SIGTERM)
        assert end_signal.wait() == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_in_the_middle_of_a_log_line_stops_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOGGING], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_a_hangup_does_nothing_and_the_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGHUP)
    with signals() as end_signal:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        assert end_signal.wait() == "SIGTERM"
    assert signal.getsignal(signal.SIGHUP) is before


def test_the_second_signal_leaves_at_once() -> None:
    script = (
        "import os, signal\nfrom dra_driver.daemon.signals import signals\n"
        "with signals():\n for _ in range(2): os.kill(os.getpid(), signal.SIGINT)\n print('never')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (INTERRUPTED, "")


def test_a_signal_that_another_thread_takes_is_noted_too() -> None:
    """The kernel may give it to any thread, and no waiting of the main thread is interrupted then."""
    script = (
        "import signal, threading, time\nfrom dra_driver.daemon.signals import signals\n"
        "def take():\n"
        "    while open('/proc/self/syscall').read().split()[0] == 'running': pass\n"  # until it waits
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "with signals() as end_signal:\n"
        "    threading.Thread(target=take).start()\n"
        "    print(end_signal.wait())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "SIGTERM\n"), done.stderr


def test_stacks_are_shown_while_they_change() -> None:
    """Whoever reads the stack of a thread that goes on ends the process sooner or later."""
    script = (
        "import sys, threading\nfrom dra_driver.daemon.signals import signals, stack_dumps\n"
        "def deeper(left):\n    return left and deeper(left - 1)\n"
        "def work():\n    while True: deeper(50)\n"
        "with stack_dumps(), signals() as end_signal:\n"
        "    for _ in range(3): threading.Thread(target=work, daemon=True).start()\n"
        "    print('ready', file=sys.stderr, flush=True)\n"
        "    end_signal.wait()"  # not a read, which may begin after a signal and before its handler
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        for _ in range(50):
            process.send_signal(signal.SIGQUIT)
            assert any(line.startswith("Current thread") for line in process.stderr)
        process.kill()


# The C library opens this file when the first thread of a process ends.
LOADED = "import ctypes\nctypes.CDLL('libgcc_s.so.1')\n"


def test_stacks_are_shown_without_a_free_file_descriptor() -> None:
    script = LOADED + (
        "import os, resource, signal, sys\nfrom dra_driver.daemon.signals import stack_dumps\n"
        "with stack_dumps():\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "    os.kill(os.getpid(), signal.SIGQUIT)\n"
        "    sys.stdin.readline()\n"
        "    print('goes on')"
    )
    with _started(script) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert any(line.startswith("Current thread") for line in process.stderr)
        assert process.communicate("\n", timeout=300)[0] == "goes on\n"


def test_without_memory_for_the_stacks_a_line_says_so() -> None:
    script = LOADED + (
        "import os, resource, signal, sys\nfrom dra_driver.daemon.signals import stack_dumps\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "with stack_dumps():\n"
        "    os.kill(os.getpid(), signal.SIGQUIT)\n"
        "    sys.stdin.readline()"
    )
    with _started(script) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == (
            "cannot show the stacks: memfd_create: [Errno 24] Too many open files\n"
        )
        process.communicate("\n", timeout=300)
        assert process.returncode == 0


def test_stacks_that_nobody_reads_hold_up_no_end() -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    script = (
        "import os, signal\nfrom dra_driver.daemon.signals import signals, stack_dumps\n"
        "with stack_dumps(), signals() as end_signal:\n"
        "    os.kill(os.getpid(), signal.SIGQUIT)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print(end_signal.wait())"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=writer,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert (done.returncode, done.stdout) == (0, "SIGTERM\n")


def _started(script: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
