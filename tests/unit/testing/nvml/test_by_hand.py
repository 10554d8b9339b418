# SPDX-License-Identifier: Apache-2.0
"""The commands of `python -m dra_driver.testing.nvml`, with the driver's own commands on the result. Needs a C compiler."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dra_driver.backends import recording

pytestmark = pytest.mark.real


def mock(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dra_driver.testing.nvml", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def driver(verb: str, folder: Path, *words: str) -> str:
    options = ["--node-name", "node-1", "--backend", "nvidia"]
    options += ["--backend-option", f"hostRoot={folder}/host"]
    command = [sys.executable, "-m", "dra_driver", verb, *options, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def snapshot(folder: Path) -> recording.Snapshot:
    path = folder / "snapshot.json"
    driver("snapshot", folder, "--keep-identifiers", "--force", str(path))
    return recording.read(path)


def test_a_mock_of_a_snapshot_gives_this_snapshot_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    made = mock("make", str(first), "--board", "h100", "--count", "2", "--mig", "3g.40gb 1g.10gb")
    assert made.stdout.startswith("2 GPUs in ")
    taken = snapshot(first)
    mock("make", str(second), "--snapshot", str(first / "snapshot.json"))
    assert snapshot(second) == taken
    assert len(taken.facts["gpus"]) == 2


def test_faults_are_words_of_a_command(tmp_path: Path) -> None:
    mock("make", str(tmp_path), "--board", "t4", "--count", "2")
    assert mock("fault", str(tmp_path), "fallen_off_bus", "1").returncode == 0
    gpus = snapshot(tmp_path).facts["gpus"]
    assert ["problem" in gpu for gpu in gpus] == [False, True]
    assert mock("fault", str(tmp_path), "clear").returncode == 0
    assert "problem" not in json.dumps(snapshot(tmp_path).facts["gpus"])
    wrong = mock("fault", str(tmp_path), "lost")
    assert wrong.returncode == 2
    assert "does not take these arguments" in wrong.stderr
    beyond = mock("fault", str(tmp_path), "lost", "2")
    assert (beyond.returncode, beyond.stderr.partition(":")[0]) == (2, "there is no GPU 2")
    nowhere = mock("fault", str(tmp_path / "nowhere"), "lost", "0")
    assert nowhere.returncode == 2
    assert "has no mock node" in nowhere.stderr
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_in_the_place_of_a_device_file_hides_the_gpu(tmp_path: Path) -> None:
    mock("make", str(tmp_path), "--board", "t4", "--count", "2")
    (tmp_path / "host/dev/nvidia0").unlink()
    (tmp_path / "host/dev/nvidia0").mkdir()
    assert len(snapshot(tmp_path).facts["gpus"]) == 1
