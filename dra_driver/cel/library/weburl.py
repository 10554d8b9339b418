# SPDX-License-Identifier: Apache-2.0
"""Parses and formats URLs as Go's net/url does, with the same error messages.

The functions work on bytes, each represented by one character (latin-1). An escape such as %ff stands for a byte, and the
bytes need not be UTF-8.
Source: Go's package net/url.
"""

from enum import Enum

from msgspec import Struct

from dra_driver.cel import golang
from dra_driver.cel.library import netip

_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_HEX = frozenset("0123456789abcdefABCDEF")
_UNRESERVED = _ALPHANUMERIC | frozenset("-_.~")
_USERINFO = _ALPHANUMERIC | frozenset("-._:~!$&'()*+,;=%@")
_NOT_ENCODED = frozenset("!$&'()*+,;=:@[]%")
_MAX_PARAMETERS = 10_000
_ASCII = 0x80


class UrlPart(Enum):
    """A part of a URL. Each part has its own set of characters that need no escape (Go: encoding)."""

    PATH = _UNRESERVED | frozenset("$&+,/:;=@")
    USER = _UNRESERVED | frozenset("$&+,;=")
    HOST = _UNRESERVED | frozenset("!$&'()*+,;=:[]<>\"")
    QUERY = _UNRESERVED
    FRAGMENT = _UNRESERVED | frozenset("$&+,/:;=?@!()*")


class UrlError(ValueError):
    """The text is no URL. The message is Go's."""


class WebUrl(Struct, frozen=True):
    """The unescaped parts of a URL. `raw_path` and `raw_fragment` are the original text if it is not the default escaping."""

    scheme: str = ""
    opaque: str = ""
    user: tuple[str, ...] | None = None
    host: str = ""
    path: str = ""
    raw_path: str = ""
    query: str = ""
    force_query: bool = False
    fragment: str = ""
    raw_fragment: str = ""
    omit_host: bool = False

    def escaped_path(self) -> str:
        """Return the original text of the path if it is a valid escaping, else the default escaping."""
        if self.raw_path and _is_encoded(self.raw_path, UrlPart.PATH):
            return self.raw_path
        return "*" if self.path == "*" else escape(self.path, UrlPart.PATH)

    def host_and_port(self) -> tuple[str, str]:
        """Return the host without brackets, and the port or ""."""
        host, colon, port = self.host.rpartition(":")
        if not colon or not _is_port(":" + port):
            host, port = self.host, ""
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        return host, port

    def parameters(self) -> dict[str, list[str]]:
        """Return the parameters of the query. Invalid ones are ignored, as by URL.Query()."""
        found: dict[str, list[str]] = {}
        if self.query.count("&") >= _MAX_PARAMETERS:
            return found
        for item in self.query.split("&"):
            if ";" in item or not item:
                continue
            key, _, value = item.partition("=")
            try:
                name, read = unescape(key, UrlPart.QUERY), unescape(value, UrlPart.QUERY)
            except UrlError:
                continue
            found.setdefault(name, []).append(read)
        return found

    def __str__(self) -> str:
        text = f"{self.scheme}:" if self.scheme else ""
        text += self.opaque or self._hierarchy(text)
        if self.force_query or self.query:
            text += "?" + self.query
        return text + (f"#{self._escaped_fragment()}" if self.fragment else "")

    def _hierarchy(self, before: str) -> str:
        authority = self._authority()
        path = self.escaped_path()
        if path and path[0] != "/" and self.host:
            path = "/" + path
        if not before and not authority and ":" in path.partition("/")[0]:
            path = "./" + path
        return authority + path

    def _authority(self) -> str:
        anything = bool(self.scheme or self.host) or self.user is not None
        if not anything or (self.omit_host and not self.host and self.user is None):
            return ""
        slashes = "//" if self.host or self.path or self.user is not None else ""
        user = ""
        if self.user is not None:
            user = ":".join(escape(part, UrlPart.USER) for part in self.user) + "@"
        return slashes + user + escape(self.host, UrlPart.HOST)

    def _escaped_fragment(self) -> str:
        if self.raw_fragment and _is_encoded(self.raw_fragment, UrlPart.FRAGMENT):
            return self.raw_fragment
        return escape(self.fragment, UrlPart.FRAGMENT)


def to_bytes(text: str) -> str:
    """Return the bytes of a text, each as one latin-1 character."""
    return golang.utf8(text).decode("latin-1")


def to_text(content: str) -> str:
    """Return the inverse of `to_bytes`."""
    return golang.from_utf8(content.encode("latin-1"))


def _quote(content: str) -> str:
    return golang.quote(to_text(content))


# --- escapes ----------------------------------------------------------------------------------------------------------


def escape(content: str, part: UrlPart) -> str:
    """Replace each character that this part does not allow by %XX."""
    return "".join(byte if byte in part.value else f"%{ord(byte):02X}" for byte in content)


def unescape(content: str, part: UrlPart, *, zone: bool = False) -> str:
    """Replace each %XX by its byte. Raises UrlError for an escape that this part does not allow."""
    unescaped: list[str] = []
    position = 0
    while position < len(content):
        byte = content[position]
        if byte == "%":
            unescaped.append(_unescaped(content[position : position + 3], part, zone=zone))
            position += 3
            continue
        if part is UrlPart.HOST and ord(byte) < _ASCII and byte not in part.value:
            raise UrlError(f"invalid character {_quote(byte)} in host name")
        unescaped.append(" " if byte == "+" and part is UrlPart.QUERY else byte)
        position += 1
    return "".join(unescaped)


def _unescaped(escaped: str, part: UrlPart, *, zone: bool) -> str:
    bad = UrlError(f"invalid URL escape {_quote(escaped)}")
    if len(escaped) < len("%XX") or not _HEX.issuperset(escaped[1:]):
        raise bad
    byte = chr(int(escaped[1:], 16))
    if escaped == "%25" or part is not UrlPart.HOST:
        return byte
    # In a host only bytes outside ASCII can be escaped. The zone of an IPv6 address also allows the characters of a host,
    # and a space, because Windows uses it there (RFC 6874; unescape in net/url).
    if byte != " " and byte not in part.value if zone else ord(byte) < _ASCII:
        raise bad
    return byte


def _is_encoded(content: str, part: UrlPart) -> bool:
    return all(byte in _NOT_ENCODED or byte in part.value for byte in content)


# --- reading ----------------------------------------------------------------------------------------------------------


def parse_request(content: str) -> WebUrl:
    """Parse an absolute URL or path, as in an HTTP request. `#` has no special meaning (ParseRequestURI)."""
    try:
        return _parse(content, request=True)
    except UrlError as error:
        raise UrlError(f"parse {_quote(content)}: {error}") from error


def parse(content: str) -> WebUrl:
    """Parse any URL. Raises UrlError if the text is no URL."""
    before, _, fragment = content.partition("#")
    try:
        url = _parse(before, request=False)
    except UrlError as error:
        raise UrlError(f"parse {_quote(before)}: {error}") from error
    if not fragment:
        return url
    try:
        read = unescape(fragment, UrlPart.FRAGMENT)
    except UrlError as error:
        raise UrlError(f"parse {_quote(content)}: {error}") from error
    raw = "" if escape(read, UrlPart.FRAGMENT) == fragment else fragment
    return _with(url, fragment=read, raw_fragment=raw)


def _with(url: WebUrl, *, fragment: str, raw_fragment: str) -> WebUrl:
    return WebUrl(
        url.scheme,
        url.opaque,
        url.user,
        url.host,
        url.path,
        url.raw_path,
        url.query,
        url.force_query,
        fragment,
        raw_fragment,
        url.omit_host,
    )


def _parse(content: str, *, request: bool) -> WebUrl:
    if any(byte < " " or byte == "\x7f" for byte in content):
        raise UrlError("net/url: invalid control character in URL")
    if content == "" and request:
        raise UrlError("empty url")
    if content == "*":
        return WebUrl(path="*")
    scheme, rest = _scheme(content)
    force = rest.endswith("?") and rest.count("?") == 1
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return WebUrl(scheme, rest, query=query, force_query=force)
        if request:
            raise UrlError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise UrlError("first path segment in URL cannot contain colon")
    return _hierarchical(scheme, rest, query, force=force, request=request)


def _hierarchical(scheme: str, rest: str, query: str, *, force: bool, request: bool) -> WebUrl:
    user, host, omit = None, "", False
    if rest.startswith("//") and (scheme or not (request or rest.startswith("///"))):
        authority, slash, after = rest[2:].partition("/")
        rest = slash + after
        user, host = _authority(scheme, authority)
    elif scheme and rest.startswith("/"):
        omit = True
    path = unescape(rest, UrlPart.PATH)
    raw = "" if escape(path, UrlPart.PATH) == rest else rest
    return WebUrl(scheme, "", user, host, path, raw, query, force, omit_host=omit)


def _scheme(content: str) -> tuple[str, str]:
    for position, byte in enumerate(content):
        if byte == ":":
            if position == 0:
                raise UrlError("missing protocol scheme")
            return content[:position].lower(), content[position + 1 :]
        if byte not in _ALPHANUMERIC and byte not in "+-.":
            break
        if position == 0 and not byte.isalpha():
            break
    return "", content


def _authority(scheme: str, authority: str) -> tuple[tuple[str, ...] | None, str]:
    userinfo, at, after = authority.rpartition("@")
    host = _host(scheme, after)
    if not at:
        return None, host
    if not _USERINFO.issuperset(userinfo):
        raise UrlError("net/url: invalid userinfo")
    return tuple(unescape(part, UrlPart.USER) for part in userinfo.split(":", 1)), host


def _host(scheme: str, host: str) -> str:
    bracket = host.rfind("[")
    if bracket > 0:
        raise UrlError("invalid IP-literal")
    if bracket == 0:
        return _literal(host)
    colon = host.find(":")
    if colon >= 0:
        if scheme not in ("http", "https"):
            colon = host.rfind(":")
        if not _is_port(host[colon:]):
            raise UrlError(f"invalid port {_quote(host[colon:])} after host")
    return unescape(host, UrlPart.HOST)


def _literal(host: str) -> str:
    """Parse an IPv6 address in brackets."""
    inside, bracket, port = host[1:].rpartition("]")
    if not bracket:
        raise UrlError("missing ']' in host")
    if not _is_port(port):
        raise UrlError(f"invalid port {_quote(port)} after host")
    name, zone_mark, zone = inside.partition("%25")
    address = unescape(name, UrlPart.HOST)
    if zone_mark:
        address += unescape(zone_mark + zone, UrlPart.HOST, zone=True)
    try:
        if netip.parse(to_text(address)).bits == netip.BITS_4:
            raise UrlError("invalid IP-literal")
    except netip.AddressError as error:
        raise UrlError(f"invalid host: {error}") from error
    return f"[{address}]{port}"


def _is_port(text: str) -> bool:
    return text == "" or (text[0] == ":" and frozenset("0123456789").issuperset(text[1:]))
