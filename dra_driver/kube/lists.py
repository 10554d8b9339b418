# SPDX-License-Identifier: Apache-2.0
"""How is a long list read in little memory, whatever its objects contain?

In pages of a few MiB each. The size of one page decides how many objects the next request asks for. If an answer is larger than
LARGEST_PAGE_BYTES, the driver stops reading and asks again for half as many objects. A single object may have LARGEST_BODY_BYTES: the
store takes 1.5 MiB of it, and the API server writes some characters as six (`<` as \\u003c), so anybody can make one of 9 MiB. If one
is larger still (the store's limit can be set), the driver asks for its metadata only; this answer also has the token for the next
page. Even metadata can be too large (the name of an owner may have any length). Then the driver asks for the object as a row of a table.

Each item is decoded by itself when it is needed. An item that cannot be read is reported, and the others are still read.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

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
from dra_driver.kube.failures import ApiCall, garbage
from dra_driver.kube.strict import Undecodable
from dra_driver.kube.transport import (
    AS_TABLE,
    LARGEST_BODY_BYTES,
    METADATA_ONLY,
    Exchange,
    Transport,
)
from dra_driver.kube.unreadable import Tell

FIRST_PAGE_OBJECTS = 100
LARGEST_PAGE_OBJECTS = 500
PAGE_BYTES = 2 * 1024 * 1024
LARGEST_PAGE_BYTES = 2 * PAGE_BYTES


class Listing(Struct):
    """One list. Iterate over `objects` once; `resource_version` is known after the first object."""

    transport: Transport
    call: ApiCall
    path: str
    tell: Tell
    selector: Mapping[str, str] = field(default_factory=dict)
    resource_version: str = ""

    def objects(self) -> Iterator[Found]:
        """Each object that can be read, perhaps in part; an unreadable one is reported. Raises DriverError; Expired: make a new Listing."""
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
        """The page of an object that is too large, read as metadata only; the object is reported."""
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
        """The page of an object whose metadata are too large as well, and the object's name, read as a table."""
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
        largest = LARGEST_PAGE_BYTES if limit > 1 else LARGEST_BODY_BYTES
        return Exchange(self.call, "GET", self.path, query, largest_bytes=largest)

    def _read(self, exchange: Exchange, body: bytes) -> Page:
        try:
            return read_page(body)
        except Undecodable as error:
            raise garbage(self.transport.named(exchange).call, body) from error


def _next_limit(limit: int, items: int, size: int) -> int:
    """Return the limit for the next request: as many objects as fit into PAGE_BYTES if they have the average size of the last page.

    It is at most twice the last limit, because the next objects may be larger, and at most LARGEST_PAGE_OBJECTS.
    """
    fitting = PAGE_BYTES * items // max(1, size)
    return max(1, min(fitting, 2 * limit, LARGEST_PAGE_OBJECTS))
