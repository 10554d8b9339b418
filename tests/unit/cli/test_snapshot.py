# SPDX-License-Identifier: Apache-2.0
"""`dra-driver snapshot`: the file is the node again, without identifiers unless they are asked for."""

import json
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dra_driver.backends import recording
from dra_driver.cli.main import main
from dra_driver.testing.nvml import boards
from dra_driver.testing.nvml.machine import node

SECRET = msgspec.to_builtins(node(boards.T4, seed="secret"))
UUID, SERIAL = SECRET["gpus"][0]["uuid"], SECRET["gpus"][0]["serial"]


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A file with identifiers that stands for a node."""
    file = tmp_path / "node.json"
    file.write_bytes(recording.encode(recording.Snapshot(backend="nvidia", facts=SECRET)))
    return file


def snapshot(source: Path, *words: object) -> int:
    backend = ("--backend", "recorded", "--backend-option", f"file={source}")
    return main(["snapshot", *backend, "--node-name", "n1", *map(str, words)])


def devices(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> list[Any]:
    backend = ("--backend", "recorded", "--backend-option", f"file={file}")
    state = ("--state-dir", str(tmp_path / "state"))
    assert main(["devices", *backend, "--node-name", "n1", *state, "-o", "json"]) == 0
    found: list[Any] = json.loads(capsys.readouterr().out)["devices"]
    return found


def test_identifiers_are_replaced_and_everything_else_is_the_same(
    tmp_path: Path, real: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    assert snapshot(real, file) == 0
    assert capsys.readouterr().out == (
        f"{file}: the hardware of backend nvidia; UUIDs and serial numbers are replaced\n"
    )
    assert UUID not in file.read_text()
    assert SERIAL not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (before,), (after,) = devices(real, capsys, tmp_path), devices(file, capsys, tmp_path)
    changed = {
        name
        for name in after["attributes"]
        if after["attributes"][name] != before["attributes"][name]
    }
    assert changed == {"uuid", "serial"}


def test_identifiers_can_be_kept(
    tmp_path: Path, real: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    assert snapshot(real, file, "--keep-identifiers") == 0
    assert "as they are: do not publish the file" in capsys.readouterr().out
    assert recording.read(file) == recording.read(real)


def test_the_file_is_not_overwritten_without_force(tmp_path: Path, real: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text("mine")
    assert snapshot(real, file) == 1
    assert file.read_text() == "mine"
    assert snapshot(real, file, "--force") == 0
    assert recording.read(file).redacted


def test_standard_output_has_the_document_only(
    real: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert snapshot(real, "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["apiVersion"], found["kind"]) == ("gpu.dra-driver.dev/v1", "HardwareSnapshot")


def test_a_backend_that_cannot_be_recorded_says_which_one_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["snapshot", "--backend", "simulated", "--node-name", "n1", str(tmp_path / "x")]
    assert main(words) == 1
    assert capsys.readouterr().err == (
        "dra-driver: cannot take a snapshot: of the backends simulated none of them can be recorded; name one that can, such as "
        "`--backend nvidia`\n"
    )
    assert not (tmp_path / "x").exists()
