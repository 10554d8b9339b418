# SPDX-License-Identifier: Apache-2.0
"""What a driver says, and when: one JSON object a line."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from hack.bench.cost.node import wait_for


class Log:
    """A driver's log from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = path.stat().st_size if path.exists() else 0

    def events(self) -> Sequence[Mapping[str, Any]]:
        """What it says since."""
        text = self._path.read_bytes()[self._start :].decode() if self._path.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def moments(self, event: str) -> list[float]:
        """When it said this, in seconds of the epoch."""
        return [
            datetime.fromisoformat(line["timestamp"]).timestamp()
            for line in self.events()
            if line["event"] == event
        ]

    def wait(self, event: str) -> float:
        """When it said this last, as soon as it has."""
        wait_for(lambda: self.moments(event), f"{event} in {self._path}", pause_seconds=0.02)
        return self.moments(event)[-1]
