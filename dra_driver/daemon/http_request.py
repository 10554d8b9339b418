# SPDX-License-Identifier: Apache-2.0
"""Which path does an HTTP/1 request ask for, and how is a response formatted? Only as much as probes and metrics need. Pure."""

import re
from http import HTTPStatus

from msgspec import Struct

_REQUEST = re.compile(rb"(?P<method>[A-Z]+) (?P<path>/[^ ?]*)(\?[^ ]*)? HTTP/1\.[01]")
PLAIN = "text/plain; charset=utf-8"


class Response(Struct, frozen=True):
    """Status code, body and content type of one HTTP response."""

    status: int
    body: bytes
    content_type: str = PLAIN


def request_path(received: bytes, *, limit: int) -> str | Response | None:
    """Return the path that the client requests, without the query part.

    Returns a `Response` with the error if the bytes are no GET request of HTTP/1, and None if the request is not complete yet.
    """
    head, end, _ = received.replace(b"\r\n", b"\n").partition(b"\n\n")
    if not end:
        if len(received) < limit:
            return None
        return Response(431, f"a request may have {limit} bytes\n".encode())
    request = _REQUEST.fullmatch(head.partition(b"\n")[0])
    if request is None:
        return Response(400, b"this is no request of HTTP/1.0 or HTTP/1.1\n")
    if request["method"] != b"GET":
        return Response(405, b"only GET is served here\n")
    return request["path"].decode("ascii", "replace")


def response_bytes(response: Response) -> bytes:
    """Return the response as bytes, with the header that the server closes the connection afterwards."""
    head = (
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"Content-Length: {len(response.body)}\r\n"
        f"Connection: close\r\n\r\n"
    )
    return head.encode() + response.body
