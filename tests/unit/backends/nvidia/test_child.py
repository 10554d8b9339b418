# SPDX-License-Identifier: Apache-2.0
"""The hardware process as a real process: it hangs, dies, answers garbage, and is replaced."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dra_driver.backends.nvidia import child
from dra_driver.backends.nvidia.child import Child, command, link_of
from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.backends.nvidia.hardware import wire
from dra_driver.backends.nvidia.link import Socket
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.errors import Temporary
from tests.support import hardware_worker
from tests.support.hardware_worker import Script

PROGRAM = (sys.executable, hardware_worker.__file__)


class Bed:
    """A child that plays a script; `pid` is that of the running one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "script.json"
        self.play(Script())
        self.child = Child((*PROGRAM, str(self._path)))
        self.hardware = HardwareProcess(self.child, grace=1.0)

    def play(self, script: Script) -> None:
        self._path.write_bytes(msgspec.json.encode(script))

    @property
    def pid(self) -> int:
        running = self.child._keeper.running()
        assert isinstance(running, child._Process)
        return running.process.pid


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    yield made
    made.child.close()


def gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process has ended; a zombie counts as there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.01)
    return False


def test_a_child_starts_at_the_first_question_and_answers_many(bed: Bed) -> None:
    assert bed.child._keeper.running() is None
    assert len(bed.hardware.look().gpus) == 2
    first = bed.pid
    bed.hardware.look()
    assert bed.pid == first


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_that_dies_is_replaced_without_anybody_noticing(number: int, bed: Bed) -> None:
    bed.hardware.look()
    first = bed.pid
    os.kill(first, number)
    assert len(bed.hardware.look().gpus) == 2
    assert bed.pid != first
    assert gone(first)


def test_a_child_that_hangs_in_a_call_ends_itself_and_costs_one_gpu(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bed.hardware.look()
    first = bed.pid
    bed.play(Script(hang=(("nvmlDeviceGetTemperature", 0),), deadline=0.5))
    os.kill(first, signal.SIGKILL)
    monkeypatch.setitem(wire.DEADLINES, "gpu", 0.5)
    gpus = bed.hardware.look().gpus
    assert [bool(gpu.problem) for gpu in gpus] == [True, False]
    assert "after a call of the library that does not return" in gpus[0].problem
    assert "Timeout" in capfd.readouterr().err  # it wrote where it hung


def test_a_child_that_is_stopped_is_killed_and_replaced(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.hardware.look()
    first = bed.pid
    keeper = bed.child._keeper
    start = keeper._start

    def with_patience() -> object:
        keeper._seconds = 60.0  # the next one may start on a busy machine
        return start()

    monkeypatch.setattr(keeper, "_start", with_patience)
    monkeypatch.setattr(keeper, "_seconds", 1.0)
    os.kill(first, signal.SIGSTOP)
    assert len(bed.hardware.look().gpus) == 2
    assert gone(first)


def test_a_child_that_answers_garbage_costs_each_request_but_never_the_driver(bed: Bed) -> None:
    bed.play(Script(say="HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(Temporary, match="gave no answer to `node`"):
        bed.hardware.look()
    bed.play(Script())
    assert len(bed.hardware.look().gpus) == 2


def test_a_child_that_ends_at_once_is_said(bed: Bed) -> None:
    bed.play(Script(dies=True))
    with pytest.raises(Temporary, match="ends or hangs at its start"):
        bed.hardware.look()
    bed.play(Script())
    assert len(bed.hardware.look().gpus) == 2


def test_a_child_that_takes_no_connection_is_said(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bed.child._keeper, "_seconds", 0.3)
    bed.play(Script(deaf=True))
    with pytest.raises(Temporary, match="ends or hangs at its start"):
        bed.hardware.look()


def test_a_program_that_does_not_exist_is_said() -> None:
    with pytest.raises(Temporary, match="cannot be started"):
        HardwareProcess(Child(("/nonexistent/python",))).look()


def test_to_let_go_leaves_no_process(bed: Bed) -> None:
    bed.hardware.look()
    first = bed.pid
    bed.hardware.let_go()
    assert gone(first, 0.1)
    bed.hardware.let_go()
    bed.hardware.close()


def test_a_child_ends_with_the_driver_even_after_a_sigkill(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_bytes(msgspec.json.encode(Script()))
    driver = f"""
import os, signal
from dra_driver.backends.nvidia.child import Child
from dra_driver.backends.nvidia.client import HardwareProcess
child = Child({(*PROGRAM, str(script))!r})
HardwareProcess(child).look()
print(child._keeper.running().process.pid, flush=True)
signal.pause()
"""
    with subprocess.Popen((sys.executable, "-c", driver), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        process.kill()
    assert gone(pid)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coverage imports modules of its own into each process that it measures."""
    for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("unmeasured")
def test_the_real_process_answers_on_a_machine_without_gpu_and_imports_nothing_of_the_daemon(
    tmp_path: Path,
) -> None:
    real = Child(command(str(tmp_path), ""))
    try:
        found = HardwareProcess(real).look()
        running = real._keeper.running()
        assert isinstance(running, child._Process)
        maps = Path(f"/proc/{running.process.pid}/maps").read_text()
    finally:
        real.close()
    assert "no NVIDIA driver was found" in found.problem
    assert found.gpus == ()
    for library in ("grpc", "protobuf", "_yaml", "_sqlite3", "_ssl", "re2"):
        assert library not in maps


@pytest.mark.usefixtures("unmeasured")
def test_the_hardware_process_imports_only_what_it_needs() -> None:
    code = "import dra_driver.backends.nvidia.hardware.worker, sys; print(*sorted(sys.modules))"
    done = subprocess.run(
        (sys.executable, "-I", "-c", code), capture_output=True, text=True, check=True
    )
    modules = {name.partition(".")[0] for name in done.stdout.split()}
    unwanted = {"grpc", "structlog", "yaml", "urllib3", "google", "prometheus_client", "re2"}
    assert not modules & (unwanted | {"asyncio", "logging", "sqlite3", "ssl"})
    own = {name for name in done.stdout.split() if name.startswith("dra_driver.")}
    rooms = {name.split(".")[1] for name in own}
    assert rooms <= {"backends", "errors"}


def test_the_options_say_which_process_it_is(tmp_path: Path) -> None:
    assert isinstance(link_of(NvidiaOptions(socket="/run/x.sock")), Socket)
    assert isinstance(link_of(NvidiaOptions()), Child)
    assert command("/host", "/opt/nvidia")[-4:] == (
        *("--host-root", "/host"),
        *("--driver-root", "/opt/nvidia"),
    )
