# SPDX-License-Identifier: Apache-2.0
"""Do the chart's platforms, their values and their page agree? What helm makes of them: tests/e2e/test_chart_hardware.py."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.platform_pages import PAGES

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "dra-driver"
PLATFORMS: dict[str, Any] = yaml.safe_load((CHART / "platforms.yaml").read_text())
PAGE = (ROOT / "docs" / "platforms.md").read_text()
ALSO = {
    "resourceQuota": "ResourceQuota",
    "securityContextConstraints": "SecurityContextConstraints",
    "seLinuxOptions": "SELinux options",
    "tolerations": "tolerations",
}


def cells(first: str) -> dict[str, list[str]]:
    """The rows of the table whose header begins so, by their first cell."""
    table = PAGE.partition(f"| platform | {first}")[2].partition("\n\n")[0].splitlines()[2:]
    split = [[cell.strip() for cell in line.strip().strip("|").split(" | ")] for line in table]
    return {row[0].strip("` "): row[1:] for row in split}


def test_the_schema_offers_the_platforms_of_the_file() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    assert schema["platform"]["enum"] == list(PLATFORMS)
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["platform"] == "generic"
    assert PLATFORMS["generic"] == {}


def test_the_file_explains_every_key_that_it_has() -> None:
    text = (CHART / "platforms.yaml").read_text()
    explained = set(re.findall(r"^# (\w+)  ", text, re.MULTILINE))
    assert {key for chosen in PLATFORMS.values() for key in chosen} == explained


@pytest.mark.parametrize("name", PLATFORMS)
def test_the_page_says_what_the_file_sets(name: str) -> None:
    chosen = PLATFORMS[name]
    root, cdi, also, labels, _run = cells("driver root")[name]
    assert root == chosen.get("driverRoot", "found")
    assert cdi == chosen.get("cdiDir", "/var/run/cdi")
    assert also == (", ".join(word for key, word in ALSO.items() if key in chosen) or "nothing")
    written = [f"`{key}={value}`".replace("=`", "`") for key, value in chosen.get("nodeLabels", {}).items()]  # fmt: skip
    default = "the customary ones" if "nodeLabels" in chosen else "all"
    assert labels == (", ".join(written) or default)


def test_the_page_says_of_each_platform_whether_it_was_run_and_what_is_to_do() -> None:
    ran = {name: row[-1] for name, row in cells("driver root").items()}
    assert ran.keys() == PLATFORMS.keys()
    assert [
        name for name, said in ran.items() if not said.startswith(("yes", "[yes]", "not run"))
    ] == []


def test_each_platform_has_a_page_that_says_what_to_do_first() -> None:
    folder = ROOT / "docs" / "platforms"
    assert {path.stem for path in folder.glob("*.md")} == PAGES.keys()
    assert set(PAGES.values()) == PLATFORMS.keys()
    for page in PAGES:
        text = (folder / f"{page}.md").read_text()
        assert "\n## What you must do first\n\n- " in text
        assert f"(platforms/{page}.md)" in PAGE
