#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kubectl dra`, from the folder that this file is in: it needs Python 3.11 or newer and nothing installed."""

import platform
import sys
from pathlib import Path


def main() -> None:
    """Choose the libraries that were compiled for this Python, and start."""
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if sys.version_info < (3, 11):  # noqa: UP036 - whichever is first in PATH
        sys.exit(
            f"kubectl dra: needs Python 3.11 or newer, and python3 is Python {python}; put a newer one first into PATH"
        )
    here = Path(__file__).resolve().parent
    wanted = f"{sys.platform}-{platform.machine()}-{python}"
    compiled = here / "compiled" / wanted
    if not compiled.is_dir():
        there = ", ".join(sorted(path.name for path in compiled.parent.iterdir()))
        sys.exit(
            f"kubectl dra: has no libraries for {wanted}, only for {there}; install the driver's Python package instead"
        )
    sys.path[:1] = [str(here / "lib"), str(compiled)]
    from dra_driver.__main__ import kubectl  # noqa: PLC0415 - only now is it on the path

    sys.exit(kubectl())


if __name__ == "__main__":
    main()
