# SPDX-License-Identifier: Apache-2.0
"""Streams to the kubelet that stay open and send a list after each change.

Each open stream needs one gRPC thread for its whole life. A client may disappear without closing its stream, or stop reading.
So the number of streams is limited: a stream beyond the limit ends the oldest.

To end a stream, its thread must be reached in one of two places. Normally it waits for the next change: then the feed wakes it. If the
client does not read, the thread waits inside gRPC until the client takes the data: then only cancelling the call ends it.
`_Open.end` and `Streams._end` do both.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from threading import Event, Lock
from typing import Any, Generic, Protocol, TypeVar

import grpc

STREAM_LIMIT = 8
NO_RESEND_SECONDS = 24 * 3600.0
"""How long a stream waits at once that sends only after changes. After the wait it compares and sends nothing."""

Content = TypeVar("Content")
Content_co = TypeVar("Content_co", covariant=True)


class Feed(Protocol[Content_co]):
    """The source of what a stream sends."""

    def snapshot(self) -> tuple[int, Content_co]:
        """A version number, which grows with each change, and what is true now."""

    def wait(self, version: int, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the version differs from `version`. Returns whether it does."""

    def wake(self) -> None:
        """Let every `wait` return."""


class _Open:
    """One open stream: whether it has ended, and its gRPC context."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context
        self._ended = Event()

    def has_ended(self) -> bool:
        return self._ended.is_set()

    def end(self) -> None:
        """End the stream. The caller must wake the feed afterwards, in case the stream's thread waits for a change."""
        self._ended.set()
        self._context.cancel()


class Streams(Generic[Content]):
    """The open streams of one service. With `resend_seconds` a stream repeats itself so often, else it sends only what is new.

    `ended` is called after streams have ended for whatever reason.
    """

    def __init__(
        self,
        feed: Feed[Content],
        *,
        resend_seconds: float | None = None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._feed = feed
        self._resend_seconds = resend_seconds
        self._ended = ended
        self._mutex = Lock()
        self._open: deque[_Open] = deque()
        self._closed = False

    def send(
        self, context: grpc.ServicerContext, response: Callable[[Content], Any]
    ) -> Iterator[Any]:
        """Send everything now and after each change, as `response` encodes it, until the stream ends."""
        opened = self._enter(context)

        def client_left() -> None:
            self._end([opened])

        # gRPC calls it when the client goes away or the server stops. If that has happened already, `add_callback` returns False.
        if not context.add_callback(client_left):
            client_left()
        resend = self._resend_seconds
        sent: list[Content] = []
        while not opened.has_ended():
            # `snapshot` must come before `wait`. A change between the two calls raises the version, and `wait` returns at once.
            version, content = self._feed.snapshot()
            if opened.has_ended():
                break
            if resend is not None or [content] != sent:
                sent = [content]
                yield response(content)
            self._feed.wait(version, NO_RESEND_SECONDS if resend is None else resend)

    def end(self) -> None:
        """End all streams. A stream that opens later is ended at once."""
        with self._mutex:
            self._closed = True
            streams = list(self._open)
        self._end(streams)

    @property
    def count(self) -> int:
        """The number of open streams."""
        with self._mutex:
            return len(self._open)

    def _enter(self, context: grpc.ServicerContext) -> _Open:
        entered = _Open(context)
        with self._mutex:
            self._open.append(entered)
            surplus = [entered] if self._closed else list(self._open)[:-STREAM_LIMIT]
        self._end(surplus)
        return entered

    def _end(self, streams: Sequence[_Open]) -> None:
        with self._mutex:
            for opened in streams:
                if opened in self._open:
                    self._open.remove(opened)
        # Outside the mutex: cancelling a call may run `client_left` at once, which calls this method again.
        for opened in streams:
            opened.end()
        if streams:
            self._feed.wake()
            self._ended()
