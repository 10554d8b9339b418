# SPDX-License-Identifier: Apache-2.0
"""The real driver on nodes that are not as in the book: no GPU yet, GPUs that come and go, a device plugin beside, IPv6, a proxy."""

import json
import sqlite3
import ssl
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DEADLINE_SECONDS, DRIVER, NODE, Stage, wait_for
from tests.support.connect_proxy import ConnectProxy
from tests.support.stages import a_stage

TESTS = Path(__file__).parents[1]
TLS = TESTS / "unit" / "kube" / "tls"
EIGHT = [f"gpu-{index}" for index in range(8)]


def devices_of(node: Stage) -> list[str]:
    return [device["name"] for found in node.slices() for device in found["spec"]["devices"]]


class Hardware:
    """Which of the node's eight devices are there; the driver looks at the file of faults."""

    def __init__(self, node: Stage) -> None:
        self._file = node.root / "faults.yaml"
        self.lacks()
        self.flags = ("--simulated-faults", str(self._file))

    def lacks(self, *names: str) -> None:
        content = {"devices": {name: {"vanished": True} for name in names}}
        scratch = self._file.with_suffix(".new")
        scratch.write_text(yaml.safe_dump(content))
        scratch.replace(self._file)


@pytest.fixture
def hardware(node: Stage) -> Hardware:
    return Hardware(node)


def http_of(node: Stage, host: str, path: str) -> tuple[int, str]:
    lines = wait_for(
        lambda: [line for line in node.log().splitlines() if '"http"' in line], "the port"
    )
    port = json.loads(lines[-1])["port"]
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.request.HTTPError as error:
        return error.code, error.read().decode()


# No GPU yet.


def test_a_node_without_devices_is_ready_says_so_and_serves_those_that_come(
    node: Stage, hardware: Hardware
) -> None:
    hardware.lacks(*EIGHT)
    node.start_registered(*hardware.flags, "--http-address", "127.0.0.1:0")
    (empty,) = wait_for(node.slices, "the slice of a node without devices")
    assert (empty["spec"].get("devices") or []) == []
    assert empty["spec"]["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    wait_for(lambda: http_of(node, "127.0.0.1", "/readyz") == (200, "ok\n"), "readiness")
    claim = node.claim("one", ["gpu-0"])
    with pytest.raises(KubeletError, match=r"device gpu-0 .* is not found"):
        node.kubelet.prepare(DRIVER, [claim])
    hardware.lacks()
    wait_for(lambda: devices_of(node) == EIGHT, "the devices")
    assert node.kubelet.prepare(DRIVER, [claim])[claim.uid]
    assert node.alive()


# Devices that go and come back.


def test_a_prepared_device_that_goes_and_comes_back_serves_its_claim_as_before(
    node: Stage, hardware: Hardware
) -> None:
    hardware.lacks()
    node.start_registered(*hardware.flags)
    wait_for(node.slices, "the slice")
    claim = node.claim("one", ["gpu-3"])
    before = node.kubelet.prepare(DRIVER, [claim])
    file, spec = node.cdi_files(), node.slices()[0]["spec"]
    for _ in range(3):
        hardware.lacks("gpu-3", "gpu-5")
        wait_for(lambda: "gpu-5" not in devices_of(node), "the free one's withdrawal")
        assert sorted(devices_of(node)) == [name for name in EIGHT if name != "gpu-5"]
        assert (node.cdi_files(), node.owners()) == (file, {"gpu-3": claim.uid})
        hardware.lacks()
        wait_for(lambda: devices_of(node) == EIGHT, "their return")
        assert node.slices()[0]["spec"]["devices"] == spec["devices"]
    node.kubelet.restart()
    node.register()
    assert node.kubelet.prepare(DRIVER, [claim]) == before
    node.kubelet.unprepare(DRIVER, [claim])
    assert (node.cdi_files(), node.owners()) == ({}, {})


@pytest.mark.parametrize("prepared", [True, False])
def test_an_allocated_device_that_vanished_with_its_slice_while_nobody_looked_is_listed_again(
    node: Stage, hardware: Hardware, prepared: bool
) -> None:
    hardware.lacks()
    node.start_registered(*hardware.flags)
    (before,) = wait_for(node.slices, "the slice")
    claim = node.claim("one", ["gpu-3"])
    if prepared:
        node.kubelet.prepare(DRIVER, [claim])
    node.kill()
    # The node boots without two of its devices, and its kubelet deletes the driver's slices, as it does when it starts.
    node.api.remove("resourceslices", before["metadata"]["name"])
    hardware.lacks("gpu-3", "gpu-5")
    node.start_registered(*hardware.flags)
    (after,) = wait_for(node.slices, "the slice")
    described = {device["name"]: device for device in before["spec"]["devices"]}
    found = {device["name"]: device for device in after["spec"]["devices"]}
    # It is held, and nobody else shall get it.
    (taint,) = found["gpu-3"].pop("taints")
    assert (taint["key"], taint["effect"]) == (f"{DRIVER}/vanished", "NoSchedule")
    assert found == {name: described[name] for name in EIGHT if name != "gpu-5"}
    node.api.remove("resourceclaims", "one")
    if prepared:
        node.kubelet.unprepare(DRIVER, [claim])
        wait_for(lambda: "gpu-3" not in devices_of(node), "its withdrawal with the claim's end")


# Somebody else's device plugin.


def test_a_device_plugin_beside_is_told_on_the_node_and_nothing_is_refused(
    node: Stage,
) -> None:
    node.kubelet.device_plugins = {"nvidia.com/gpu": ("GPU-1", "GPU-2"), "rdma/hca": ("mlx5_0",)}
    node.start_registered()

    def told() -> list[dict[str, Any]]:
        events = node.api.objects("events")
        return [event for event in events if event["reason"] == "DevicePluginBeside"]

    (event,) = wait_for(told, "the Event")
    assert (event["type"], event["involvedObject"]["kind"]) == ("Warning", "Node")
    assert event["message"].startswith(
        f"a device plugin offers nvidia.com/gpu (2) beside the devices of {DRIVER}: "
    )
    claim = node.claim("one", ["gpu-0"])
    assert node.kubelet.prepare(DRIVER, [claim])[claim.uid]
    assert len(told()) == 1


# IPv6 and proxies.


@pytest.fixture
def node_of_an_ipv6_cluster() -> Iterator[Stage]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "address.crt", TLS / "address.key")
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as root,
        FakeApi(host="::1", tls=context, tokens=["secret"]) as api,
    ):
        found = a_stage(Path(root), api)
        api.kubeconfig(
            found.kubeconfig, token="secret", certificate_authority=TLS / "address-ca.crt"
        )
        yield found
        found.close()


def test_a_node_of_an_ipv6_cluster_is_served_and_answers_on_ipv6(
    node_of_an_ipv6_cluster: Stage,
) -> None:
    node = node_of_an_ipv6_cluster
    node.start_registered("--http-address", "[::1]:0")
    wait_for(lambda: http_of(node, "[::1]", "/readyz") == (200, "ok\n"), "readiness")
    assert devices_of(node) == EIGHT
    claim = node.claim("one", ["gpu-0"])
    assert node.kubelet.prepare(DRIVER, [claim])[claim.uid]


def test_a_node_behind_a_proxy_reaches_the_cluster_through_it_and_the_kubelet_without(
    node_of_an_ipv6_cluster: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_of_an_ipv6_cluster
    config = yaml.safe_load(node.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://[fd00:10:96::1]:6443"
    node.kubeconfig.write_text(yaml.safe_dump(config))
    with ConnectProxy("127.0.0.1", ("::1", node.api.port)) as proxy:
        for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
        node.start_registered()
        wait_for(node.slices, "the slice")
        claim = node.claim("one", ["gpu-0"])
        assert node.kubelet.prepare(DRIVER, [claim])[claim.uid]
        assert node.stop() == 0
    assert {line.rpartition(" ")[0] for line in proxy.seen} == {"CONNECT [fd00:10:96::1]:6443"}


# State files of other versions.


def state_of(node: Stage, schema: int, *more: str) -> None:
    node.state_file.parent.mkdir(exist_ok=True)
    text = (TESTS / "fixtures" / "state" / f"schema-{schema}.sql").read_text()
    with closing(sqlite3.connect(node.state_file, isolation_level=None)) as db:
        db.executescript(text.replace("node-1", NODE))
        for statement in more:
            db.execute(statement)


@pytest.mark.parametrize("schema", [1, 3, 4])
def test_the_driver_takes_over_what_an_older_or_a_newer_one_prepared(
    node: Stage, schema: int
) -> None:
    state_of(node, schema)
    uids = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(1, 6)]
    node.api.close()  # so that nobody says that these claims are gone
    node.start_registered()
    assert {uid: phase for uid, (phase, _) in node.rows().items() if uid in uids} == {
        uids[0]: "Prepared",
        uids[1]: "Prepared",
        uids[2]: "Started",
        uids[3]: "Started",  # of another boot
        uids[4]: "Prepared",
    }
    assert [name for name in node.cdi_files() if uids[0] in name]
    assert node.owners().items() >= {"gpu-0": uids[0], "gpu-1": uids[0]}.items()


def test_a_state_for_newer_drivers_only_ends_the_start_with_the_next_step(
    node: Stage,
) -> None:
    state_of(node, 5, "UPDATE meta SET value = '5'")
    before = node.state_file.read_bytes()
    node.start()
    assert node.process is not None
    assert node.process.wait(DEADLINE_SECONDS) == 1
    assert (
        node.log()
        .splitlines()[-1]
        .startswith(
            f"dra-driver: state file {node.state_file} needs a driver that reads schema 5, this one reads 4; "
        )
    )
    assert node.state_file.read_bytes() == before
