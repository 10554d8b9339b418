# SPDX-License-Identifier: Apache-2.0
"""Resources that come and go, and kubelets that come and go: what is registered when."""

import errno
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread

import grpc
import pytest
import structlog
from structlog.testing import capture_logs

from dra_driver.errors import Fatal
from dra_driver.kubelet.pb import deviceplugin_v1beta1_pb2 as pb
from dra_driver.kubelet.plugin.endpoint import NOT_YET, STEADY_SECONDS, STREAM_SECONDS
from dra_driver.kubelet.plugin.kubelet_socket import KubeletSocket
from dra_driver.kubelet.plugin.place import Place
from dra_driver.kubelet.plugin.server import PluginServer
from dra_driver.kubelet.sockets import PATH_LIMIT_BYTES, SocketServer, service, unary
from dra_driver.model.ids import DriverName, ResourceName
from dra_driver.testing.fake_kubelet import FakeKubelet
from tests.support.plugin_calls import GPU, HANG_SECONDS, Units, Work, unit

DRIVER = DriverName("gpu.example.com")
MIG = ResourceName("example.com/mig-1g.10gb")
NAME = re.compile(r"gpu\.example\.com-[0-9a-f]{8}\.sock")
ALL = ("1.30", "1.36", "1.37")  # the kubelet changed in 1.37


class Clock:
    """Stands still while the test makes the rounds, and runs for a thread, which may have to wait before it registers again."""

    def __init__(self) -> None:
        self.now = 0.0
        self.runs = False

    def __call__(self) -> float:
        return time.monotonic() if self.runs else self.now


class Bed:
    """A plugin server in a folder, whose rounds the test runs one by one, or a thread runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.work = Work()
        self.units = Units(unit("gpu-0"))
        self.ends = ExitStack()
        # Nothing is looked at without a reason: inotify and streams must say what happened.
        self.server = PluginServer(
            folder,
            driver=DRIVER,
            work=self.work,
            log=structlog.get_logger(),
            clock=self.clock,
            look_seconds=HANG_SECONDS,
        )
        self.ends.callback(self.server.stop, 0)

    def offer(self, *resources: ResourceName) -> None:
        self.server.set_resources(dict.fromkeys(resources, self.units))

    def run(self) -> None:
        self.clock.runs = True
        stop = Event()
        thread = Thread(target=self.server.run, args=(stop,))
        thread.start()
        self.ends.callback(thread.join)
        self.ends.callback(self.server.stop, 0)

    def sockets(self) -> list[str]:
        return sorted(
            path.name
            for path in self.folder.iterdir()
            if path.name != "kubelet.sock" and path.is_socket()
        )


@pytest.fixture
def bed(root: Path) -> Iterator[Bed]:
    found = Bed(root / "device-plugins")
    with found.ends:
        yield found


@pytest.fixture
def kubelet(root: Path, bed: Bed, request: pytest.FixtureRequest) -> FakeKubelet:
    found = FakeKubelet(root, version=getattr(request, "param", "1.37"))
    bed.ends.callback(found.close)
    return found


def until_offered(kubelet: FakeKubelet, allocatable: Mapping[str, int]) -> None:
    manager = kubelet.device_manager
    manager.until(lambda: manager.capacity()[1] == allocatable)


class Registry:
    """A kubelet's registration that answers what the test says, and opens no stream."""

    def __init__(self, folder: Path) -> None:
        self.refuses = ""
        self.asked: list[pb.RegisterRequest] = []
        self.before: Callable[[], object] = lambda: None
        methods = {"Register": unary(self.register, pb.RegisterRequest)}
        handlers = [service("v1beta1.Registration", methods)]
        self.server = SocketServer(folder / "kubelet.sock", handlers, workers=2, name="kubelet")
        self.server.start()

    def register(self, request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.Empty:
        self.asked.append(request)
        self.before()
        if self.refuses:
            context.abort(grpc.StatusCode.UNKNOWN, self.refuses)
        return pb.Empty()


@pytest.fixture
def registry(bed: Bed) -> Registry:
    found = Registry(bed.folder)
    bed.ends.callback(found.server.stop, 0)
    return found


# A kubelet that is there.


@pytest.mark.parametrize("kubelet", ALL, indirect=True)
def test_every_resource_is_registered_and_answers(bed: Bed, kubelet: FakeKubelet) -> None:
    bed.offer(GPU, MIG)
    bed.server.start()
    assert bed.server.reasons() == {GPU: NOT_YET, MIG: NOT_YET}
    assert not bed.server.has_all_lists()
    bed.run()
    until_offered(kubelet, {GPU: 1, MIG: 1})
    kubelet.device_manager.until(bed.server.has_all_lists)
    kubelet.admit("default/one", {"main": {GPU: 1, MIG: 1}})
    assert [call[:2] for call in bed.work.asked] == [
        ("prefer", GPU),
        ("allocate", GPU),
        ("prefer", MIG),
        ("allocate", MIG),
    ]
    assert len(bed.sockets()) == 2
    assert all(NAME.fullmatch(name) for name in bed.sockets())


def test_what_the_registration_says(bed: Bed, registry: Registry) -> None:
    bed.work.pre_start_required = True
    bed.offer(GPU)
    bed.server.start()
    with capture_logs() as logs:
        bed.server.round()
    assert registry.asked == [
        pb.RegisterRequest(
            version="v1beta1",
            endpoint=bed.sockets()[0],
            resource_name=GPU,
            options=pb.DevicePluginOptions(
                pre_start_required=True, get_preferred_allocation_available=True
            ),
        )
    ]
    assert bed.server.reason(GPU) == ""
    assert bed.server.reason(MIG) == "this driver does not offer it"
    assert logs == [{"event": "plugin_registered", "log_level": "info", "resource": GPU}]


def test_resources_come_and_go_while_it_runs(bed: Bed, kubelet: FakeKubelet) -> None:
    bed.server.start()
    bed.run()
    bed.offer(GPU)
    until_offered(kubelet, {GPU: 1})
    gpu = bed.sockets()
    bed.offer(GPU, MIG)
    until_offered(kubelet, {GPU: 1, MIG: 1})
    assert set(gpu) < set(bed.sockets())  # the one that stays is not touched
    bed.offer(MIG)
    until_offered(kubelet, {GPU: 0, MIG: 1})
    assert len(bed.sockets()) == 1
    assert bed.server.reasons() == {MIG: ""}
    other = Units(unit("mig-0"), unit("mig-1"))
    bed.server.set_resources({MIG: other})
    until_offered(kubelet, {GPU: 0, MIG: 2})


def test_the_end_removes_the_sockets_and_ends_the_streams(bed: Bed, kubelet: FakeKubelet) -> None:
    bed.offer(GPU)
    bed.server.start()
    bed.run()
    until_offered(kubelet, {GPU: 1})
    bed.server.stop(0)
    until_offered(kubelet, {GPU: 0})
    bed.units.until_waiting(0)
    assert bed.sockets() == []
    assert bed.server.round() == 0.0
    assert bed.sockets() == []


def test_the_end_does_not_wait_for_a_kubelet_that_does_not_answer(
    bed: Bed, registry: Registry
) -> None:
    asked, done = Event(), Event()
    registry.before = lambda: (asked.set(), done.wait(HANG_SECONDS))
    bed.offer(GPU)
    bed.server.start()
    bed.run()
    assert asked.wait(HANG_SECONDS)
    with capture_logs() as logs:
        bed.server.stop(0)
    done.set()
    # Not that the kubelet did not answer in time: the call was cancelled.
    assert [entry["reason"] for entry in logs] == ["the driver ends"]


# Kubelets that come and go.


@pytest.mark.parametrize("kubelet", ALL, indirect=True)
def test_a_new_kubelet_gets_every_resource_again(bed: Bed, kubelet: FakeKubelet) -> None:
    bed.offer(GPU, MIG)
    bed.server.start()
    bed.run()
    until_offered(kubelet, {GPU: 1, MIG: 1})
    for _ in range(3):
        before = bed.sockets()
        kubelet.restart()
        until_offered(kubelet, {GPU: 1, MIG: 1})
        assert not set(before) & set(bed.sockets())
        kubelet.admit("default/one", {"main": {GPU: 1, MIG: 1}})
        kubelet.end("default/one")


@pytest.mark.parametrize("kubelet", ALL, indirect=True)
def test_a_socket_that_somebody_removed_is_made_again(bed: Bed, kubelet: FakeKubelet) -> None:
    bed.offer(GPU)
    bed.server.start()
    bed.run()
    until_offered(kubelet, {GPU: 1})
    before, lists = bed.sockets(), kubelet.device_manager.lists
    (bed.folder / before[0]).unlink()
    kubelet.device_manager.until(lambda: kubelet.device_manager.lists > lists)
    until_offered(kubelet, {GPU: 1})
    assert len(bed.sockets()) == 1
    assert bed.sockets() != before


def test_a_plugin_that_waits_for_its_kubelet_says_so_once(bed: Bed) -> None:
    bed.offer(GPU)
    with capture_logs() as logs:
        for _ in range(3):
            bed.server.round()
    reason = f"no socket {bed.folder}/kubelet.sock: is the kubelet running, and is this its folder of device plugins?"
    assert bed.server.reason(GPU) == reason
    assert logs == [
        {
            "event": "plugin_not_registered",
            "log_level": "warning",
            "resource": GPU,
            "reason": reason,
        }
    ]


def test_a_kubelet_that_starts_later_is_noticed(root: Path, bed: Bed) -> None:
    bed.offer(GPU)
    bed.server.start()
    bed.run()
    kubelet = FakeKubelet(root)
    bed.ends.callback(kubelet.close)
    until_offered(kubelet, {GPU: 1})


def test_a_socket_on_which_no_kubelet_listens_is_asked_less_and_less(bed: Bed) -> None:
    bed.folder.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(bed.folder / "kubelet.sock"))
    bed.offer(GPU)
    bed.server.start()
    before = bed.sockets()
    waits = []
    for _ in range(8):
        waits.append(bed.server.round())
        bed.clock.now += waits[-1]
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert bed.server.reason(GPU).startswith(
        f"the kubelet did not answer on {bed.folder}/kubelet.sock: UNAVAILABLE: "
    )
    assert bed.sockets() == before  # nobody knows it, so it stays


def test_a_refusal_is_kept_and_tried_again(bed: Bed, registry: Registry) -> None:
    registry.refuses = "the ResourceName is invalid"
    bed.offer(GPU)
    bed.server.start()
    with capture_logs() as logs:
        assert bed.server.round() == 1
        assert bed.server.round() == 1  # it is not due yet
        bed.clock.now += 1
        assert bed.server.round() == 2
    reason = "the kubelet refused the registration: UNKNOWN: the ResourceName is invalid"
    assert bed.server.reason(GPU) == reason
    assert logs == [
        {
            "event": "plugin_not_registered",
            "log_level": "warning",
            "resource": GPU,
            "reason": reason,
        }
    ]
    # A kubelet may have kept the path of a call that it refused.
    assert len({request.endpoint for request in registry.asked}) == 2
    registry.refuses = ""
    bed.clock.now += 2
    assert bed.server.round() == STREAM_SECONDS
    assert bed.server.reason(GPU) == ""


@pytest.mark.parametrize("refuses", ["no", ""])
def test_a_new_kubelet_is_asked_at_once(bed: Bed, registry: Registry, refuses: str) -> None:
    registry.refuses = refuses
    bed.offer(GPU)
    bed.server.start()
    bed.server.round()
    registry.server.stop(0)
    new = Registry(bed.folder)
    bed.ends.callback(new.server.stop, 0)
    bed.server.round()
    assert (len(registry.asked), len(new.asked)) == (1, 1)


def test_a_kubelet_that_opens_no_stream_is_asked_again(bed: Bed, registry: Registry) -> None:
    bed.offer(GPU)
    bed.server.start()
    assert bed.server.round() == STREAM_SECONDS
    assert not bed.server.has_all_lists()
    bed.clock.now += STREAM_SECONDS
    bed.server.round()
    assert len(registry.asked) == 2
    # The second time it waits a second before, and so on.
    bed.clock.now += STREAM_SECONDS
    assert bed.server.round() == 1
    assert bed.server.reason(GPU) == "the kubelet has opened no stream; the driver registers again"
    bed.clock.now += 1
    bed.server.round()
    assert len(registry.asked) == 3


@pytest.mark.parametrize("kubelet", ALL, indirect=True)
def test_a_stream_that_breaks_is_noticed_at_once(bed: Bed, kubelet: FakeKubelet) -> None:
    bed.offer(GPU)
    bed.server.start()
    bed.run()
    until_offered(kubelet, {GPU: 1})
    [(client, _)] = kubelet.device_manager.registration._threads
    lists = kubelet.device_manager.lists
    bed.units.until_waiting(1)
    assert bed.server.round() == math.inf  # nothing but the end of the stream wakes the thread
    bed.server._watch.wake()
    client.close()
    kubelet.device_manager.until(lambda: kubelet.device_manager.lists > lists)
    until_offered(kubelet, {GPU: 1})


def test_a_registration_that_does_not_last_is_repeated_less_and_less(
    bed: Bed, registry: Registry
) -> None:
    bed.offer(GPU)
    bed.server.start()
    bed.server.round()

    def lose(after: float) -> int:
        """Remove the socket so long after the registration; returns how often the kubelet was asked in all."""
        (bed.folder / bed.sockets()[0]).unlink()
        bed.clock.now += after
        bed.server.round()
        return len(registry.asked)

    assert lose(5) == 2  # at once
    assert lose(5) == 2
    bed.clock.now += 1
    bed.server.round()
    assert len(registry.asked) == 3
    assert lose(STEADY_SECONDS) == 4  # at once again


def test_a_removed_socket_wakes_the_thread(bed: Bed, registry: Registry) -> None:
    bed.offer(GPU)
    bed.server.start()
    bed.server.round()
    watch = bed.server._watch
    while watch.wait(0):
        pass
    (bed.folder / bed.sockets()[0]).unlink()
    assert watch.wait(HANG_SECONDS)


def test_a_socket_that_gets_the_inode_of_the_old_one_is_a_new_one(root: Path) -> None:
    kubelet = KubeletSocket(root)
    assert kubelet.identity() is None
    kubelet.path.write_text("no socket")
    assert kubelet.identity() is None
    kubelet.path.unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(kubelet.path))
    before = kubelet.identity()
    # The time of a file moves on in steps of milliseconds.
    while kubelet.identity() == before:
        kubelet.path.chmod(0o600)
    after = kubelet.identity()
    assert before is not None
    assert after is not None
    assert before.inode == after.inode


@pytest.mark.parametrize("kubelet", ["1.30", "1.36"], indirect=True)
def test_a_kubelet_that_leaves_the_stream_is_asked_again(bed: Bed, kubelet: FakeKubelet) -> None:
    # As after an update of the driver: the old process ends late, and the kubelet disconnects the plugin that registered last.
    old = Bed(bed.folder)
    bed.ends.enter_context(old.ends)
    for one in (old, bed):
        one.offer(GPU)
        one.server.start()
        one.run()
        one.units.until_waiting(1)
    before = bed.sockets()
    old.server.stop(0)
    bed.units.tell(unit("gpu-0"), unit("gpu-1"))
    kubelet.device_manager.until(lambda: not set(before) & set(bed.sockets()))
    until_offered(kubelet, {GPU: 2})
    kubelet.admit("default/one", {"main": {GPU: 2}})


# Names.


def test_a_process_that_was_killed_leaves_no_socket_behind(bed: Bed) -> None:
    bed.folder.mkdir()
    names = [
        f"{DRIVER}-0123abcd.sock",
        f"{DRIVER}-x-0123abcd.sock",
        "other-0123abcd.sock",
        f"{DRIVER}-live0123.sock",
    ]
    for name in names:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(bed.folder / name))
    alive = bed.folder / f"{DRIVER}-89abcdef.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(alive))
        listening.listen()
        bed.server.start()
    assert bed.sockets() == sorted([*names[1:], alive.name])


def test_a_listener_that_accepts_nothing_does_not_stop_the_start(root: Path) -> None:
    place = Place(KubeletSocket(root), DRIVER)
    full = root / f"{DRIVER}-0123abcd.sock"
    with ExitStack() as ends:
        listening = ends.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(full))
        listening.listen(0)
        fill(full, ends)
        looking = Thread(target=place.remove_dead, daemon=True)
        looking.start()
        looking.join(HANG_SECONDS)
        assert not looking.is_alive()
        assert full.exists()


def fill(path: Path, ends: ExitStack) -> None:
    """Connect until the listener's backlog is full."""
    code = 0
    while code == 0:
        waiting = ends.enter_context(socket.socket(socket.AF_UNIX))
        waiting.setblocking(False)
        code = waiting.connect_ex(str(path))
    assert code == errno.EAGAIN


def test_a_name_that_is_too_long_is_cut(root: Path) -> None:
    folder = root / ("d" * 40) / "device-plugins"
    driver = DriverName("long." * 12 + "com")
    place = Place(KubeletSocket(folder), driver)
    path = place.new_path(GPU)
    assert len(os.fsencode(path)) == PATH_LIMIT_BYTES
    assert path.name.startswith("long.long.")
    assert place.owns(path.name)
    assert place.new_path(GPU) != path


def test_a_folder_that_cannot_be_made_ends_the_start(bed: Bed) -> None:
    bed.folder.write_text("in the way")
    bed.offer(GPU)
    with pytest.raises(Fatal, match="cannot listen on"):
        bed.server.start()
