# SPDX-License-Identifier: Apache-2.0
"""Do actionlint and zizmor find a mistake in the workflows, and do they find the ones that we make on purpose?

actionlint is built from its Go module. It knows the syntax of workflows, the runners, and which expressions are dangerous in a script. zizmor
knows what makes a workflow attackable; it is a locked wheel, and asks nobody.
"""

import subprocess
from pathlib import Path

import pytest

from hack.release import tools
from hack.testbed.onenode.products import build_commands, product

pytestmark = pytest.mark.real
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
ALL = sorted(FOLDER.glob("*.yaml"))
WORKFLOW = FOLDER / "kind-demo.yaml"
MODULE, VERSION = "github.com/rhysd/actionlint", "1.7.12"
MISTAKES = {
    "a runner that does not exist": ("ubuntu-24.04", "ubuntu-9.04", "is unknown"),
    "a key that does not exist": ("timeout-minutes", "time-out", "unexpected key"),
    "an input that does not exist": ("inputs.node-image", "inputs.other", "not defined"),
}


@pytest.fixture(scope="module")
def actionlint() -> Path:
    flags = "-s -w"
    make = build_commands(MODULE, VERSION, (f"{MODULE}/cmd/actionlint",), ldflags=flags)
    return product("actionlint", VERSION, make, recipe=flags.encode()) / "actionlint"


def lint(actionlint: Path, file: Path) -> subprocess.CompletedProcess[str]:
    # Without shellcheck and pyflakes, which may or may not be on a machine.
    command = (str(actionlint), "-shellcheck=", "-pyflakes=", "-no-color", str(file))
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_the_workflows_have_no_mistakes(actionlint: Path, path: Path) -> None:
    ended = lint(actionlint, path)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(actionlint: Path, mistake: str, tmp_path: Path) -> None:
    right, wrong, said = MISTAKES[mistake]
    text = WORKFLOW.read_text()
    assert right in text
    file = tmp_path / WORKFLOW.name
    file.write_text(text.replace(right, wrong))
    ended = lint(actionlint, file)
    assert (ended.returncode, said in ended.stdout) == (1, True), ended.stdout + ended.stderr


def zizmor(*paths: Path) -> subprocess.CompletedProcess[str]:
    program = tools.folder() / "bin" / "zizmor"
    command = (program, "--offline", "--no-progress", "--format=plain", *paths)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_workflows_cannot_be_attacked_as_far_as_zizmor_knows() -> None:
    ended = zizmor(*ALL, ROOT / ".github" / "dependabot.yml")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "No findings to report" in ended.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("@11bd71901bbe5b1630ceea73d27597364c9af683  # v4.2.2", "@v4", "unpinned-uses"),
        ("  pull_request:", "  pull_request_target:", "dangerous-triggers"),
        (
            "run: make test",
            "run: echo ${{ github.event.pull_request.title }}",
            "template-injection",
        ),
    ],
)
def test_what_makes_a_workflow_attackable_is_found(
    tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    text = (FOLDER / "test.yaml").read_text()
    assert right in text
    file = tmp_path / ".github" / "workflows" / "test.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text.replace(right, wrong))
    ended = zizmor(file)
    assert ended.returncode != 0
    assert said in ended.stdout
