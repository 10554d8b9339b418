# SPDX-License-Identifier: Apache-2.0
"""Is what docs/node-labels.md shows what the driver does?"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.backends.base import BackendContext
from dra_driver.backends.registry import load_backend
from dra_driver.config.options import OPTIONS
from dra_driver.config.settings import load
from dra_driver.model.ids import NodeName
from dra_driver.model.names import LABELS, PUBLISH_FAILED
from dra_driver.planning.label_text import FACTS
from dra_driver.planning.labels import LabelRules, feature_file, node_labels

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "node-labels.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


AFFINITY, ALIASES, TAINT = (yaml.safe_load(block) for block in blocks("yaml"))


def labels(profile: str, aliases: dict[str, str] | None = None) -> dict[str, str]:
    backend = load_backend("simulated", BackendContext(NodeName("node-1"), {"profile": profile}))
    return node_labels(backend.scan(), LabelRules(aliases or {}))


def test_the_labels_that_are_shown_are_those_of_that_machine() -> None:
    (shown,) = blocks("text")
    assert shown == feature_file(labels("h100x8"))


def test_the_table_has_every_fact_and_every_label_of_the_drivers_own() -> None:
    rows = re.findall(r"^\| (?:`(gpu\.[^`]+)` )?\| `([a-z-]+)` \|", PAGE, re.MULTILINE)
    assert sorted(fact for _, fact in rows) == sorted(FACTS)
    assert {label for label, _ in rows} - {""} == {label.name for label in LABELS}


def matches(expression: dict[str, Any], found: dict[str, str]) -> bool:
    """As the scheduler compares: with Gt as integers."""
    value, wanted = found.get(expression["key"]), expression["values"]
    if value is None:
        return False
    return value in wanted if expression["operator"] == "In" else int(value) > int(wanted[0])


@pytest.mark.parametrize(
    ("profile", "fits"),
    [("h100x8", True), ("a100-40x8", True), ("v100x1", False), ("mi300x8", False), ("t4x2", False)],
)
def test_the_affinity_that_is_shown_selects_large_gpus_of_two_generations(
    profile: str, fits: bool
) -> None:
    node_affinity = AFFINITY["affinity"]["nodeAffinity"]
    (term,) = node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    found = labels(profile)
    assert all(matches(one, found) for one in term["matchExpressions"]) is fits


def test_the_values_that_are_shown_are_options_that_the_driver_takes() -> None:
    aliases = ALIASES["nodeLabelAliases"]
    flags = {
        "node_name": "node-1",
        "node_labels": ALIASES["nodeLabels"],
        "node_label_aliases": ",".join(f"{label}={fact}" for label, fact in aliases.items()),
        "startup_taint": TAINT["startupTaint"],
    }
    settings = load(flags, {}).about_node
    assert dict(settings.aliases) == aliases
    assert aliases.items() >= {"accelerator": "vendor", "gpu-count": "count"}.items()
    found = labels("t4x2", aliases)
    assert (found["accelerator"], found["gpu-count"], found["gpu-memory"]) == (
        "nvidia",
        "2",
        "15360",
    )


def test_the_page_names_the_options_and_the_reasons() -> None:
    for name in ("node_labels", "node_label_aliases", "node_condition", "startup_taint"):
        (option,) = [option for option in OPTIONS if option.name == name]
        assert option.flag in PAGE
        assert f"`{option.key}" in PAGE
    decides = (ROOT / "dra_driver" / "planning" / "node_condition.py").read_text()
    decides = decides.replace("(PUBLISH_FAILED,", f'("{PUBLISH_FAILED}",')
    reasons = set(re.findall(r'(?:\(|True, )"([A-Z][A-Za-z]+)",', decides))
    assert reasons == set(re.findall(r"^\| (?:True|False) \| `(\w+)` \|", PAGE, re.MULTILINE))
