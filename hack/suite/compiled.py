# SPDX-License-Identifier: Apache-2.0
"""The environment in which tests run: compiled modules are kept, since every test process imports hundreds of them."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def environment(**more: str) -> dict[str, str]:
    """That of this process; where nothing compiled shall lie beside the sources, it lies in the virtual environment."""
    found = {**os.environ, **more}
    if found.pop("PYTHONDONTWRITEBYTECODE", ""):
        found.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".venv" / "pycache"))
    return found
