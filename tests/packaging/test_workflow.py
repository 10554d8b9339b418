# SPDX-License-Identifier: Apache-2.0
"""Does the workflow run what the pages say, with no more rights than it needs?"""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / ".github" / "workflows" / "kind-demo.yaml").read_text()
WORKFLOW: dict[str, Any] = yaml.safe_load(TEXT)
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def test_it_plays_the_demo_with_the_image_that_it_builds() -> None:
    scripts = "\n".join(step.get("run", "") for step in STEPS)
    assert "make kind-demo" in scripts
    variable = re.search(r"make kind-demo (\w+)=", scripts)
    assert variable is not None
    makefile = (ROOT / "Makefile").read_text()
    assert f"hack/kind-demo $({variable[1]})\n" in makefile
    # As docs/kind.md shows it.
    for words in (
        "--tag dra-driver/dra-driver:kind-demo",
        "docker save --output dra-driver.tar dra-driver/dra-driver:kind-demo",
    ):
        assert words in scripts
        assert words in (ROOT / "docs" / "kind.md").read_text()


def test_it_may_only_read_and_runs_only_pinned_actions() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in used)
    assert "secrets." not in TEXT
