# SPDX-License-Identifier: Apache-2.0
"""Which unreadable objects were already reported? Each is reported once, not each time it is read.

Anybody may create ten thousand of them. So only the first REMEMBERED objects are reported; the last of these reports says so.
"""

from collections.abc import Callable
from threading import Lock

from dra_driver.kube.decode import Identity
from dra_driver.model.events import ObjectUnreadable, Observer

REMEMBERED = 1000

Tell = Callable[[str, Identity, str], None]
"""A function that reports an object that cannot be read. Its arguments are the resource, the object's identity, and the reason."""


class UnreadableReporter:
    """Tells an observer of each unreadable object once; an instance is a `Tell`. Safe to use from several threads."""

    def __init__(self, observe: Observer) -> None:
        self._observe = observe
        self._lock = Lock()
        self._told: set[tuple[str, str]] = set()

    def __call__(self, resource: str, who: Identity, why: str) -> None:
        with self._lock:
            # By UID if it is known: an object that is changed is still the same one.
            key = (resource, who.uid or str(who))
            if key in self._told or len(self._told) >= REMEMBERED:
                return
            self._told.add(key)
            last = len(self._told) == REMEMBERED
        more = f"; this is the {REMEMBERED:,}th, others are passed over silently" if last else ""
        self._observe(ObjectUnreadable(resource, str(who), why + more))
