# SPDX-License-Identifier: Apache-2.0
"""Which files belong to this source tree: in a clone what git has and would take, in an unpacked source distribution what git would take."""

import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def files(root: Path = ROOT) -> list[str]:
    """The paths that are there, relative to the root, without what .gitignore names."""
    with tempfile.TemporaryDirectory() as empty:
        where = ["-C", str(root)]
        if not (root / ".git").exists():
            # A clone around the tree knows nothing of it. An empty one, for this tree, does.
            subprocess.run(["git", "init", "--quiet", "--bare", empty], check=True)
            where += [f"--git-dir={empty}", f"--work-tree={root}"]
        command = ["git", *where, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sorted({name for name in said.split("\0") if name and (root / name).exists()})
