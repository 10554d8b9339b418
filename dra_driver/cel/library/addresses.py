# SPDX-License-Identifier: Apache-2.0
"""IP addresses and networks: ip("10.0.0.1").family(), cidr("10.0.0.0/8").containsIP(…).

An address with a zone is an error, and so is an IPv4-mapped IPv6 address (::ffff:10.0.0.1).
Source: k8s.io/apiserver pkg/cel/library/{ip,cidr}.go, pkg/cel/{ip,cidr}.go.
"""

from collections.abc import Callable

from dra_driver.cel import values
from dra_driver.cel.failures import Aborted, EvaluationError, no_such_overload
from dra_driver.cel.golang import quote
from dra_driver.cel.library import netip
from dra_driver.cel.library.netip import BITS_4, Address, AddressError
from dra_driver.cel.overloads import Overload
from dra_driver.cel.values import Opaque

IP_TYPE, CIDR_TYPE = "net.IP", "net.CIDR"
_BROADCAST = 0xFFFFFFFF


class IP(Opaque, frozen=True, eq=False):
    """An IP address: the CEL type net.IP."""

    address: Address

    type_name = IP_TYPE
    go_name = "cel.IP"

    def equals(self, other: object) -> bool:
        """Return whether the addresses are equal. Raises EvaluationError for another type."""
        if not isinstance(other, IP):
            raise no_such_overload()
        return self.address == other.address

    def as_key(self) -> object:
        """Return the address: in Go it is compared and not a pointer."""
        return IP_TYPE, self.address

    def size(self) -> int:
        """Return the length in bytes: 4 or 16."""
        return self.address.bits // 8

    def __str__(self) -> str:
        return str(self.address)


class CIDR(Opaque, frozen=True, eq=False):
    """A network: the CEL type net.CIDR. The address can have bits behind the prefix."""

    address: Address
    length: int

    type_name = CIDR_TYPE
    go_name = "cel.CIDR"

    def equals(self, other: object) -> bool:
        """Return whether address and prefix length are equal. Raises EvaluationError for another type."""
        if not isinstance(other, CIDR):
            raise no_such_overload()
        return (self.address, self.length) == (other.address, other.length)

    def as_key(self) -> object:
        """Return the network: in Go it is compared and not a pointer."""
        return CIDR_TYPE, self.address, self.length

    def size(self) -> int:
        """Return the length of the prefix in bytes."""
        return -(-self.length // 8)

    def masked(self) -> "CIDR":
        """Return the network with the bits behind the prefix set to 0."""
        return CIDR(Address(_prefix(self.address, self.length), self.address.bits), self.length)

    def contains(self, address: Address, length: int) -> bool:
        """Return whether the network contains all addresses that have the first `length` bits of `address`."""
        if address.bits != self.address.bits or length < self.length:
            return False
        return _prefix(address, self.length) == _prefix(self.address, self.length)

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"


def _prefix(address: Address, length: int) -> int:
    beyond = address.bits - length
    return address.number >> beyond << beyond


# --- parsing ----------------------------------------------------------------------------------------------------------


def _ip(text: str) -> IP:
    try:
        address = netip.parse(text)
    except AddressError as error:
        raise EvaluationError(
            f"IP Address {quote(text)} parse error during conversion from string: {error}"
        ) from error
    if address.zone:
        raise EvaluationError(f"IP address {quote(text)} with zone value is not allowed")
    return IP(_unmapped(text, address))


def _unmapped(text: str, address: Address) -> Address:
    if address.mapped:
        raise EvaluationError(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return address


def _cidr(text: str) -> CIDR:
    problem = "network address parse error during conversion from string: "
    try:
        address, length = netip.parse_prefix(text)
        return CIDR(_unmapped(text, address), length)
    except AddressError as error:
        raise EvaluationError(f"{problem}{problem}{error}") from error
    except Aborted:
        raise
    except EvaluationError as error:
        raise EvaluationError(f"{problem}{error}") from error


def _can(read: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            read(text)
        except Aborted:
            raise
        except EvaluationError:
            return False
        return True

    return check


# --- properties -------------------------------------------------------------------------------------------------------


def _is_unspecified(ip: IP) -> bool:
    return ip.address.number == 0


def _is_loopback(ip: IP) -> bool:
    address = ip.address
    return address.number >> 24 == 127 if address.bits == BITS_4 else address.number == 1  # noqa: PLR2004  127.0.0.0/8


def _is_link_local_multicast(ip: IP) -> bool:
    address = ip.address
    if address.bits == BITS_4:
        return address.number >> 8 == 0xE00000  # noqa: PLR2004  224.0.0.0/24
    return address.number >> 112 & 0xFF0F == 0xFF02  # noqa: PLR2004  ff02::/16 with any flags


def _is_link_local_unicast(ip: IP) -> bool:
    address = ip.address
    if address.bits == BITS_4:
        return address.number >> 16 == 0xA9FE  # noqa: PLR2004  169.254.0.0/16
    return address.number >> 112 & 0xFFC0 == 0xFE80  # noqa: PLR2004  fe80::/10


def _is_multicast(ip: IP) -> bool:
    address = ip.address
    if address.bits == BITS_4:
        return address.number >> 28 == 0xE  # noqa: PLR2004  224.0.0.0/4
    return address.number >> 120 == 0xFF  # noqa: PLR2004  ff00::/8


def _is_global_unicast(ip: IP) -> bool:
    if ip.address.bits == BITS_4 and ip.address.number == _BROADCAST:
        return False
    others = (_is_unspecified, _is_loopback, _is_multicast, _is_link_local_unicast)
    return not any(other(ip) for other in others)


def _contains_ip(cidr: CIDR, ip: IP) -> bool:
    return cidr.contains(ip.address, ip.address.bits)


def _contains_ip_text(cidr: CIDR, text: str) -> bool:
    try:
        ip = _ip(text)
    except Aborted:
        raise
    except EvaluationError as error:
        raise no_such_overload() from error
    return _contains_ip(cidr, ip)


def _contains_cidr(cidr: CIDR, other: CIDR) -> bool:
    return cidr.contains(other.address, other.length)


OVERLOADS = (
    Overload("ip", "string_to_ip", values.STRING, _ip),
    Overload("isIP", "is_ip", values.STRING, _can(_ip)),
    Overload(
        "ip.isCanonical", "ip_is_canonical", values.STRING, lambda text: str(_ip(text)) == text
    ),
    Overload("string", "ip_to_string", IP_TYPE, str),
    Overload("family", "ip_family", IP_TYPE, lambda ip: 4 if ip.address.bits == BITS_4 else 6),
    Overload("isUnspecified", "ip_is_unspecified", IP_TYPE, _is_unspecified),
    Overload("isLoopback", "ip_is_loopback", IP_TYPE, _is_loopback),
    Overload(
        "isLinkLocalMulticast", "ip_is_link_local_multicast", IP_TYPE, _is_link_local_multicast
    ),
    Overload("isLinkLocalUnicast", "ip_is_link_local_unicast", IP_TYPE, _is_link_local_unicast),
    Overload("isGlobalUnicast", "ip_is_global_unicast", IP_TYPE, _is_global_unicast),
    Overload("cidr", "string_to_cidr", values.STRING, _cidr),
    Overload("isCIDR", "is_cidr", values.STRING, _can(_cidr)),
    Overload("string", "cidr_to_string", CIDR_TYPE, str),
    Overload(
        "containsIP",
        "cidr_contains_ip_string",
        f"{CIDR_TYPE} string",
        _contains_ip_text,
    ),
    Overload("containsIP", "cidr_contains_ip_ip", f"{CIDR_TYPE} {IP_TYPE}", _contains_ip),
    Overload(
        "containsCIDR",
        "cidr_contains_cidr_string",
        f"{CIDR_TYPE} string",
        lambda a, b: _contains_cidr(a, _cidr(b)),
    ),
    Overload("containsCIDR", "cidr_contains_cidr", f"{CIDR_TYPE} {CIDR_TYPE}", _contains_cidr),
    Overload("ip", "cidr_ip", CIDR_TYPE, lambda cidr: IP(cidr.address)),
    Overload("prefixLength", "cidr_prefix_length", CIDR_TYPE, lambda cidr: cidr.length),
    Overload("masked", "cidr_masked", CIDR_TYPE, CIDR.masked),
)
