# SPDX-License-Identifier: Apache-2.0
"""The image of a release: an OCI layout with a known digest, an archive for machines without a registry, and what it is made of."""

import re
import subprocess
import sys
from pathlib import Path

from hack.release.distributions import ROOT
from hack.release.errors import ReleaseError

LAYOUT, ARCHIVE = "image", "dra-driver.tar"


def write(target: Path, version: str) -> str:
    """Build it into a folder; answers its digest. Raises ReleaseError."""
    command = [sys.executable, str(ROOT / "hack" / "image" / "build.py"), "--version", version]
    command += ["--output", str(target / ARCHIVE), "--oci", str(target / LAYOUT)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    digest = re.search(r"OCI layout, (sha256:[0-9a-f]{64})$", ended.stdout, re.MULTILINE)
    if ended.returncode != 0 or digest is None:
        raise ReleaseError(f"the image cannot be built:\n{ended.stderr[-2000:]}")
    return digest[1]
