# SPDX-License-Identifier: Apache-2.0
"""A watch of the fake API server: it sends the store's history from a version on, and bookmarks.

A watch ends when its time is over, or when the server stops. If its version is too old (`compact`), it ends with 410.
"""

import time
from collections.abc import Iterator
from threading import Event

from msgspec import Struct

from dra_driver.testing.fake_api.kinds import Object
from dra_driver.testing.fake_api.routes import Query, Route, matcher
from dra_driver.testing.fake_api.store import Change, Store, event_type
from dra_driver.testing.fake_api.verbs import served_form


class Watch(Struct):
    """One watch; iterate over `events`. The caller handles Refused."""

    store: Store
    route: Route
    query: Query
    stopping: Event
    bookmark_seconds: float

    def events(self) -> Iterator[Object]:
        """Return the events until the watch ends."""
        matches = matcher(self.route, self.query)
        until = time.monotonic() + self.query.timeout_seconds
        bookmark_at = time.monotonic() + self.bookmark_seconds
        version = int(self.query.resource_version or 0)
        if not version:  # "0" or no version: first send all present objects as ADDED
            items, metadata = self.store.page(self.route.kind, matches)
            version = int(metadata["resourceVersion"])
            yield from (
                {"type": "ADDED", "object": served_form(self.route, item)} for item in items
            )
        while not self.stopping.is_set() and time.monotonic() < until:
            changes = self._next(version, min(until, bookmark_at))
            for change in changes:
                version = change.version
                kind = (
                    event_type(change, matches) if change.plural == self.route.kind.plural else None
                )
                if kind:
                    yield {"type": kind, "object": served_form(self.route, change.last)}
            if self.query.bookmarks and time.monotonic() >= bookmark_at:
                bookmark_at += self.bookmark_seconds
                yield {"type": "BOOKMARK", "object": self._bookmark(version)}

    def _next(self, version: int, until: float) -> list[Change]:
        """Wait for changes after `version`, until the given time at most."""
        with self.store.condition:
            changes = self.store.changes(version)
            while (
                not changes
                and not self.stopping.is_set()
                and (left := until - time.monotonic()) > 0
            ):
                self.store.condition.wait(left)
                changes = self.store.changes(version)
            return changes

    def _bookmark(self, version: int) -> Object:
        kind = self.route.kind
        metadata = {"resourceVersion": str(version), "creationTimestamp": None}
        return {
            "kind": kind.name,
            "apiVersion": kind.api_version(self.route.version),
            "metadata": metadata,
        }
