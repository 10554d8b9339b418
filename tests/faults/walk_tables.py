# SPDX-License-Identifier: Apache-2.0
"""The random walk's tables: where a call can die, what may be refused and why, and how often each thing happens."""

from dra_driver.testing.failpoints import FAILPOINTS
from tests.faults.departures import DEPARTURES
from tests.faults.newer import NEWER
from tests.faults.restored import RESTORED

GROUPS = {
    "prepare": (
        "MarkStarted",
        "ConfigureDevice",
        "WriteCdiSpec",
        "MarkPrepared",
        "started",
        "prepared",
        "file",
    ),
    "unprepare": (
        "MarkHeld",
        "RemoveCdiSpec",
        "ShowUnused",
        "ResetDevice",
        "Forget",
        "releasing",
        "released",
    ),
    "start": ("MarkStartedAgain", "recovered", "damaged"),
}
POINTS = {
    group: [point for point in FAILPOINTS if point.split(".")[1] in subjects]
    for group, subjects in GROUPS.items()
}

# What the kubelet is told under each disturbance.
EXCUSES = {
    "crash": "",
    "sockets": "not registered|UNAVAILABLE|connect",
    # A device that is held becomes free with a write, and whoever waits for it waits in vain.
    "disk": "cannot write|cannot read or write|cannot remove|cannot open|too large|is not done after|by a process that did not give its name",
    "api": "cannot read claim|is not done after",
    "ending": "is being unprepared",
    "gone": "not found|was replaced",
    "vanished": "vanished|not found on this node",
    "releasing": r"releasing it failed: claim-.* is locked by|is locked by process \d+, releasing|takes longer than a call may take",
    "held": "it is not needed, and it is held|takes longer than a call may take",
    "unreserved": "is reserved for no pod|is not allocated;",
    "hardware": "hardware process|NVML error|no GPU of this node|is not found any more|has not been read yet|vanished|"
    "not found on this node|set the time slice",
    # Calls of the library wait for the one that hangs, up to its deadline of ten seconds; a short call does not.
    "slow": r"takes longer than a call may take|is not done after|is locked by process \d+, (?:(?:un)?preparing|recovering)",
    "crowded": r"shall get \S+ of capacity",
    "conflict": r"is prepared for claim (?:\S+ \()?uid ([0-9a-f-]+)",
}
ALSO_UNPREPARE = ("crash", "sockets", "disk", "releasing", "hardware", "slow")

# How often each happens.
ACTIONS = {
    "new_pod": 18,
    "second_pod": 3,
    "prepare": 32,
    "end_pod": 12,
    "touch_cdi": 4,
    "trouble_api": 4,
    "restart_kubelet": 3,
    "kill": 2,
    "stop": 0.3,
    "crash": 4,
    "crash_at_start": 0.5,
    "reboot": 0.8,
    "api_down": 1.5,
    "lose_state": 2,
    "vanish": 1.5,
    "fill_disk": 4,
    "recreate_sockets": 0.1,
    **{name: weight for name, (_, weight) in (DEPARTURES | RESTORED | NEWER).items()},
}
