# SPDX-License-Identifier: Apache-2.0
"""Everything of `make e2e`: `python hack/testbed/e2e.py [arguments of pytest]`.

The tests that use the cluster wait for it most of the time. So those that need none run beside them, and what they print comes at the end.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hack.testbed.onenode import build, preflight, share

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


def _command(*more: str) -> list[str]:
    options = (
        "-m",
        "real",
        "-p",
        "hack.testbed.onenode.no_skips",
        "-p",
        "hack.testbed.onenode.share",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "--durations=15",
    )
    # A hung cluster ends by the deadlines of its own waits; this is the last resort.
    deadline = ("--timeout=600", "-o", "timeout_func_only=true")
    return [sys.executable, "-m", "pytest", *options, *deadline, *more]


def _pytest() -> int:
    asked = sys.argv[1:]
    if any(argument.startswith("tests") for argument in asked):
        return subprocess.run(_command(*asked), cwd=REPOSITORY, check=False).returncode
    with_cluster, without = (
        _command(f"--cluster={which}", *asked, *TESTS) for which in (share.WITH, share.WITHOUT)
    )
    with (
        tempfile.TemporaryFile() as printed,
        subprocess.Popen(
            without, cwd=REPOSITORY, stdout=printed, stderr=subprocess.STDOUT
        ) as beside,
    ):
        code = subprocess.run(with_cluster, cwd=REPOSITORY, check=False).returncode
        other = beside.wait()
        printed.seek(0)
        print(printed.read().decode(errors="replace"), flush=True)
    return code or other


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
