# SPDX-License-Identifier: Apache-2.0
"""Which existing name is similar to a name that does not exist?"""

import difflib
import re
from collections.abc import Sequence

_NEAR = 0.6
_BARE = re.compile(r"-?[0-9]+|true|false")
_LOOKS = str.maketrans("oil_ ", "011--")


def meant(word: str, there: Sequence[str]) -> str:
    """Return the question "did you mean X?" for a mistyped word. Returns "" if no name is similar."""
    return question(likely(word, there))


def likely(word: str, there: Sequence[str]) -> str:
    """Return the existing name that is most similar to `word`. Returns "" if none is similar, or if `word` exists."""
    if word in there:
        return ""
    near = max(there, key=lambda name: _likeness(word, name), default="")
    return near if near and _likeness(word, near) >= _NEAR else ""


def same_but_for_looks(word: str, there: Sequence[str]) -> str:
    """Return the existing name that only looks like `word`: O for 0, l for 1, other separators or capitals. Returns "" if there is none, or
    if `word` exists.

    Unlike a name that is only similar, this is no other name: A100 and H100 are similar.
    """
    if word in there:
        return ""
    look = word.casefold().translate(_LOOKS)
    # There may be 100,000 names. What is translated keeps its length, so most names need not be.
    return next(
        (
            name
            for name in there
            if len(small := name.casefold()) == len(look) and small.translate(_LOOKS) == look
        ),
        "",
    )


def without_quotes(word: str, there: Sequence[str]) -> str:
    """Return the existing number or truth value that the literal `word` is a text of: 2 for "2"; "" if there is none."""
    bare = word.strip('"')
    return bare if _BARE.fullmatch(bare) and word not in there and bare in there else ""


def of_the_same_model(word: str, there: Sequence[str]) -> list[str]:
    """Return the existing values whose parts with digits are those of `word`: H200 is no mistyped L40S, and 3g.20gb no 7g.40gb."""
    parts = _with_digits(word)
    return [name for name in there if _with_digits(name) == parts]


def unlikeness(word: str, name: str) -> float:
    """Return how far a published text is from a wanted one: 0 if they only look different, 1 if they have no word in common.

    A text that contains the wanted one is near. Of words, those with digits tell the model, and the first one counts most.
    """
    asked, there = word.casefold(), name.casefold()
    if asked.translate(_LOOKS) == there.translate(_LOOKS):
        return 0.0
    if asked and asked in there:
        return 0.25
    words = _words(asked)
    words = [one for one in words if _has_digit(one)] or words
    weights = {one.translate(_LOOKS): 0.5**place for place, one in enumerate(words)}
    found = {one.translate(_LOOKS) for one in _words(there)}
    shared = sum(weight for one, weight in weights.items() if one in found)
    return 1 - shared / sum(weights.values()) / 2 if shared else 1.0


def question(near: str) -> str:
    """Return the question "did you mean X?" for a name, "" for ""."""
    return f"did you mean {near}?" if near else ""


def _likeness(word: str, name: str) -> float:
    """Return the similarity from 0 to 1. Quotes, an equal domain and equal last labels of a domain are ignored."""
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


def _words(text: str) -> list[str]:
    return [one for one in re.split(r"[^A-Za-z0-9]+", text) if one]


def _with_digits(value: str) -> list[str]:
    parts = _words(value.casefold())
    return sorted(part.translate(_LOOKS) for part in parts if _has_digit(part))


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))
