# SPDX-License-Identifier: Apache-2.0
"""How does the chart get into a cluster, and what does it say without one?

By the real helm, built from its Go module like everything else here. Its own files (caches, settings)
go below a folder that the caller throws away.
"""

import os
import subprocess
from pathlib import Path

from hack.testbed.onenode.products import build_commands, product

VERSION = "4.3.1"
MODULE = "helm.sh/helm/v4"
CHART = Path(__file__).resolve().parents[3] / "helm" / "dra-driver"
TIMEOUT_SECONDS = 120
HOMES = ("CACHE", "CONFIG", "DATA")


def build() -> Path:
    """The program, built now if it is not there."""
    flags = "-s -w"
    make = build_commands(MODULE, VERSION, (f"{MODULE}/cmd/helm",), ldflags=flags)
    return product("helm", VERSION, make, recipe=flags.encode()) / "helm"


def environment(home: Path) -> dict[str, str]:
    """Variables that keep helm's own files below a folder."""
    return {f"HELM_{what}_HOME": str(home / f"helm-{what.lower()}") for what in HOMES}


def helm(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run helm to its end, with no cluster but the one that the arguments name."""
    kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return subprocess.run(
        [str(build()), *arguments],
        env={**kept, **environment(home), "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
