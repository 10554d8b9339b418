# SPDX-License-Identifier: Apache-2.0
"""docs/questions.md, written from docs/questions.yaml."""

import re
from pathlib import Path
from typing import Any

import yaml

QUESTIONS = Path(__file__).resolve().parents[1] / "docs" / "questions.yaml"
OPENING = """\
# Questions that people asked elsewhere

{count} questions from the public trackers of other drivers, device plugins, exporters and of Kubernetes, in our own words, each with what answers it
here and with the line that is the answer. Where this driver does not do it, the answer says what does.

A test asks each question ([questions.yaml](questions.yaml)): the commands run on a recorded cluster, on manifests and on a simulated node of
`tests/fixtures/questions`, and print this line; the pages have it. What is said about GPUs was tested with a stand-in for NVIDIA's library, not on real ones.
"""


def questions_page() -> str:
    """The whole page."""
    listed = yaml.safe_load(QUESTIONS.read_text())
    parts = [OPENING.format(count=sum(len(section["questions"]) for section in listed))]
    for section in listed:
        parts.append(f"\n## {section['section']}\n")
        parts.extend(_entry(entry) for entry in section["questions"])
    return "".join(parts)


def _entry(entry: dict[str, Any]) -> str:
    if "command" in entry:
        answer = f"`{entry['command']}`"
    else:
        name = entry["page"].partition("#")[0]
        answer = f"[{name}]({entry['page']})"
    if "instead" in entry:
        answer = f"not here: use {entry['instead']}. See {answer}"
    repository, number = re.findall(r"github\.com/(.+)/(?:issues|pull)/(\d+)$", entry["thread"])[0]
    line = entry["line"].strip()
    asked = f"**{entry['question']}** ([{repository} #{number}]({entry['thread']}))"
    return f"\n{asked}\n\n{answer}\n\n```text\n{line}\n```\n"
