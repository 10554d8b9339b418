# SPDX-License-Identifier: Apache-2.0
"""How are wheel and source distribution built, so that everybody who builds a commit gets the same bytes?

Times inside the archives are SOURCE_DATE_EPOCH: the time of the commit, unless the variable is set. The build backend is the locked one.
"""

import os
import subprocess
import sys
from pathlib import Path

from hack.release.errors import ReleaseError

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"wheel": "*.whl", "sdist": "*.tar.gz"}


def date(source: Path = ROOT) -> int:
    """Seconds since 1970: SOURCE_DATE_EPOCH, else the time of the commit. Raises ReleaseError.

    An unpacked source distribution has the time of its commit on each file.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text and not (source / ".git").exists() and (source / "PKG-INFO").is_file():
        text = str(int((source / "PKG-INFO").stat().st_mtime))
    if not text:
        command = ("git", "-C", str(source), "log", "-1", "--format=%ct")
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        text = ended.stdout.strip()
    if not text.isdecimal():
        raise ReleaseError(
            f"the date of {source} is not known (SOURCE_DATE_EPOCH is {text!r}, and git knows no commit); set SOURCE_DATE_EPOCH to "
            "seconds since 1970"
        )
    return int(text)


def build(target: Path, source: Path = ROOT) -> dict[str, Path]:
    """Build both from a source tree into a folder; answers them by kind. Raises ReleaseError."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(target)]
    for kind in KINDS:
        command += ["--target", kind]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(date(source))}
    ended = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    found = {kind: sorted(target.glob(pattern)) for kind, pattern in KINDS.items()}
    if ended.returncode != 0 or any(len(files) != 1 for files in found.values()):
        raise ReleaseError(
            f"wheel and source distribution of {source} are not in {target} after the build; give an empty folder, and see what "
            f"hatchling says:\n{ended.stderr[-2000:]}"
        )
    return {kind: files[0] for kind, files in found.items()}
