# SPDX-License-Identifier: Apache-2.0
"""What does the driver cost? Measures, compares with the targets, and writes docs/performance.md.

python hack/bench/run.py [--only NAME]… [--quick] [--write]
"""

import argparse
import importlib
import time
from pathlib import Path

from hack.bench.cost import report
from hack.bench.cost.bed import Context

PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
# In this order; True: needs the test bed (root, Go).
QUESTIONS = {
    "prepare": False,
    "memory": False,
    "start": False,
    "explain": False,
    "cel": True,
    "allocate": True,
    "containers": True,
    "tenants": True,
    "fleet": True,
}


def main() -> int:
    """Ask the questions and show the answers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=QUESTIONS, metavar="NAME", default=[])
    parser.add_argument(
        "--quick", action="store_true", help="few repeats, and nothing that needs a cluster"
    )
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    chosen = parser.parse_args()
    names = chosen.only or [
        name for name, needs_cluster in QUESTIONS.items() if not (chosen.quick and needs_cluster)
    ]
    context = Context(chosen.quick)
    try:
        for name in names:
            _answer(name, context, write=chosen.write)
    finally:
        context.close()
    return 0


def _answer(name: str, context: Context, *, write: bool) -> None:
    begun = time.monotonic()
    text = report.markdown(importlib.import_module(f"hack.bench.cost.{name}").measure(context))
    print(f"\n## {name} ({time.monotonic() - begun:.0f} s)\n\n{text}", flush=True)
    if write:
        report.write(PAGE, name, text)


if __name__ == "__main__":
    raise SystemExit(main())
