# SPDX-License-Identifier: Apache-2.0
"""Do CEL and the allocator say what Kubernetes' own modules say?

    python -m conformance.run [cel|allocate] [--seed N] [--cel N] [--allocate N] [--quick]

Runs the recorded vectors' tests, proves that the generated tables are fresh, and asks random cases of the oracle and of
this project. Needs Go for the oracle; the first run builds it.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from conformance.allocation import check as allocation
from conformance.cel import check as cel
from conformance.oracle.build import oracle_binary

ROOT = Path(__file__).resolve().parents[1]
FULL = {"cel": 100_000, "allocate": 20_000}
QUICK = {"cel": 12_000, "allocate": 1_500}


def main() -> int:
    """0 if nothing differs and nothing was left out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=FULL, help="one half (default: both)")
    parser.add_argument(
        "--seed", type=int, default=time.time_ns() % 1_000_000, help="of the random cases"
    )
    parser.add_argument("--cel", type=int, metavar="N", help="evaluations")
    parser.add_argument("--allocate", type=int, metavar="N", help="allocations")
    parser.add_argument("--quick", action="store_true", help="about a minute for each half")
    chosen = parser.parse_args()
    sizes = {
        name: getattr(chosen, name) or (QUICK if chosen.quick else FULL)[name] for name in FULL
    }
    oracle = oracle_binary()
    wrong = (
        []
        if chosen.what
        else [
            name
            for name, command in _prepared().items()
            if subprocess.run(command, cwd=ROOT, check=False).returncode
        ]
    )
    halves = {"cel": cel.run, "allocate": allocation.run}
    for name, run in halves.items():
        if chosen.what in (None, name) and not run(oracle, size=sizes[name], seed=chosen.seed):
            wrong.append(f"{name} (again: --seed {chosen.seed} --{name} {sizes[name]})")
    print("\n" + (f"NOT CONFORMANT: {', '.join(wrong)}" if wrong else "conformant"))
    return 1 if wrong else 0


def _prepared() -> dict[str, tuple[str, ...]]:
    return {
        "tables": (sys.executable, "hack/generate-cel-tables", "--check"),
        "vectors": (sys.executable, "-m", "pytest", "-q", "tests/conformance"),
        "cel-python": (sys.executable, "-m", "conformance.cel.cel_python", "--check"),
    }


if __name__ == "__main__":
    raise SystemExit(main())
