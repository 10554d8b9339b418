# SPDX-License-Identifier: Apache-2.0
"""Everything of `make e2e`: `python hack/testbed/e2e.py [arguments of pytest]`."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hack.testbed.onenode import build, preflight

T = TypeVar("T")
# tests/contract asks the cluster's API server and is run inside it, by tests/e2e/test_contract.py.
TESTS = (
    "tests/e2e",
    "tests/contract/test_protos.py",
    "tests/unit",
    "tests/faults",
    "tests/integration",
    "tests/packaging/test_sbom.py",
)
REPOSITORY = Path(__file__).resolve().parents[2]


def _pytest() -> int:
    options = (
        "-m",
        "real",
        "-p",
        "hack.testbed.onenode.no_skips",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "--durations=15",
    )
    # A hung cluster ends by the deadlines of its own waits; this is the last resort.
    deadline = ("--timeout=600", "-o", "timeout_func_only=true")
    asked = sys.argv[1:]
    where = () if any(argument.startswith("tests") for argument in asked) else TESTS
    command = (sys.executable, "-m", "pytest", *options, *deadline, *asked, *where)
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode


def _timed(phase: str, work: Callable[[], T]) -> T:
    started = time.monotonic()
    answer = work()
    print(f"e2e: {phase} took {time.monotonic() - started:.1f} s", flush=True)
    return answer


def main() -> int:
    """Check the machine, build, test; the exit status is that of pytest."""
    _timed("preflight", preflight.require)
    _timed("build", build.build)
    return _timed("tests", _pytest)


if __name__ == "__main__":
    sys.exit(main())
