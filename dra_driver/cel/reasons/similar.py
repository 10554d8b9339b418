# SPDX-License-Identifier: Apache-2.0
"""Which of the names that there are may have been meant by one that there is not?"""

import difflib
from collections.abc import Sequence

_NEAR = 0.6


def meant(word: str, there: Sequence[str]) -> str:
    """A question after a word that may be mistyped; "" where nothing is near."""
    return question(likely(word, there))


def likely(word: str, there: Sequence[str]) -> str:
    """The name that may have been meant by a word that is not there; "" where nothing is near."""
    if word in there:
        return ""
    near = max(there, key=lambda name: _likeness(word, name), default="")
    return near if near and _likeness(word, near) >= _NEAR else ""


def question(near: str) -> str:
    """The question after a name; "" after none."""
    return f"did you mean {near}?" if near else ""


def _likeness(word: str, name: str) -> float:
    """From 0 to 1; what both are sure to share (quotes, a domain, its last labels) counts for nothing."""
    one, other = word.strip('"'), name.strip('"')
    if one.lower() == other.lower():
        return 1
    domain, slash, bare = one.rpartition("/")
    if slash and other.rpartition("/")[0] == domain:
        one, other = bare, other.rpartition("/")[2]
    while one and one.rpartition(".")[2] == other.rpartition(".")[2]:
        one, other = one.rpartition(".")[0], other.rpartition(".")[0]
    if min(len(one), len(other)) * 2 < _NEAR * (len(one) + len(other)):
        return 0
    return difflib.SequenceMatcher(None, one, other).ratio()
