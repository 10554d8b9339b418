# SPDX-License-Identifier: Apache-2.0
"""Semantic versions 2.0.0: semver("1.2.3").isLessThan(…), major, …

Build metadata is kept, but comparisons ignore it. With the argument normalize, "v1.02" is parsed as 1.2.0.
Source: k8s.io/apiserver pkg/cel/library/semverlib.go, github.com/blang/semver/v4.
"""

from collections.abc import Callable
from functools import lru_cache

from dra_driver.cel import golang, values, work
from dra_driver.cel.failures import Aborted, EvaluationError, no_such_overload
from dra_driver.cel.overloads import Overload
from dra_driver.cel.values import UINT_MAX, Opaque

TYPE = "kubernetes.Semver"

_NUMBERS = frozenset("0123456789")
_ALPHANUMERIC = _NUMBERS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-")
_PARTS = 3
_LONGEST_KEPT = (
    64  # Characters. The versions of devices are shorter; a selector can make texts of megabytes.
)


class Semver(Opaque, frozen=True, eq=False):
    """A version. The pre-release is a tuple of numbers and words."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[int | str, ...] = ()
    build: tuple[str, ...] = ()

    type_name = TYPE
    go_name = "cel.Semver"
    hashable = False

    def equals(self, other: object) -> bool:
        """Return whether the versions are equal, without build metadata. Raises EvaluationError for another type."""
        if not isinstance(other, Semver):
            raise no_such_overload()
        return self.compare(other) == 0

    def compare(self, other: "Semver") -> int:
        """Return -1, 0 or 1 if this version is less than, equal to or greater than the other."""
        left, right = _order(self), _order(other)
        return (left > right) - (left < right)

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.prerelease:
            text += "-" + ".".join(map(str, self.prerelease))
        return "+".join((text, ".".join(self.build))) if self.build else text


def _order(version: Semver) -> tuple[object, ...]:
    """Return the sort key. A release is greater than its pre-releases, a word than a number, more parts than fewer."""
    words = tuple(
        (1, 0, part) if isinstance(part, str) else (0, part, "") for part in version.prerelease
    )
    return version.major, version.minor, version.patch, not words, words


def parse_semver(text: str) -> Semver:
    """Parse a version.

    Raises EvaluationError with the API server's message if the text is no version, Aborted if it is too long.
    """
    return _remembered(text) if len(text) <= _LONGEST_KEPT else _parsed(text)


def _parsed(text: str) -> Semver:
    work.require_parseable(text)
    if text == "":
        raise EvaluationError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != _PARTS:
        raise EvaluationError("No Major.Minor.Patch elements found")
    major, minor = _number("major", parts[0]), _number("minor", parts[1])
    rest, plus, build = parts[2].partition("+")
    patch, dash, prerelease = rest.partition("-")
    return Semver(
        major,
        minor,
        _number("patch", patch),
        tuple(map(_prerelease, prerelease.split("."))) if dash else (),
        tuple(map(_build, build.split("."))) if plus else (),
    )


_remembered = lru_cache(maxsize=8192)(_parsed)


def _number(name: str, text: str) -> int:
    if not _NUMBERS.issuperset(text):
        raise EvaluationError(f"Invalid character(s) found in {name} number {golang.quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise EvaluationError(
            f"{name.capitalize()} number must not contain leading zeroes {golang.quote(text)}"
        )
    return _uint64(text)


def _uint64(text: str) -> int:
    parsing = f"strconv.ParseUint: parsing {golang.quote(text)}: "
    if text == "":
        raise EvaluationError(parsing + "invalid syntax")
    if len(text) > len(str(UINT_MAX)) or int(text) > UINT_MAX:
        raise EvaluationError(parsing + "value out of range")
    return int(text)


def _prerelease(text: str) -> int | str:
    if text == "":
        raise EvaluationError("Prerelease is empty")
    if _NUMBERS.issuperset(text):
        if len(text) > 1 and text[0] == "0":
            raise EvaluationError(
                f"Numeric PreRelease version must not contain leading zeroes {golang.quote(text)}"
            )
        return _uint64(text)
    if not _ALPHANUMERIC.issuperset(text):
        raise EvaluationError(f"Invalid character(s) found in prerelease {golang.quote(text)}")
    return text


def _build(text: str) -> str:
    if text == "":
        raise EvaluationError("Build meta data is empty")
    if not _ALPHANUMERIC.issuperset(text):
        raise EvaluationError(f"Invalid character(s) found in build meta data {golang.quote(text)}")
    return text


def _normalized(text: str) -> str:
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < _PARTS and not {"+", "-"}.isdisjoint(parts[-1]):
        raise EvaluationError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (_PARTS - len(parts)))


def _without_zeros(part: str) -> str:
    if len(golang.utf8(part)) <= 1:
        return part
    stripped = part.lstrip("0")
    return stripped if stripped[:1] in _NUMBERS else "0" + stripped


def parse_normalized(text: str) -> Semver:
    """Parse a version as with the argument normalize: "v1.02" is 1.2.0. Raises as `parse_semver` does."""
    return parse_semver(_normalized(text))


def _semver(text: str, *normalize: bool) -> Semver:
    return parse_normalized(text) if any(normalize) else parse_semver(text)


def _is_semver(text: str, *normalize: bool) -> bool:
    try:
        _semver(text, *normalize)
    except Aborted:
        raise
    except EvaluationError:
        return False
    return True


def _member(name: str, id_: str, run: Callable[..., object], *others: str) -> Overload:
    return Overload(name, id_, " ".join((TYPE, *others)), run)


OVERLOADS = (
    Overload("semver", "string_to_semver", values.STRING, _semver),
    Overload("semver", "string_bool_to_semver", f"{values.STRING} {values.BOOL}", _semver),
    Overload("isSemver", "is_semver_string", values.STRING, _is_semver),
    Overload("isSemver", "is_semver_string_bool", f"{values.STRING} {values.BOOL}", _is_semver),
    _member("isGreaterThan", "semver_is_greater_than", lambda a, b: a.compare(b) > 0, TYPE),
    _member("isLessThan", "semver_is_less_than", lambda a, b: a.compare(b) < 0, TYPE),
    _member("compareTo", "semver_compare_to", Semver.compare, TYPE),
    _member("major", "semver_major", lambda version: _as_int(version.major)),
    _member("minor", "semver_minor", lambda version: _as_int(version.minor)),
    _member("patch", "semver_patch", lambda version: _as_int(version.patch)),
)


def _as_int(number: int) -> int:
    """Return the uint64 as an int64. Upstream converts without a check, so a large number becomes negative."""
    return number if number <= values.INT_MAX else number - 2**64
