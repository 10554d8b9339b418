# SPDX-License-Identifier: Apache-2.0
"""Which objects does a label selector of kubectl's -l choose? `a=b,c!=d,e in (f,g),h notin (i),j,!k`.

Source: k8s.io/apimachinery pkg/labels/selector.go.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from dra_driver.model.api.policy import LabelSelectorRequirement

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<not>!)\s*)?(?P<key>{_KEY})\s*"
    rf"(?:(?P<sign>==|!=|=)\s*(?P<value>{_VALUE})|\b(?P<word>in|notin)\s*\((?P<values>[^()]*)\))?\s*(?:,|$)"
)
_ONE_VALUE = re.compile(_VALUE)


class BadSelector(ValueError):
    """The text is no label selector."""


class LabelSelector(Struct, frozen=True):
    """All requirements must hold; `text` is how the user wrote them."""

    text: str = ""
    requirements: tuple[LabelSelectorRequirement, ...] = ()

    def chooses(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object with these labels is chosen."""
        return all(one.matches(labels or {}) for one in self.requirements)


EVERYTHING = LabelSelector()


def parse_selector(text: str) -> LabelSelector:
    """Return the selector. Raises BadSelector; the message says how to write one."""
    return LabelSelector(text, tuple(_requirements(text)))


def _requirements(text: str) -> Iterator[LabelSelectorRequirement]:
    at = 0
    while at < len(text):
        found = _REQUIREMENT.match(text, at)
        compared = found is not None and (found["sign"] or found["word"])
        if found is None or (found["not"] and compared):
            raise BadSelector(
                f"{text!r} is no label selector from {text[at:]!r} on: write for example app=train,tier!=test or 'app in (a,b)'"
            )
        yield _requirement(found, text)
        at = found.end()


def _requirement(found: re.Match[str], text: str) -> LabelSelectorRequirement:
    key = found["key"]
    if found["sign"]:
        operator = "NotIn" if found["sign"] == "!=" else "In"
        return LabelSelectorRequirement(key=key, operator=operator, values=[found["value"]])
    if found["word"]:
        values = [one.strip() for one in found["values"].split(",")]
        for one in values:
            if not _ONE_VALUE.fullmatch(one):
                raise BadSelector(f"{text!r} is no label selector: {one!r} is no label's value")
        operator = "NotIn" if found["word"] == "notin" else "In"
        return LabelSelectorRequirement(key=key, operator=operator, values=values)
    return LabelSelectorRequirement(key=key, operator="DoesNotExist" if found["not"] else "Exists")
