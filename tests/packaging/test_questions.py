# SPDX-License-Identifier: Apache-2.0
"""Is each question of docs/questions.md answered by the line that stands there?"""

import re
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.cli.main import kubectl, main
from dra_driver.testing.fake_kubelet import FakeKubelet
from dra_driver.testing.nvml import boards, machine
from dra_driver.testing.nvml import node as layouts
from dra_driver.testing.nvml.node import MockNode
from hack.questions_page import FILES, command_of

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
QUESTIONS = [
    question
    for section in yaml.safe_load((DOCS / "questions.yaml").read_text())
    for question in section["questions"]
]
BY_COMMAND = [one for one in QUESTIONS if "command" in one]
BY_PAGE = [one for one in QUESTIONS if "page" in one]
COMMANDS = {"dra-driver": main, "kubectl dra": kubectl}
THREAD = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+")
Entry = dict[str, Any]


def name(entry: Entry) -> str:
    return str(entry["question"])


def one_line(text: str) -> str:
    """The text without line breaks and columns: a command breaks lines where the terminal ends."""
    return " ".join(text.split())


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The / of a node with two GPUs, containerd and a kubelet."""
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "NODE_NAME"):
        monkeypatch.delenv(variable, raising=False)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("HOME", folder)
        MockNode(Path(folder), machine.node(boards.A100_40, 2), layout=layouts.UBUNTU)
        kubelet = FakeKubelet(Path(folder) / "var/lib/kubelet")
        runtime = Path(folder) / "run/containerd/containerd.sock"
        runtime.parent.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(runtime))
            yield Path(folder)
        kubelet.close()


@pytest.mark.parametrize("entry", BY_COMMAND, ids=name)
def test_the_command_prints_the_line(
    entry: Entry,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    command = command_of(entry)
    assert f"`{command}`\n" in (DOCS / "questions.md").read_text()
    (program,) = (one for one in COMMANDS if command.startswith(f"{one} "))
    words = command.removeprefix(program).split()
    if entry["given"] == "node":
        root = request.getfixturevalue("node")
        for path, text in entry["node"].items():
            place = root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        words += ["--root", str(root)]
    COMMANDS[program](words)
    assert one_line(entry["line"]) in one_line(capsys.readouterr().out)


@pytest.mark.parametrize("entry", BY_PAGE, ids=name)
def test_the_page_has_the_line(entry: Entry) -> None:
    page, _, heading = entry["page"].partition("#")
    text = (DOCS / page).read_text()
    if heading:
        parts = re.split(r"^##+ (.*)$", text, flags=re.MULTILINE)
        below = dict(zip(map(anchor, parts[1::2]), parts[2::2], strict=True))
        text = below[heading]
    assert one_line(entry["line"]) in one_line(text)


def anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


def test_there_are_fifty_each_with_a_public_thread() -> None:
    assert len({one["thread"] for one in QUESTIONS}) >= 50
    assert [one["thread"] for one in QUESTIONS if not THREAD.fullmatch(one["thread"])] == []
    assert len({one["question"] for one in QUESTIONS}) == len(QUESTIONS)


def test_each_has_one_answer_and_each_file_a_question() -> None:
    assert [name(one) for one in QUESTIONS if ("command" in one) == ("page" in one)] == []
    used = {one["command"].split()[-1] for one in BY_COMMAND if one["given"] == "files"}
    assert used | {"cluster.yaml"} == {path.name for path in (ROOT / FILES).iterdir()}
