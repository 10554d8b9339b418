# SPDX-License-Identifier: Apache-2.0
"""The real driver on hardware that hangs: a fault file that is a pipe without a writer, which no read of comes back from."""

import json
import os
import signal
import stat
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import HTTPError

import pytest

from dra_driver.node.lock import Locked, Locks
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER, Stage, wait_for


@pytest.fixture
def faults(node: Stage) -> Path:
    path = node.root / "faults.yaml"
    path.write_text("devices: {}\n")
    return path


def hang(faults: Path) -> None:
    """From now on the hardware does not answer; who asks it waits."""
    pipe = faults.with_suffix(".pipe")
    os.mkfifo(pipe)
    pipe.replace(faults)


def answer(faults: Path) -> None:
    """Let the hardware answer again, those who wait for it too."""
    assert stat.S_ISFIFO(faults.stat().st_mode)
    pipe = os.open(faults, os.O_RDWR)  # never waits for a reader
    whole = faults.with_suffix(".whole")
    whole.write_text("devices: {}\n")
    whole.replace(faults)
    os.write(pipe, b"devices: {}\n")
    os.close(pipe)


def page(node: Stage, path: str) -> tuple[int, str]:
    line = wait_for(
        lambda: [line for line in node.log().splitlines() if '"event": "http"' in line], "the port"
    )[-1]
    port = line.partition('"port": ')[2].split(",")[0].rstrip("}")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as found:
            return found.status, found.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def publications(log: str) -> list[dict[str, str]]:
    """What the publisher has logged of its attempts; the last line may be half written."""
    lines = [json.loads(line) for line in log.splitlines()[:-1] if line.startswith("{")]
    return [line for line in lines if line["event"] in ("publish_failed", "published")]


def slice_writes(node: Stage) -> list[str]:
    return [
        entry.verb
        for entry in node.api.requests
        if entry.resource == "resourceslices" and entry.verb not in ("list", "watch")
    ]


def test_a_first_scan_that_hangs_leaves_claims_and_slices_and_signals_alone(
    node: Stage, faults: Path
) -> None:
    node.start_registered("--simulated-faults", str(faults))
    wait_for(node.slices, "the slice")
    claims = [node.claim("one", ["gpu-0"]), node.claim("two", ["gpu-1"])]
    prepared = node.kubelet.prepare(DRIVER, claims)
    assert node.stop() == 0
    before, written, logged = node.slices(), len(slice_writes(node)), len(node.log())

    hang(faults)
    node.kubelet.restart()
    node.start_registered("--simulated-faults", str(faults), "--http-address", "127.0.0.1:0")
    again = node.kubelet.prepare(DRIVER, claims)
    assert [device.device_name for device in again[claims[0].uid]] == [
        device.device_name for device in prepared[claims[0].uid]
    ]
    node.kubelet.unprepare(DRIVER, [claims[1]])
    assert len(node.cdi_files()) == 1
    wait_for(lambda: page(node, "/livez") == (200, "ok\n"), "liveness")
    code, reasons = page(node, "/readyz")
    assert code == 503
    assert "the devices of this node are not known yet" in reasons
    first, *_ = wait_for(lambda: publications(node.log()[logged:]), "the publisher")
    assert first["event"] == "publish_failed"
    assert "the devices of this node are not known yet" in first["reason"]
    assert (node.slices(), len(slice_writes(node))) == (before, written)

    assert node.stop() == 0
    assert '"thread": "inventory-simulated"' in node.log()


def test_hardware_that_answers_late_is_published_then(node: Stage, faults: Path) -> None:
    hang(faults)
    node.start_registered("--simulated-faults", str(faults))
    wait_for(lambda: "first_scan_takes_long" in node.log(), "the warning")
    assert node.slices() == []
    answer(faults)
    wait_for(node.slices, "the slice")
    claim = node.claim("one", ["gpu-0"])
    assert node.kubelet.prepare(DRIVER, [claim])[claim.uid]
    assert node.stop() == 0
    assert "thread_still_running" not in node.log()


def test_a_start_that_hangs_is_ended_by_the_first_signal(node: Stage) -> None:
    node.boot_id_file.unlink()
    os.mkfifo(node.boot_id_file)
    node.start()
    wait_for(lambda: '"starting"' in node.log(), "the start")
    assert node.stop() == 0
    assert "start_still_running" in node.log()


def test_sockets_that_were_made_anew_leave_nothing_behind_at_the_end(node: Stage) -> None:
    node.start_registered()
    claim = node.claim("one", ["gpu-0"])
    node.kubelet.prepare(DRIVER, [claim])
    endpoint = Path(node.kubelet.register(DRIVER).endpoint)
    endpoint.unlink()
    wait_for(endpoint.exists, "the socket")
    node.kubelet.unprepare(DRIVER, [claim])
    assert node.stop() == 0
    assert "thread_still_running" not in node.log()


def test_what_hangs_at_the_end_keeps_its_locks_as_long_as_the_process(
    node: Stage, faults: Path
) -> None:
    node.start_registered("--simulated-faults", str(faults))
    wait_for(node.slices, "the slice")
    claim = node.claim("one", ["gpu-0"])
    hang(faults)
    locks = Locks(node.state_file.parent / "locks")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(node.kubelet.prepare, DRIVER, [claim])
        wait_for(node.owners, "the reservation")
        assert node.process is not None
        node.process.send_signal(signal.SIGTERM)

        def given_back() -> bool:
            assert node.process is not None
            ended = node.process.poll() is not None
            try:
                with locks.locked(["leader"], until=0.0, purpose="a test"):
                    return True
            except Locked:
                assert not ended, "a process that is gone holds a lock"
                return False

        wait_for(given_back, "the leader's lock")
        # It ends with the process, not before.
        assert node.process.wait(10) == 0
        assert "thread_still_running" in node.log()
        assert '"ended"' not in node.log()
        with pytest.raises(KubeletError):
            call.result()
    # The next process finds what a kill leaves, and the claim is released.
    answer(faults)
    node.kubelet.restart()
    node.start_registered("--simulated-faults", str(faults))
    node.kubelet.unprepare(DRIVER, [claim])


def test_a_scrape_is_answered_while_the_hardware_hangs(node: Stage, faults: Path) -> None:
    names = ("--metrics-names", "own,dcgm")
    node.start_registered(
        "--simulated-faults", str(faults), "--http-address", "127.0.0.1:0", *names
    )

    def shown(name: str, label: str) -> list[str]:
        lines = page(node, "/metrics")[1].splitlines()
        return [line for line in lines if line.startswith(f"{name}{{") and label in line]

    free = 'claim="",container="",device="gpu-0"'
    wait_for(lambda: shown("dra_driver_device_utilization_ratio", free), "the first sample")
    assert shown("DCGM_FI_DEV_GPU_UTIL", 'dra_device_name="gpu-0"')
    claim = node.claim("one", ["gpu-0"])
    assert node.kubelet.prepare(DRIVER, [claim])[claim.uid]
    held = 'claim="one",container="main",device="gpu-0"'
    wait_for(lambda: shown("dra_driver_device_allocated", held), "the claim")
    assert shown("dra_driver_device_memory_used_bytes", held)
    assert shown("dra_driver_claim_device_seconds_total", 'claim="one",device="gpu-0"')
    assert shown("dra_driver_api_requests_total", 'code="200",resource="resourceclaims",verb="get"')
    hang(faults)
    before = page(node, "/metrics")
    after = page(node, "/metrics")
    assert (before[0], after[0]) == (200, 200)
    assert "dra_driver_prepared_claims 1.0" in after[1]
    assert '"event": "usage_not_sampled"' not in node.log()
    assert node.stop() == 0
