# SPDX-License-Identifier: Apache-2.0
"""The journal of simulated hardware: what was done to each device, in order.

Real hardware keeps its settings itself, and they outlive the driver's process. This file is the memory of the simulated hardware:
the driver only appends to it, and tests read it. Each event is one line of JSON, appended by one write. So the lines of two driver
processes and of a test's containers are in the order of the events.
"""

import json
import os
from pathlib import Path

from dra_driver.errors import Permanent
from dra_driver.model.ids import NO_SHARE, ClaimUid, DeviceName, ShareId


class HardwareJournal:
    """Appends events to the file, and creates it if it does not exist. Every method raises Permanent if it cannot write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def configured(self, device: DeviceName, claim_uid: ClaimUid, share_id: ShareId) -> None:
        """Record that the device was configured for the claim."""
        self.write("configure", device, claim_uid, share_id)

    def reset(self, device: DeviceName, claim_uid: ClaimUid, share_id: ShareId) -> None:
        """Record that the configuration for the claim was undone."""
        self.write("reset", device, claim_uid, share_id)

    def mode_on(
        self, device: DeviceName, claim_uid: ClaimUid, share_id: ShareId, *, first: bool
    ) -> None:
        """Record that the GPU of this partition or share got the mode that all of them need. `first`: it was switched on anew, else only
        if it was off.
        """
        self.write("mode_on", device, claim_uid, share_id, first=first)

    def mode_off(self, device: DeviceName, claim_uid: ClaimUid, share_id: ShareId) -> None:
        """Record that the GPU of this partition or share lost the mode again."""
        self.write("mode_off", device, claim_uid, share_id)

    def write(
        self,
        event: str,
        device: str = "",
        claim_uid: str = "",
        share_id: str = NO_SHARE,
        **more: object,
    ) -> None:
        """Append one event; `more` are further members of its line."""
        entry = {"event": event, "device": device, "claim": claim_uid, "share": share_id, **more}
        line = json.dumps(entry, sort_keys=True).encode() + b"\n"
        try:
            handle = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            try:
                os.write(handle, line)
            finally:
                os.close(handle)
        except OSError as error:
            raise Permanent(
                f"cannot write the journal of the simulated hardware {self._path}: {error.strerror}"
            ) from error
