# SPDX-License-Identifier: Apache-2.0
"""docs/questions.md, written from docs/questions.yaml, and the record of a cluster that its commands ask."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
QUESTIONS = ROOT / "docs" / "questions.yaml"
FILES = "tests/fixtures/questions"
RECORD = "questions-record.json"
OPENING = """\
# Questions that people asked elsewhere

{count} questions from the public trackers of other drivers, device plugins, exporters and of Kubernetes, in our own words, each with what answers it
here and with the line that is the answer. Where this driver does not do it, the answer says what does.

The commands run in a clone of this repository as they stand here, on [a recorded cluster](questions-record.json) and on manifests; `doctor` runs on the node. A test asks
each question ([questions.yaml](questions.yaml)): the commands print this line, those of `doctor` on a simulated node; the pages have it. What is said about GPUs was tested with a stand-in for NVIDIA's library,
not on real ones.
"""
HEAD = """\
{
  "apiVersion": "gpu.dra-driver.dev/v1",
  "kind": "ClusterRecord",
  "format": "dra-driver/record",
  "formatVersion": 1,
  "cluster": {
    "kubernetesVersion": "v1.37.0",
    "recordedAt": "2026-11-26T08:00:00Z",
    "served": ["v1"],
"""


def questions_page() -> str:
    """The whole page."""
    listed = yaml.safe_load(QUESTIONS.read_text())
    parts = [OPENING.format(count=sum(len(section["questions"]) for section in listed))]
    for section in listed:
        parts.append(f"\n## {section['section']}\n")
        parts.extend(_entry(entry) for entry in section["questions"])
    return "".join(parts)


def questions_record() -> str:
    """The cluster of the questions as `dra-driver record` would write it, an object on each line."""
    parts: dict[str, list[Any]] = {}
    for thing in yaml.safe_load_all((ROOT / FILES / "cluster.yaml").read_text()):
        kind = str(thing["kind"])
        field = kind[0].lower() + kind[1:] + ("es" if kind.endswith("s") else "s")
        del thing["apiVersion"], thing["kind"]
        parts.setdefault(field, []).append(thing)
    between = ",\n      "
    lists = (
        f'    "{field}": [\n      {between.join(map(json.dumps, things))}\n    ]'
        for field, things in parts.items()
    )
    return HEAD + ",\n".join(lists) + "\n  }\n}\n"


def command_of(entry: dict[str, Any]) -> str:
    """The command of a question, as a reader can repeat it in a clone."""
    command = str(entry["command"])
    match entry["given"]:
        case "cluster":
            return f"{command} --from docs/{RECORD}"
        case "files":
            program, _, file = command.rpartition(" ")
            return f"{program} {FILES}/{file}"
        case _:
            return command


def _entry(entry: dict[str, Any]) -> str:
    if "command" in entry:
        answer = f"`{command_of(entry)}`"
    else:
        name = entry["page"].partition("#")[0]
        answer = f"[{name}]({entry['page']})"
    if "instead" in entry:
        answer = f"not here: use {entry['instead']}. See {answer}"
    repository, number = re.findall(r"github\.com/(.+)/(?:issues|pull)/(\d+)$", entry["thread"])[0]
    line = entry["line"].strip()
    asked = f"**{entry['question']}** ([{repository} #{number}]({entry['thread']}))"
    return f"\n{asked}\n\n{answer}\n\n```text\n{line}\n```\n"
