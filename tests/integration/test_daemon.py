# SPDX-License-Identifier: Apache-2.0
"""The real `dra-driver run` between a kubelet's side and an API server: what it publishes, prepares, reports, survives."""

import json
import re
import signal
import sqlite3
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml

from dra_driver.kubelet.pb import dra_health_v1_pb2 as health_pb
from dra_driver.testing.fake_api import FakeApi, Hold
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DEADLINE_SECONDS, DRIVER, NODE, Stage, wait_for
from tests.support.stages import a_stage


def devices_of(node: Stage) -> list[str]:
    return [device["name"] for found in node.slices() for device in found["spec"]["devices"]]


def health_of(node: Stage, device: str, *, until: int) -> str:
    """Read the health stream until the device is in that state; answers the message."""
    for report in node.kubelet.health(DRIVER):
        for entry in report.devices:
            if entry.device.device_name == device and entry.health == until:
                return entry.message
    raise AssertionError("the stream ended")


@pytest.fixture
def faults(node: Stage) -> Path:
    path = node.root / "faults.yaml"
    path.write_text("devices: {}\n")
    return path


@pytest.fixture(params=["v1", "v1beta2", "v1beta1"])
def old_node(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(dir="/tmp") as root, FakeApi(versions=(request.param,)) as api:
        found = a_stage(Path(root), api)
        yield found
        found.close()


def test_each_served_api_version_gets_the_slice_and_serves_the_claim(old_node: Stage) -> None:
    old_node.start_registered("--simulated-profile", "l40sx4")
    wait_for(old_node.slices, "the slice")
    (found,) = old_node.slices()
    assert found["metadata"]["name"] == f"00000-{DRIVER}-{NODE}"
    assert found["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    assert found["spec"]["devices"][0]["capacity"] == {"memory": {"value": "46068Mi"}}
    assert found["spec"]["devices"][0]["attributes"]["productName"] == {"string": "NVIDIA L40S"}
    claim = old_node.claim("one", ["gpu-2"])
    (device,) = old_node.kubelet.prepare(DRIVER, [claim])[claim.uid]
    assert (device.device_name, list(device.request_names)) == ("gpu-2", ["gpu"])


def test_a_cluster_without_dra_is_named_plainly_and_the_driver_stays_up() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as root, FakeApi(versions=()) as api:
        node = a_stage(Path(root), api)
        node.start_registered()
        wait_for(lambda: "publish_failed" in node.log(), "the message")
        assert node.alive()
        assert "resource.k8s.io" in node.log()
        # The day the cluster is upgraded the slices appear.
        node.close()


@pytest.mark.program
def test_no_request_is_made_while_nothing_changes(node: Stage) -> None:
    node.start_registered()
    wait_for(node.slices, "the slice")
    watching = wait_for(
        lambda: [entry for entry in node.api.requests if entry.verb == "watch"], "the watch"
    )
    claim = node.claim("one", ["gpu-0"])
    node.kubelet.prepare(DRIVER, [claim])
    followed = ("watch", "resourceclaims")
    wait_for(
        lambda: followed in [(entry.verb, entry.resource) for entry in node.api.requests],
        "the watch of the claim",
    )
    before = len(node.api.requests)
    # A prepared claim is answered from the state, and an unprepare asks nobody.
    node.kubelet.restart()
    node.register()
    node.kubelet.prepare(DRIVER, [claim])
    node.kubelet.unprepare(DRIVER, [claim])
    assert len(node.api.requests) == before
    assert len(watching) == 1


def test_deleted_slices_come_back(node: Stage) -> None:
    node.start_registered()
    (before,) = wait_for(node.slices, "the slice")
    node.api.remove("resourceslices", before["metadata"]["name"])
    (after,) = wait_for(node.slices, "the slice again")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["devices"] == before["spec"]["devices"]
    wait_for(lambda: "slice_deleted_by_somebody_else" in node.log(), "the log line")


def test_an_ill_device_is_reported_and_heals(node: Stage, faults: Path) -> None:
    faults.write_text(yaml.safe_dump({"devices": {"gpu-1": {"unhealthy": "fell off the bus"}}}))
    node.start_registered("--simulated-faults", str(faults))
    assert health_of(node, "gpu-1", until=health_pb.UNHEALTHY) == "fell off the bus"
    faults.write_text("devices: {}\n")
    assert health_of(node, "gpu-1", until=health_pb.HEALTHY) == ""


def test_an_ill_device_is_a_taint_an_event_and_a_metric_and_so_is_its_recovery(
    node: Stage, faults: Path
) -> None:
    def taints() -> list[str]:
        found = [device for one in node.slices() for device in one["spec"]["devices"]]
        return [
            taint["key"].partition("/")[2] for one in found for taint in one.get("taints") or ()
        ]

    def events() -> list[tuple[str, str]]:
        found = node.api.objects("events", namespace="default")
        return [(one["reason"], one["message"]) for one in found]

    def healthy() -> str:
        lines = get("/metrics")[1].splitlines()
        start = 'dra_driver_device_healthy{device="gpu-1"} '
        return next((line.removeprefix(start) for line in lines if line.startswith(start)), "")

    node.start_registered("--simulated-faults", str(faults), "--http-address", "127.0.0.1:0")
    get = http_of(node)
    wait_for(node.slices, "the slice")
    faults.write_text(yaml.safe_dump({"devices": {"gpu-1": {"unhealthy": "fell off the bus"}}}))
    ill = ("DeviceUnhealthy", "device gpu-1 is unhealthy: fell off the bus")
    wait_for(lambda: ill in events(), "the Event")
    wait_for(lambda: taints() == ["unhealthy"], "the taint")
    wait_for(lambda: healthy() == "0.0", "the metric")
    faults.write_text("devices: {}\n")
    well = ("DeviceRecovered", "device gpu-1 is healthy again")
    wait_for(lambda: well in events(), "the Event")
    wait_for(lambda: not taints(), "the slice without a taint")
    wait_for(lambda: healthy() == "1.0", "the metric, which is made once a second")


def test_a_device_that_nothing_checks_is_unknown_with_a_message(node: Stage) -> None:
    node.start_registered()
    assert "nothing checks its health" in health_of(node, "gpu-0", until=health_pb.UNKNOWN)


def test_a_vanished_device_that_is_free_is_withdrawn_and_told(node: Stage, faults: Path) -> None:
    def told() -> list[str]:
        found = node.api.objects("events", namespace="default")
        return [one["reason"] for one in found if "device gpu-3 " in one["message"]]

    def gone(value: str) -> bool:
        return f'dra_driver_device_vanished{{device="gpu-3"}} {value}\n' in get("/metrics")[1]

    node.start_registered("--simulated-faults", str(faults), "--http-address", "127.0.0.1:0")
    get = http_of(node)
    wait_for(lambda: "gpu-3" in devices_of(node), "the device")
    faults.write_text(yaml.safe_dump({"devices": {"gpu-3": {"vanished": True}}}))
    wait_for(lambda: "gpu-3" not in devices_of(node), "its withdrawal")
    assert len(devices_of(node)) == 7
    wait_for(lambda: told() == ["DeviceVanished"], "the Event")
    wait_for(lambda: gone("1.0"), "the metric, which is made once a second")
    wait_for(lambda: "dra_driver_ready 1.0" in get("/metrics")[1], "a driver that is ready")
    assert '"event": "device_gone"' in node.log()
    assert node.stop() == 0
    node.start_registered("--simulated-faults", str(faults), "--http-address", "127.0.0.1:0")
    faults.unlink()
    wait_for(lambda: "gpu-3" in devices_of(node), "its return")
    wait_for(lambda: len(told()) == 1, "no second Event: the new process has not missed it")


def test_a_device_that_vanished_while_the_driver_was_down_is_told(
    node: Stage, faults: Path
) -> None:
    node.start_registered("--simulated-faults", str(faults))
    wait_for(lambda: "gpu-3" in devices_of(node), "the device")
    assert node.stop() == 0
    faults.write_text(yaml.safe_dump({"devices": {"gpu-3": {"vanished": True}}}))
    node.start_registered("--simulated-faults", str(faults), "--http-address", "127.0.0.1:0")
    get = http_of(node)
    wait_for(
        lambda: 'dra_driver_device_vanished{device="gpu-3"} 1.0' in get("/metrics")[1], "the metric"
    )
    faults.unlink()
    wait_for(
        lambda: 'dra_driver_device_vanished{device="gpu-3"} 0.0' in get("/metrics")[1], "its return"
    )


@pytest.mark.parametrize("prepared", [True, False])
def test_a_vanished_device_that_is_allocated_stays_and_is_ill(
    node: Stage, faults: Path, prepared: bool
) -> None:
    node.start_registered("--simulated-faults", str(faults))
    wait_for(node.slices, "the slice")
    claim = node.claim("one", ["gpu-3"])
    if prepared:
        node.kubelet.prepare(DRIVER, [claim])
    faults.write_text(yaml.safe_dump({"devices": {"gpu-3": {"vanished": True}}}))
    assert "vanished" in health_of(node, "gpu-3", until=health_pb.UNHEALTHY)
    assert "gpu-3" in devices_of(node)
    node.kubelet.restart()
    node.register()
    with pytest.raises(KubeletError, match=r"device gpu-3 .* this node"):
        node.kubelet.prepare(DRIVER, [claim])
    if prepared:
        node.api.remove("resourceclaims", "one")
        node.kubelet.unprepare(DRIVER, [claim])
        wait_for(lambda: "gpu-3" not in devices_of(node), "its withdrawal after the claim's end")


def test_a_device_that_vanished_while_the_driver_was_down_stays_while_it_is_allocated(
    node: Stage, faults: Path
) -> None:
    node.start_registered("--simulated-faults", str(faults))
    wait_for(node.slices, "the slice")
    node.claim("one", ["gpu-3"])
    node.kill()
    faults.write_text(
        yaml.safe_dump({"devices": {"gpu-3": {"vanished": True}, "gpu-5": {"vanished": True}}})
    )
    node.start_registered("--simulated-faults", str(faults))
    wait_for(lambda: "gpu-5" not in devices_of(node), "the free device's withdrawal")
    assert "gpu-3" in devices_of(node)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_device_that_is_gone_is_in_the_metrics_until_its_claim_is_unprepared(
    node: Stage, faults: Path, *, is_recorded: bool
) -> None:
    def allocated() -> list[str]:
        found = re.findall(
            r"^dra_driver_device_allocated{(.*)} 1.0$", get("/metrics")[1], re.MULTILINE
        )
        return [labels for labels in found if 'device="gpu-3"' in labels]

    node.start_registered("--simulated-faults", str(faults))
    wait_for(node.slices, "the slice")
    claim = node.claim("one", ["gpu-3"])
    node.kubelet.prepare(DRIVER, [claim])
    node.kill()
    if not is_recorded:
        with closing(sqlite3.connect(node.root / "state" / "state.db")) as db:
            db.execute("DELETE FROM published")
            db.commit()
    faults.write_text(yaml.safe_dump({"devices": {"gpu-3": {"vanished": True}}}))
    node.start_registered("--simulated-faults", str(faults), "--http-address", "127.0.0.1:0")
    get = http_of(node)
    wait_for(lambda: 'device_vanished{device="gpu-3"} 1.0' in get("/metrics")[1], "the scan")
    (labels,) = wait_for(allocated, "the holder of the device that is gone")
    assert 'claim="one"' in labels
    assert 'namespace="default"' in labels
    node.api.remove("resourceclaims", "one")
    node.kubelet.unprepare(DRIVER, [claim])
    wait_for(lambda: not allocated(), "the end of the claim in the metrics")


# Bad input: the error names object, cause and next step, and nothing is left half done.


def refused(node: Stage, claim: Any, pattern: str) -> None:
    with pytest.raises(KubeletError, match=pattern):
        node.kubelet.prepare(DRIVER, [claim])
    assert node.cdi_files() == {}
    assert node.owners() == {}


def test_a_claim_that_is_gone_is_refused(node: Stage) -> None:
    node.start_registered()
    claim = node.claim("one", ["gpu-0"])
    node.api.remove("resourceclaims", "one")
    refused(node, claim, r"cannot read claim default/one .*not found")


def test_a_claim_of_another_uid_is_refused(node: Stage) -> None:
    node.start_registered()
    claim = node.claim("one", ["gpu-0"])
    node.api.remove("resourceclaims", "one")
    node.claim("one", ["gpu-0"])
    refused(node, claim, r"default/one was replaced: .*delete the pod")


def test_an_unallocated_claim_is_refused(node: Stage) -> None:
    node.start_registered()
    claim = node.claim("one", ["gpu-0"])
    whole = node.api.object("resourceclaims", "one")
    node.api.put("resourceclaims", {**whole, "status": {}})
    refused(node, claim, r"default/one is not allocated")


def test_a_device_that_does_not_exist_is_refused(node: Stage) -> None:
    node.start_registered()
    refused(
        node,
        node.claim("one", ["gpu-99"]),
        r"device gpu-99 of ResourceClaim default/one is not found .*dra-driver devices",
    )


def test_another_drivers_device_is_not_looked_at(node: Stage) -> None:
    node.start_registered()
    claim = node.claim("one", ["gpu-0"])
    whole = node.api.object("resourceclaims", "one")
    results = whole["status"]["allocation"]["devices"]["results"]
    results.append({"request": "nic", "driver": "dra.net", "pool": NODE, "device": "eth0"})
    node.api.put("resourceclaims", whole)
    (device,) = node.kubelet.prepare(DRIVER, [claim])[claim.uid]
    assert device.device_name == "gpu-0"
    results[0]["driver"] = "other.example.com"
    whole["metadata"] = {**whole["metadata"], "name": "two", "uid": None}
    whole["metadata"].pop("uid")
    foreign = node.api.put("resourceclaims", whole)
    with pytest.raises(
        KubeletError,
        match=r"has no device of driver gpu\.dra-driver\.dev, only of: dra\.net, other",
    ):
        node.kubelet.prepare(
            DRIVER, [claim.__class__("default", "two", foreign["metadata"]["uid"])]
        )


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"label": "a\nGPU_DEVICE_0=stolen"}, "label"),
        ({"label": "x" * 64}, "label"),
        ({"label": "ünicode"}, "label"),
        ({"label": 7}, "label"),
        ({"../../etc": "x"}, "etc"),
        ({"env": {"LD_PRELOAD": "/x.so"}}, "env"),
        ({"kind": "Other"}, "kind 'Other'"),
    ],
)
def test_hostile_configuration_is_refused_by_its_path(
    node: Stage, parameters: dict[str, object], path: str
) -> None:
    node.start_registered()
    content = {"apiVersion": "gpu.dra-driver.dev/v1alpha1", "kind": "DeviceConfig", **parameters}
    config = [
        {"source": "FromClaim", "requests": [], "opaque": {"driver": DRIVER, "parameters": content}}
    ]
    claim = node.claim("one", ["gpu-0"], config=config)
    refused(node, claim, rf"config\[0\]\.opaque\.parameters.*{path}")


def test_a_label_reaches_the_container_as_a_value_only(node: Stage) -> None:
    node.start_registered()
    hostile = "../../x=$(reboot);`id`"
    content = {
        "apiVersion": "gpu.dra-driver.dev/v1alpha1",
        "kind": "DeviceConfig",
        "label": hostile,
    }
    config = [
        {"source": "FromClaim", "requests": [], "opaque": {"driver": DRIVER, "parameters": content}}
    ]
    node.kubelet.prepare(DRIVER, [node.claim("one", ["gpu-0"], config=config)])
    (text,) = node.cdi_files().values()
    env = yaml.safe_load(text)["devices"][0]["containerEdits"]["env"]
    assert f"GPU_LABEL_0={hostile}" in env
    assert [entry.partition("=")[0] for entry in env] == ["GPU_DEVICE_0", "GPU_LABEL_0"]


def test_a_second_owner_is_refused_by_name_until_the_first_is_gone(node: Stage) -> None:
    node.start_registered()
    first = node.claim("one", ["gpu-0"])
    node.kubelet.prepare(DRIVER, [first], pod="default/a")
    second = node.claim("two", ["gpu-0"])
    with pytest.raises(
        KubeletError,
        match=r"device gpu-0 is prepared for claim default/one .*a pod on this node uses it",
    ):
        node.kubelet.prepare(DRIVER, [second], pod="default/b")
    node.api.remove("resourceclaims", "one")
    with pytest.raises(KubeletError, match="a pod on this node uses it"):
        node.kubelet.prepare(DRIVER, [second], pod="default/b")
    node.kubelet.end_containers(node.kubelet.force_delete("default/a"))
    del node.kubelet.claims[first.uid]
    node.kubelet.prepare(DRIVER, [second], pod="default/b")
    assert node.owners() == {"gpu-0": second.uid}


def test_an_unreachable_api_server_at_start_is_waited_for(node: Stage) -> None:
    port, store = node.api.port, node.api.store
    claim = node.claim("one", ["gpu-0"])
    node.api.close()
    node.start_registered()
    wait_for(lambda: "publish_failed" in node.log(), "the message")
    assert f"127.0.0.1:{port}" in node.log()
    with FakeApi(versions=("v1",), port=port, store=store) as again:
        node.api = again
        wait_for(node.slices, "the slice")
        node.kubelet.prepare(DRIVER, [claim])


def test_a_stop_does_not_wait_for_an_api_server_that_is_away(node: Stage) -> None:
    node.start_registered()
    wait_for(node.slices, "the slice")
    node.api.close()
    wait_for(lambda: "cannot follow the slices" in node.log(), "the outage to be noticed")
    assert node.stop() == 0
    assert "thread_still_running" not in node.log()


def test_a_broken_kubeconfig_ends_the_start_with_one_line(node: Stage) -> None:
    node.kubeconfig.write_text("clusters: [oops\n")
    node.start()
    assert node.process is not None
    assert node.process.wait(DEADLINE_SECONDS) == 1
    last = node.log().splitlines()[-1]
    assert last.startswith("dra-driver: ")
    assert str(node.kubeconfig) in last


def test_an_expired_token_is_read_again(node: Stage) -> None:
    token = node.root / "token"
    token.write_text("first")
    node.api.accept_tokens("first")
    config = yaml.safe_load(node.kubeconfig.read_text())
    config["users"][0]["user"] = {"tokenFile": str(token)}
    node.kubeconfig.write_text(yaml.safe_dump(config))
    node.start_registered()
    wait_for(node.slices, "the slice")
    node.api.accept_tokens("second")
    token.write_text("second")
    claim = node.claim("one", ["gpu-0"])
    assert node.kubelet.prepare(DRIVER, [claim])[claim.uid]


def http_of(node: Stage) -> Callable[[str], tuple[int, str]]:
    """Requests to the driver's own port: status and text."""
    line = wait_for(
        lambda: [line for line in node.log().splitlines() if '"http"' in line], "the port"
    )[0]
    port = json.loads(line)["port"]

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    return get


def test_probes_and_metrics_answer_on_one_port(node: Stage) -> None:
    node.api.faults.status(403, verb="create", resource="resourceslices", times=1)
    node.start("--http-address", "127.0.0.1:0")
    get = http_of(node)
    code, reasons = get("/readyz")
    assert code == 503
    assert "not registered" in reasons
    node.register()
    wait_for(lambda: get("/livez") == (200, "ok\n"), "liveness")
    wait_for(lambda: "publish_failed" in node.log(), "the refused slice")
    assert "slices of this node have not been written" in get("/readyz")[1]
    counted = "dra_driver_publish_failures_total 1.0"
    wait_for(lambda: counted in get("/metrics")[1], "the metric")
    assert get("/other")[0] == 404


def test_an_outage_of_the_api_server_leaves_a_ready_driver_ready(node: Stage) -> None:
    node.start("--http-address", "127.0.0.1:0")
    get = http_of(node)
    node.register()
    wait_for(lambda: get("/readyz") == (200, "ok\n"), "readiness")
    node.api.close()
    wait_for(lambda: "publish_failed" in node.log(), "the outage to be noticed")
    assert get("/readyz") == (200, "ok\n")
    assert get("/livez") == (200, "ok\n")


def test_the_first_signal_asks_and_the_second_forces(node: Stage) -> None:
    node.start_registered()
    claim = node.claim("one", ["gpu-0"])
    never = Event()
    node.api.faults.add(Hold(never), verb="get", resource="resourceclaims")
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(node.kubelet.prepare, DRIVER, [claim])
        wait_for(
            lambda: any(entry.resource == "resourceclaims" for entry in node.api.requests),
            "the claim's reading, which never ends",
        )
        assert node.process is not None
        node.process.send_signal(signal.SIGTERM)
        wait_for(lambda: '"stopping"' in node.log(), "the first signal")
        assert node.process.poll() is None  # the running call may still end
        assert node.stop() == 130
        never.set()
        with pytest.raises(KubeletError):
            call.result()


def test_a_graceful_stop_keeps_what_running_pods_have(node: Stage) -> None:
    node.start_registered()
    claim = node.claim("one", ["gpu-0"])
    node.kubelet.prepare(DRIVER, [claim])
    assert node.stop() == 0
    assert len(node.cdi_files()) == 1  # running pods keep their devices
    assert list(node.kubelet.registry_dir.iterdir()) == []
