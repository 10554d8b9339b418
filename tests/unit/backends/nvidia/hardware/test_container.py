# SPDX-License-Identifier: Apache-2.0
"""The two processes of the second container: the one that listens, and the one that calls the library."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.backends.nvidia.hardware import container, wire
from dra_driver.backends.nvidia.hardware.wire import Answer, Broken, Request, receive, send
from dra_driver.backends.nvidia.link import Socket
from dra_driver.cli.main import main
from dra_driver.errors import Fatal, Permanent, Temporary
from tests.support import hardware_worker
from tests.support.hardware_worker import Script

ROOT = Path(hardware_worker.__file__).resolve().parents[2]
SERVE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from functools import partial
from pathlib import Path
import msgspec
from dra_driver.backends.nvidia.hardware import container
from dra_driver.backends.nvidia.hardware.container import serve
from tests.support import hardware_worker

def work(control, closed_until):
    script = msgspec.json.decode(Path(sys.argv[2]).read_bytes(), type=hardware_worker.Script)
    hardware_worker.work(script, control, closed_until)

container.CLOSED_SECONDS = float(sys.argv[3])
serve(sys.argv[1], work)
"""


class Bed:
    """The container; `play` says what the next second process does."""

    def __init__(self, folder: Path, closed: str = "0") -> None:
        self.path = str(folder / "hardware.sock")
        self._script = folder / "script.json"
        self.play(Script())
        self.first = subprocess.Popen(
            (sys.executable, "-c", SERVE, self.path, str(self._script), closed),
            stderr=subprocess.PIPE,
        )
        self.hardware = HardwareProcess(Socket(self.path), grace=1.0)
        eventually(self._listens)

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.path) == 0

    def play(self, script: Script) -> None:
        self._script.write_bytes(msgspec.json.encode(script))

    def replay(self, script: Script) -> None:
        """Play this from now on: the running second process is replaced."""
        self.hardware.let_go()
        eventually(lambda: not self.seconds())
        self.play(script)

    def second(self) -> int:
        return int(self.seconds()[0])

    def seconds(self) -> list[str]:
        tasks = Path(f"/proc/{self.first.pid}/task")
        return " ".join((task / "children").read_text() for task in tasks.iterdir()).split()

    def close(self) -> str:
        self.first.terminate()
        _, said = self.first.communicate(timeout=20)
        return said.decode()


def eventually(happens: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def bed() -> Iterator[Bed]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a short path, for the socket
        made = Bed(Path(folder))
        yield made
        if made.first.poll() is None:
            made.close()


def test_the_socket_is_for_root_only_and_goes_with_the_process(bed: Bed) -> None:
    assert Path(bed.path).stat().st_mode & 0o777 == 0o600
    assert len(bed.hardware.look().gpus) == 2
    second = bed.second()
    bed.close()
    assert bed.first.returncode == 0
    assert not Path(bed.path).exists()
    eventually(lambda: not Path(f"/proc/{second}").exists())


def test_a_second_process_that_dies_is_reaped_and_replaced(bed: Bed) -> None:
    bed.hardware.look()
    first = bed.second()
    os.kill(first, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{first}").exists())  # no zombie either
    assert len(bed.hardware.look().gpus) == 2
    assert bed.second() != first


def test_a_call_that_hangs_costs_one_gpu_and_the_container_goes_on(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.replay(Script(hang=(("nvmlDeviceGetTemperature", 0),), deadline=0.5))
    monkeypatch.setitem(wire.DEADLINES, "gpu", 0.5)
    gpus = bed.hardware.look().gpus
    assert [bool(gpu.problem) for gpu in gpus] == [True, False]
    assert bed.first.poll() is None
    assert "Timeout" in bed.close()


def test_a_second_process_that_is_stopped_is_killed_and_replaced(bed: Bed) -> None:
    bed.hardware.look()
    first = bed.second()
    os.kill(first, signal.SIGSTOP)
    assert len(bed.hardware.look().gpus) == 2
    assert not Path(f"/proc/{first}").exists()


def test_the_end_of_the_first_process_ends_the_second_one(bed: Bed) -> None:
    bed.hardware.look()
    second = bed.second()
    bed.first.kill()
    eventually(lambda: not Path(f"/proc/{second}").exists())
    bed.first.communicate()


def test_to_let_go_ends_the_second_process_only(bed: Bed) -> None:
    bed.hardware.look()
    bed.hardware.let_go()
    eventually(lambda: not bed.seconds())
    assert len(bed.hardware.look().gpus) == 2


def test_a_library_that_was_let_go_stays_closed_in_the_next_process() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        bed = Bed(Path(folder), closed="60")
        bed.hardware.look()
        bed.hardware.let_go()
        eventually(lambda: not bed.seconds())
        found = bed.hardware.look()
        os.kill(bed.second(), signal.SIGKILL)  # whatever happens to the next one
        again = bed.hardware.look()
        bed.close()
    for node in (found, again):
        assert "stays closed for" in node.problem
        assert node.gpus == ()


def test_the_command_asks_whether_it_answers_and_lets_go(
    bed: Bed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hardware", "--socket", bed.path, "--probe"]) == 0
    assert main(["hardware", "--socket", bed.path, "--let-go"]) == 0
    eventually(lambda: not bed.seconds())
    bed.close()
    assert main(["hardware", "--socket", bed.path, "--probe"]) == 1
    assert "cannot be reached" in capsys.readouterr().err


def test_the_command_serves_and_says_why_it_cannot(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = f"{folder}/hardware.sock"
        program = (sys.executable, "-m", "dra_driver", "hardware", "--host-root", str(tmp_path))
        with subprocess.Popen((*program, "--socket", path)) as process:
            eventually(lambda: main(["hardware", "--socket", path, "--probe"]) == 0)
            assert "no NVIDIA driver was found" in HardwareProcess(Socket(path)).look().problem
            process.terminate()
        assert process.returncode == 0
        wrong = (*program, "--socket", f"{folder}/none/hardware.sock")
        done = subprocess.run(wrong, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("dra-driver: the hardware process cannot listen on")
    assert done.stderr.count("\n") == 1


def test_garbage_on_the_socket_costs_its_connection(bed: Bed) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(bed.path)
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(Broken):
            receive(connection, Answer, seconds=10)
    assert len(bed.hardware.look().gpus) == 2


def test_what_answers_garbage_is_not_believed(bed: Bed) -> None:
    bed.replay(Script(say="\x00\x00\x00\x02[]"))
    with pytest.raises(Temporary, match="gave no answer to `node`"):
        bed.hardware.look()


def test_a_probe_that_gets_no_answer_fails(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bed.replay(Script(say=""))
    assert main(["hardware", "--socket", bed.path, "--probe"]) == 1
    assert "does not answer `ping`" in capsys.readouterr().err


def test_a_socket_that_a_killed_process_left_is_replaced_and_a_living_one_is_not(
    tmp_path: Path, bed: Bed
) -> None:
    with pytest.raises(Fatal, match="another process listens"):
        container._listen(bed.path)
    bed.first.kill()
    bed.first.communicate()
    assert Path(bed.path).exists()
    container._listen(bed.path).close()


def test_a_path_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(Fatal, match="is no socket"):
        container._listen(str(file))
    assert file.read_text() == "mine"
    with pytest.raises(Fatal, match=r"cannot listen on .*none/x: No such file"):
        container._listen(str(tmp_path / "none" / "x"))


def test_only_root_and_the_own_user_are_answered(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_driver.backends.nvidia.link.owner", lambda _: 65534)
    with pytest.raises(Permanent, match="runs as user 65534"):
        bed.hardware.look()
    monkeypatch.setattr(container, "owner", lambda _: 65534)
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        container._pass_on(theirs, None)  # type: ignore[arg-type]
    monkeypatch.undo()


def test_a_request_is_answered_over_the_socket(bed: Bed) -> None:
    with closing(Socket(bed.path).connect().socket) as connection:
        send(connection, Request("ping"), seconds=5)
        assert receive(connection, Answer, seconds=5) == Answer()


def test_without_a_socket_the_reason_and_the_container_are_named(tmp_path: Path) -> None:
    with pytest.raises(Temporary, match=r"No such file or directory.*container `hardware`"):
        HardwareProcess(Socket(str(tmp_path / "none"))).look()
