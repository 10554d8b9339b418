# SPDX-License-Identifier: Apache-2.0
"""What does a large cluster's API server have to bear, for each node?

2,000 publishers start against one real API server, rest, and are replaced one by one as by a rolling update. 200 of them
watch as a driver does. What a watch costs the other 1,800 is what it costs these: marked "computed".
"""

from typing import Any

from hack.bench.cost.bed import Context, run_inside
from hack.bench.cost.figures import Times
from hack.bench.cost.report import Answer, Table, times_table
from hack.testbed.onenode import node_files

NODES, WATCHING, REST_SECONDS = 2_000, 200, 180
RENEWERS = 50
HOUR_SECONDS = 3600
MEAN_WATCH_SECONDS = 450  # the driver asks for 300 to 600 s
SERVICE_ACCOUNT = "cost-fleet"


def measure(context: Context) -> Answer:
    """Run the load on the node and put its counts into words."""
    nodes, watching, rest = (100, 20, 20) if context.quick else (NODES, WATCHING, REST_SECONDS)
    found = run_inside(
        context.cluster,
        "fleet_load.py",
        _kubeconfig(context),
        *map(str, (nodes, watching, rest)),
        seconds=1800,
    )
    renewal = _per(found["renewals"], RENEWERS)
    rows = (
        _row(f"start, with its watch ({watching} nodes)", found["start_watching"], watching),
        _row(
            f"start, without the watch ({nodes - watching} nodes)",
            found["start_others"],
            nodes - watching,
        ),
        _row(f"at rest, for {rest} s ({watching} watches)", found["rest"], watching),
        _row("one renewal of the watch, every 300 to 600 s", found["renewals"], RENEWERS),
        _hour(found["rest"], renewal, watching, rest),
        _row(
            f"replaced by a new version, with its watch ({watching} nodes)",
            found["again_watching"],
            watching,
        ),
        _row(
            f"replaced, without the watch ({nodes - watching} nodes)",
            found["again_others"],
            nodes - watching,
        ),
    )
    times = [
        _times(what, found[name])
        for name, what in (
            ("start_others", "start to published, 16 nodes at a time"),
            ("again_others", "replaced to known to be right"),
        )
    ]
    return Answer(
        (),
        (
            Table(
                f"For each node of {nodes:,} with 8 devices each (one slice); bytes at the client's socket, TLS included:",
                (
                    "",
                    "requests",
                    "connections",
                    "bytes sent",
                    "bytes received",
                    "API server's CPU ms",
                    "which requests",
                ),
                rows,
            ),
            times_table("How long that took, for a node:", times),
        ),
    )


def _per(phase: dict[str, Any], nodes: int) -> dict[str, float]:
    counts = {
        "requests": sum(phase["requests"].values()) / nodes,
        "connections": phase["connections"] / nodes,
        "sent": phase["sent"] / nodes,
        "received": phase["received"] / nodes,
    }
    # A server that only holds watches has other things to do, which cannot be told from them.
    return counts | ({"cpu_ms": phase["server_seconds"] / nodes * 1000} if phase["times"] else {})


def _cells(what: str, counts: dict[str, float], which: str) -> tuple[str, ...]:
    cpu = counts.get("cpu_ms")
    shown = (
        f"{counts['requests']:.2f}",
        f"{counts['connections']:.2f}",
        f"{counts['sent']:,.0f}",
        f"{counts['received']:,.0f}",
        "" if cpu is None else f"{cpu:.1f}",
    )
    return (what, *shown, which)


def _row(what: str, phase: dict[str, Any], nodes: int) -> tuple[str, ...]:
    which = ", ".join(
        name if count == nodes else f"{count / nodes:.2f} times {name}"
        for name, count in sorted(phase["requests"].items())
    )
    return _cells(what, _per(phase, nodes), which or "none")


def _hour(
    rest: dict[str, Any], renewal: dict[str, float], watching: int, seconds: int
) -> tuple[str, ...]:
    """An hour at rest: what the watches brought, and their renewals."""
    quiet = _per(rest, watching)
    times = HOUR_SECONDS / MEAN_WATCH_SECONDS
    counts = {name: quiet[name] * HOUR_SECONDS / seconds + renewal[name] * times for name in quiet}
    return _cells("an hour at rest (computed)", counts, f"{times:.0f} times watch slices")


def _times(what: str, phase: dict[str, Any]) -> Times:
    return Times(what, [phase["times"]])


def _kubeconfig(context: Context) -> str:
    """A service account's, since a token of a pod is as long as a part of a request."""
    cluster = context.cluster
    cluster.kubectl("create", "serviceaccount", SERVICE_ACCOUNT, "--namespace", "default")
    subject = f"--serviceaccount=default:{SERVICE_ACCOUNT}"
    cluster.kubectl(
        "create", "clusterrolebinding", SERVICE_ACCOUNT, "--clusterrole=cluster-admin", subject
    )
    token = cluster.kubectl("create", "token", SERVICE_ACCOUNT, "--duration", "4h").strip()
    path = cluster.root / "fleet.kubeconfig"
    path.write_text(node_files.kubeconfig(cluster.root, token))
    return str(path)
