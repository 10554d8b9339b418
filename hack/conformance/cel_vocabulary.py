# SPDX-License-Identifier: Apache-2.0
"""Which values make a CEL expression interesting?

`LITERALS` are constants by type. `TEXTS` says what a string should look like where a function reads a format; about a
third of each list is wrong on purpose. Where a function is not listed, any string does.
"""

from collections.abc import Mapping

LITERALS: Mapping[str, tuple[str, ...]] = {
    "bool": ("true", "false"),
    "int": (
        *("0", "1", "2", "3", "-1", "-2", "5", "7", "10", "42", "100", "-0", "0x1F", "-0x7f"),
        *("9223372036854775807", "-9223372036854775808", "4294967296", "1000000007", "60", "-86400"),
    ),
    "uint": ("0u", "1u", "2u", "3u", "7u", "42u", "0xFFu", "18446744073709551615u", "4294967296U"),
    "double": (
        *("0.0", "1.0", "1.5", "-2.5", "2.0", "3.0", "1e3", "1e308", "-1e-7", "0.1", "3.14159", "1e21"),
        *("9223372036854775807.0", "1e19", "-0.0", ".5", "1.0e-300", "123456789.125", "1e6", "1e-5"),
    ),
    "bytes": ('b"abc"', 'b""', r'b"\xff\x00"', "b'é'", r"br'\d'", r'b"\303\277"', 'b"true"'),
    "null_type": ("null",),
    "type": (
        *("int", "string", "bool", "bytes", "double", "uint", "list", "map", "null_type", "type"),
        *("type(1)", 'type("a")', "type([1])", "google.protobuf.Timestamp", "kubernetes.Quantity"),
        *("optional_type", "dyn", "kubernetes.Semver", "net.IP", "google.protobuf.Duration"),
    ),
}

STRINGS: tuple[str, ...] = (
    *('""', '"a"', '"b"', '"abc"', '"fish"', '"Fish Bird"', '" x "', '"héllo wörld"', r'"tab\there"'),
    *("'single'", '"""triple"quoted"""', r'r"raw\d"', r'"A\U0001F600"', '"日本語"', '"a,b,c"', '"1"'),
    *('"-12"', '"3.5"', '"true"', '"NVIDIA A100-SXM4-80GB"', '"dra.example.com"', '"name"', r'"\""'),
    *('"aXbXc"', '"aaa"', '"é"', r'"\x41\101\n"', '"ß"', '"0"', '"xyz"', '"other.example.com"'),
)

QUANTITIES = (
    *('"1"', '"0"', '"1Gi"', '"80Gi"', '"500m"', '"1.5Gi"', '"90G"', '"-1Ki"', '"1e3"', '"12E"', '"100n"'),
    *('"9223372036854775807"', '"9223372036854775808"', '"1k"', '"50k"', '"1024"', '"0.1"', '"7Ei"', '"1u"'),
    *('"1Gx"', '""', '"1 Gi"', '"Gi"', '"1.2.3"', '"+5"', '"1E"', '"1e"', '"10e-3"', '"01"', '"1K"'),
)
SEMVERS = (
    *('"1.0.0"', '"1.2.3"', '"12.4.1"', '"0.0.1"', '"1.0.0-rc.1"', '"1.0.0-rc.2"', '"1.0.0+build"', '"2.0.0"'),
    *('"1.0.0-alpha"', '"1.0.0-1"', '"1.10.0"', '"v1.0.0"', '"1.0"', '"1"', '"01.0.0"', '"v01.02"', '""'),
    *('"1.0.0-"', '"1.0.0-01"', '"1.2.3.4"', '"a.b.c"', '"1.2-rc1"', '"18446744073709551616.0.0"', '"V1.0.0"'),
    *('"1.0.0-rc.1+b.5"', '"1.0.0+"', '" 1.0.0"', '"-1.0.0"', '"1.0.0-ä"', '"1.2.3-x"'),
)
IPS = (
    *('"10.0.0.1"', '"127.0.0.1"', '"::1"', '"fe80::1"', '"2001:db8::abcd"', '"0.0.0.0"', '"224.0.0.1"'),
    *('"169.254.1.1"', '"ff02::1"', '"::"', '"2001:DB8::ABCD"', '"::ffff:1.2.3.4"', '"fe80::1%eth0"'),
    *('"256.0.0.1"', '"1.2.3"', '"01.2.3.4"', '""', '"::1::"', '"10.1.2.3"', '"192.168.0.1"', '"1.2.3.4 "'),
    *('"2001:db8:0:0:0:0:0:1"', '"255.255.255.255"', '"2001:db8::0:1"', '"ff01::1"'),
)
CIDRS = (
    *('"10.0.0.0/8"', '"192.168.0.0/24"', '"192.168.0.1/24"', '"::/0"', '"2001:db8::/32"', '"0.0.0.0/0"'),
    *('"10.1.0.0/16"', '"10.0.0.1/32"', '"fe80::/10"', '"10.0.0.0/33"', '"10.0.0.0"', '""', '"a/8"'),
    *('"::ffff:1.2.3.4/96"', '"10.0.0.0/08"', '"10.0.0.0/-1"', '"2001:db8::1/128"', '"10.0.0.0/ 8"'),
)
URLS = (
    *('"https://example.com:80/path?a=b&c=d"', '"http://user@a.b/c%20d"', '"/path/to"', '"https://[::1]:8080/"'),
    *('"https://example.com"', '"https://example.com/?k=1&k=2&e="', '"relative"', '""', '"https://a b/"'),
    *('"mailto:x@y.z"', '"https://:99/"', '"../x"', '"https://exa mple"', '"https://h/%zz"', '"//host/p"'),
    *('"https://a.b/p?x=%41;y=2"', '"https://a.b:port/"', '"file:///etc"', '"HTTPS://UP.CASE/"', '"*"'),
)
PATTERNS = (
    *('"a"', '"^a.*c$"', '"[0-9]+"', '"(a|b)+"', '"x?"', '""', r'"\\d+"', r"r'\w+\s'", '"(?i)FISH"', '"."'),
    *(r"r'\bfish\b'", '"[[:alpha:]]+"', r"r'\pL+'", '"^$"', '"(a+)+$"', '"(?P<n>b)"', '"[^a]?"', '"a{2,3}"'),
    *('"("', '"["', '"a**"', '"(?=a)"', r"r'(a)\1'", '"a{1001}"', '"*"', '"(?s).+"', '"(?m)^b"', r"r'\x{41}'"),
    *('"é|ö"', r"r'[\d\-x]'", '"a{,2}"', r"r'\Qa.b\E'", '"(?U)a+"', '"(?i)ß"', '"|a"', r"r'\z'", r"r'a\Z'"),
    *(r"r'\p{Greek}'", r"r'\C'", '"(?:a|b)??c"', '"[a-]"', '"[]a]"', '"[z-a]"', '"x{2}{3}"', r"r'\8'"),
)
TIMES = (
    *('"2024-01-01T00:00:00Z"', '"1970-01-01T00:00:00Z"', '"2024-02-29T12:34:56.789Z"', '"0001-01-01T00:00:00Z"'),
    *('"9999-12-31T23:59:59.999999999Z"', '"2024-06-30T23:59:59+02:00"', '"2025-01-01T00:00:00-11:30"'),
    *('"2024-13-01T00:00:00Z"', '"2024-01-01"', '""', '"2023-02-29T00:00:00Z"', '"2024-01-01t00:00:00z"'),
    *('"10000-01-01T00:00:00Z"', '"2024-01-01T24:00:00Z"', '"2024-01-01T00:00:00"', '"1969-12-31T23:59:59.5Z"'),
    *('"2024-01-01T00:00:60Z"', '"2024-01-01 00:00:00Z"', '"2024-01-01T0:00:00Z"', '"2024-12-29T01:02:03.000000001Z"'),
)
DURATIONS = (
    *('"1h"', '"90m"', '"1.5s"', '"-1h"', '"0"', '"1h30m5.25s"', '"100ms"', '"1us"', '"1ns"', '"2540400h"', '"1d"'),
    *('""', '"h"', '"1"', '"1h "', '"+3s"', '".5s"', '"1.s"', '"9223372036854775807ns"', '"9223372036854775808ns"'),
    *('"1µs"', '"1e3s"', '"--1s"', '"315576000000s"', '"0.000000001s"', '"60s"', '"3600s"'),
)
ZONES = (
    *('"UTC"', '"Europe/Berlin"', '"America/New_York"', '"+02:00"', '"-11:30"', '"Asia/Kolkata"', '"Nowhere/X"'),
    *('""', '"02:00"', '"+2"', '"Local"', '"+25:00"', '"EST"', '"05:30"', '"-00:30"', '"x:y"', '"Pacific/Auckland"'),
)
FORMAT_NAMES = (
    *('"dns1123Label"', '"dns1123Subdomain"', '"dns1035Label"', '"qualifiedName"', '"uuid"', '"date"', '"uri"'),
    *('"dns1123LabelPrefix"', '"dns1123SubdomainPrefix"', '"dns1035LabelPrefix"', '"labelValue"', '"byte"'),
    *('"datetime"', '"nope"', '""', '"UUID"'),
)
VALIDATED = (
    *('"a-b"', '"A_B"', '"a.b.c"', '"example.com/name"', '"1abc"', '"-x"', '""', '"x-"', '"2024-01-01"', '"YWJj"'),
    *('"123e4567-e89b-12d3-a456-426614174000"', '"https://a.b/c"', '"2024-01-01T00:00:00Z"', '"not base64!"'),
    *('"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"', '"2024-02-30"', '"é"', '"a..b"'),
)
TEMPLATES = (
    *('"%s"', '"%d"', '"%f"', '"%.2f"', '"%e"', '"%x"', '"%X"', '"%b"', '"%o"', '"%%"', '"a%sb%sc"', '"%.3e"'),
    *('"%s %d"', '"%q"', '"%"', '"%.f"', '"%.100f"', '"plain"', '"%s%s%s"', '"%.0f"', '"%-5d"', '"%5s"', '"%.1s"'),
)

TEXTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("quantity", "isQuantity"), QUANTITIES),
    **dict.fromkeys(("semver", "isSemver"), SEMVERS),
    **dict.fromkeys(("ip", "isIP", "ip.isCanonical", "containsIP"), IPS),
    **dict.fromkeys(("cidr", "isCIDR", "containsCIDR"), CIDRS),
    **dict.fromkeys(("url", "isURL"), URLS),
    **dict.fromkeys(("matches", "find", "findAll"), PATTERNS),
    "timestamp": TIMES,
    "duration": DURATIONS,
    "format.named": FORMAT_NAMES,
    "validate": VALIDATED,
    "format": TEMPLATES,
    **dict.fromkeys(
        (
            *("getFullYear", "getMonth", "getDayOfYear", "getDayOfMonth", "getDate", "getDayOfWeek"),
            *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
        ),
        ZONES,
    ),
    "bool": ('"true"', '"false"', '"t"', '"F"', '"1"', '"0"', '"yes"', '"True"', '"TRUE"', '"tRUE"', '""'),
    "int": ('"1"', '"-7"', '"9223372036854775808"', '"1.5"', '""', '"0x10"', '"+3"', '" 1"', '"1_000"'),
    "uint": ('"1"', '"-7"', '"18446744073709551615"', '"18446744073709551616"', '""', '"1u"', '"007"'),
    "double": ('"1.5"', '"-1e3"', '"NaN"', '"Infinity"', '"-inf"', '"1e400"', '""', '"0x1p-2"', '"1_0"', '".5"'),
}
"""By function: what its string argument (of a member with none: its target) should look like."""
