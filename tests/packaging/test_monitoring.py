# SPDX-License-Identifier: Apache-2.0
"""Alerts and dashboards of the chart name metrics that exist, and each alert has its tests and its section in docs/operations.md.

What the alerts do, and whether the panels have data, is asked of the real promtool and Prometheus in tests/e2e/test_prometheus.py.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.daemon.metrics import Metrics
from dra_driver.daemon.sampled_metrics import SampledMetrics
from dra_driver.model.usage import Holder, NodeUsage
from dra_driver.planning.metrics.aliases import DCGM_NAMES, DUTY_CYCLE_NAMES, SCHEMES
from dra_driver.planning.metrics.families import Place
from dra_driver.planning.metrics.own import own_labels
from dra_driver.testing.builders import A_DRIVER, A_NODE, A_POOL, a_device

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "dra-driver"
RULES = sorted((CHART / "rules").glob("*.yaml"))
TESTS = sorted((ROOT / "tests" / "promtool").glob("*.yaml"))
BOARDS = sorted((CHART / "dashboards").glob("*.json"))
RUNBOOK = "https://runbooks.invalid"
FOREIGN = {
    "up": "Prometheus",
    "resourceclaim_controller_resource_claims": "kube-controller-manager",
    "kube_daemonset_status_number_unavailable": "kube-state-metrics",
    "kube_daemonset_status_updated_number_scheduled": "kube-state-metrics",
    "kube_daemonset_status_desired_number_scheduled": "kube-state-metrics",
}
WORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "bool", "offset"}
Object = dict[str, Any]


def alerts(path: Path) -> dict[str, Object]:
    groups = yaml.safe_load(path.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


ALERTS = {name: rule for path in RULES for name, rule in alerts(path).items()}


def exposed() -> set[str]:
    """The names of all series that the driver can have."""
    registry = Metrics().registry
    place = Place(A_DRIVER, A_POOL, A_NODE)
    registry.register(
        SampledMetrics(NodeUsage, clock=lambda: 0.0, place=place, names=tuple(SCHEMES))
    )
    endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
    return {
        f"{family.name}{ending}"
        for family in registry.collect()
        for ending in endings.get(family.type, ("",))
    }


EXPOSED = exposed()


def metrics_in(expression: str) -> set[str]:
    """The names of metrics in an expression of PromQL."""
    text = re.sub(r"\{[^}]*\}|\[[^]]*\]", " ", expression)
    text = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", " ", text)
    return set(re.findall(r"(?<![\w.])[a-zA-Z_]\w*\b(?!\s*\()", text)) - WORDS


def test_names_are_found_in_expressions() -> None:
    assert metrics_in('sum by (a, b) (rate(x_total{c="y"}[5m])) / 2^30 and up == 0') == {
        "x_total",
        "up",
    }
    assert metrics_in("histogram_quantile(0.95, sum by (le) (rate(z_bucket[15m])))") == {"z_bucket"}


LABELS = {
    *("namespace", "pod", "container", "claim", "device", "uuid", "product", "driver"),
    *("clock", "type", "reason", "error", "result", "verb", "resource", "code", "version", "le"),
    *("node", "instance", "job"),  # of the scrape: the ServiceMonitor adds them
    *("thread", "daemonset"),  # of the driver's own threads, and of kube-state-metrics
    *("allocated", "gpu"),  # of kube-controller-manager, and of other exporters
}
"""What dashboards and alerts may choose, group and name by."""
CHOSEN = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
GROUPED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")


def labels_in(expression: str) -> set[str]:
    """The labels that an expression of PromQL chooses or groups by."""
    grouped = (name for names in GROUPED.findall(expression) for name in names.split(","))
    return {*CHOSEN.findall(expression), *map(str.strip, grouped)} - {""}  # on () has none


def test_labels_are_found_in_expressions() -> None:
    expression = 'sum by (a, b) (rate(x_total{c!~"y", d=~"$z"}[5m])) == 0 and on (e) f'
    assert labels_in(expression) == {"a", "b", "c", "d", "e"}


def test_the_labels_of_the_driver_are_those_that_may_be_used() -> None:
    own = own_labels(a_device(), Holder("", ""), Place(A_DRIVER, A_POOL, A_NODE))
    assert own.keys() <= LABELS


@pytest.mark.parametrize("board", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_uses_labels_that_exist(board: Path) -> None:
    used = {label for expression in expressions(board) for label in labels_in(expression)}
    named = set(re.findall(r"{{(\w+)}}", board.read_text()))
    assert (used | named) - LABELS == set()


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_uses_labels_that_exist(name: str) -> None:
    texts = " ".join(ALERTS[name]["annotations"].values())
    named = set(re.findall(r"\$labels\.(\w+)", texts))
    assert (labels_in(ALERTS[name]["expr"]) | named) - LABELS == set()


def expressions(board: Path) -> Iterator[str]:
    made = json.loads(board.read_text())
    for panel in made["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in made["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"].removeprefix("label_values(").rpartition(",")[0]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_asks_for_metrics_that_exist(name: str) -> None:
    found = metrics_in(ALERTS[name]["expr"])
    assert found
    assert found - EXPOSED - FOREIGN.keys() == set()


@pytest.mark.parametrize("board", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_for_metrics_that_exist(board: Path) -> None:
    for expression in expressions(board):
        found = metrics_in(expression)
        assert found, expression
        assert found - EXPOSED - FOREIGN.keys() == set()


@pytest.mark.parametrize("board", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_can_be_loaded(board: Path) -> None:
    made = json.loads(board.read_text())
    assert made["uid"] == f"dra-driver-{board.stem}"
    numbers = [panel["id"] for panel in made["panels"]]
    assert len(set(numbers)) == len(numbers) > 0
    places = [panel["gridPos"] for panel in made["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    taken = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)  # no panel lies on another
    known = {variable["name"] for variable in made["templating"]["list"]} | {"__range"}
    assert set(re.findall(r"\$\{?(\w+)", board.read_text())) - {"__all"} <= known


def test_the_dashboards_are_those_of_the_tables() -> None:
    script = (sys.executable, ROOT / "hack" / "generate-dashboards", "--check")
    assert subprocess.run(script, check=False).returncode == 0
    assert [path.stem for path in BOARDS] == ["fleet", "node", "workload"]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_it_is_and_links_to_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"{RUNBOOK}#{name.lower()}"
    page = (ROOT / "docs" / "operations.md").read_text()
    assert f"\n### {name}\n" in page


def test_no_section_is_about_an_alert_that_does_not_exist() -> None:
    page = (ROOT / "docs" / "operations.md").read_text().partition("## Alerts\n")[2]
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == [
        *alerts(CHART / "rules/driver.yaml"),
        "LowGPUUtilization",
        "HighGPUUsage",
    ]


def test_the_alerts_of_guides_are_as_they_write_them() -> None:
    low, high = ALERTS["LowGPUUtilization"], ALERTS["HighGPUUsage"]
    assert (low["expr"], low["for"]) == ("DCGM_FI_DEV_GPU_UTIL < 20", "10m")
    assert (high["expr"], high["for"]) == ("nvidia_gpu_duty_cycle > 90", "10m")
    for rule in (low, high):
        assert {"$labels.gpu", "$labels.instance"} <= set(
            re.findall(r"\$labels\.\w+", rule["annotations"]["summary"])
        )


def test_the_chart_has_the_rules_of_the_names_that_are_chosen() -> None:
    text = (CHART / "templates" / "monitoring.yaml").read_text()
    for name in (DCGM_NAMES, DUTY_CYCLE_NAMES):
        assert f'has "{name}" .Values.metrics.names' in text
        assert (CHART / "rules" / f"{name}.yaml") in RULES
    assert RUNBOOK in text
    rules = (CHART / "rules" / "driver.yaml").read_text()
    named = {'job="dra-driver-metrics"', 'daemonset="dra-driver"'}
    assert all(one in text for one in named)
    # A selector with another name would stay as it is in a release of another name, and its alert would be silent.
    assert set(re.findall(r'\b(?:job|daemonset)=~?"[^"]*"', rules)) == named
    schema = json.loads((CHART / "values.schema.json").read_text())
    names = schema["properties"]["metrics"]["properties"]["names"]
    assert names["items"]["enum"] == list(SCHEMES)


def rendered(template: str, labels: dict[str, str]) -> re.Pattern[str]:
    """What a text becomes for an alert with these labels; its value is any number."""

    def part(match: re.Match[str]) -> str:
        words = re.findall(r'\$(\w+)(?:\.(\w+))?|"([^"]*)"', match[1])
        if words[0][0] == "value":
            return "VALUE"
        found = [text or labels.get(label, "") for _, label, text in words]
        return next((word for word in found if word), "")

    text = re.sub(r"\{\{(.*?)\}\}", part, template)
    return re.compile(re.escape(text).replace("VALUE", r"[0-9.]+%?"))


CASES = [
    (path, test["name"], check)
    for path in TESTS
    for test in yaml.safe_load(path.read_text())["tests"]
    for check in test["alert_rule_test"]
]


@pytest.mark.parametrize(("path", "name", "check"), CASES)
def test_what_promtool_expects_is_what_the_rules_say(path: Path, name: str, check: Object) -> None:
    (file,) = yaml.safe_load(path.read_text())["rule_files"]
    rule = alerts(path.parent / file)[check["alertname"]]
    for expected in check["exp_alerts"]:
        labels = expected["exp_labels"]
        assert rule["labels"].items() <= labels.items(), name
        assert expected["exp_annotations"].keys() == rule["annotations"].keys()
        for key, text in expected["exp_annotations"].items():
            assert rendered(rule["annotations"][key], labels).fullmatch(text), (name, text)


def test_each_alert_is_tested_with_and_without_its_condition() -> None:
    fires = {check["alertname"] for _, _, check in CASES if check["exp_alerts"]}
    rests = {check["alertname"] for _, _, check in CASES if not check["exp_alerts"]}
    assert fires == rests == ALERTS.keys()


def test_the_series_of_the_tests_are_those_that_the_alerts_ask_for() -> None:
    for path in TESTS:
        for test in yaml.safe_load(path.read_text())["tests"]:
            given = {one["series"].partition("{")[0] for one in test["input_series"]}
            asked = {
                name
                for check in test["alert_rule_test"]
                for name in metrics_in(ALERTS[check["alertname"]]["expr"])
            }
            assert given == asked, test["name"]
