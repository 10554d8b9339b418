# SPDX-License-Identifier: Apache-2.0
"""What is to be written where a condition takes a version for a text or a number?

All that a condition takes so is told, in the order of the expression, and what is the same in several places is told once.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from dra_driver.cel.reasons.corrections import Correction
from dra_driver.cel.reasons.like_versions import Published, like_versions, texts_beside
from dra_driver.cel.reasons.parsers import calls_in, operands
from dra_driver.cel.reasons.part_texts import PartTexts
from dra_driver.cel.reasons.paths import DevicePath, path_of
from dra_driver.cel.reasons.rewrite import brief
from dra_driver.cel.reasons.version_tests import tested_as_texts
from dra_driver.cel.syntax.ast import Expr
from dra_driver.model.printable import CUT

IsVersion = Callable[[DevicePath], bool]


class Advice(Struct, frozen=True):
    """What to write about the version at a path; `link` joins it to a sentence which says that this is a version."""

    path: DevicePath
    link: str
    text: str


class VersionAdvice(Struct, frozen=True):
    """What to write in a condition, in words and as corrections, both in the order of the expression."""

    told: tuple[Advice, ...]
    corrections: tuple[Correction, ...]


def version_advice(
    texts: PartTexts, part: Expr, is_version: IsVersion, is_published: Published
) -> VersionAdvice:
    """Return what to write where a condition takes a version for something else. It is found out once for the same versions."""
    read = texts.kept(("paths in calls", part.id), lambda: frozenset(_operands(part)))
    versions = frozenset(filter(is_version, read))
    return texts.kept(
        ("version advice", part.id, versions),
        lambda: _advice(texts, part, versions.__contains__, is_published),
    )


def _operands(part: Expr) -> Iterator[DevicePath]:
    for call in calls_in(part):
        yield from (path for one in operands(call) if (path := path_of(one)))


def _advice(
    texts: PartTexts, part: Expr, is_version: IsVersion, is_published: Published
) -> VersionAdvice:
    found = sorted(_found(texts, part, is_version, is_published), key=lambda one: one[0])
    return VersionAdvice(
        tuple(dict.fromkeys(one for _, one, _ in found)),
        tuple(one for _, _, one in found if one),
    )


def _found(
    texts: PartTexts, part: Expr, is_version: IsVersion, is_published: Published
) -> Iterator[tuple[int, Advice, Correction | None]]:
    """Yield each advice with its place in the expression."""
    parsed = texts.parsed
    others = list(like_versions(parsed, part, is_version, is_published))
    passed_over = {one.number for _, one in others}
    for path, one in (*others, *texts_beside(parsed, part, is_version, passed_over)):
        text = f"write {brief(one.write)}{one.instead_in(part)}"
        yield parsed.offsets[one.number], Advice(path, ": ", text), one
    for tested in tested_as_texts(parsed, part, is_version):
        right = tested.correction
        instead = right.instead_in(part) if right else ""
        text = f"{tested.call.function} is for strings: {brief(tested.write)}{instead}"
        yield parsed.offsets[tested.call.id], Advice(tested.path, ", and ", text), right


def sentences(told: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return sentences of (beginning, link, rest). Those with the same beginning are one, and say it once."""
    found: dict[str, str] = {}
    for begins, link, rest in told:
        found[begins] = f"{found[begins]}; {rest}" if begins in found else begins + link + rest
    return list(found.values())


def joined(told: Iterable[str], more: int) -> str:
    """Return the sentences as one, with the number of the others."""
    return "; ".join([*told, *([f"{CUT} ({more:,} more)"] if more > 0 else [])])
