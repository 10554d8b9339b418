# SPDX-License-Identifier: Apache-2.0
"""The sockets under calls that hang: who is alive says so, who can be served is, and nobody waits beyond a deadline."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Condition, Event
from typing import Any

import grpc
import pytest
import structlog

from dra_driver.backends.base import BackendContext
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.daemon.liveness import DEAD_SECONDS, Liveness
from dra_driver.errors import Temporary
from dra_driver.kubelet.dra import PREPARE_WORKERS, SERVICE, UNPREPARE_WORKERS
from dra_driver.kubelet.health_stream import HealthStream
from dra_driver.kubelet.pb import dra_v1_pb2 as pb
from dra_driver.kubelet.pb import grpc_health_v1_pb2 as check_pb
from dra_driver.kubelet.server import KubeletServer, KubeletSockets
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DriverName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import Refusal
from dra_driver.services.inventory import LOOK_SECONDS, InventoryFeed
from dra_driver.services.node_inventory import NodeInventory
from dra_driver.services.watch_health import TIMEOUT_SECONDS, HealthFeed
from dra_driver.testing.builders import a_claim, a_result
from dra_driver.testing.kubelet_health import HealthCache
from tests.support.local_node import LocalNode, ManualClock

DRIVER = DriverName("gpu.dra-driver.dev")
POOL = PoolName("node1")
HANG_SECONDS = 60
LONG_SECONDS = 600.0  # a caller that does not give up while the test runs
HEALTHY, UNKNOWN = 1, 0


class Service:
    """Prepares and unprepares that hang, deaf to every deadline, until the test lets them go on."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.hanging: dict[str, int] = {"prepare": 0, "unprepare": 0}
        self.hangs = {"prepare"}
        self.asked: list[str] = []
        self.go_on = Event()

    def _hang(self, verb: str) -> None:
        self.asked.append(verb)
        if verb in self.hangs:
            with self.changed:
                self.hanging[verb] += 1
                self.changed.notify_all()
            assert self.go_on.wait(HANG_SECONDS)

    def until_hanging(self, verb: str, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.hanging[verb] == count, HANG_SECONDS)

    def prepare(
        self, refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> dict[ClaimUid, Refusal]:
        self._hang("prepare")
        return {ref.uid: Refusal("went on") for ref in refs}

    def unprepare(
        self, refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> dict[ClaimUid, Refusal | None]:
        self._hang("unprepare")
        return {ref.uid: None for ref in refs}


class Bed:
    """The driver's sockets on that service, and a kubelet that makes many calls."""

    def __init__(self, root: Path) -> None:
        self.service = Service()
        self.sockets = KubeletSockets(root / "dra.sock", root / "registry" / "x-reg.sock")
        inventory = NodeInventory(
            {"simulated": InventoryFeed(SimulatedBackend(BackendContext(POOL, SimulatedOptions())))}
        )
        checks: dict[str, Callable[[], tuple[str, ...]]] = {}
        self.server = KubeletServer(
            self.sockets,
            driver=DRIVER,
            calls=(self.service.prepare, self.service.unprepare),
            feed=HealthFeed(inventory.current, POOL, age=inventory.age),
            checks=checks,
            log=structlog.get_logger(),
        )
        self.liveness = Liveness(self.server.unanswered, self.server.calls)
        checks[""] = checks["liveness"] = self.liveness.problems
        self.channel = grpc.insecure_channel(
            f"unix:{self.sockets.endpoint}", options=(("grpc.use_local_subchannel_pool", 1),)
        )
        self.kubelet = ThreadPoolExecutor(128)

    def call(self, verb: str, seconds: float = LONG_SECONDS) -> str:
        """One call of the kubelet for one claim; answers the claim's error."""
        method = f"Node{verb.capitalize()}Resources"
        rpc = self.channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=getattr(pb, f"{method}Request").SerializeToString,
            response_deserializer=getattr(pb, f"{method}Response").FromString,
        )
        claim = pb.Claim(namespace="default", name="one", uid="uid-1")
        answer: Any = rpc(getattr(pb, f"{method}Request")(claims=[claim]), timeout=seconds)
        error: str = answer.claims["uid-1"].error
        return error

    def block(self, verb: str, calls: int, workers: int) -> list[Future[str]]:
        """Make so many calls that hang; the service sees as many as there are workers."""
        self.service.hangs.add(verb)
        made = [self.kubelet.submit(self.call, verb) for _ in range(calls)]
        self.service.until_hanging(verb, min(calls, workers))
        waiting = calls - min(calls, workers)
        end = time.monotonic() + HANG_SECONDS
        while not any(
            seen.name == verb and seen.waiting == waiting for seen in self.server.calls()
        ):
            assert time.monotonic() < end
            time.sleep(0.01)
        return made

    def livez(self) -> tuple[str, ...]:
        self.liveness.check()
        return self.liveness.problems()

    def health_check(self) -> int:
        rpc = self.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=check_pb.HealthCheckRequest.SerializeToString,
            response_deserializer=check_pb.HealthCheckResponse.FromString,
        )
        answer: Any = rpc(check_pb.HealthCheckRequest(service="liveness"), timeout=HANG_SECONDS)
        status: int = answer.status
        return status


@pytest.fixture
def bed() -> Iterator[Bed]:
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        found = Bed(Path(root))
        found.server.start()
        yield found
        found.service.go_on.set()
        found.kubelet.shutdown()
        found.channel.close()
        found.server.stop(0)


@pytest.mark.parametrize("calls", [24, 100])
def test_a_full_driver_is_alive_and_releases_claims(bed: Bed, calls: int) -> None:
    blocked = bed.block("prepare", calls, PREPARE_WORKERS)
    assert bed.livez() == ()
    assert bed.health_check() == check_pb.HealthCheckResponse.SERVING
    assert bed.call("unprepare") == ""
    bed.service.go_on.set()
    assert {call.result(HANG_SECONDS) for call in blocked} == {"went on"}


def test_a_call_that_hangs_is_answered_claim_by_claim_before_its_deadline(bed: Bed) -> None:
    assert bed.call("prepare", 2.0) == (
        "the prepare call is not done after 2 s and goes on; the kubelet tries again and gets its result"
    )


@pytest.mark.parametrize(
    ("verb", "workers"), [("prepare", PREPARE_WORKERS), ("unprepare", UNPREPARE_WORKERS)]
)
def test_a_call_that_waits_for_others_is_answered_before_its_deadline(
    bed: Bed, verb: str, workers: int
) -> None:
    bed.block(verb, workers, workers)
    assert bed.call(verb, 2.0).startswith(
        f"the {verb} call was not begun: all {workers} workers were busy until its deadline; the kubelet tries again"
    )
    assert bed.service.hanging[verb] == workers


@pytest.mark.parametrize(
    ("verb", "workers"), [("prepare", PREPARE_WORKERS), ("unprepare", UNPREPARE_WORKERS)]
)
def test_workers_that_hang_beyond_every_deadline_are_dead(
    bed: Bed, verb: str, workers: int
) -> None:
    bed.block(verb, workers, workers)
    later = Liveness(
        bed.server.unanswered,
        bed.server.calls,
        clock=lambda: time.monotonic() + DEAD_SECONDS,
    )
    later.check()
    (wrong,) = later.problems()
    assert wrong.startswith(f"no {verb} call began or ended for ")


def test_a_look_needs_no_worker_of_the_calls(bed: Bed) -> None:
    bed.service.hangs.clear()
    assert bed.livez() == ()
    assert bed.service.asked == []


def test_a_socket_that_is_removed_and_not_served_is_told(bed: Bed) -> None:
    assert bed.livez() == ()
    bed.sockets.endpoint.unlink()
    (wrong,) = bed.livez()
    assert wrong.startswith(f"socket {bed.sockets.endpoint} does not answer: UNAVAILABLE")
    bed.server.ensure()
    assert bed.livez() == ()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_that_takes_no_calls_any_more_is_told(bed: Bed) -> None:
    # Its thread ends by an error, and its socket listens: the kernel takes connections, and nobody answers.
    assert bed.server._server._running is not None
    bed.server._server._running.pool.shutdown(wait=False)
    (wrong,) = bed.livez()
    assert wrong.startswith(f"socket {bed.sockets.endpoint} does not answer: ")


def test_what_is_prepared_is_answered_and_released_before_anybody_looked_at_the_hardware(
    tmp_path: Path,
) -> None:
    node = LocalNode(tmp_path, clock=ManualClock())
    prepared, later, other = node.add(
        a_claim("one", results=[a_result("gpu-0")]),
        a_claim("two", results=[a_result("gpu-1")]),
        a_claim("three", results=[a_result("gpu-2")]),
    )
    devices = node.prepare(prepared, other)
    node.inventory = Inventory(scanned=False)
    node.restart()
    assert node.prepare(prepared) == {prepared.uid: devices[prepared.uid]}
    assert isinstance(node.prepare(later)[later.uid], Refusal)
    assert node.unprepare(other) == {other.uid: None}
    assert later.uid not in node.disk().claims
    node.close()


def test_a_kubelet_forgets_the_health_of_hardware_that_nobody_can_look_at() -> None:
    now = [1000.0]

    class Machine(SimulatedBackend):
        broken = False

        def scan(self) -> Inventory:
            if self.broken:
                raise Temporary("the library hangs")
            return super().scan()

    with tempfile.TemporaryDirectory() as root:
        faults = Path(root) / "faults.yaml"
        faults.write_text("devices: {}\n")
        machine = Machine(BackendContext(POOL, SimulatedOptions(faults=str(faults))))
        log = structlog.wrap_logger(structlog.testing.CapturingLogger(), processors=[])
        scans = InventoryFeed(machine, log=log, clock=lambda: now[0])
        inventory = NodeInventory({"simulated": scans})
        feed = HealthFeed(inventory.current, POOL, age=inventory.age, clock=lambda: now[0])
        stream = HealthStream("v1.DRAResourceHealth", feed)
        kubelet = HealthCache()

        def look() -> tuple[int, str]:
            """What the kubelet knows after a look at the hardware and a report, as they come."""
            scans.scan()
            kubelet.update(stream._response(feed.snapshot()[1]).devices, now=now[0])
            return kubelet.health(POOL, "gpu-0", now=now[0])

        assert look() == (HEALTHY, "")
        machine.broken = True
        told = []
        while now[0] < 1000.0 + 2 * TIMEOUT_SECONDS:
            now[0] += LOOK_SECONDS
            told.append(look())
        assert [health for health, _ in told] == [HEALTHY] * 3 + [UNKNOWN] * 3
        assert told[-1][1].startswith(
            "the driver could not look at the hardware since 1970-01-01T00:16:40Z"
        )
        machine.broken = False
        assert look() == (HEALTHY, "")
