# SPDX-License-Identifier: Apache-2.0
"""Which CDI files does the driver itself say that it cannot take up?

Somebody has edited the file, the state lost its claim's row, and the kubelet does not name the claim, for no pod of it was
ever prepared. The claim is still allocated, so the driver may neither read the file nor remove it: it stays until the kubelet
prepares or unprepares the claim, and `sweep_incomplete` names the claim until then. A file that no such line names is
no such file, and neither is one of a line that the driver has not repeated when it said that it would.
"""

import json
import time
from datetime import datetime
from typing import Any

from dra_driver.model.ids import ClaimUid
from tests.faults.bed import PLACE, Bed
from tests.support.invariants import Picture, Rule, Violation

LATE_SECONDS = 30.0  # a deadline, ten times what a sweep takes


def is_named(bed: Bed, violation: Violation) -> bool:
    """Whether the violation is a left-over CDI file that the driver says it cannot take up."""
    if violation.rule is not Rule.NOTHING_LEFT:
        return False
    return violation.subject in {f"CDI file {_file(uid)}" for uid in _named(bed)}


def _named(bed: Bed) -> set[ClaimUid]:
    """Claims that are allocated and not known to the kubelet, and that the driver says it cannot take up for their files."""
    sentences = [
        f"claim {found['metadata']['namespace']}/{found['metadata']['name']}"
        f" (uid {found['metadata']['uid']}) is not in the state and cannot be taken up: its CDI file "
        for found in bed.api.objects("resourceclaims")
        if found["status"].get("allocation")
    ]
    said = _still_open(bed)
    uids = {
        ClaimUid(sentence.partition("(uid ")[2].partition(")")[0])
        for sentence in sentences
        if any(text.startswith(sentence) for text in said)
    }
    return {uid for uid in uids if not _is_prepared(bed, uid)}


def _is_prepared(bed: Bed, uid: ClaimUid) -> bool:
    known = bed.kubelet.claims.get(uid)
    return known is not None and known.prepared


def _still_open(bed: Bed) -> tuple[str, ...]:
    """What the newest line says; nothing if the driver should have looked again since then."""
    lines = [line for line in bed.log().splitlines() if '"event": "sweep_incomplete"' in line]
    if not lines:
        return ()
    newest: dict[str, Any] = json.loads(lines[-1])
    said = datetime.fromisoformat(newest["timestamp"]).timestamp()
    if time.time() > said + newest["again_in_seconds"] + LATE_SECONDS:
        return ()
    return tuple(newest["still_open"])


def _file(uid: ClaimUid) -> str:
    return Picture(PLACE, "", {}, {}, {}).file_name(uid)
