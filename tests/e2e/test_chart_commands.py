# SPDX-License-Identifier: Apache-2.0
"""Does helm take each command of the pages that installs or changes this chart?

By the real helm, without a cluster. What the objects do there: the other tests of the chart.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.testbed.onenode import helm
from tests.e2e.rendering import documents, of_kind

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), helm.CHART / "README.md")
COMMAND = re.compile(r"^ *(?:\$ )?helm (?:install|upgrade) \S+ helm/dra-driver\b.*", re.MULTILINE)
OF_A_CLUSTER = {"--reset-then-reuse-values", "--reuse-values", "--wait", "--install"}
"""What only means something for a release that is there."""


def commands() -> Iterator[tuple[Path, str]]:
    """The commands of all pages, each on one line."""
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for found in COMMAND.findall(text):
            yield page, found.strip().removeprefix("$ ")


COMMANDS = list(commands())


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 20
    assert {page.name for page, _ in COMMANDS} >= {"install.md", "operations.md", "README.md"}


@pytest.mark.parametrize(
    ("page", "command"), COMMANDS, ids=[f"{page.stem}-{text[:200]}" for page, text in COMMANDS]
)
def test_helm_takes_the_command(page: Path, command: str, tmp_path: Path) -> None:
    _, _, release, _, *options = shlex.split(command)
    options = [one for one in options if one not in OF_A_CLUSTER]
    for number, option in enumerate(options):
        if option == "--values":
            file = tmp_path / options[number + 1]
            file.write_text(content_of(page, file.name))
            options[number + 1] = str(file)
    if "platform=openshift" in options:
        options += ["--api-versions", "security.openshift.io/v1"]
    ended = helm.helm("template", release, str(helm.CHART), *options, home=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert of_kind(documents(ended.stdout), "DaemonSet")


def content_of(page: Path, name: str) -> str:
    """What the page says is in the file: a block after its name, or what helm has of a release, of which all can be missing."""
    text = page.read_text()
    _, shown, after = text.partition(f"\n`{name}`:\n\n```yaml\n")
    assert (
        shown or f"helm get values dra-driver --namespace dra-driver --output yaml > {name}" in text
    )
    return after.partition("```")[0]
