# SPDX-License-Identifier: Apache-2.0
"""Why does a condition of a selector end with an error on a device, and what did its author most likely mean?

Such a condition may have hundreds of comparisons that all fail. A sentence tells the first ones and the number of the others. What
depends on the condition alone, or on what kind of value a device has, is found out once for all devices.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.cel.reasons.conditions import ConditionExplainer, domains_of, shown
from dra_driver.cel.reasons.corrections import (
    Correction,
    capacities,
    domains,
    ordered_by_type,
)
from dra_driver.cel.reasons.like_versions import Published
from dra_driver.cel.reasons.mistyped import mistyped_texts
from dra_driver.cel.reasons.parsers import PARSERS, calls_in, operands, parsing
from dra_driver.cel.reasons.part_texts import PartTexts
from dra_driver.cel.reasons.paths import DevicePath, is_version, names, path_of, paths, value_at
from dra_driver.cel.reasons.rewrite import brief
from dra_driver.cel.reasons.similar import likely, question
from dra_driver.cel.reasons.version_advice import Advice, joined, sentences, version_advice
from dra_driver.cel.syntax.ast import Call, Expr
from dra_driver.model.api.resource_slice import Device, DeviceAttribute

SHOWN_SENTENCES = 3


class FailingCondition(Struct, frozen=True):
    """A condition whose evaluation ends with an error on a device.

    `missing` are its paths that the device does not have. `lacks` is the sentence about the first of them. `typos` are
    missing paths with the similar name that the author may have meant. `parsers` are paths with a text where the condition needs a
    version or a quantity, each with the call that parses the text, written with … for the path. `corrections` are other changes that
    the author may have meant; those of one node are alternatives. `everywhere` is what is wrong on any device.
    """

    part: str
    missing: tuple[DevicePath, ...] = ()
    lacks: str = ""
    typos: tuple[tuple[DevicePath, str], ...] = ()
    parsers: tuple[tuple[DevicePath, str], ...] = ()
    corrections: tuple[Correction, ...] = ()
    everywhere: str = ""


class FailureExplainer:
    """Explains the conditions of one expression that end with an error, for one device.

    `is_published` says whether any device has a path, or a version there.
    """

    def __init__(
        self,
        driver: str,
        device: Device,
        texts: PartTexts,
        is_published: Published,
    ) -> None:
        self._is_published = is_published
        self._driver = driver
        self._device = device
        self._texts = texts
        self._parsed = texts.parsed
        self._names = ConditionExplainer(driver, device, texts, is_published)

    def tell(self, part: Expr) -> FailingCondition:
        """Explain a condition that ends with an error on the device."""
        text = self._texts.of(part)
        read = self._texts.kept(("paths", part.id), lambda: tuple(sorted(paths(part) or ())))
        missing = tuple([path for path in read if self._at(path) is None])
        if missing:
            typos = tuple((path, near) for path in missing if (near := self._names.near(path)))
            lacks, corrections = self._misread(part, read, missing[0])
            return FailingCondition(text, missing, lacks, typos, corrections=corrections)
        mistyped = self._texts.kept(
            ("mistyped", part.id),
            lambda: tuple(
                [(one.says, one.corrections) for one in mistyped_texts(self._parsed, part)]
            ),
        )
        if mistyped:
            return _wrong_anywhere(text, mistyped)
        types = tuple([self._type(path) for path in read])
        ordered = self._texts.kept(
            ("by type", part.id, types),
            lambda: tuple(ordered_by_type(self._parsed, part, self._type)),
        )
        return _wrong_anywhere(text, ordered) if ordered else self._of_another_type(part, text)

    def _of_another_type(self, part: Expr, text: str) -> FailingCondition:
        """Explain a condition that needs a value of another type than the device has."""
        operand_paths = self._texts.kept(("operands", part.id), lambda: tuple(_operand_paths(part)))
        parsers = tuple(dict.fromkeys(self._parsers(operand_paths)))
        advice = version_advice(self._texts, part, self._is_version, self._is_published)
        told = [
            *map(self._is_text, parsers[:SHOWN_SENTENCES]),
            *map(self._has_version, advice.told[:SHOWN_SENTENCES]),
        ][:SHOWN_SENTENCES]
        more = len(parsers) + len(advice.told) - len(told)
        return FailingCondition(
            text,
            lacks=joined(sentences(told), more),
            parsers=parsers,
            corrections=advice.corrections,
        )

    def _misread(
        self, part: Expr, read: Sequence[DevicePath], missing: DevicePath
    ) -> tuple[str, tuple[Correction, ...]]:
        """Return the sentence about a missing path, and the changes that read what the device has instead."""
        elsewhere = frozenset(path for path in read if self._is_capacity(path))
        corrections = self._texts.kept(
            ("capacities", part.id, elsewhere),
            lambda: tuple(
                [one for _, one in capacities(self._parsed, part, elsewhere.__contains__)]
            ),
        )
        lacks = self._names.lacks(missing)
        if corrections:
            lacks = f"{lacks}; {missing.name} is a capacity: write {brief(corrections[0].write)}"
        near = {path: domain for path in read if (domain := self._near_domain(path))}
        others = self._texts.kept(
            ("domains", part.id, tuple(near.items())),
            lambda: tuple(domains(self._parsed, part, lambda path: near.get(path, ""))),
        )
        if others:
            lacks = f"{lacks}; {question(others[0][0])}"
        return lacks, (*corrections, *(one for _, one in others))

    def _is_capacity(self, path: DevicePath) -> bool:
        there = replace(path, kind="capacity")
        return self._at(path) is None and self._at(there) is not None

    def _near_domain(self, path: DevicePath) -> str:
        """Return the domain of the device that the author may have meant, which has this name; "" if there is none."""
        if self._at(path) is not None or not path.name:
            return ""
        there = [
            domain
            for domain in sorted(domains_of(path.kind, self._driver, self._device))
            if path.name in names(path.kind, domain, self._driver, self._device)
        ]
        inside = [one for one in there if one.endswith(f".{path.domain}")]
        near = likely(path.domain, there) or "".join(inside[:1])
        if near or len(there) != 1 or self._is_published(path, ""):
            return near
        return there[0]  # the selector was written for another driver

    def _parsers(
        self, operand_paths: Sequence[tuple[DevicePath, frozenset[str]]]
    ) -> Iterator[tuple[DevicePath, str]]:
        """Yield each path that has a text and is an operand beside a version or a quantity, with the call that parses the text."""
        for path, wanted in operand_paths:
            text = wanted and _text_of(self._at(path))
            how = parsing(text, wanted) if text else ""
            if how:
                yield path, how

    def _is_text(self, parser: tuple[DevicePath, str]) -> tuple[str, str, str]:
        path, how = parser
        has = f"has {path.name} as the string {_text_of(self._at(path))}"
        return has, ": ", f"wrap it, {how.replace('…', path.name)}"

    def _has_version(self, one: Advice) -> tuple[str, str, str]:
        has = f"has {one.path.name} as the version {shown(self._at(one.path))}"
        return has, one.link, one.text

    def _is_version(self, path: DevicePath) -> bool:
        return is_version(self._at(path))

    def _type(self, path: DevicePath) -> str:
        published = self._at(path)
        if not isinstance(published, DeviceAttribute):
            return ""
        text = "" if published.string_value is None else "string"
        return text if published.int_value is None else "int"

    def _at(self, path: DevicePath) -> object:
        return value_at(path, self._driver, self._device)


def _wrong_anywhere(
    text: str, found: Sequence[tuple[str, Sequence[Correction]]]
) -> FailingCondition:
    """Return the condition with sentences that name no device, so that those with the same error stay one group."""
    says = [brief(says) for says, _ in found[:SHOWN_SENTENCES]]
    everywhere = joined(says, len(found) - len(says))
    corrections = tuple([one for _, some in found for one in some])
    return FailingCondition(text, corrections=corrections, everywhere=everywhere)


def _operand_paths(part: Expr) -> Iterator[tuple[DevicePath, frozenset[str]]]:
    """Yield each path that is an operand of a call, with the functions that make the other operands of a text."""
    for call in calls_in(part):
        all_of_it = operands(call)
        wanted = frozenset(one.function for one in all_of_it if isinstance(one, Call)) & {*PARSERS}
        for operand in all_of_it:
            path = path_of(operand)
            if path:
                yield path, wanted


def _text_of(value: object) -> str:
    """Return the text of a published attribute that is a string; "" for any other value."""
    return (value.string_value or "") if isinstance(value, DeviceAttribute) else ""
