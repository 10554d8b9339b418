# SPDX-License-Identifier: Apache-2.0
"""Named formats: format.dns1123Label().validate("x") is optional.none(), or the list of problems.

The texts of the problems are the same as in Kubernetes' validation functions, byte for byte.
Source: k8s.io/apiserver pkg/cel/library/format.go, k8s.io/apimachinery pkg/util/validation, pkg/api/validate/content.
"""

import re
from collections.abc import Callable
from datetime import date

from dra_driver.cel import golang, values, work
from dra_driver.cel.failures import no_such_overload
from dra_driver.cel.library import urls
from dra_driver.cel.overloads import Overload
from dra_driver.cel.values import NONE, Opaque, Optional

TYPE = "kubernetes.NamedFormat"

Problems = Callable[[str], list[str]]


class Format(Opaque, frozen=True, eq=False):
    """A named format. `regex_size` is the pattern length in the cost of validate()."""

    name: str
    regex_size: int
    problems: Problems

    type_name = TYPE
    go_name = "cel.Format"
    hashable = False

    def equals(self, other: object) -> bool:
        """Return whether the names are equal. Raises EvaluationError for another type."""
        if not isinstance(other, Format):
            raise no_such_overload()
        return self.name == other.name


# --- names ------------------------------------------------------------------------------------------------------------

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_LABEL_LENGTH, _SUBDOMAIN_LENGTH = 63, 253

_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character"
)
_KEY_RULE = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
_VALUE_RULE = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"


def _is(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def _rule(message: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(text: str, limit: int, unit: str = "characters") -> list[str]:
    long = len(golang.utf8(text)) > limit
    return [f"must be no more than {limit} {unit}"] if long else []


def _label(text: str) -> list[str]:
    found = _too_long(text, _LABEL_LENGTH)
    if not _is(_LABEL, text):
        dotted = _is(_SUBDOMAIN, text)
        found.append(
            "must not contain dots" if dotted else _rule(_LABEL_RULE, _LABEL, "my-name", "123-abc")
        )
    return found


def _subdomain(text: str, unit: str = "characters") -> list[str]:
    found = _too_long(text, _SUBDOMAIN_LENGTH, unit)
    if not _is(_SUBDOMAIN, text):
        found.append(_rule(_SUBDOMAIN_RULE, _SUBDOMAIN, "example.com"))
    return found


def _label_1035(text: str) -> list[str]:
    found = _too_long(text, _LABEL_LENGTH)
    if not _is(_LABEL_1035, text):
        found.append(_rule(_LABEL_1035_RULE, _LABEL_1035, "my-name", "abc-123"))
    return found


def _qualified_name(text: str) -> list[str]:
    rule = _rule(_KEY_RULE, _KEY, "MyName", "my.name", "123-abc")
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        optional = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {rule}{optional}"]
    found: list[str] = []
    if slash:
        problems = _subdomain(prefix, "bytes") if prefix else ["must be non-empty"]
        found += [f"prefix part {problem}" for problem in problems]
    too_long = _too_long(name, _LABEL_LENGTH, "bytes") if name else ["must be non-empty"]
    found += [f"name part {problem}" for problem in too_long]
    if not _is(_KEY, name):
        found.append(f"name part {rule}")
    return found


def _label_value(text: str) -> list[str]:
    found = _too_long(text, _LABEL_LENGTH, "bytes")
    if not _is(_VALUE, text):
        found.append(_rule(_VALUE_RULE, _VALUE, "MyValue", "my_value", "12345"))
    return found


def _as_prefix(check: Problems) -> Problems:
    """Return the check for a prefix of a name. In contrast to a name, it can end with a dash."""

    def problems(text: str) -> list[str]:
        # maskTrailingDash in Kubernetes replaces the last two bytes by "a", not only the dash.
        if len(golang.utf8(text)) > 1 and text.endswith("-"):
            text = golang.from_utf8(golang.utf8(text)[:-2]) + "a"
        return check(text)

    return problems


# --- others -----------------------------------------------------------------------------------------------------------

_UUID = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_TIME = "^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"
_BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
_DATE = re.compile("([0-9]{4})-([0-9]{2})-([0-9]{2})")
_URL_REGEX_SIZE, _BASE64_REGEX_SIZE = 1103, 84
_SHORTEST_TIME = 4
_LATEST = ("23", "59", "59")


def _unless(holds: Callable[[str], bool], problem: str) -> Problems:
    return lambda text: [] if holds(text) else [problem]


def _is_uuid(text: str) -> bool:
    return text.isascii() and _is(_UUID[len("(?i)^") : -1], text.lower())


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    try:
        date(year or 2000, month, day)
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    parts = text.lower().split("t")
    if len(golang.utf8(text)) < _SHORTEST_TIME or len(parts) == 1 or not _is_date(parts[0]):
        return False
    match = re.fullmatch(_TIME[1:-1], parts[1])
    return match is not None and all(
        found <= latest for found, latest in zip(match.groups(), _LATEST, strict=False)
    )


def _uri(text: str) -> list[str]:
    problem = urls.problem(text)
    return [] if problem is None else [problem]


FORMATS = {
    "dns1123Label": Format("DNS1123Label", 30, _label),
    "dns1123Subdomain": Format("DNS1123Subdomain", 60, _subdomain),
    "dns1035Label": Format("DNS1035Label", 30, _label_1035),
    "qualifiedName": Format("QualifiedName", 60, _qualified_name),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", 30, _as_prefix(_label)),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", 60, _as_prefix(_subdomain)),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", 30, _as_prefix(_label_1035)),
    "labelValue": Format("LabelValue", 40, _label_value),
    "uri": Format("URI", _URL_REGEX_SIZE, _uri),
    "uuid": Format("uuid", len(_UUID), _unless(_is_uuid, "does not match the UUID format")),
    "byte": Format(
        "byte", _BASE64_REGEX_SIZE, _unless(lambda text: _is(_BASE64, text), "invalid base64")
    ),
    "date": Format("date", len(_TIME), _unless(_is_date, "invalid date")),
    "datetime": Format("datetime", len(_TIME), _unless(_is_datetime, "invalid datetime")),
}


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _validate(named: Format, text: str) -> Optional:
    work.require_parseable(text)
    problems: list[object] = [*named.problems(text)]
    return Optional(problems) if problems else NONE


def _constant(name: str) -> Overload:
    found = FORMATS[name]
    return Overload(f"format.{name}", f"format.{name}", "", lambda: found)


OVERLOADS = (
    *map(_constant, FORMATS),
    Overload("format.named", "format-named", values.STRING, _named),
    Overload("validate", "format-validate", f"{TYPE} {values.STRING}", _validate),
)
