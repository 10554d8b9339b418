# SPDX-License-Identifier: Apache-2.0
"""Read the ID of this boot. Device numbers, and everything made for containers, are valid for one boot only."""

from pathlib import Path

from dra_driver.errors import Fatal


def read_boot_id(path: Path) -> str:
    """Return the text that the kernel makes at each boot. Raises Fatal."""
    try:
        boot_id = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Fatal(f"cannot read the boot id from {path}: {error}; give --boot-id-file") from error
    if not boot_id:
        raise Fatal(f"boot id file {path} is empty; give --boot-id-file")
    return boot_id
