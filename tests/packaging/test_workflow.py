# SPDX-License-Identifier: Apache-2.0
"""Do the workflows run what the pages say, with no more rights than they need?"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.release import registry
from hack.testbed.onenode import helm

ROOT = Path(__file__).resolve().parents[2]
ALL = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
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


# What a job may besides reading, and why.
RIGHTS = {
    ("release.yaml", "provenance"): {"attestations", "id-token"},
    ("release.yaml", "package"): {"id-token"},  # trusted publishing
    ("release.yaml", "registry"): {"id-token"},  # cosign without a key
    ("release.yaml", "page"): {"contents"},
    ("update.yaml", "propose"): {"contents", "pull-requests"},
}


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_a_workflow_says_that_it_has_never_run_and_its_jobs_have_no_more_rights_than_they_need(
    path: Path,
) -> None:
    text = path.read_text()
    assert text.splitlines()[1].startswith("# Never run here: ")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        written = {right for right, kind in job["permissions"].items() if kind == "write"}
        assert written == RIGHTS.get((path.name, name), set()), name
        assert job["timeout-minutes"] <= 120


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_keep_no_credentials(path: Path) -> None:
    text = path.read_text()
    used = re.findall(r"uses: (.*)$", text, re.MULTILINE)
    assert used or path.name == "none"
    assert [
        line
        for line in used
        if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line)
    ] == []
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def step_of(workflow: str, job: str, name: str) -> dict[str, Any]:
    content = yaml.safe_load((ROOT / ".github" / "workflows" / workflow).read_text())
    (step,) = (one for one in content["jobs"][job]["steps"] if one.get("name") == name)
    return dict(step)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_nothing_of_another_job_is_put_over_a_checkout(path: Path) -> None:
    for job in yaml.safe_load(path.read_text())["jobs"].values():
        uses = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
        if "actions/checkout" in uses and "actions/download-artifact" in uses:
            target = job["steps"][uses.index("actions/download-artifact")]["with"].get("path", ".")
            assert target == "dist" or target.startswith("${{ runner.temp }}/")


def test_the_update_takes_nothing_but_locks_from_the_job_that_ran_other_peoples_code(
    tmp_path: Path,
) -> None:
    names = ("requirements/runtime.txt", "Makefile", "dra_driver/cli/main.py")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("old\n")
    patch = "".join(
        f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-old\n+new\n"
        for name in names
    )
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "locks.patch").write_text(patch)
    script = step_of("update.yaml", "propose", "Propose it")["run"]
    (command,) = (line for line in script.splitlines() if line.startswith("git apply"))
    where = {**os.environ, "RUNNER_TEMP": str(tmp_path)}
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["bash", "-ec", command], cwd=tmp_path, env=where, check=True)
    changed = [name for name in names if (tmp_path / name).read_text() == "new\n"]
    assert changed == ["requirements/runtime.txt"]


@pytest.mark.parametrize(
    ("image", "code"),
    [("", 0), ("kindest/node:v1.34.0@sha256:0a", 0), ("x'; touch owned; '", 1), ("$(shell touch owned)", 1)],
)  # fmt: skip
def test_the_name_of_an_image_is_no_command(tmp_path: Path, image: str, code: int) -> None:
    (tmp_path / "Makefile").write_text("kind-demo:\n\t@echo $(KIND_DEMO)\n")
    script = step_of("kind-demo.yaml", "kind-demo", "Play the demo")["run"]
    where = {**os.environ, "NODE_IMAGE": image}
    ended = subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=where, check=False)
    assert ended.returncode == code
    assert not (tmp_path / "owned").exists()


def test_an_action_has_one_version_everywhere() -> None:
    used = {
        line for path in ALL for line in re.findall(r"uses: (.*)$", path.read_text(), re.MULTILINE)
    }
    assert len(used) == len({line.partition("@")[0] for line in used})


def test_only_the_registrys_job_knows_secrets() -> None:
    found = {path.name: set(re.findall(r"secrets\.(\w+)", path.read_text())) for path in ALL}
    assert {name: secrets for name, secrets in found.items() if secrets} == {
        "release.yaml": {"REGISTRY_USER", "REGISTRY_PASSWORD"}
    }


def test_what_workflows_start_exists() -> None:
    verbs = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in ALL:
        text = path.read_text()
        assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= verbs
        for program in re.findall(r"(?<![\w/.])(hack/\S+)", text):
            assert (ROOT / program).is_file(), program


def test_the_go_programs_of_the_release_are_those_of_the_tests() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yaml").read_text()
    assert f"helm/v4/cmd/helm@v{helm.VERSION}" in text
    assert f"crane@v{registry.VERSION}" in text
