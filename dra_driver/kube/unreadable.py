# SPDX-License-Identifier: Apache-2.0
"""Which objects of the API server cannot be read, and who has heard of it? Each is told once, not at each look.

Anybody may make ten thousand of them: so many are remembered, the log hears of the others no more.
"""

from collections.abc import Callable
from threading import Lock

from dra_driver.kube.decode import Identity
from dra_driver.model.events import ObjectUnreadable, Observer

REMEMBERED = 1000

Tell = Callable[[str, Identity, str], None]
"""Hears of an object that cannot be read: its resource, which one, and why."""


class Unreadable:
    """Tells an observer; an instance is a Tell."""

    def __init__(self, observe: Observer) -> None:
        self._observe = observe
        self._lock = Lock()
        self._told: set[tuple[str, str]] = set()

    def __call__(self, resource: str, who: Identity, why: str) -> None:
        with self._lock:
            # By UID where there is one: an object that is written again is still the same.
            key = (resource, who.uid or str(who))
            if key in self._told or len(self._told) >= REMEMBERED:
                return
            self._told.add(key)
            last = len(self._told) == REMEMBERED
        more = f"; this is the {REMEMBERED:,}th, others are passed over silently" if last else ""
        self._observe(ObjectUnreadable(resource, str(who), why + more))
