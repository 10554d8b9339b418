# SPDX-License-Identifier: Apache-2.0
"""What does a failed request mean, and who must act? Only this module turns HTTP and urllib3 errors into the driver's errors.

Every message names the request (verb, resource, object, server), what happened, and the next step. It quotes at most 300
characters of the server's answer, between the marks of `model/quotes.py`. Requests are never quoted, so no credentials get into a message.
"""

from collections.abc import Mapping
from http import HTTPStatus

import urllib3
from msgspec import Struct

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.kube.base import (
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    Malformed,
    NameTaken,
    NotFound,
    NotServed,
    TooLarge,
    Unreachable,
)
from dra_driver.kube.strict import Undecodable, decode
from dra_driver.model.quotes import quoted

EXCERPT_CHARACTERS = 300
RETRIED_STATUSES = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


class ApiCall(Struct, frozen=True):
    """One request in the terms of RBAC (verb, resource, name) and its server, for messages."""

    verb: str
    resource: str
    name: str = ""
    server: str = ""

    def __str__(self) -> str:
        what = f"{self.verb} {self.resource} {self.name}".rstrip()
        return f"{what} at {self.server}"


class Answer(Struct, frozen=True):
    """The server's answer to a request that failed. `kind` is the Status's `details.kind`; a 404 without it means that the path is not served."""

    code: int
    message: str
    reason: str = ""
    kind: str = ""
    retry_after_seconds: float | None = None


def read_answer(code: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """Read the Status object in the body. If the body is something else, the message is an excerpt of it. It is quoted."""
    retry_after = _seconds(headers.get("Retry-After"))
    try:
        status = decode(body)
    except Undecodable:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        return Answer(code, excerpt(body) or "an empty body", retry_after_seconds=retry_after)
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    return Answer(
        code,
        quoted(_short(str(status.get("message") or ""))) or "no message",
        str(status.get("reason") or ""),
        str(details.get("kind") or ""),
        retry_after if retry_after is not None else _seconds(details.get("retryAfterSeconds")),
    )


def refused(call: ApiCall, answer: Answer) -> DriverError:
    """The error for a status that is not 2xx."""
    said = f"{call}: the server answered {answer.code}: {answer.message}"
    if answer.code == HTTPStatus.NOT_FOUND and answer.kind:
        return NotFound(f"{said}; it does not exist or was deleted")
    if answer.code == HTTPStatus.FORBIDDEN:
        return Forbidden(
            f"{said}; allow verb {call.verb!r} on resource {call.resource!r} in the ClusterRole that is bound to the user "
            "named there, and look for admission policies"
        )
    if answer.code == HTTPStatus.CONFLICT and answer.reason == "AlreadyExists":
        return NameTaken(
            f"{said}; look whose it is: kubectl get {call.resource} {call.name} -o yaml",
            name=call.name,
        )
    meaning = _MEANINGS.get(answer.code)
    if meaning is None and HTTPStatus.MULTIPLE_CHOICES <= answer.code < HTTPStatus.BAD_REQUEST:
        return Permanent(
            f"{said}; a Kubernetes API server does not redirect: check the server's address in the kubeconfig"
        )
    if meaning is None:
        return Temporary(
            f"{said}; the server or something in front of it is overloaded, starting or failing: retried later, look at its "
            "log if it lasts",
            retry_after_seconds=answer.retry_after_seconds,
        )
    error, next_step = meaning
    return error(f"{said}; {next_step}")


_NOT_UNDERSTOOD = (
    Invalid,
    (
        "the server does not accept this content: if no admission policy is named there, the driver has a defect, or the server "
        "is older than the fields it was sent; report it"
    ),
)
_MEANINGS: dict[int, tuple[type[DriverError], str]] = {
    HTTPStatus.BAD_REQUEST: _NOT_UNDERSTOOD,
    HTTPStatus.METHOD_NOT_ALLOWED: _NOT_UNDERSTOOD,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: _NOT_UNDERSTOOD,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: _NOT_UNDERSTOOD,
    HTTPStatus.UNPROCESSABLE_ENTITY: _NOT_UNDERSTOOD,
    HTTPStatus.UNAUTHORIZED: (
        Temporary,
        (
            "the credentials were read anew and still refused: check that the service account exists and its token is mounted, or "
            "that the kubeconfig's user is still valid"
        ),
    ),
    HTTPStatus.NOT_FOUND: (
        NotServed,
        "the server serves no such path: check that DynamicResourceAllocation is enabled and that the server's address is right",
    ),
    HTTPStatus.CONFLICT: (Conflict, "somebody else wrote it: read it again and decide again"),
    HTTPStatus.GONE: (Expired, "list again and watch from there"),
}


def unreachable(call: ApiCall, error: Exception, *, proxy: str, source: str) -> Temporary:
    """The error for a request without an answer: no connection, no TLS, no proxy, or a timeout."""
    through = f" through proxy {proxy}" if proxy else ""
    said = _short(str(error))
    if isinstance(error, urllib3.exceptions.ProxyError):
        step = "check that the proxy runs and lets this host through, or add the host to NO_PROXY"
        said = quoted(said)  # it has the words of the proxy
    elif isinstance(error, urllib3.exceptions.SSLError):
        step = f"check the certificate authority, the server name and the client certificate in {source}"
    elif isinstance(error, urllib3.exceptions.ReadTimeoutError):
        step = "the server took the request and was silent: look at its load, retried later"
    else:
        step = f"check that the API server runs and that its address in {source} can be reached from this machine"
    kind = Unreachable if isinstance(error, _NO_CONNECTION) else Temporary
    return kind(f"{call}{through}: no answer: {said}; {step}")


_NO_CONNECTION = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
)


def too_slow(call: ApiCall, seconds: float) -> Temporary:
    """The error for an answer whose body was not complete at the deadline."""
    return Temporary(
        f"{call}: the answer did not end within {seconds:g} s; look at the load of the server and the network, retried later"
    )


def too_large(call: ApiCall, size: int) -> TooLarge:
    """The error for an answer of more than `size` bytes."""
    return TooLarge(
        f"{call}: the answer is larger than {size / 2**20:g} MiB, which is more than this program reads at once; make the object "
        "smaller, or delete it"
    )


def malformed(call: ApiCall, what: str, *, resource_version: str = "") -> Malformed:
    """The error for an object that the API server stores but this program cannot decode."""
    return Malformed(
        f"{call}: {what}; the API server stores it as it was written: delete the object, or write it again without this",
        resource_version=resource_version,
    )


def garbage(call: ApiCall, body: bytes) -> Temporary:
    """The error for an answer with status 2xx whose body is no JSON object."""
    return Temporary(
        f"{call}: the server answered with success but sent no JSON object: {excerpt(body) or 'nothing'}; check that the address is "
        "a Kubernetes API server's and what a proxy between makes of its answers"
    )


def excerpt(body: bytes) -> str:
    """The beginning of bytes from outside, as printable text for a message, quoted; "" if there is none."""
    return quoted(_short(body[: 4 * EXCERPT_CHARACTERS].decode(errors="replace")))


def _short(text: str) -> str:
    flat = " ".join(
        "".join(character if character.isprintable() else " " for character in text).split()
    )
    return flat if len(flat) <= EXCERPT_CHARACTERS else flat[: EXCERPT_CHARACTERS - 1] + "…"


def _seconds(value: object) -> float | None:
    try:
        return max(0.0, float(str(value)))
    except ValueError:
        return None
