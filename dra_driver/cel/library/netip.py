# SPDX-License-Identifier: Apache-2.0
"""Parses and formats IPv4 and IPv6 addresses as Go's net/netip does, with the same error messages.

Python's ipaddress accepts other texts and has other messages.
Source: Go's package net/netip.
"""

from msgspec import Struct

from dra_driver.cel import work
from dra_driver.cel.golang import quote

BITS_4, BITS_6 = 32, 128
_FIELDS = 8
_BYTE, _WORD_DIGITS, _OCTETS = 255, 4, 4
_WORDS_OF_IPV4 = 2
_MAPPED = 0xFFFF


class AddressError(ValueError):
    """The text is no address. The message is Go's."""


class Address(Struct, frozen=True):
    """An address with 32 or 128 bits. `zone` is the text behind the percent sign."""

    number: int
    bits: int
    zone: str = ""

    @property
    def mapped(self) -> bool:
        """Whether this is an IPv4-mapped IPv6 address: ::ffff:1.2.3.4."""
        return self.bits == BITS_6 and self.number >> BITS_4 == _MAPPED

    def __str__(self) -> str:
        if self.bits == BITS_4:
            return ".".join(str(octet) for octet in self.number.to_bytes(_OCTETS, "big"))
        words = [self.number >> shift & 0xFFFF for shift in range(BITS_6 - 16, -1, -16)]
        start, end = _longest_zeros(words)
        shown = [f"{word:x}" for word in words]
        if start == end:
            return ":".join(shown)
        return ":".join(shown[:start]) + "::" + ":".join(shown[end:])


def _longest_zeros(words: list[int]) -> tuple[int, int]:
    """Return the start and the end of the first longest run of at least two zero words, or (0, 0) if there is none."""
    best = (0, 0)
    for start in range(_FIELDS):
        end = start
        while end < _FIELDS and words[end] == 0:
            end += 1
        if end - start > max(1, best[1] - best[0]):
            best = (start, end)
    return best


def parse(text: str) -> Address:
    """Parse an address. Raises AddressError if the text is no address, Aborted if it is too long."""
    work.require_parseable(text)
    for character in text:
        if character == ".":
            return Address(_ipv4(text, text), BITS_4)
        if character == ":":
            return _ipv6(text)
        if character == "%":
            raise _wrong(text, "missing IPv6 address")
    raise _wrong(text, "unable to parse IP")


def _wrong(text: str, problem: str, at: str = "") -> AddressError:
    where = f" (at {quote(at)})" if at else ""
    return AddressError(f"ParseAddr({quote(text)}): {problem}{where}")


def _ipv4(text: str, part: str) -> int:
    octets: list[int] = []
    digits = ""
    for index, character in enumerate(part):
        if character in "0123456789":
            if digits == "0":
                raise _wrong(text, "IPv4 field has octet with leading zero")
            digits += character
            if int(digits) > _BYTE:
                raise _wrong(text, "IPv4 field has value >255")
        elif character == ".":
            if not digits or index == len(part) - 1:
                raise _wrong(text, "IPv4 field must have at least one digit", part[index:])
            if len(octets) == _OCTETS - 1:
                raise _wrong(text, "IPv4 address too long")
            octets.append(int(digits))
            digits = ""
        else:
            raise _wrong(text, "unexpected character", part[index:])
    if len(octets) < _OCTETS - 1:
        raise _wrong(text, "IPv4 address too short")
    return int.from_bytes(bytes([*octets, int(digits)]), "big")


def _ipv6(text: str) -> Address:
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        raise _wrong(text, "zone must be a non-empty string")
    ellipsis = -1
    if rest.startswith("::"):
        ellipsis, rest = 0, rest[2:]
        if not rest:
            return Address(0, BITS_6, zone)
    return Address(_Ipv6Reader(text, rest, ellipsis).number(), BITS_6, zone)


class _Ipv6Reader:
    """Parses an IPv6 address field by field."""

    def __init__(self, text: str, rest: str, ellipsis: int) -> None:
        self._text = text
        self._rest = rest
        self._ellipsis = ellipsis
        self._words: list[int] = []

    def number(self) -> int:
        """Return the address as a number. Raises AddressError if the text is no address."""
        while len(self._words) < _FIELDS and self._field():
            pass
        if self._rest:
            raise _wrong(self._text, "trailing garbage after address", self._rest)
        missing = _FIELDS - len(self._words)
        if missing and self._ellipsis < 0:
            raise _wrong(self._text, "address string too short")
        if not missing and self._ellipsis >= 0:
            raise _wrong(self._text, "the :: must expand to at least one field of zeros")
        place = max(self._ellipsis, 0)
        words = [*self._words[:place], *[0] * missing, *self._words[place:]]
        return sum(word << 16 * (_FIELDS - 1 - index) for index, word in enumerate(words))

    def _field(self) -> bool:
        """Parse one field. Returns whether another one follows."""
        rest = self._rest
        digits = rest[: len(rest) - len(rest.lstrip("0123456789abcdefABCDEF"))]
        if len(digits) > _WORD_DIGITS:
            raise _wrong(self._text, "each group must have 4 or less digits", rest)
        if not digits:
            raise _wrong(
                self._text, "each colon-separated field must have at least one digit", rest
            )
        if rest[len(digits) :].startswith("."):
            self._embedded()
            return False
        self._words.append(int(digits, 16))
        self._rest = rest[len(digits) :]
        return bool(self._rest) and self._separator()

    def _embedded(self) -> None:
        """Parse an IPv4 address at the end of the text."""
        if self._ellipsis < 0 and len(self._words) != _FIELDS - _WORDS_OF_IPV4:
            problem = "embedded IPv4 address must replace the final 2 fields of the address"
            raise _wrong(self._text, problem, self._rest)
        if len(self._words) + _WORDS_OF_IPV4 > _FIELDS:
            problem = "too many hex fields to fit an embedded IPv4 at the end of the address"
            raise _wrong(self._text, problem, self._rest)
        number = _ipv4(self._text, self._rest)
        self._words += [number >> 16, number & 0xFFFF]
        self._rest = ""

    def _separator(self) -> bool:
        if self._rest[0] != ":":
            raise _wrong(self._text, "unexpected character, want colon", self._rest)
        if len(self._rest) == 1:
            raise _wrong(self._text, "colon must be followed by more characters", self._rest)
        self._rest = self._rest[1:]
        if self._rest[0] == ":":
            if self._ellipsis >= 0:
                raise _wrong(self._text, "multiple :: in address", self._rest)
            self._ellipsis = len(self._words)
            self._rest = self._rest[1:]
        return bool(self._rest)


def parse_prefix(text: str) -> tuple[Address, int]:
    """Parse a network into the address and the prefix length.

    Raises AddressError if the text is no network, Aborted if it is too long.
    """
    work.require_parseable(text)
    before, slash, bits = text.rpartition("/")
    if not slash:
        raise _wrong_prefix(text, "no '/'")
    try:
        address = parse(before)
    except AddressError as error:
        raise _wrong_prefix(text, str(error)) from error
    if address.zone:
        raise _wrong_prefix(text, "IPv6 zones cannot be present in a prefix")
    plain = bits.isascii() and bits.isdigit() and (len(bits) == 1 or bits[0] != "0")
    if not plain or len(bits) > len(str(2**63)):
        raise _wrong_prefix(text, f"bad bits after slash: {quote(bits)}")
    if int(bits) > address.bits:
        raise _wrong_prefix(text, "prefix length out of range")
    return address, int(bits)


def _wrong_prefix(text: str, problem: str) -> AddressError:
    return AddressError(f"netip.ParsePrefix({quote(text)}): {problem}")
