# SPDX-License-Identifier: Apache-2.0
"""Imports what the idle daemon imports, after its libraries, and prints as JSON the resident KiB that each part of it takes.

A part is a room of dra_driver, or another package. What a module takes is counted without the modules that it imports first.
"""

import importlib
import json
import os
import sys
from collections import Counter
from importlib import _bootstrap  # type: ignore[attr-defined]  # imports call its functions
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
# The simulated machine is a recording of one with GPUs of NVIDIA, which their backend plays.
DAEMON = (
    *("dra_driver.cli.main", "dra_driver.daemon.lifecycle"),
    *("dra_driver.backends.simulated", "dra_driver.backends.nvidia.backend"),
)


def main() -> None:
    """Each module is measured when it is loaded."""
    load = _bootstrap._load_unlocked  # noqa: SLF001  imports have no other door
    found: Counter[str] = Counter()
    inside = [0]

    def measured(spec: ModuleSpec) -> ModuleType:
        before = _resident_kib()
        inside.append(0)
        module: ModuleType = load(spec)
        taken = _resident_kib() - before
        found[_part(spec.name)] += taken - inside.pop()
        inside[-1] += taken
        return module

    _bootstrap._load_unlocked = measured  # noqa: SLF001
    for name in DAEMON:
        importlib.import_module(name)
    print(json.dumps(found))


def _resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KIB


def _part(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "dra_driver" else parts[0]


if __name__ == "__main__":
    for library in sys.argv[1:]:
        importlib.import_module(library)
    main()
