# SPDX-License-Identifier: Apache-2.0
"""Build what the test bed runs: `python hack/testbed/build.py [--kubernetes 1.37.1]`."""

import argparse
import time

from hack.testbed.onenode import build, preflight


def main() -> None:
    """Check the machine, build, say where the products are and how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubernetes", default=build.KUBERNETES, metavar="VERSION")
    chosen = parser.parse_args()
    preflight.require()
    started = time.monotonic()
    binaries = build.build(chosen.kubernetes)
    print(f"{binaries.kubernetes}\n{binaries.containerd}")
    print(f"built in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
