# SPDX-License-Identifier: Apache-2.0
"""Do the workflows run what the pages say, with no more rights than they need?"""

import hashlib
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


# The release

PUBLISHED = ("dra_driver-0.1.0-py3-none-any.whl", "dra_driver-0.1.0.tar.gz", "dra-driver-0.1.0.tgz", "kubectl-dra-0.1.0.tar.gz", "dra.yaml", "dra-driver.tar", "dra-driver.cdx.json")  # fmt: skip
PUSHED = "registry.example.com/team/driver"
STAND_IN = """#!/bin/sh
echo "${0##*/} $*" >> "$CALLS"
case "$1" in
push) [ "${0##*/}" = helm ] || echo "$HUB${3%:*}@$DIGEST_OF_CRANE" ;;
digest) echo sha256:chart ;;
esac
"""


def step_that_runs(job: str, words: str) -> str:
    content = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())
    (script,) = (one["run"] for one in content["jobs"][job]["steps"] if words in one.get("run", ""))
    return str(script)


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    folder.mkdir()
    for name in PUBLISHED:
        (folder / name).write_text(name)
    sums = (f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in PUBLISHED)
    (folder / "SHA256SUMS").write_text("".join(sums))
    return folder


def publish(script: str, dist: Path, **variables: str) -> tuple[int, list[str]]:
    """Runs a step as its host would, with programs that only note how they were called; answers its code and the calls."""
    programs, calls = dist.parent / "programs", dist.parent / "calls"
    programs.mkdir()
    calls.touch()
    for name in ("crane", "cosign", "helm", "gh"):
        (programs / name).write_text(STAND_IN)
        (programs / name).chmod(0o755)
    surroundings = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "CALLS": str(calls),
        "GITHUB_REF_NAME": "v0.1.0",
        "IMAGE": PUSHED,
        "CHARTS": "registry.example.com/charts",
        "DIGEST": "sha256:image",
        "DIGEST_OF_CRANE": "sha256:image",
        "HUB": "",
        "REGISTRY_USER": "somebody",
        "REGISTRY_PASSWORD": "secret",
        **variables,
    }
    ended = subprocess.run(
        ["bash", "-e", "-c", script], cwd=dist.parent, env=surroundings, check=False
    )
    return ended.returncode, calls.read_text().splitlines()


def test_one_image_and_one_chart_are_pushed_in_this_order_and_no_file_is_changed(
    dist: Path,
) -> None:
    before = {path.name: path.read_bytes() for path in dist.iterdir()}
    assert publish(step_that_runs("registry", "crane push"), dist) == (
        0,
        [
            "crane auth login registry.example.com --username somebody --password-stdin",
            f"crane push dist/image {PUSHED}:0.1.0",
            f"cosign sign --yes {PUSHED}@sha256:image",
            f"cosign attest --yes --type cyclonedx --predicate dist/dra-driver.cdx.json {PUSHED}@sha256:image",
            "helm registry login registry.example.com --username somebody --password-stdin",
            "helm push dist/dra-driver-0.1.0.tgz oci://registry.example.com/charts",
            "crane digest registry.example.com/charts/dra-driver:0.1.0",
            "cosign sign --yes registry.example.com/charts/dra-driver@sha256:chart",
        ],
    )
    assert {path.name: path.read_bytes() for path in dist.iterdir()} == before


def test_an_image_with_another_digest_is_not_signed_and_its_chart_not_pushed(dist: Path) -> None:
    script = step_that_runs("registry", "crane push")
    code, calls = publish(script, dist, DIGEST_OF_CRANE="sha256:other")
    assert code != 0
    assert calls[-1] == f"crane push dist/image {PUSHED}:0.1.0"


def test_a_registry_whose_name_crane_writes_in_another_way_is_the_same(dist: Path) -> None:
    code, calls = publish(step_that_runs("registry", "crane push"), dist, HUB="index.")
    assert code == 0
    assert f"cosign sign --yes index.{PUSHED}@sha256:image" in calls


@pytest.mark.parametrize(("job", "words"), [("registry", "crane push"), ("page", "gh release")])
def test_a_file_that_is_not_of_the_sums_is_not_published(dist: Path, job: str, words: str) -> None:
    (dist / "dra-driver-0.1.0.tgz").write_text("another chart")
    code, calls = publish(step_that_runs(job, words), dist)
    assert (code, calls) == (1, [])


def test_the_page_has_the_files_of_the_sums_and_provenance_is_attested_for_each(
    dist: Path,
) -> None:
    code, (call,) = publish(step_that_runs("page", "gh release"), dist)
    assert code == 0
    shown = {word.removeprefix("dist/") for word in call.split() if word.startswith("dist/")}
    assert shown == {*PUBLISHED, "SHA256SUMS"}
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())
    attest = release["jobs"]["provenance"]["steps"][-1]["with"]["subject-path"].split()
    attested = {path.name for pattern in attest for path in dist.parent.glob(pattern)}
    assert attested == shown


def test_only_the_first_job_of_the_release_makes_files_and_it_knows_where_the_image_goes() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())
    makes = {
        name
        for name, job in release["jobs"].items()
        if re.search(r"hack[./]|\bmake\b", " ".join(one.get("run", "") for one in job["steps"]))
    }
    assert makes == {"build"}
    script = step_that_runs("build", "release-check")
    for image, code in ((PUSHED, 0), ("", 1)):
        said = subprocess.run(
            ["bash", "-e", "-c", script.replace("hack/release/in-debian", "echo")],
            env={**os.environ, "BUILD_IMAGE": "debian", "IMAGE": image},
            capture_output=True,
            text=True,
            check=False,
        )
        assert bool(said.returncode) is bool(code)
        assert said.stdout == ("" if code else f"debian make release-check IMAGE={PUSHED}\n")
