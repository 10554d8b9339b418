# SPDX-License-Identifier: Apache-2.0
"""What of a diagnosis and of a log may leave the cluster in a bug report?

Findings are made of texts that this program wrote, of names, and of what the API server and the kubelet answered. An answer may quote
anything, so what looks like a credential is replaced. Of a log only the order of events is kept: their other fields may have any text.
"""

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from dra_driver.doctor.findings import Diagnosis, Finding

HIDDEN = "[hidden]"
MOST_LINES = 5000
_NAME = r"[\w.-]*(?:token|passw|passphrase|secret|api[-_]?key|private[-_]?key|credential|authorization|cookie)[\w.-]*"
_VALUE = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s,;&]+"
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # A private key or a certificate: to its end, or to the end of a text that was cut.
    (re.compile(r"-----BEGIN .*?(?:-----END [^-]*-----|\Z)", re.DOTALL), HIDDEN),
    (re.compile(r"(://)[^/@\s]+@"), rf"\1{HIDDEN}@"),
    (re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]*)*"), HIDDEN),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=:-]+", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (
        re.compile(rf"(\b|--?)({_NAME})([\"']?\s*[=:]\s*)({_VALUE})", re.IGNORECASE),
        rf"\1\2\3{HIDDEN}",
    ),
    (re.compile(rf"(--?{_NAME})\s+({_VALUE})", re.IGNORECASE), rf"\1 {HIDDEN}"),
)
_EVENT = re.compile(r"[a-z][a-z0-9_]{0,79}")
_LEVEL = re.compile(r"debug|info|warning|error|critical")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z?")


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the driver's log: when, how severe, and the name of the event. `count` lines in a row were the same."""

    timestamp: str = ""
    level: str = ""
    event: str
    count: int = 1


def without_credentials(text: str) -> str:
    """Return the text with everything hidden that looks like a credential."""
    for pattern, shown in _RULES:
        text = pattern.sub(shown, text)
    return text


def redacted(found: Diagnosis, uuids: Callable[[str], str]) -> Diagnosis:
    """Return the diagnosis without credentials; `uuids` replaces the UUIDs of devices and pods in a text."""

    def clean(text: str) -> str:
        return uuids(without_credentials(text))

    def one(finding: Finding) -> Finding:
        return msgspec.structs.replace(
            finding,
            object=clean(finding.object),
            found=clean(finding.found),
            command=clean(finding.command),
        )

    return msgspec.structs.replace(found, findings=tuple(map(one, found.findings)))


def log_lines(lines: Iterable[bytes]) -> tuple[LogLine, ...]:
    """Return the order of events in a log: the last MOST_LINES. A line that is none of this driver's is left out."""
    kept: list[LogLine] = []
    for line in _parsed(lines):
        if kept and (kept[-1].event, kept[-1].level) == (line.event, line.level):
            kept[-1] = msgspec.structs.replace(kept[-1], count=kept[-1].count + 1)
        else:
            kept.append(line)
    return tuple(kept[-MOST_LINES:])


def _parsed(lines: Iterable[bytes]) -> Iterator[LogLine]:
    for line in lines:
        try:
            found = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            continue
        if not isinstance(found, dict):
            continue
        event = _matching(_EVENT, found.get("event"))
        if event:
            time = _matching(_TIME, found.get("timestamp"))
            yield LogLine(timestamp=time, level=_matching(_LEVEL, found.get("level")), event=event)


def _matching(pattern: re.Pattern[str], value: object) -> str:
    return value if isinstance(value, str) and pattern.fullmatch(value) else ""
