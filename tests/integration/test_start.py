# SPDX-License-Identifier: Apache-2.0
"""What the driver says at start: of what it was told wrong, that alone; of a node without devices, that there are none."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.stage import DEADLINE_SECONDS, Stage, wait_for
from tests.support.stages import a_stage


@pytest.fixture
def node() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(dir="/tmp") as root, FakeApi() as api:
        found = a_stage(Path(root), api)
        yield found
        found.close()


@pytest.fixture
def short_path() -> Iterator[Path]:
    # pytest's own folders have names too long for unix sockets.
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        yield Path(root)


@pytest.mark.parametrize("content", [None, "devices: {", "devices: {gpu-99: {vanished: true}}"])
def test_a_wrong_fault_file_ends_it_before_anybody_is_asked(
    short_path: Path, content: str | None
) -> None:
    faults = short_path / "faults.yaml"
    if content is not None:
        faults.write_text(content)
    places = [
        f"--{name}={short_path}/{name}"
        for name in ("plugins-dir", "registry-dir", "cdi-dir", "nfd-features-dir")
    ]
    told = ("--node-name=n", "--backend=simulated", f"--simulated-faults={faults}")
    environment = {
        name: text for name, text in os.environ.items() if name not in ("KUBECONFIG", "HOME")
    }
    done = subprocess.run(
        [sys.executable, "-m", "dra_driver", "run", *told, *places, "--http-address="],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 1
    begun, told_wrong = done.stderr.splitlines()
    assert json.loads(begun)["event"] == "starting"
    assert told_wrong.startswith(f"dra-driver: fault file {faults}")
    assert {path.name for path in short_path.iterdir()} <= {"faults.yaml"}


def test_a_node_for_which_no_backend_is_named_has_no_devices_and_says_so(
    node: Stage,
) -> None:
    node.start_registered("--backend", "auto")
    (found,) = wait_for(node.slices, "the empty slice")
    assert not found["spec"].get("devices")
    wait_for(lambda: "no_devices_found" in node.log(), "the line")
    told = [json.loads(line) for line in node.log().splitlines() if "no_devices_found" in line]
    assert [(line["level"], line["backend"]) for line in told] == [("warning", "nvidia")]
    assert "`dra-driver devices` says more" in told[0]["next_step"]
