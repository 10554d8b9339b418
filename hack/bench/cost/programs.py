# SPDX-License-Identifier: Apache-2.0
"""Which program of the node used the CPU? Read from /proc, so nobody is asked who might be busy."""

import os
import time
from collections import Counter
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
OTHERS = "the rest: containers, their runtime's programs, the kernel"
ALL = "all"
REST_CPUS = 0.25  # an idle cluster of one node uses about 0.1
LOOK_SECONDS = 4.0
LONGEST_SECONDS = 120.0
_NAMES = {  # the first 15 characters of a program's name, which is what the kernel keeps
    "kube-apiserver": "kube-apiserver",
    "etcd": "etcd",
    "kube-scheduler": "kube-scheduler",
    "kube-controller": "kube-controller-manager",
    "kubelet": "kubelet",
    "containerd": "containerd",
}


def seconds() -> dict[str, float]:
    """CPU seconds by program since it started; of the whole machine, under ALL, since it did."""
    used: Counter[str] = Counter()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            stat = (process / "stat").read_text()
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        name, _, numbers = stat.partition("(")[2].rpartition(")")
        fields = numbers.split()
        ticks = int(fields[11]) + int(fields[12])  # utime, stime
        if int(process.name) == os.getpid():
            used["this measurement"] += ticks
        elif name in _NAMES:
            used[_NAMES[name]] += ticks
        elif b"dra_driver\0run\0" in command or b"/empty_driver.py\0" in command:
            used["the driver"] += ticks
    first = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _waiting, irq, softirq = map(int, first[:7])
    used[ALL] = user + nice + system + irq + softirq
    return {name: ticks / TICKS for name, ticks in used.items()}


def between(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What was used between two readings. What belongs to no program that both know is under OTHERS."""
    found = {name: after[name] - before[name] for name in before if name in after}
    found[OTHERS] = 2 * found[ALL] - sum(found.values())
    return found


def wait_for_rest() -> None:
    """Return when the machine does next to nothing, or after LONGEST_SECONDS on one that is busy with other work."""
    end = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < end:
        before = seconds()[ALL]
        time.sleep(LOOK_SECONDS)
        if seconds()[ALL] - before < REST_CPUS * LOOK_SECONDS:
            return
