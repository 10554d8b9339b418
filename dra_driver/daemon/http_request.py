# SPDX-License-Identifier: Apache-2.0
"""HTTP/1 as far as a port for probes and metrics needs it: bytes to a path, an answer to bytes. Pure."""

import re
from dataclasses import dataclass
from http import HTTPStatus

_REQUEST = re.compile(rb"(?P<method>[A-Z]+) (?P<path>/[^ ?]*)(\?[^ ]*)? HTTP/1\.[01]")
PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, a body and what the body is."""

    status: int
    body: bytes
    content_type: str = PLAIN


def asked_path(said: bytes, *, limit: int) -> str | Answer | None:
    """The path that a client asks for, without its query; an answer to what is no request; None while more must come."""
    head, end, _ = said.replace(b"\r\n", b"\n").partition(b"\n\n")
    if not end:
        if len(said) < limit:
            return None
        return Answer(431, f"a request may have {limit} bytes\n".encode())
    request = _REQUEST.fullmatch(head.partition(b"\n")[0])
    if request is None:
        return Answer(400, b"this is no request of HTTP/1.0 or HTTP/1.1\n")
    if request["method"] != b"GET":
        return Answer(405, b"only GET is served here\n")
    return request["path"].decode("ascii", "replace")


def answer_bytes(answer: Answer) -> bytes:
    """What is sent. The connection ends with it."""
    head = (
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        f"Connection: close\r\n\r\n"
    )
    return head.encode() + answer.body
