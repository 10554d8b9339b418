# SPDX-License-Identifier: Apache-2.0
"""How is a long list read in little memory, whatever stands in it?

In pages, each of which fits into a few MiB: the limit of the next page follows from the bytes of the last, and an answer that
grows beyond the cap is given up and asked for again with half the limit. A single object beyond the cap is passed over by
asking for its metadata only, which also bring the token for what comes after it. Metadata have no limit of their own (the name of
an owner may be of any length), so one whose metadata are beyond the cap too is asked for as a line of a table.

Every item is decoded for itself, when it is its turn. What cannot be read is told and costs itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from dra_driver.kube.base import TooLarge
from dra_driver.kube.decode import (
    Found,
    Identity,
    Page,
    identity,
    read_object,
    read_page,
    read_table,
)
from dra_driver.kube.failures import Call, garbage
from dra_driver.kube.strict import Undecodable
from dra_driver.kube.transport import AS_TABLE, METADATA_ONLY, Exchange, Transport
from dra_driver.kube.unreadable import Tell

FIRST_PAGE_OBJECTS = 100
LARGEST_PAGE_OBJECTS = 500
PAGE_BYTES = 2 * 1024 * 1024
LARGEST_PAGE_BYTES = 2 * PAGE_BYTES


@dataclass(slots=True)
class Listing:
    """One list; iterate once over `objects`. `resource_version` is known after the first of them."""

    transport: Transport
    call: Call
    path: str
    tell: Tell
    selector: Mapping[str, str] = field(default_factory=dict)
    resource_version: str = ""

    def objects(self) -> Iterator[Found]:
        """Every object that can be read, perhaps in part; the others are told. Raises DriverError: Expired when it must begin anew."""
        for item in self._items():
            try:
                found = read_object(item)
            except Undecodable as error:
                self.tell(self.call.resource, identity(item), str(error))
            else:
                yield found

    def _items(self) -> Iterator[bytes]:
        limit, token = FIRST_PAGE_OBJECTS, ""
        while True:
            try:
                page, size = self._page(limit, token)
            except TooLarge as error:
                if limit > 1:
                    limit //= 2
                    continue
                page, size = self._without_content(token, error), LARGEST_PAGE_BYTES
            else:
                yield from page.items
            self.resource_version = page.resource_version
            token = page.token
            if not token:
                return
            limit = _next_limit(limit, len(page.items), size)

    def _page(self, limit: int, token: str) -> tuple[Page, int]:
        exchange = self._exchange(limit, token)
        body = self.transport.fetch(exchange)
        return self._read(exchange, body), len(body)

    def _without_content(self, token: str, error: TooLarge) -> Page:
        """The place of an object that is too large, from its metadata."""
        exchange = replace(self._exchange(1, token), accept=METADATA_ONLY)
        try:
            page = self._read(exchange, self.transport.fetch(exchange))
        except TooLarge:
            page, names = self._as_table(token)
            who = [Identity(name=name) for name in names]
        else:
            who = [identity(item) for item in page.items]
        for one in who:
            self.tell(self.call.resource, one, str(error))
        return page

    def _as_table(self, token: str) -> tuple[Page, tuple[str, ...]]:
        """The place of an object whose metadata are too large as well, and its name, as a table shows them."""
        exchange = self._exchange(1, token)
        query = {**(exchange.query or {}), "includeObject": "None"}
        exchange = replace(exchange, query=query, accept=AS_TABLE)
        body = self.transport.fetch(exchange)
        try:
            return read_table(body)
        except Undecodable as error:
            raise garbage(self.transport.named(exchange).call, body) from error

    def _exchange(self, limit: int, token: str) -> Exchange:
        query = {**self.selector, "limit": str(limit)} | ({"continue": token} if token else {})
        return Exchange(self.call, "GET", self.path, query, largest_bytes=LARGEST_PAGE_BYTES)

    def _read(self, exchange: Exchange, body: bytes) -> Page:
        try:
            return read_page(body)
        except Undecodable as error:
            raise garbage(self.transport.named(exchange).call, body) from error


def _next_limit(limit: int, items: int, size: int) -> int:
    """As many objects of the last page's size as fit, but growing slowly: the next ones may be larger."""
    fitting = PAGE_BYTES * items // max(1, size)
    return max(1, min(fitting, 2 * limit, LARGEST_PAGE_OBJECTS))
