# SPDX-License-Identifier: Apache-2.0
"""How is one claim watched? First a list, then a watch from the list's version, so that no change is missed.

If the claim does not exist, a watch without a resourceVersion would report nothing, and the driver would not know why. The field
selector limits both requests to one object.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from threading import Event
from typing import Any
from urllib.parse import quote

import urllib3
from msgspec import Struct

from dra_driver.kube.answers import as_claim, loaded
from dra_driver.kube.base import ClaimEvent, ClaimFound
from dra_driver.kube.decode import Identity
from dra_driver.kube.discovery import Wire
from dra_driver.kube.failures import ApiCall, malformed
from dra_driver.kube.lists import Listing
from dra_driver.kube.transport import Exchange, Transport
from dra_driver.kube.watch import SILENT_WATCH_SECONDS, read_event, read_lines
from dra_driver.model.claim import ClaimRef


class ClaimDoor(Struct, frozen=True):
    """The list and the watch of one claim, in one version of the API."""

    transport: Transport
    server: str
    wire: Wire

    def find(self, ref: ClaimRef) -> ClaimFound:
        """The claim, and the version from which to watch it. Raises Malformed if the claim cannot be read."""
        call = ApiCall("list", "resourceclaims", f"{ref.namespace}/{ref.name}", self.server)
        unreadable: list[str] = []

        def tell(_resource: str, who: Identity, why: str) -> None:
            unreadable.append(f"{who}: {why}")

        listing = Listing(self.transport, call, self._path(ref), tell, _only(ref))
        found = list(listing.objects())
        if unreadable:
            raise malformed(call, unreadable[0])
        claim = loaded(call, partial(as_claim, self.wire), found[0].content) if found else None
        return ClaimFound(listing.resource_version, claim)

    def watch(
        self, ref: ClaimRef, begin: str, stop: Event, *, seconds: int
    ) -> Iterator[ClaimEvent]:
        """Changes since version `begin`. The server ends the watch after `seconds`. Raises DriverError."""
        name = f"{ref.namespace}/{ref.name} from version {begin}"
        call = ApiCall("watch", "resourceclaims", name, self.server)
        query = _only(ref) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": begin,
            "timeoutSeconds": str(seconds),
        }
        exchange = Exchange(call, "GET", self._path(ref), query)
        try:
            response = self.transport.open_watch(
                exchange, read_timeout_seconds=seconds + min(seconds, SILENT_WATCH_SECONDS)
            )
            for line in read_lines(response, stop):
                event = self._event(call, *read_event(call, line))
                if event is not None:
                    yield event
        except urllib3.exceptions.HTTPError as error:
            raise self.transport.broken(call, error) from error

    def _event(self, call: ApiCall, kind: str, obj: Mapping[str, Any]) -> ClaimEvent | None:
        """The event; None for an event type that is newer than this driver."""
        match kind:
            case "ADDED" | "MODIFIED" | "DELETED":
                return ClaimEvent(
                    kind, _version(obj), loaded(call, partial(as_claim, self.wire), obj)
                )
            case "BOOKMARK":
                return ClaimEvent("BOOKMARK", _version(obj), None)
            case _:
                return None

    def _path(self, ref: ClaimRef) -> str:
        return f"{self.wire.path}/namespaces/{quote(ref.namespace, safe='')}/resourceclaims"


def _only(ref: ClaimRef) -> dict[str, str]:
    return {"fieldSelector": f"metadata.name={ref.name}"}


def _version(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata")
    return str(metadata.get("resourceVersion") or "") if isinstance(metadata, Mapping) else ""
