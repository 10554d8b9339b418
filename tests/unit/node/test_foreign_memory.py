# SPDX-License-Identifier: Apache-2.0
"""What a restart knows of pods with devices by plugins of others."""

from pathlib import Path

import pytest

from dra_driver.errors import DriverError
from dra_driver.model.foreign import RememberedPod
from dra_driver.node.foreign_memory import ForeignMemory

POD = RememberedPod("pod-1", "nvidia.com/gpu", ("GPU-1",), seen=True)


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    memory = ForeignMemory(tmp_path / "foreign.json", "boot-1")
    assert memory.read() == ((), ())
    memory.write((POD,), ("a.b/gpu",))
    assert ForeignMemory(memory.path, "boot-1").read() == ((POD,), ("a.b/gpu",))


def test_after_a_reboot_no_pod_runs(tmp_path: Path) -> None:
    ForeignMemory(tmp_path / "foreign.json", "boot-1").write((POD,), ("a.b/gpu",))
    assert ForeignMemory(tmp_path / "foreign.json", "boot-2").read() == ((), ("a.b/gpu",))


@pytest.mark.parametrize("content", [b"", b"{", b'{"pods": 1}', b"\xff"])
def test_a_damaged_file_is_like_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.json"
    path.write_bytes(content)
    assert ForeignMemory(path, "boot-1").read() == ((), ())


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="does not exist"):
        ForeignMemory(tmp_path / "none" / "foreign.json", "boot-1").write((), ())
