# SPDX-License-Identifier: Apache-2.0
"""Which boot this is: device numbers and everything else made for containers end with it."""

from pathlib import Path

from dra_driver.errors import Fatal


def read_boot_id(path: Path) -> str:
    """The text that the kernel makes anew at each boot."""
    try:
        boot_id = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Fatal(f"cannot read the boot id from {path}: {error}; give --boot-id-file") from error
    if not boot_id:
        raise Fatal(f"boot id file {path} is empty; give --boot-id-file")
    return boot_id
