# SPDX-License-Identifier: Apache-2.0
"""Is a forked process what the program would be: arguments, environment, files, signals, exit codes, an end with the tests?"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.testing.stage import DEADLINE_SECONDS, wait_for
from tests.support import starting

CHILD = """
import json, os, signal, sys, threading
if __name__ == "__main__":
    print(json.dumps({
        "arguments": sys.argv[1:],
        "variable": os.environ.get("OF_THE_CHILD"),
        "path": os.environ.get("PATH"),
        "directory": os.getcwd(),
        "leads_session": os.getsid(0) == os.getpid(),
        "input": sys.stdin.read(),
        "threads": threading.active_count(),
        "signals": [signal.getsignal(one) is signal.SIG_DFL for one in (signal.SIGTERM, signal.SIGHUP)],
        "files": sorted(os.listdir("/proc/self/fd"))[:3],
    }), flush=True)
    print("a warning", file=sys.stderr)
    if sys.argv[1] == "sleep":
        signal.pause()
    sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that a fresh fork server finds."""
    (tmp_path / "the_child.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
        monkeypatch.delenv(name, raising=False)  # it would say that nothing of the driver ran
    monkeypatch.setattr(starting, "FORKS", True)
    server = starting.ForkServer()
    monkeypatch.setattr(starting, "fork_server", lambda: server)
    yield "the_child"
    server.close()


@pytest.mark.parametrize("program", [True, False])
def test_a_module_runs_to_its_exit_code_with_what_it_is_given(
    module: str, monkeypatch: pytest.MonkeyPatch, program: bool
) -> None:
    monkeypatch.setenv("OF_THE_CHILD", "x")
    ended = starting.run(module, "7", "two words", timeout=DEADLINE_SECONDS, program=program)
    assert (ended.returncode, ended.stderr) == (7, "a warning\n")
    assert json.loads(ended.stdout) == {
        "arguments": ["7", "two words"],
        "variable": "x",
        "path": os.environ["PATH"],
        "directory": str(Path.cwd()),
        "leads_session": False,
        "input": "",
        "threads": 1,
        "signals": [True, signal.getsignal(signal.SIGHUP) is signal.SIG_DFL],  # as under nohup
        "files": ["0", "1", "2"],
    }


@pytest.mark.parametrize("program", [True, False])
def test_signals_reach_it_and_its_end_is_seen(module: str, program: bool) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = starting.start(
            module,
            ["sleep"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            program=program,
        )
        assert process.stdout is not None
        with process.stdout as lines:
            assert json.loads(lines.readline())["leads_session"]
            assert lines.readline() == b"a warning\n"
            assert process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0)
            process.send_signal(number)
            assert process.wait(DEADLINE_SECONDS) == -number
            assert lines.read() == b""
        assert (process.poll(), process.returncode) == (-number, -number)
        process.kill()  # nobody is there any more, and nobody else is hit


def test_no_child_outlives_the_tests(module: str, tmp_path: Path) -> None:
    script = f"""
import os, signal, subprocess
from tests.support import starting
child = starting.start({module!r}, ["sleep"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(child.pid, starting.fork_server()._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run(
        (sys.executable, "-c", script),
        stdout=subprocess.PIPE,
        cwd=starting.ROOT,
        env={**os.environ, "DRA_TESTS_START": "fork"},
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    for number in ended.stdout.split():
        wait_for(lambda pid=int(number): not runs(pid), "the end of the child and of the server")


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # whoever adopts it need not wait for it


WITH_A_THREAD = """
import threading
from tests.support import fork_server
threading.Thread(target=threading.Event().wait, daemon=True).start()
fork_server._forked()
"""


def test_a_server_with_a_second_thread_refuses_to_fork() -> None:
    ended = subprocess.run(
        (sys.executable, "-c", WITH_A_THREAD),
        capture_output=True,
        text=True,
        cwd=starting.ROOT,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert ended.returncode == 1
    assert "a fork would lose threads" in ended.stderr
