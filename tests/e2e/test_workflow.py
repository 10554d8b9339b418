# SPDX-License-Identifier: Apache-2.0
"""Does actionlint find a mistake in the workflow, and does it find the ones that we make on purpose?

actionlint is built from its Go module. It knows the syntax of workflows, the runners, and which expressions are dangerous in a script.
"""

import subprocess
from pathlib import Path

import pytest

from hack.testbed.onenode.products import build_commands, product

pytestmark = pytest.mark.real
ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "kind-demo.yaml"
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


def test_the_workflow_has_no_mistakes(actionlint: Path) -> None:
    ended = lint(actionlint, WORKFLOW)
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
