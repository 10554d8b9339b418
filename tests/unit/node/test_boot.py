# SPDX-License-Identifier: Apache-2.0
"""Which boot this is."""

from pathlib import Path

import pytest

from dra_driver.errors import Fatal
from dra_driver.node.boot import read_boot_id


def test_the_boot_id_is_the_file_without_its_line_end(tmp_path: Path) -> None:
    path = tmp_path / "boot_id"
    path.write_text("6f8a\n")
    assert read_boot_id(path) == "6f8a"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the boot id from {path}: .*; give --boot-id-file"),
        (b"\xff", "cannot read the boot id from {path}: .*; give --boot-id-file"),
        (b" \n", "boot id file {path} is empty; give --boot-id-file"),
    ],
)
def test_without_a_boot_id_the_process_does_not_start(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "boot_id"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Fatal, match=message.format(path=path)):
        read_boot_id(path)
