# SPDX-License-Identifier: Apache-2.0
"""The real Prometheus reads what the driver exposes: its names, the chart's alerts, and each panel of the dashboards."""

import json
import re
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.model.ids import PodUid
from dra_driver.planning.metrics.aliases import SCHEMES
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER, Stage, wait_for
from hack.testbed.onenode.prometheus import Prometheus, build, promtool

pytestmark = pytest.mark.real
ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "dra-driver"
RULES = sorted((CHART / "rules").glob("*.yaml"))
BOARDS = sorted((CHART / "dashboards").glob("*.json"))
NOT_HERE = {
    "Claims that wait for devices": "kube-controller-manager counts them",
    "Errors that the hardware reported": "simulated hardware reports none",
}
# What dcgm-exporter's own dashboard (number 12239 at grafana.com) and guides for it ask for.
OF_DCGM_DASHBOARDS = (
    'max(DCGM_FI_DEV_GPU_TEMP{Hostname=~"node1", gpu=~"0|1"}) by (Hostname, gpu, uuid)',
    'avg(DCGM_FI_DEV_GPU_TEMP{Hostname=~"node1", gpu=~"0|1"})',
    'max(DCGM_FI_DEV_POWER_USAGE{Hostname=~"node1", gpu=~"0|1"}) by (Hostname, gpu, uuid)',
    'sum(max(DCGM_FI_DEV_POWER_USAGE{Hostname=~"node1", gpu=~"0|1"}) by (gpu))',
    'max(DCGM_FI_DEV_SM_CLOCK{Hostname=~"node1", gpu=~"0|1"} * 1000000) by (Hostname, UUID, gpu)',
    'max(DCGM_FI_DEV_FB_USED{Hostname=~"node1", gpu=~"0|1"}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)',
    'DCGM_FI_DEV_GPU_UTIL{instance=~"127.0.0.1:.*", gpu=~"0|1"}',
    "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)",
    'sum by (namespace, pod, container) (DCGM_FI_DEV_GPU_UTIL{pod!="", modelName=~".*H100.*"})',
)


def port_of(stage: Stage) -> int:
    def found() -> list[str]:
        return re.findall(r'"event": "http".*?"port": (\d+)', stage.log())

    return int(wait_for(found, "the port", log=stage.log)[-1])


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    """The build is part of no test: the first one on a machine takes minutes."""
    build()


@pytest.fixture(scope="module")
def node() -> Iterator[Stage]:
    """A driver whose devices have holders, of which one was refused, and one device that is ill."""
    names = ",".join(SCHEMES)
    with tempfile.TemporaryDirectory(dir="/tmp") as root, FakeApi() as api:
        ill = Path(root, "faults.yaml")
        ill.write_text('{"devices": {"gpu-7": {"unhealthy": "fell off the bus"}}}')
        hardware = ("--simulated-profile", "h100x8", "--simulated-faults", str(ill))
        served = ("--http-address", "127.0.0.1:0", "--metrics-names", names)
        stage = Stage(Path(root), api, *hardware, *served)
        try:
            api.faults.status(403, verb="create", resource="resourceslices", times=2)
            stage.start_registered()
            for number, device in enumerate(("gpu-0", "gpu-1")):
                claim = stage.claim(f"train-{number}-gpu", [device])
                stage.kubelet.prepare(DRIVER, [claim], pod=f"default/train-{number}")
            second = stage.claim("second", ["gpu-0"])
            with pytest.raises(KubeletError):
                stage.kubelet.prepare(DRIVER, [second], pod="default/second", uid=PodUid("second"))
            yield stage
        finally:
            stage.close()


@pytest.fixture(scope="module")
def prometheus(node: Stage) -> Iterator[Prometheus]:
    targets = {node.node: port_of(node)}
    with (
        tempfile.TemporaryDirectory() as folder,
        Prometheus(Path(folder), targets, rules=RULES) as made,
    ):
        wait_for(
            lambda: made.query('dra_driver_device_utilization_ratio{pod="train-0"} > 0'), "use"
        )
        yield made


def scrape(node: Stage) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port_of(node)}/metrics") as answer:
        text: str = answer.read().decode()
    return text


def test_promtool_takes_the_rules() -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("SUCCESS") == len(RULES)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests" / "promtool").iterdir()), ids=lambda path: path.stem
)
def test_each_alert_fires_when_it_should_and_only_then(path: Path) -> None:
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_fault_with_nothing_but_the_labels_of_dcgm(
    prometheus: Prometheus, node: Stage
) -> None:
    text = scrape(node)
    assert 'pod="train-0"' in text
    found = set(promtool("check", "metrics", stdin=text).stderr.splitlines())
    assert {line.partition("_")[0] for line in found} == {"DCGM"}
    assert {line.partition(" ")[2] for line in found} == {
        "label names should be written in 'snake_case' not 'camelCase'"
    }


def test_prometheus_reads_every_line_of_a_scrape(prometheus: Prometheus, node: Stage) -> None:
    (scraped,) = prometheus.query("scrape_samples_scraped")
    lines = [line for line in scrape(node).splitlines() if not line.startswith("#")]
    assert int(scraped["value"][1]) == len(lines)
    assert [one["value"][1] for one in prometheus.query("up")] == ["1"]


def test_prometheus_evaluates_the_alerts_of_the_chart(prometheus: Prometheus) -> None:
    def rules() -> list[dict[str, Any]]:
        groups = prometheus.api("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    wait_for(lambda: {rule["health"] for rule in rules()} == {"ok"}, "the evaluation")
    assert {rule["lastError"] for rule in rules() if "lastError" in rule} == set()
    fires = {rule["name"] for rule in rules() if rule["state"] == "firing"}
    waits = {rule["name"] for rule in rules() if rule["state"] == "pending"}
    # The second owner was refused before the first scrape, so that nothing has increased since.
    assert fires == set()
    assert waits == {"DRADeviceUnhealthy", "LowGPUUtilization"}


def panels() -> list[Any]:
    return [
        pytest.param(panel, id=f"{board.stem}: {panel['title']}")
        for board in BOARDS
        for panel in json.loads(board.read_text())["panels"]
    ]


def shown(expression: str) -> str:
    """The query of a panel, with everything chosen, in a dashboard of the last quarter of an hour."""
    return re.sub(r"\$(node|namespace|pod)\b", ".*", expression).replace("$__range", "15m")


@pytest.mark.parametrize("panel", panels())
def test_a_panel_has_data(panel: dict[str, Any], prometheus: Prometheus) -> None:
    for target in panel["targets"]:
        query = shown(target["expr"])
        if panel["title"] in NOT_HERE:
            assert prometheus.query(query) == []  # but it is a query
            continue
        found = wait_for(lambda asked=query: prometheus.query(asked), query)
        named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert all(named <= one["metric"].keys() for one in found)


@pytest.mark.parametrize("query", OF_DCGM_DASHBOARDS)
def test_dashboards_for_dcgm_exporter_have_data(query: str, prometheus: Prometheus) -> None:
    found = prometheus.query(query)
    assert found
    assert all(float(one["value"][1]) >= 0 for one in found)


def test_a_series_of_dcgm_has_the_labels_that_dashboards_choose_by(prometheus: Prometheus) -> None:
    (one,) = prometheus.query('DCGM_FI_DEV_FB_FREE{pod="train-1"}')
    assert (
        one["metric"].items()
        >= {
            "Hostname": "node1",
            "gpu": "1",
            "namespace": "default",
            "container": "main",
            "modelName": "NVIDIA H100 80GB HBM3",
            "dra_claim_name": "train-1-gpu",
        }.items()
    )
    assert one["metric"]["UUID"].startswith("GPU-")
