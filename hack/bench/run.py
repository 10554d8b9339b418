# SPDX-License-Identifier: Apache-2.0
"""What does the driver cost? Measures, compares with the targets, and writes docs/performance.md.

python hack/bench/run.py [--only NAME]… [--quick] [--write] [--against TREE]

What measures runs, as the driver does, in an environment with the locked libraries of the daemon only: see `installed`.
"""

import argparse
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

from hack.bench.cost import installed, report
from hack.bench.cost.bed import Context

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
# In this order; True: needs the test bed (root, Go).
QUESTIONS = {
    "prepare": False,
    "plugin": False,
    "shares": False,
    "memory": False,
    "hardware": False,
    "start": False,
    "explain": False,
    "cel": True,
    "allocate": True,
    "call": True,
    "containers": True,
    "burst": True,
    "tenants": True,
    "fleet": True,
}


def main() -> int:
    """Ask the questions and show the answers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", choices=[*QUESTIONS, "against"], metavar="NAME", default=[]
    )
    parser.add_argument(
        "--quick", action="store_true", help="few repeats, and nothing that needs a cluster"
    )
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="TREE",
        help="compare `prepare` with the driver of this tree",
    )
    chosen = parser.parse_args()
    against = None if chosen.against is None else chosen.against.resolve()
    if not installed.is_this():
        if against is not None:
            installed.python(against)
        return _again_with(installed.python())
    names = chosen.only or [
        name for name, needs_cluster in QUESTIONS.items() if not (chosen.quick and needs_cluster)
    ]
    if against is not None:
        names = chosen.only or ["against"]
    context = Context(chosen.quick, against)
    try:
        for name in names:
            _answer(name, context, write=chosen.write)
    finally:
        context.close()
    return 0


def _again_with(interpreter: str) -> int:
    """The same by another interpreter; answers its exit code."""
    environment = {key: text for key, text in os.environ.items() if not key.startswith("PYTHON")}
    command = (interpreter, "-m", "hack.bench.run", *sys.argv[1:])
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _answer(name: str, context: Context, *, write: bool) -> None:
    begun = time.monotonic()
    text = report.markdown(importlib.import_module(f"hack.bench.cost.{name}").measure(context))
    print(f"\n## {name} ({time.monotonic() - begun:.0f} s)\n\n{text}", flush=True)
    if write:
        report.write(PAGE, name, text)


if __name__ == "__main__":
    raise SystemExit(main())
