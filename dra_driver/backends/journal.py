# SPDX-License-Identifier: Apache-2.0
"""What simulated hardware goes through, written down where the driver cannot take it back.

One line of JSON for each event, appended in one write, so that lines of two driver processes and of a test's containers keep the
order in which they happened. Real hardware keeps its settings in itself; this file is that memory, and it outlives the process.
"""

import json
import os
from pathlib import Path

from dra_driver.errors import Permanent
from dra_driver.model.ids import NO_SHARE, ClaimUid, DeviceName, ShareId


class HardwareJournal:
    """Appends events to the file; makes it if it is missing. Raises Permanent when it cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def configured(self, device: DeviceName, claim_uid: ClaimUid, share_id: ShareId) -> None:
        """The device was set up for the claim."""
        self.write("configure", device, claim_uid, share_id)

    def reset(self, device: DeviceName, claim_uid: ClaimUid, share_id: ShareId) -> None:
        """What was set up for the claim was undone."""
        self.write("reset", device, claim_uid, share_id)

    def write(
        self,
        event: str,
        device: str = "",
        claim_uid: str = "",
        share_id: str = NO_SHARE,
        **more: object,
    ) -> None:
        """One event; `more` are further members of its line."""
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
