# SPDX-License-Identifier: Apache-2.0
"""What of a diagnosis and of a log may leave the cluster in a bug report?

Findings are made of texts that this program wrote, of names, and of what the API server, the kubelet and login programs answered. An
answer may quote anything, so it is left out, with its length in its place. The rest is searched for what looks like a credential all the
same: after the name of a credential, nothing of the line stays, because nobody knows where the credential ends. Of a log only the order
of events is kept: their other fields may have any text.

The texts may be written by anybody, so a search takes time in proportion to their length: no pattern begins a second time inside what it
has passed, and of each text only the beginning is searched and kept.
"""

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from dra_driver.doctor.findings import MOST_TEXT, Diagnosis, Finding
from dra_driver.model.printable import CUT
from dra_driver.model.quotes import without_foreign

HIDDEN = "[hidden]"
MOST_LINES = 5000
_LONG_NAMES = (
    *("token", "passw", "passphrase", "kennwort", "secret", "credential", "authorization", "cookie", "signature"),
    *("apikey", "privatekey", "accesskey", "accountkey", "clientkey", "encryptionkey", "sshkey"),
)  # fmt: skip
"""Parts of a name that has a credential as its value, without the characters between the words."""
_SHORT_NAMES = frozenset(
    {"pass", "pwd", "pw", "psk", "pin", "auth", "auths", "sig", "sas", "session"}
)
"""Whole words of such a name. They are too short to be looked for inside of words."""
_BETWEEN = str.maketrans("", "", "._-")
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_NAME = r"(?<![\w./-])([\w./-]+)"
# A name and what stands between it and its value: also in JSON, in JSON inside of JSON, and in a query of an address.
_NAMED = re.compile(_NAME + r"\\*[\"']?\s*([=:]|->|%3d)", re.IGNORECASE)
_FLAG = re.compile(r"(?<!\S)(--?[\w.-]+)\s+(?=(\S+))")
# In a sentence: a value in quotes, or with something that no plain word has.
_TOLD = re.compile(_NAME + r"\s+(?:is\s+)?(?=[\"']|[^\s/][^\s]*[0-9A-Z+/=_])")
_KNOWN: tuple[tuple[re.Pattern[str], str], ...] = (
    # A private key or a certificate.
    (re.compile(r"-----BEGIN .*", re.DOTALL), HIDDEN),
    (re.compile(r"\b(bearer|basic|negotiate|digest)\s+[\w.~+/=:-]+", re.IGNORECASE), rf"\1 {HIDDEN}"),
    # The forms of tokens of cloud providers, registries and code hosts, JSON web tokens, and base64 of "-----".
    (
        re.compile(
            r"(?<![A-Za-z0-9])(?:A[KS]IA|gh[pousr]_|github_pat_|glpat-|xox[a-z]-|hf_|sk-proj-|sk-ant-|sk-(?=[A-Za-z0-9]{20})|AIza|"
            r"dckr_pat_|npm_|eyJ(?=[\w-]{8})|LS0tLS1)[\w.~+/=-]+"
        ),
        HIDDEN,
    ),
    # The token of a new node.
    (re.compile(r"\b(?=[a-z.]{0,22}[0-9])[a-z0-9]{6}\.[a-z0-9]{16}\b"), HIDDEN),
)  # fmt: skip
_WITH_USER = re.compile(r"\S+")
_EVENT = re.compile(r"[a-z][a-z0-9_]{0,79}")
_LEVEL = re.compile(r"debug|info|warning|error|critical")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z?")


class LogLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the driver's log: when, how severe, and the name of the event. `count` lines in a row were the same."""

    timestamp: str = ""
    level: str = ""
    event: str
    count: int = 1


def is_credential(name: str) -> bool:
    """Return whether a value of this name is a credential: "X-Amz-Signature", "clientSecret", "DB_PASS"."""
    words = [one.lower() for one in _WORDS.findall(name)]
    short = not _SHORT_NAMES.isdisjoint(words) or (len(words) > 1 and words[-1] == "key")
    return short or _is_certain(name)


def _is_certain(name: str) -> bool:
    joined = name.translate(_BETWEEN).lower()
    return any(one in joined for one in _LONG_NAMES)


def without_credentials(text: str) -> str:
    """Return the beginning of the text with everything hidden that looks like a credential."""
    if len(text) > MOST_TEXT:
        text = text[:MOST_TEXT] + CUT
    return searched(text)


def searched(text: str) -> str:
    """Return the whole text, of any length, with everything hidden that looks like a credential."""
    for pattern, shown in _KNOWN:
        text = pattern.sub(shown, text)
    text = _WITH_USER.sub(_without_user, text)
    return "\n".join(map(_searched, text.split("\n")))


def _without_user(word: re.Match[str]) -> str:
    """Hide user and password of an address. Both may have a / or an @, so they end at the last @ of the word."""
    scheme, slashes, rest = word[0].partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{slashes}{HIDDEN}{at}{host}" if user else word[0]


def _searched(line: str) -> str:
    """Return the line up to the first value of a credential."""
    ends = (
        *(one.end() for one in _NAMED.finditer(line) if _is_named(one[1], one[2])),
        *(one.end() for one in _TOLD.finditer(line) if _is_certain(_last(one[1]))),
        *(one.end() for one in _FLAG.finditer(line) if _is_flag(one[1], one[2])),
    )
    value = line[min(ends, default=len(line)) :].lstrip()
    return f"{line.removesuffix(value)}{HIDDEN}" if value else line


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _is_named(name: str, between: str) -> bool:
    """Return whether a credential follows. After the path of a file, what follows a colon says what is wrong with the file."""
    return is_credential(_last(name)) and not (between == ":" and name.startswith("/"))


def _is_flag(name: str, value: str) -> bool:
    """Return whether the value of the flag is a credential. `-p` is a patch of kubectl in JSON, too, and `-u` of many programs has none."""
    if name == "-p":
        return value[0] not in "'\"{["
    return is_credential(name) or (name == "-u" and ":" in value)


def redacted(found: Diagnosis, identifiers: Callable[[str], str]) -> Diagnosis:
    """Return the diagnosis without credentials and what others wrote; `identifiers` replaces UUIDs and serial numbers in a text."""

    def clean(text: str) -> str:
        return identifiers(own_words(text))

    def one(finding: Finding) -> Finding:
        return msgspec.structs.replace(
            finding,
            object=clean(finding.object),
            found=clean(finding.found),
            command=clean(finding.command),
        )

    return msgspec.structs.replace(found, findings=tuple(map(one, found.findings)))


def own_words(message: str) -> str:
    """Return a message of this program without what it quotes of others, and without credentials."""
    return without_credentials(without_foreign(message))


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
