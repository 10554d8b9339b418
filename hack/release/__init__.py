# SPDX-License-Identifier: Apache-2.0
"""What a release consists of, and how it is made: RELEASE.md."""

import sys
from pathlib import Path

# `driverimage` also runs where there is no more than its folder, so it is a package of its own.
sys.path.append(str(Path(__file__).resolve().parents[1] / "image"))
