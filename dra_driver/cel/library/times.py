# SPDX-License-Identifier: Apache-2.0
"""Timestamps and durations: parsing, formatting, arithmetic, and the getters such as getHours().

A duration is a 64-bit number of nanoseconds. A timestamp is between the years 1 and 9999. It keeps the UTC offset of its
text, but only string() uses this offset. A getter uses UTC unless it has a time zone as its argument.
Source: cel-go common/types/{timestamp,duration,overflow}.go, Go's package time.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo

from dra_driver.cel import golang, values, work
from dra_driver.cel.failures import EvaluationError, no_such_overload
from dra_driver.cel.overloads import Overload
from dra_driver.cel.values import DURATION, INT_MAX, INT_MIN, SECOND, TIMESTAMP, Duration, Timestamp

EARLIEST, LATEST = -62135596800, 253402300799
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OVERFLOW = "integer overflow"

# --- reading ----------------------------------------------------------------------------------------------------------

_UNITS = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,
    "μs": 1000,
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^.0-9]+)")
_LONGEST = len(str(INT_MAX))  # Digits. int(text) raises ValueError for more than 4,300.
_LIMIT = 2**63
_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_MAX_HOURS, _MAX_MINUTES = 24, 60  # The limits of an offset. Go allows the limits themselves, too.


def parse_duration(text: str) -> Duration | None:
    """Parse "1h30m" or "-1.5s". Returns None if the text is no duration. Raises Aborted if it is too long."""
    work.require_parseable(text)
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return Duration(0)
    total = _sum_of_parts(unsigned)
    negative = text[:1] == "-"
    if total is None or total > _LIMIT or (total == _LIMIT and not negative):
        return None
    return Duration(-total if negative else total)


def _sum_of_parts(text: str) -> int | None:
    total, position = 0, 0
    while position < len(text):
        part = _PART.match(text, position)
        nanos = _nanoseconds(*part.groups()) if part else None
        if part is None or nanos is None or total + nanos > _LIMIT:
            return None
        total, position = total + nanos, part.end()
    return total if text else None


def _nanoseconds(whole: str, fraction: str | None, unit: str) -> int | None:
    scale = _UNITS.get(unit)
    count = whole.lstrip("0") or "0"
    if (
        scale is None
        or not (whole or fraction)
        or len(count) > _LONGEST
        or int(count) * scale > _LIMIT
    ):
        return None
    nanos = int(count) * scale
    if fraction:
        digits = _leading(fraction)
        nanos += int(float(int(digits)) * (float(scale) / 10.0 ** len(digits)))
    return nanos


def _leading(fraction: str) -> str:
    """Return the leading digits of a fraction that fit into 63 bits. Go ignores the digits behind them."""
    # int(text) raises ValueError for more than 4,300 digits. So many leading zeros make every unit 0 anyway.
    zeros = len(fraction) - len(fraction.lstrip("0"))
    fraction = fraction[: min(zeros, 2 * _LONGEST) + _LONGEST]
    while int(fraction) > INT_MAX:
        fraction = fraction[:-1]
    return fraction


def parse_timestamp(text: str) -> Timestamp | None:
    """Parse RFC 3339 as Go does. Returns None if the syntax is wrong. Raises EvaluationError if the time is out of range."""
    match = _RFC3339.fullmatch(text) if text.isascii() else None
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    offset = _offset(match[8], match[9], match[10])
    try:
        # Go parses the year 0 and reports it as out of range. Python has no year 0; the year 2000 has the same days.
        moment = datetime(year or 2000, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    if offset is None:
        return None
    seconds = EARLIEST - 1 if year == 0 else _seconds(moment) - offset
    nanos = int((match[7] or "")[:9].ljust(9, "0"))
    return in_range(Timestamp(seconds, nanos, offset))


def _offset(sign: str | None, hours: str | None, minutes: str | None) -> int | None:
    if sign is None:
        return 0
    hour, minute = int(hours or 0), int(minutes or 0)
    if hour > _MAX_HOURS or minute > _MAX_MINUTES:
        return None
    return (hour * 3600 + minute * 60) * (-1 if sign == "-" else 1)


def _seconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(seconds=1)


def in_range(timestamp: Timestamp) -> Timestamp:
    """Return the timestamp. Raises EvaluationError if it is not between the years 1 and 9999."""
    if EARLIEST <= timestamp.seconds <= LATEST:
        return timestamp
    raise EvaluationError("timestamp overflow")


# --- writing ----------------------------------------------------------------------------------------------------------


def duration_text(duration: Duration) -> str:
    """Return the duration in seconds, as string() writes it: "5400s"."""
    return golang.double_in_full(_in_units(duration, SECOND)) + "s"


def _in_units(duration: Duration, unit: int) -> float:
    """Return the duration in `unit`. Go divides the whole part and the rest separately, which changes the rounding."""
    size = abs(duration.nanos)
    amount = float(size // unit) + float(size % unit) / unit
    return amount if duration.nanos >= 0 else -amount


def timestamp_text(timestamp: Timestamp) -> str:
    """Return the time in RFC 3339, with its own offset and with the fewest digits."""
    year, rest = golang.civil(timestamp.seconds + timestamp.offset)
    fraction = f".{timestamp.nanos:09d}".rstrip("0") if timestamp.nanos else ""
    return f"{year:04d}-{rest:%m-%dT%H:%M:%S}{fraction}{_offset_text(timestamp.offset)}"


def _offset_text(offset: int) -> str:
    if offset == 0:
        return "Z"
    minutes = abs(offset) // 60
    return f"{'-' if offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _nanos(value: int) -> Duration:
    if INT_MIN <= value <= INT_MAX:
        return Duration(value)
    raise EvaluationError(_OVERFLOW)


def _later(timestamp: Timestamp, nanos: int) -> Timestamp:
    seconds, rest = divmod(timestamp.seconds * SECOND + timestamp.nanos + nanos, SECOND)
    return in_range(Timestamp(seconds, rest, timestamp.offset))


def add(left: Duration | Timestamp, right: object) -> object:
    """Return the sum. A duration can be added to both types, a timestamp only to a duration."""
    if isinstance(left, Duration) and isinstance(right, Duration):
        return _nanos(left.nanos + right.nanos)
    if isinstance(left, Timestamp) and isinstance(right, Duration):
        return _later(left, right.nanos)
    if isinstance(left, Duration) and isinstance(right, Timestamp):
        return _later(right, left.nanos)
    raise no_such_overload()


def subtract(left: Duration | Timestamp, right: object) -> object:
    """Return the difference. A duration can be subtracted from both types, a timestamp only from a timestamp."""
    if isinstance(right, Duration):
        if isinstance(left, Duration):
            return _nanos(left.nanos - right.nanos)
        return _later(left, _nanos(-right.nanos).nanos)
    if isinstance(left, Timestamp) and isinstance(right, Timestamp):
        _nanos((left.seconds - right.seconds) * SECOND)
        return _nanos((left.seconds - right.seconds) * SECOND + left.nanos - right.nanos)
    raise no_such_overload()


# --- getters ----------------------------------------------------------------------------------------------------------

_WHOLE = re.compile(r"[+-]?[0-9]+")


def _zone_offset(timestamp: Timestamp, zone: str) -> int:
    hours, colon, minutes = zone.partition(":")
    if colon:
        hour, minute = _whole(hours), _whole(minutes)
        return _wrapped(hour * 60 - minute if zone[0] == "-" else hour * 60 + minute)
    moment = _EPOCH + timedelta(seconds=timestamp.seconds)
    try:
        return _moved(moment, _zone(zone))
    except OverflowError:  # The offset leads before the first or behind the last day of datetime.
        return _moved(moment.replace(year=min(max(moment.year, 2), 9998)), _zone(zone))


def _wrapped(minutes: int) -> int:
    """Return the minutes in seconds. Go calculates in 64-bit nanoseconds and ignores an overflow."""
    nanos = (minutes * 60 * SECOND - INT_MIN) % 2**64 + INT_MIN
    return nanos // SECOND if nanos >= 0 else -(-nanos // SECOND)


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise EvaluationError(f"strconv.Atoi: parsing {golang.quote(text)}: invalid syntax")
    number = golang.integer(text)
    if not INT_MIN <= number <= INT_MAX:
        raise EvaluationError(f"strconv.Atoi: parsing {golang.quote(text)}: value out of range")
    return number


def _moved(moment: datetime, zone: tzinfo) -> int:
    offset = moment.astimezone(zone).utcoffset() or timedelta()
    return offset // timedelta(seconds=1)


def _zone(name: str) -> tzinfo:
    import zoneinfo  # noqa: PLC0415  takes 5 ms, and hardly any selector has a time zone

    if name in ("", "Local"):
        return zoneinfo.ZoneInfo("UTC")
    if ".." in name or name[0] in "/\\":
        raise EvaluationError("time: invalid location name")
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise EvaluationError(f"unknown time zone {name}") from error


Getter = Callable[[int, datetime, int], int]

_GETTERS: dict[str, tuple[str, Getter]] = {
    "getFullYear": ("year", lambda year, _moment, _nanos: year),
    "getMonth": ("month", lambda _year, moment, _nanos: moment.month - 1),
    "getDayOfYear": ("day_of_year", lambda _year, moment, _nanos: moment.timetuple().tm_yday - 1),
    "getDayOfMonth": ("day_of_month", lambda _year, moment, _nanos: moment.day - 1),
    "getDate": ("day_of_month_1_based", lambda _year, moment, _nanos: moment.day),
    "getDayOfWeek": ("day_of_week", lambda _year, moment, _nanos: moment.isoweekday() % 7),
    "getHours": ("hours", lambda _year, moment, _nanos: moment.hour),
    "getMinutes": ("minutes", lambda _year, moment, _nanos: moment.minute),
    "getSeconds": ("seconds", lambda _year, moment, _nanos: moment.second),
    "getMilliseconds": ("milliseconds", lambda _year, _moment, nanos: nanos // 10**6),
}


def _getter(get: Getter) -> Callable[..., int]:
    def read(timestamp: Timestamp, zone: str = "UTC") -> int:
        year, moment = golang.civil(timestamp.seconds + _zone_offset(timestamp, zone))
        return get(year, moment, timestamp.nanos)

    return read


def _truncated(unit: int) -> Callable[[Duration], int]:
    return lambda duration: int(_in_units(duration, unit))


def _milliseconds(duration: Duration) -> int:
    whole = abs(duration.nanos) // 10**6
    return whole if duration.nanos >= 0 else -whole


def _overloads(name: str, what: str, get: Getter) -> tuple[Overload, ...]:
    read = _getter(get)
    zoned = "timestamp_to_seconds_tz" if what == "seconds" else f"timestamp_to_{what}_with_tz"
    return (
        Overload(name, f"timestamp_to_{what}", TIMESTAMP, read),
        Overload(name, zoned, f"{TIMESTAMP} {values.STRING}", read),
    )


OVERLOADS = (
    *(overload for name, getter in _GETTERS.items() for overload in _overloads(name, *getter)),
    Overload("getHours", "duration_to_hours", DURATION, _truncated(3600 * SECOND)),
    Overload("getMinutes", "duration_to_minutes", DURATION, _truncated(60 * SECOND)),
    Overload("getSeconds", "duration_to_seconds", DURATION, _truncated(SECOND)),
    Overload("getMilliseconds", "duration_to_milliseconds", DURATION, _milliseconds),
)
