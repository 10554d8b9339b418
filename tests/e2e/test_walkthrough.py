# SPDX-License-Identifier: Apache-2.0
"""Do the steps of docs/walkthrough.md work on a real cluster, one after the other, as the page has them?

The cluster is that of all tests, with the machine that the page's cluster has. tests/packaging/test_docs.py runs the commands that need no cluster.
"""

import re
import shlex
import sys
from pathlib import Path

import pytest

from hack.testbed.onenode import node_files
from hack.testbed.onenode.namespaces import TestBedError, wait_until
from tests.e2e.story import Story

pytestmark = [pytest.mark.real, pytest.mark.needs("SchedulerVerdicts")]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "walkthrough.md"
NOT_RUN = {
    "make setup",
    'export PATH="$PWD/.venv/bin:$PATH"',
    "make kind-demo",
    "kind delete cluster --name dra-driver",
}
"""What makes the cluster and takes it away; the page says that it was never run."""


def commands() -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


def manifest() -> str:
    """The page's, with the image that this cluster has."""
    (found,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert node_files.EXAMPLE_IMAGE in found
    return str(found).replace(node_files.EXAMPLE_IMAGE, node_files.IMAGE)


class Reader:
    """Somebody who types the page's commands in a folder, in a namespace of their own."""

    def __init__(self, story: Story, folder: Path) -> None:
        self._story = story
        self._folder = folder
        cluster = story.driver.cluster
        config = cluster.admin_kubeconfig.read_text()
        (folder / "config").write_text(config)
        self._type(f"kubectl config set-context --current --namespace {story.namespace}")

    def _type(self, command: str) -> str:
        programs = Path(sys.executable).parent
        script = f'cd {shlex.quote(str(self._folder))}; export KUBECONFIG="$PWD/config" PATH="$PATH:{programs}"; {command}'
        # `kubectl dra why` ends with 1 where a pod does not fit.
        return self._story.driver.cluster.output_of(["sh", "-c", script], check="dra why" not in command)  # fmt: skip

    def run(self, command: str) -> str:
        """Type it; what it printed."""
        assert command in commands(), "the page has another command"
        return self._type(command)

    def apply(self, name: str, text: str) -> None:
        """Write a manifest, and apply it."""
        (self._folder / name).write_text(text)
        self._type(f"kubectl apply -f {name}")


def test_each_step_of_the_page_does_what_it_says(story: Story, tmp_path: Path) -> None:
    reader = Reader(story, tmp_path)
    reader.run("kubectl delete pods --all")
    slices = reader.run(
        "kubectl get resourceslices --field-selector spec.driver=gpu.dra-driver.dev"
    )
    assert "gpu.dra-driver.dev" in slices
    rows = re.findall(r"^\S+ +gpu\.dra-driver\.dev +gpu-\d ", reader.run("kubectl dra devices"), re.MULTILINE)  # fmt: skip
    assert len(rows) == 8
    assert re.search(r"^gpu ", reader.run("kubectl dra free"), re.MULTILINE)

    (tmp_path / "trainer.yaml").write_text(manifest())
    reader.run("kubectl apply -f trainer.yaml")
    story.wait_ready("trainer")
    assert "condition met" in reader.run("kubectl wait --for=condition=Ready pod/trainer")
    log = wait_until(lambda: reader.run("kubectl logs trainer"), "the log of pod trainer")
    assert re.search(r"^GPU_DEVICE_0=\w+", log, re.MULTILINE)
    assert "trainer" in reader.run("kubectl dra claims")

    changed = manifest().replace("64Gi", "2Ti").replace("trainer", "greedy").replace("big-gpu", "huge-gpu")  # fmt: skip
    reader.apply("greedy.yaml", changed)
    assert "cannot allocate all claims" in story.why_pending("greedy")
    why = reader.run("kubectl dra why pod/greedy")
    assert "devices do not fit" in why
    assert "memory is 81559Mi (8)" in " ".join(why.split())

    reader.run("kubectl delete pod trainer greedy")
    wait_until(lambda: "trainer" not in reader.run("kubectl dra claims"), "the end of the claim")


def test_a_template_cannot_be_changed_so_the_second_one_has_a_name_of_its_own(
    story: Story, tmp_path: Path
) -> None:
    reader = Reader(story, tmp_path)
    reader.apply("trainer.yaml", manifest())
    with pytest.raises(TestBedError, match="immutable"):
        reader.apply("greedy.yaml", manifest().replace("64Gi", "2Ti"))


def test_every_step_is_run_or_named_as_not_run() -> None:
    text = Path(__file__).read_text()
    missing = [
        command
        for command in commands()
        if command not in NOT_RUN
        and not command.startswith("dra-driver ")
        and f'"{command}"' not in text
    ]
    assert missing == []
