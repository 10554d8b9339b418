# SPDX-License-Identifier: Apache-2.0
"""A cluster to try things on.

python hack/testbed/cluster.py up [--driver]     start one; it lives until Ctrl-C
python hack/testbed/cluster.py up --kubernetes 1.31.13 --gate DynamicResourceAllocation=true
python hack/testbed/cluster.py exec COMMAND…     run a command on its node, for example kubectl
"""

import argparse
import json
import os
import signal
import sys
import time

from hack.testbed.onenode import build, preflight
from hack.testbed.onenode.cluster import Cluster, Options
from hack.testbed.onenode.driver import Driver
from hack.testbed.onenode.node_files import IMAGE, NODE

NOTE = build.cache_folder() / "running.json"  # how `exec` finds the cluster of `up`
OTHER_IMAGE_NAMES = ("busybox:1.37", "busybox:latest")


def up(*, driver: bool, profile: str, kubernetes: str, gates: dict[str, bool]) -> None:
    """Start a cluster and wait for Ctrl-C or SIGTERM."""
    preflight.require()
    binaries = build.build(kubernetes)
    images = (IMAGE, *OTHER_IMAGE_NAMES)
    options = Options(version=kubernetes, images=images, feature_gates=gates)
    cluster = Cluster(binaries, options)
    started = time.monotonic()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        cluster.start()
        if driver:
            Driver(cluster, profile=profile).start()
        enter = cluster.namespaces.enter_command([])
        NOTE.write_text(json.dumps({"enter": enter, "environment": cluster.environment}))
        print(
            f"the node is Ready after {time.monotonic() - started:.1f} s; logs: {cluster.root}/log"
        )
        asked = "resourceslices" if cluster.resource_api else "nodes"
        print(f"talk to it: python hack/testbed/cluster.py exec kubectl get {asked}")
        if not driver and cluster.resource_api:
            line = " ".join(_by_hand(cluster, profile))
            print(f"run the driver: python hack/testbed/cluster.py exec {line}")
        print("end it: Ctrl-C", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        NOTE.unlink(missing_ok=True)
        cluster.stop()


def _by_hand(cluster: Cluster, profile: str) -> list[str]:
    """The driver as a program of the host, for who changes it: no image, no chart, every right."""
    return [
        *(sys.executable, "-m", "dra_driver", "run", "--node-name", NODE),
        *(
            "--kubeconfig",
            str(cluster.admin_kubeconfig),
            "--boot-id-file",
            str(cluster.boot_id_file),
        ),
        *("--backend", "simulated", "--simulated-profile", profile),
        *("--log-format", "console"),
    ]


def enter(argv: list[str]) -> None:
    """Become a command inside the running cluster."""
    if not NOTE.exists():
        raise SystemExit("No cluster runs. Start one: python hack/testbed/cluster.py up")
    note = json.loads(NOTE.read_text())
    os.execvpe(note["enter"][0], [*note["enter"], *argv], note["environment"])  # noqa: S606  no shell is the point


def gate(text: str) -> tuple[str, bool]:
    """A feature gate as the components' own flag has it: NAME=true or NAME=false."""
    name, _, state = text.partition("=")
    if not name or state not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=true or NAME=false")
    return name, state == "true"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    starting = verbs.add_parser("up")
    starting.add_argument(
        "--driver", action="store_true", help="install the driver too, from its image and chart"
    )
    starting.add_argument("--profile", default="h100x8", help="the simulated backend's machine")
    starting.add_argument("--kubernetes", default=build.KUBERNETES, metavar="VERSION")
    starting.add_argument(
        *("--gate", "-g"),
        action="append",
        default=[],
        type=gate,
        metavar="NAME=true|false",
        help="a feature gate of Kubernetes, for all components; can be repeated",
    )
    verbs.add_parser("exec").add_argument("argv", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    if chosen.verb == "exec":
        enter(chosen.argv)
    else:
        up(
            driver=chosen.driver,
            profile=chosen.profile,
            kubernetes=chosen.kubernetes,
            gates=dict(chosen.gate),
        )


if __name__ == "__main__":
    main()
