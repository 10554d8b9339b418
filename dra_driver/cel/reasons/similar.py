# SPDX-License-Identifier: Apache-2.0
"""Which existing name is similar to a name that does not exist?"""

import re
from collections.abc import Collection, Sequence

from dra_driver.model.vocabulary import PRODUCTS

MOST_LOOKED_UP = 20
"""A condition may name thousands of values. So many of them, the first ones, are compared with what the devices have."""
_NEAR = 0.6
_NEAR_ATTRIBUTE = 0.7
"""Another attribute selects other devices, and its names are short: `node` and `index` have two thirds in common."""
_LONGEST = 253
"""Characters of what is compared: no name in Kubernetes has more."""
_CAMEL = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SHORTEST_WORD = 3
_BARE = re.compile(r"-?[0-9]+|true|false")
_LOOKS = str.maketrans("oil_ ", "011--")


def meant(word: str, there: Sequence[str]) -> str:
    """Return the question "did you mean X?" for a mistyped word. Returns "" if no name is similar."""
    return question(likely(word, there))


def likely(word: str, there: Sequence[str], least: float = _NEAR) -> str:
    """Return the existing name that is most similar to `word`. Returns "" if none is similar, or if `word` exists."""
    if word in there:
        return ""
    near = max(there, key=lambda name: _likeness(word, name), default="")
    return near if near and _likeness(word, near) >= least else ""


def likely_attribute(word: str, there: Sequence[str]) -> str:
    """Return the attribute or capacity that was meant by a name that does not exist. Returns "" if none was, or if `word` exists.

    An attribute that means the same comes first, then the one that has the word in its name: `node` is no mistyped `mode`, if there is
    a numaNode.
    """
    if word in there:
        return ""
    domain, slash, bare = word.rpartition("/")
    same = (f"{domain}{slash}{one}" for one in PRODUCTS if bare in PRODUCTS)
    known = next((one for one in same if one in there), "")
    return known or _with_words(domain, bare, there) or likely(word, there, _NEAR_ATTRIBUTE)


def _with_words(domain: str, bare: str, there: Sequence[str]) -> str:
    """Return the name of the domain that has all words of `bare`, and the fewest others. Returns "" if there are none, or several."""
    asked = _camel_words(bare)
    others: dict[int, list[str]] = {}
    for name in there:
        words = _camel_words(name.rpartition("/")[2])
        if asked and asked <= words and name.rpartition("/")[0] == domain:
            others.setdefault(len(words), []).append(name)
    fewest = others[min(others)] if others else []
    return fewest[0] if len(fewest) == 1 else ""


def _camel_words(name: str) -> set[str]:
    return {one.casefold() for one in _CAMEL.findall(name) if len(one) >= _SHORTEST_WORD}


def same_but_for_looks(word: str, there: Collection[str]) -> str:
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


def without_quotes(word: str, there: Collection[str]) -> str:
    """Return the existing number or truth value that the literal `word` is a text of: 2 for "2"; "" if there is none."""
    bare = word.strip('"')
    return bare if _BARE.fullmatch(bare) and word not in there and bare in there else ""


def model_in(value: str) -> tuple[str, ...]:
    """Return what tells the model: the parts with digits. H200 is no mistyped L40S, and 3g.20gb no 7g.40gb."""
    parts = _words(value.casefold())
    return tuple(sorted(part.translate(_LOOKS) for part in parts if _has_digit(part)))


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
    """Return the similarity from 0 to 1. Capitals, quotes, an equal domain and equal last labels of a domain are ignored."""
    one, other = word.strip('"').casefold(), name.strip('"').casefold()
    if one == other:
        return 1
    if max(len(one), len(other)) > _LONGEST:
        return 0
    domain, slash, bare = one.rpartition("/")
    if slash and other.rpartition("/")[0] == domain:
        one, other = bare, other.rpartition("/")[2]
    while one and one.rpartition(".")[2] == other.rpartition(".")[2]:
        one, other = one.rpartition(".")[0], other.rpartition(".")[0]
    if not (one or other):
        return 1  # only points are different
    if min(len(one), len(other)) * 2 < _NEAR * (len(one) + len(other)):
        return 0
    return 2 * _common(one, other) / (len(one) + len(other))


def _common(one: str, other: str) -> int:
    """Return the largest number of characters that both have in the same order.

    Each bit of a number stands for a character of `one`. So there is one step for each character of `other`, whatever the characters
    are: a name with many equal letters takes no longer than another one. Source: Hyyrö, Bit-parallel LCS-length computation revisited.
    """
    places: dict[str, int] = {}
    for place, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << place
    left = every = (1 << len(one)) - 1
    for character in other:
        found = left & places.get(character, 0)
        left = (left + found | left - found) & every
    return len(one) - left.bit_count()


def _words(text: str) -> list[str]:
    return [one for one in re.split(r"[^A-Za-z0-9]+", text) if one]


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))
