# SPDX-License-Identifier: Apache-2.0
"""Run the end-to-end tests on each Kubernetes release and write docs/tested.md.

python hack/testbed/matrix.py                    all releases of RELEASES, one after the other
python hack/testbed/matrix.py 1.33.13            only these; what is known of the others stays
python hack/testbed/matrix.py --page             only write the page again, from docs/tested.json
python hack/testbed/matrix.py 1.34.4 -k reboot   with arguments for pytest; a part is not recorded
"""

import argparse
import dataclasses
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.onenode import build, features, preflight, record, selection
from hack.testbed.onenode.products import go
from hack.testbed.onenode.tested import Run, page

REPOSITORY = Path(__file__).resolve().parents[2]
KNOWN = REPOSITORY / "docs" / "tested.json"
PAGE = REPOSITORY / "docs" / "tested.md"
# The newest patch of each release that can be built from the Go proxy; see docs/testbed.md.
RELEASES = ("1.30.14", "1.31.13", "1.32.5", "1.33.13", "1.34.4", build.KUBERNETES)
TESTS = "tests/e2e"


def said(*command: str) -> str:
    """What a program says of itself."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def cgroups() -> str:
    """Version 2 has one hierarchy at the top; a hybrid machine has it below `unified`."""
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return "v2"
    return "v1 (hybrid)" if Path("/sys/fs/cgroup/unified").exists() else "v1"


def machine(version: str) -> dict[str, Any]:
    """Where and with what a run takes place."""
    binaries = build.build(version)
    runc = re.search(r"version (\S+)", said("/usr/sbin/runc", "--version"))
    compiler = re.search(r"go([\d.]+)", go("version", cwd=Path("/")))
    return {
        "kubernetes": version,
        "api": next(iter(features.api_versions(version)), "off"),
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "architecture": platform.machine(),
        "kernel": platform.release().partition("-")[0],
        "cgroups": cgroups(),
        "containerd": said(str(binaries.containerd / "containerd"), "--version").split()[2],
        "runc": runc[1] if runc else "unknown",
        "go": compiler[1] if compiler else "unknown",
    }


def run(version: str, more: list[str]) -> Run:
    """Build, start the cluster, test; a failed test is an outcome, no error."""
    found = machine(version)
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "record.json")
        told = {selection.VARIABLE: version, record.VARIABLE: str(answer)}
        e2e = str(Path(__file__).parent / "e2e.py")
        command = [sys.executable, e2e, "-p", "hack.testbed.onenode.record", *more, TESTS]
        ended = subprocess.run(command, cwd=REPOSITORY, env={**os.environ, **told}, check=False)
        if ended.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise SystemExit(f"{version}: the tests did not run to their end; see the lines above")
        return Run(**found, **json.loads(answer.read_text()))


def known() -> dict[str, Run]:
    """The newest run of each release that was ever recorded."""
    listed: list[dict[str, Any]] = json.loads(KNOWN.read_text()) if KNOWN.exists() else []
    return {entry["kubernetes"]: Run(**entry) for entry in listed}


def write(runs: dict[str, Run]) -> None:
    """The records and the page, oldest release first."""
    ordered = sorted(runs.values(), key=lambda entry: features.minor_of(entry.kubernetes))
    listed = [dataclasses.asdict(entry) for entry in ordered]
    KNOWN.write_text(json.dumps(listed, indent=1) + "\n")
    PAGE.write_text(page(ordered))


def add(ended: Run) -> None:
    """Record a run in the place of older ones of the same minor release."""
    minor = features.minor_of(ended.kubernetes)
    kept = {key: run for key, run in known().items() if features.minor_of(key) != minor}
    write(kept | {ended.kubernetes: ended})


def main() -> int:
    """Read the command line; the exit status says whether everything passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("releases", nargs="*", default=RELEASES, metavar="VERSION")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    chosen, more = parser.parse_known_args()  # the rest is for pytest
    if chosen.page:
        write(known())
        return 0
    preflight.require()
    failed = 0
    for version in chosen.releases:
        print(f"matrix: Kubernetes {version}", flush=True)
        ended = run(version, more)
        if not more:
            add(ended)
        failed += sum(outcome != "passed" for outcome in ended.outcomes.values())
    print(f"matrix: {failed} tests failed; {'nothing was recorded' if more else PAGE}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
