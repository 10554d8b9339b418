# SPDX-License-Identifier: Apache-2.0
"""Two driver processes on one node, as a rolling update runs them, and strangers under the driver's name."""

import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import structlog

from dra_driver.kubelet.registration import Registrar
from dra_driver.model.ids import DriverName
from dra_driver.testing.fake_kubelet import FakeKubelet
from dra_driver.testing.stage import DEADLINE_SECONDS, DRIVER, Stage, wait_for


@pytest.fixture
def successor(node: Stage) -> Iterator[Stage]:
    """A second process of the same node: same files, kubelet and API server."""
    found = Stage(node.root, node.api, "--log-level", "debug", start_child=node.start_child)
    found.kubelet.close()
    node.kubelet.close()
    found.kubelet = node.kubelet = FakeKubelet(node.root, reserve=node.reserve)
    found.log_file = node.root / "successor.log"
    yield found
    found.close()


def leads(process: Stage) -> bool:
    return '"leading"' in process.log()


def status(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_SECONDS
        ) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def http_port(process: Stage) -> int:
    def found() -> int:
        lines = [line for line in process.log().splitlines() if '"event": "http"' in line]
        return int(lines[0].partition('"port": ')[2].partition(",")[0].rstrip("}")) if lines else 0

    return int(wait_for(lambda: process.alive() and found(), "the HTTP port"))


def versions(slices: list[dict[str, Any]]) -> list[str]:
    return [found["metadata"]["resourceVersion"] for found in slices]


def test_a_rolling_update_keeps_claims_slices_and_one_leader(node: Stage, successor: Stage) -> None:
    node.start_registered("--pod-uid", "uid-a", "--http-address", "127.0.0.1:0")
    wait_for(lambda: len(node.slices()) == 1, "the slice")
    wait_for(lambda: status(http_port(node), "/readyz")[0] == 200, "the first to be ready")
    before = versions(node.slices())
    first, second = node.claim("first", ["gpu-0"]), node.claim("second", ["gpu-1"])
    devices = node.kubelet.prepare(DRIVER, [first])

    successor.start("--pod-uid", "uid-b", "--http-address", "127.0.0.1:0")
    wait_for(lambda: successor.alive() and '"standing_by"' in successor.log(), "standing by")
    successor.register()
    assert sorted(
        path.name for path in node.kubelet.registry_dir.iterdir() if path.name[0] != "."
    ) == [
        f"{DRIVER}-uid-a-reg.sock",
        f"{DRIVER}-uid-b-reg.sock",
    ]
    # Ready without having written a slice: the update goes on only then.
    wait_for(lambda: status(http_port(successor), "/readyz")[0] == 200, "the second to be ready")
    assert "dra_driver_leader 0.0" in status(http_port(successor), "/metrics")[1]
    assert "dra_driver_leader 1.0" in status(http_port(node), "/metrics")[1]

    # The newest is called: it answers for claims that the other one prepared, and prepares more.
    node.kubelet.claims[first.uid].prepared = False
    assert node.kubelet.prepare(DRIVER, [first]) == devices
    node.kubelet.prepare(DRIVER, [second])
    wait_for(lambda: "claim_prepared" in successor.log(), "the line")

    assert node.stop() == 0
    wait_for(lambda: leads(successor), "the second to lead")
    node.kubelet.unprepare(DRIVER, [first])
    assert node.owners() == {"gpu-1": second.uid}
    assert versions(node.slices()) == before
    node.kubelet.unprepare(DRIVER, [second])
    assert node.cdi_files() == {}
    successor.stop()
    assert sorted(path.name for path in (node.state_file.parent / "peers").iterdir()) == []
    assert [path.name for path in node.kubelet.registry_dir.iterdir()] == []


@pytest.mark.program
def test_a_rollback_is_an_update_back(node: Stage, successor: Stage) -> None:
    node.start_registered("--pod-uid", "uid-a")
    successor.start("--pod-uid", "uid-b")
    wait_for(lambda: successor.alive() and '"standing_by"' in successor.log(), "standing by")
    successor.register()
    claim = node.claim("claim", ["gpu-0"])
    node.kubelet.prepare(DRIVER, [claim])
    assert successor.stop() == 0
    # The old one is still registered and serves what the new one did.
    node.kubelet.unprepare(DRIVER, [claim])
    assert (node.rows(), node.cdi_files()) == ({}, {})
    assert leads(node)


def test_a_killed_process_leaves_no_socket_that_nobody_answers(
    node: Stage, successor: Stage
) -> None:
    node.start_registered("--pod-uid", "uid-a")
    claim = node.claim("claim", ["gpu-0"])
    node.kubelet.prepare(DRIVER, [claim])
    node.kill()
    successor.start("--pod-uid", "uid-b")
    wait_for(lambda: successor.alive() and leads(successor), "the next to lead")
    wait_for(lambda: "killed_process_cleared_away" in successor.log(), "the line")
    assert not (node.kubelet.registry_dir / f"{DRIVER}-uid-a-reg.sock").exists()
    assert not (node.kubelet.plugins_dir / DRIVER / "dra-uid-a.sock").exists()
    node.kubelet.unprepare(DRIVER, [claim])
    assert node.rows() == {}


def test_the_leader_dies_and_the_one_that_stood_by_restores_the_slices(
    node: Stage, successor: Stage
) -> None:
    node.start_registered("--pod-uid", "uid-a")
    wait_for(lambda: len(node.slices()) == 1, "the slice")
    successor.start("--pod-uid", "uid-b")
    wait_for(lambda: successor.alive() and '"standing_by"' in successor.log(), "standing by")
    node.kill()
    wait_for(lambda: leads(successor), "the second to lead")
    node.api.remove("resourceslices", node.slices()[0]["metadata"]["name"])
    wait_for(lambda: len(node.slices()) == 1, "the slice again")


def test_a_second_process_without_a_pod_uid_is_refused(node: Stage, successor: Stage) -> None:
    node.start_registered()
    successor.start()
    assert successor.process is not None
    assert successor.process.wait(DEADLINE_SECONDS) == 1
    assert "another process of this driver serves" in successor.log()
    assert f"process {node.process.pid if node.process else 0}, version" in successor.log()
    claim = node.claim("claim", ["gpu-0"])
    assert node.kubelet.prepare(DRIVER, [claim])


def test_a_stranger_under_the_drivers_name_is_named_and_nothing_is_touched(
    node: Stage,
) -> None:
    endpoint = node.kubelet.plugins_dir / DRIVER / "dra.sock"
    stranger = Registrar(
        node.kubelet.registry_dir / "stranger-reg.sock",
        driver=DriverName(DRIVER),
        endpoint=endpoint,
        log=structlog.get_logger(),
    )
    stranger.start()
    try:
        node.start()
        assert node.process is not None
        assert node.process.wait(DEADLINE_SECONDS) == 1
        assert (
            f"another plugin answers the kubelet under the name {DRIVER}: {stranger.path}"
            in node.log()
        )
        assert (node.slices(), Path(endpoint).exists()) == ([], False)
        assert not node.cdi_dir.exists()
    finally:
        stranger.stop(0)
    node.start_registered()
    assert node.stop(signal.SIGTERM) == 0
