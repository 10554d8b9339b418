# SPDX-License-Identifier: Apache-2.0
"""How much memory does the daemon need to read the claims of a tenant who makes them as large as may be?

A free device vanishes, so the driver asks a real API server for all claims. Five of them hold what no decoder takes. The
peak is the kernel's (VmHWM) and holds the start too; when the device left its slice, every claim has been read.
"""

import signal
import time

from hack.bench.cost.bed import Context, driver_command, run_inside
from hack.bench.cost.log import Log
from hack.bench.cost.node import resident_kib
from hack.bench.cost.report import Answer, Table, Target

CLAIMS, LIMIT_MIB, KIB = 1_000, 128, 1024
UNREADABLE = "object_cannot_be_read"


def measure(context: Context) -> Answer:
    """Make the claims, start the driver, take a device away."""
    cluster = context.cluster
    made = run_inside(
        cluster,
        "tenants_load.py",
        str(cluster.admin_kubeconfig),
        str(100 if context.quick else CLAIMS),
    )
    faults = cluster.root / "tenants-faults.yaml"
    faults.write_text("{}")
    logged = Log(cluster.root / "log" / "bench-tenants.log")
    command = [*driver_command(cluster), "--simulated-faults", str(faults)]
    program = cluster.run_inside(command, log="bench-tenants")
    try:
        logged.wait("published")
        before = resident_kib(program.pid, "VmHWM")
        faults.write_text("devices: {gpu-7: {vanished: true}}")
        begun = time.monotonic()
        logged.wait("device_vanished")
        seconds = time.monotonic() - begun
        peak = resident_kib(program.pid, "VmHWM")
    finally:
        program.stop(signal.SIGTERM)
    text = (cluster.root / "log" / "bench-tenants.log").read_text()
    row = (
        f"{made['fat']:,} of {made['bytes'] / KIB:.0f} KiB",
        str(made["hostile"]),
        str(text.count(UNREADABLE)),
        f"{before / KIB:.1f}",
        f"{peak / KIB:.1f}",
        f"{seconds:.1f}",
    )
    head = ("claims", "that no decoder takes", "of these named", "MiB before", "MiB at most", "s")
    return Answer(
        (Target("peak of the daemon that reads them all", peak / KIB, LIMIT_MIB, "MiB"),),
        (Table("Once, until the device that vanished left its slice:", head, (row,)),),
    )
