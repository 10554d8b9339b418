# SPDX-License-Identifier: Apache-2.0
"""How soon after its start does the driver serve, publish and register?

Time counts from the moment at which the process is asked for. What nobody who speaks gRPC in Python can avoid is the
measure: an interpreter that imports grpc and ends. Both are started in turn.
"""

import signal
import socket
import subprocess
import time
from pathlib import Path

from hack.bench.cost import installed
from hack.bench.cost.bed import ENDPOINT, REGISTRATION, Context, driver_command
from hack.bench.cost.figures import Times, ratio
from hack.bench.cost.log import Log
from hack.bench.cost.node import wait_for
from hack.bench.cost.report import Answer, Target, times_table
from hack.bench.cost.standins import StandIns

LISTEN_LIMIT, SLICE_LIMIT_SECONDS = 4.0, 0.5


def measure(context: Context) -> Answer:
    """With stand-ins, or (not quick) on the cluster."""
    rounds = 5 if context.quick else 15
    bare, listening = Times("python -c 'import grpc'"), Times("start to both sockets listening")
    written, registered = (
        Times("from there to the last slice written"),
        Times("from there to registered by the kubelet"),
    )
    everything = (bare, listening, written, registered)
    once = _with_stand_ins if context.quick else lambda *times: _on_cluster(context, *times)
    for number in range(rounds + 1):
        for times in everything:
            times.begin_repeat()
        bare.add(_import_grpc())
        once(listening, written, registered)
        if not number:  # files were read from the disk for the first time
            for times in everything:
                times.repeats.clear()
    where = (
        "An API server of this package, no kubelet."
        if context.quick
        else "Real API server and kubelet."
    )
    shown = everything[:-1] if context.quick else everything
    return Answer(
        (
            Target("sockets listening ÷ importing grpc", ratio(listening, bare), LISTEN_LIMIT),
            Target(
                "last slice written after that, p50",
                written.quantile(0.5),
                SLICE_LIMIT_SECONDS,
                "s",
            ),
        ),
        (times_table(f"{where} {rounds} starts, in turn with the import.", shown),),
    )


def _import_grpc() -> float:
    begun = time.perf_counter()
    subprocess.run(
        [installed.python(), "-c", "import grpc"], env=installed.environment(), check=True
    )
    return time.perf_counter() - begun


def _with_stand_ins(listening: Times, written: Times, registered: Times) -> None:
    with StandIns() as stage:
        begun = time.time()
        stage.start()
        at = _wait_listening(stage.sockets)
        listening.add(at - begun)
        written.add(stage.log.wait("slice_written") - at)
        registered.add(0.0)


def _on_cluster(context: Context, listening: Times, written: Times, registered: Times) -> None:
    cluster = context.cluster
    cluster.kubectl("delete", "resourceslices", "--all")
    log = Log(cluster.root / "log" / "bench-driver.log")
    begun = time.time()
    program = cluster.run_inside(driver_command(cluster), log="bench-driver")
    try:
        at = _wait_listening(tuple(map(cluster.path_inside, (ENDPOINT, REGISTRATION))))
        listening.add(at - begun)
        written.add(log.wait("slice_written") - at)
        registered.add(log.wait("registered") - at)
    finally:
        program.stop(signal.SIGTERM)


def _wait_listening(paths: tuple[Path, ...]) -> float:
    wait_for(lambda: all(_answers(path) for path in paths), f"sockets {paths}")
    return time.time()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True
