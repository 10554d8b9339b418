# SPDX-License-Identifier: Apache-2.0
"""A node is recorded through a real hardware process and a mock library, and played again. Needs a C compiler."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dra_driver.backends import recording
from dra_driver.backends.nvidia.facts import Installation, Node
from dra_driver.backends.nvidia.recorded import node_of
from dra_driver.cli.main import main
from dra_driver.testing.nvml import build
from dra_driver.testing.nvml.node import MockNode
from tests.support.nvidia_node import facts_of

Devices = list[dict[str, Any]]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([*map(str, words)])
    told = capsys.readouterr()
    return code, told.out, told.err


def shown(capsys: pytest.CaptureFixture[str], folder: Path, *words: object) -> Devices:
    state = ("--node-name", "n1", "--state-dir", folder / "state", "-o", "json")
    code, out, err = run(capsys, "devices", *words, *state)
    assert (code, err) == (0, "")
    found: Devices = json.loads(out)["devices"]
    return found


def without_place(node: Node) -> Node:
    """The facts without the driver installation, which the mock node has laid out, and the memory of this machine."""
    system = msgspec.structs.replace(node.system, memory_total=None)
    return msgspec.structs.replace(node, installation=Installation(), system=system)


@pytest.mark.real
@pytest.mark.parametrize("name", recording.shipped())
def test_a_snapshot_of_a_mock_node_is_what_the_mock_was_made_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    facts = facts_of(name)
    node = MockNode(tmp_path / "host", facts, library=build.library(facts))
    live = ("--backend", "nvidia", "--backend-option", f"hostRoot={node.folder}")
    file = tmp_path / "node.json"
    code, _out, err = run(
        capsys, "snapshot", *live, "--node-name", "n1", "--keep-identifiers", file
    )
    assert (code, err) == (0, "")
    found = node_of(recording.read(file).facts)
    assert without_place(found) == without_place(facts)
    assert found.installation == node.installation
    played = ("--backend", "recorded", "--backend-option", f"file={file}")
    assert shown(capsys, tmp_path, *played) == shown(capsys, tmp_path, *live)


def test_a_driver_without_its_libraries_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = MockNode(tmp_path / "host", facts_of("t4x2"))
    for path in sorted(node.folder.glob("usr/lib/x86_64-linux-gnu/libnvidia-ml.so*")):
        path.unlink()
    live = ("--backend", "nvidia", "--backend-option", f"hostRoot={node.folder}")
    state = ("--node-name", "n1", "--state-dir", tmp_path / "state")
    code, out, err = run(capsys, "devices", *live, *state)
    assert code == 0
    assert out.startswith("no devices found")
    assert "backend nvidia: library: the node has 2 GPUs: " in err
    assert "libnvidia-ml" in err
    assert "needs no restart" in err
