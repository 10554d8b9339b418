# SPDX-License-Identifier: Apache-2.0
"""The exit codes of `dra-driver`: a code means the same in every command, so that a script needs one table.

`docs/reference/exit-codes.md` and the last line of each command's --help are made from this module. It imports nothing, because
`dra-driver --help` must be fast.
"""

DONE = 0
NOT_DONE = 1
COULD_NOT_TELL = 2
WITH_RESERVATION = 3
REFUSED = 4
WRONG_USAGE = 64
INTERRUPTED = 130
TERMINATED = 143

MEANINGS = {
    DONE: "it is done, or the answer is yes",
    NOT_DONE: "it is not done, or only in part, or the answer is no",
    COULD_NOT_TELL: "no answer: something that decides could not be read in time",
    WITH_RESERVATION: "it is done, or the answer is yes, but something else is in the way or missing",
    REFUSED: "refused because something is still used; nothing was changed",
    WRONG_USAGE: "wrong usage: an argument is missing or unknown",
    INTERRUPTED: "interrupted by Ctrl-C (SIGINT), or by a second signal",
    TERMINATED: "ended by SIGTERM",
}
COMMANDS = {
    "run": {
        DONE: "a signal ended the driver",
        NOT_DONE: "it could not start, or could not go on",
        INTERRUPTED: "a second signal ended it at once, without tidying up",
    },
    "devices": {DONE: "shown", NOT_DONE: "the devices or the state file could not be read"},
    "doctor": {
        DONE: "nothing is wrong",
        NOT_DONE: "a problem was found, or the bundle could not be written",
        COULD_NOT_TELL: "could not look at anything, or the file of --from gives no answer",
        WITH_RESERVATION: "no problem, but a warning, or something that could not be looked at",
        INTERRUPTED: "interrupted before there was an answer",
    },
    "explain": {
        DONE: "it fits, or no pod waits for devices",
        NOT_DONE: "the devices do not fit",
        COULD_NOT_TELL: "could not tell",
        WITH_RESERVATION: "the devices fit but something else keeps the pod pending",
        INTERRUPTED: "interrupted before there was an answer",
    },
    "check": {
        DONE: "nothing is wrong (warnings and notes do not count; with --strict warnings do)",
        NOT_DONE: "something is wrong",
        COULD_NOT_TELL: "could not tell: a file, the record or the cluster could not be read, or not in time",
        INTERRUPTED: "interrupted before there was an answer",
    },
    "convert": {
        DONE: "converted; with --profile: and the machine has what the pods ask for",
        NOT_DONE: "something cannot be converted, or with --profile: the machine does not have it",
        COULD_NOT_TELL: "could not tell: a file could not be read",
        WITH_RESERVATION: "converted, but something was left as it is",
    },
    "record": {
        DONE: "written",
        NOT_DONE: "not written",
        WITH_RESERVATION: "written, but not everything could be read",
    },
    "pending-events": {
        DONE: "a signal ended it",
        NOT_DONE: "no cluster is known, or it cannot listen on its port",
    },
    "migration": {
        DONE: "every node is moved, or has nothing to move, or the cluster has no claims",
        NOT_DONE: "something is left to be moved",
        COULD_NOT_TELL: "could not tell: the cluster, or its nodes, pods or slices, could not be read",
    },
    "snapshot": {DONE: "written", NOT_DONE: "not written"},
    "release": {
        DONE: "the driver releases the devices",
        NOT_DONE: "no such claim, or the state file could not be read",
        REFUSED: "refused: the claim is used, or it is not held",
    },
    "cleanup": {
        DONE: "nothing of the driver is left (with --dry-run: nothing prevents the removal)",
        NOT_DONE: "something is left",
        REFUSED: "refused: a driver runs, a claim is prepared or held, or the state cannot be read",
    },
    "hardware": {
        DONE: "a signal ended the process; with --probe or --let-go: it answered",
        NOT_DONE: "it cannot listen, or the process at the socket does not answer",
    },
    "demo": {
        DONE: "played to the end",
        NOT_DONE: "a step failed",
        INTERRUPTED: "interrupted; its directory is removed",
        TERMINATED: "terminated; its directory is removed",
    },
    "completion": {DONE: "printed"},
}
"""What the codes mean for each command of `dra-driver`, in its own words. WRONG_USAGE is the same for all."""
_LISTS = {
    DONE: "shown",
    COULD_NOT_TELL: "the cluster could not be read, or it does not have what is asked about",
    WITH_RESERVATION: "shown, but a part of it could not be read",
    INTERRUPTED: "interrupted before there was an answer",
}
KUBECTL = {
    **dict.fromkeys(("devices", "claims", "free", "usage"), _LISTS),
    "doctor": COMMANDS["doctor"],
    "why": COMMANDS["explain"],
    "explain": COMMANDS["explain"],
    "check": COMMANDS["check"],
    "convert": COMMANDS["convert"],
    "migration": COMMANDS["migration"],
    "record": COMMANDS["record"],
    "version": {DONE: "shown", WITH_RESERVATION: "the version of the cluster could not be read"},
}
"""The same for the commands of `kubectl dra`."""


def summary(command: str, meanings: dict[str, dict[int, str]] = COMMANDS) -> str:
    """Return the codes of a command in one line, for its --help."""
    said = {**meanings[command], WRONG_USAGE: "wrong usage"}
    return "exit codes: " + ", ".join(f"{code} {meaning}" for code, meaning in said.items())
