# SPDX-License-Identifier: Apache-2.0
"""No thread ends silently, and a socket whose thread has ended is noticed. The server is a real one, on a real socket."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from threading import Event, Thread

import grpc
import pytest
import structlog
from structlog.testing import capture_logs

from dra_driver.daemon import uncaught
from dra_driver.daemon.uncaught import threads_and_limits, uncaught_errors
from dra_driver.kubelet.health_check import HealthCheck
from dra_driver.kubelet.pb import grpc_health_v1_pb2 as pb
from dra_driver.kubelet.sockets import SocketServer

DEADLINE = 300  # seconds, against hanging only


class Bed:
    """What the hook told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.ended = Event()

    def report(self, thread: str, error: BaseException) -> None:
        self.told.append(f"{thread}: {type(error).__name__}: {error}")

    def end(self) -> None:
        self.told.append("end")
        self.ended.set()


@pytest.fixture
def bed() -> Iterator[Bed]:
    made = Bed()
    with uncaught_errors(structlog.get_logger(), made.report, made.end):
        yield made


def run(work: Callable[[], object], name: str | None = None) -> None:
    thread = Thread(target=work, name=name)
    thread.start()
    thread.join(DEADLINE)


def test_a_thread_that_ends_with_an_error_is_told_and_the_process_goes_on(bed: Bed) -> None:
    def follow() -> None:
        raise KeyError("lost")

    run(follow)
    run(follow, "follow-claim")
    assert bed.told == ["follow: KeyError: 'lost'", "follow-claim: KeyError: 'lost'"]


def test_a_socket_that_got_no_thread_for_a_call_ends_the_process(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Thread.start

    def limited(thread: Thread) -> None:
        if thread.name.startswith("dra"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(Thread, "start", limited)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        server = SocketServer(
            Path(folder) / "s", [HealthCheck({}).handler()], workers=9, name="dra"
        )
        server.start()
        options = (("grpc.enable_http_proxy", 0),)
        with capture_logs() as logs, grpc.insecure_channel(f"unix:{folder}/s", options) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            call = check.future(pb.HealthCheckRequest().SerializeToString(), timeout=DEADLINE)
            assert bed.ended.wait(DEADLINE)
            call.cancel()
    assert bed.told == ["_serve: RuntimeError: can't start new thread", "end"]
    (line,) = logs
    assert line["event"] == "socket_not_served"
    assert "can't start new thread" in line["error"]
    assert "threads; RLIMIT_NPROC is " in line["found"]


@pytest.mark.parametrize(
    ("membership", "file"),
    [
        ("0::/\n", "pids.max"),
        ("1:name=systemd:/a\n8:pids:/kubepods/pod1\n", "pids/kubepods/pod1/pids.max"),
    ],
)
def test_the_limits_of_both_versions_of_cgroups_are_found(
    tmp_path: Path, membership: str, file: str
) -> None:
    (tmp_path / "task" / "1").mkdir(parents=True)
    (tmp_path / "cgroup").write_text(membership)
    limit = tmp_path / file
    limit.parent.mkdir(parents=True, exist_ok=True)
    limit.write_text("44\n")
    found = threads_and_limits(tmp_path, tmp_path)
    assert found.startswith("the process has 1 threads; RLIMIT_NPROC is ")
    assert found.endswith(f", {limit} is 44")
    limit.unlink()
    assert "pids.max" not in threads_and_limits(tmp_path, tmp_path)


def test_what_cannot_be_counted_ends_the_process_all_the_same(
    bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        threads_and_limits(tmp_path / "none")
        == "the threads cannot be counted: No such file or directory"
    )

    def failing() -> str:
        raise ValueError("no descriptors")

    monkeypatch.setattr(uncaught, "threads_and_limits", failing)
    monkeypatch.setattr(uncaught, "_SERVING", __name__)
    monkeypatch.setattr(sys, "stderr", StringIO())  # Python tells of an error in the hook

    def serve() -> None:
        raise RuntimeError("can't start new thread")

    run(serve)
    assert bed.told == ["serve: RuntimeError: can't start new thread", "end"]
