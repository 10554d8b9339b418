# SPDX-License-Identifier: Apache-2.0
"""Can who is called by an alert do what docs/operations.md says? Its commands are read, and the metrics, log lines and values that it names exist.

tests/packaging/test_monitoring.py asks the same about the alerts themselves.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.cli.main import COMMANDS, KUBECTL, KUBECTL_COMMANDS, PROJECT, parser
from tests.packaging.test_monitoring import ALERTS, FOREIGN, labels_in, metrics_in
from tests.support.scraped import labels_by_name

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "dra-driver"
PAGE = (ROOT / "docs" / "operations.md").read_text()
SPANS = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", PAGE)
LINES = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)
"""Of the console blocks."""
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "dra_driver").rglob("*.py")))
OF_THE_TARGET = {"node", "instance", "job"}
"""Labels that a scrape has beside those of the driver."""
SCRAPED = labels_by_name()
OURS = re.compile(rf"(?:^|-- )({KUBECTL}|{PROJECT}) ([^|>]*)")
OTHERS_NAMES = re.compile(r"DCGM_FI_DEV_\w+|nvidia_gpu_\w+|hw_gpu_\w+")
Object = dict[str, Any]


def our_commands() -> list[tuple[str, str]]:
    found = {match.groups() for text in (*LINES, *SPANS) if (match := OURS.search(text))}
    return sorted((str(program), str(words).strip()) for program, words in found)


@pytest.mark.parametrize(("program", "words"), our_commands())
def test_a_command_is_understood(program: str, words: str) -> None:
    commands = KUBECTL_COMMANDS if program == KUBECTL else COMMANDS
    verb, *rest = shlex.split(words)
    parser(verb, program=program, commands=commands).parse_args([verb, *rest])


def test_there_are_commands_of_both_programs() -> None:
    assert {program for program, _ in our_commands()} == {KUBECTL, PROJECT}
    assert len(our_commands()) > 12


@pytest.mark.parametrize(
    "text",
    [text for text in (*LINES, *SPANS) if re.match(r"kubectl (exec|logs|debug) .*POD", text)],
)
def test_a_command_names_a_container_of_the_pod_or_means_the_first(text: str) -> None:
    chart = "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
    named = re.findall(r"--(?:container|target) (\S+)", text)
    assert [one for one in named if f"- name: {one}\n" not in chart] == []
    assert named or "kubectl.kubernetes.io/default-container: driver\n" in chart


def test_metrics_that_the_page_names_exist() -> None:
    found = set(re.findall(r"\bdra_driver_\w+|" + OTHERS_NAMES.pattern, PAGE))
    assert len(found) > 12
    assert found - SCRAPED.keys() == set()


def test_log_lines_that_the_page_names_exist() -> None:
    greps = re.findall(r"grep (?:-E )?'?([\w|]+)'?", PAGE)
    snake = [text for text in SPANS if re.fullmatch(r"[a-z]+(_[a-z]+)+", text)]
    labels = {label for labels in SCRAPED.values() for label in labels}
    lines = {name for text in greps for name in text.split("|")} | {
        *snake
    } - labels - SCRAPED.keys()
    assert len(lines) > 10
    assert [name for name in sorted(lines) if f'"{name}"' not in SOURCE] == []


def test_events_that_the_page_names_are_written() -> None:
    reasons = re.findall(r"\breason=(\w+)", PAGE)
    assert reasons
    assert [reason for reason in reasons if f'"{reason}"' not in SOURCE] == []


def test_answers_of_the_driver_that_the_page_quotes_are_given() -> None:
    quoted = re.findall(r'^\d\. "([^"]+)"', PAGE, re.MULTILINE)
    assert len(quoted) > 3
    assert [text for text in quoted if text not in SOURCE] == []


def test_values_of_the_chart_that_the_page_names_exist() -> None:
    values: Object = yaml.safe_load((CHART / "values.yaml").read_text())
    named = [text.partition("=")[0] for text in SPANS]
    paths = [one.split(".") for one in named if re.fullmatch(r"[a-zA-Z]+(\.[a-zA-Z]+)+", one)]
    paths = [path for path in paths if path[0] in values]
    assert len(paths) > 4
    for path in paths:
        at: object = values
        for part in path:
            assert isinstance(at, dict)
            assert part in at, ".".join(path)
            at = at[part]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_chooses_and_names_by_labels_that_its_metrics_have(name: str) -> None:
    rule = ALERTS[name]
    asked = metrics_in(rule["expr"]) - FOREIGN.keys()
    if not asked:
        return
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    labels = frozenset.intersection(*(SCRAPED[one] for one in asked)) | OF_THE_TARGET
    assert (named | labels_in(rule["expr"])) - labels == set()
