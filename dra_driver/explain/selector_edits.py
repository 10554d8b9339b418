# SPDX-License-Identifier: Apache-2.0
"""How are the selectors of a request and of its class written anew, so that a device matches them, or no device ends in an error?"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dra_driver.cel.reasons.conditions import FalseCondition
from dra_driver.cel.reasons.corrections import Correction
from dra_driver.cel.reasons.failing import FailingCondition
from dra_driver.cel.reasons.paths import DevicePath
from dra_driver.cel.reasons.rewrite import guard, written
from dra_driver.cel.versions import LONGEST_EXPRESSION
from dra_driver.explain.names import condition
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.selector_answers import Judgement, RequestSelector
from dra_driver.model.api.resource_claim import CELDeviceSelector, DeviceClass, DeviceSelector
from dra_driver.model.printable import CUT

SHOWN_WORDS = 8
"""So many changes of one selector are told, which may have hundreds of comparisons that fail."""
MOST_WAYS = 3
"""In so many ways is a part written that fails on some devices."""
Failing = tuple[RequestSelector, FailingCondition]


class Rewritten(Struct, frozen=True, eq=False):
    """The new texts of some selectors, and the `words` about each change; a selector with the text "" is left out."""

    words: Mapping[RequestSelector, Sequence[str]]
    texts: Mapping[RequestSelector, str]

    @property
    def own_words(self) -> list[str]:
        """The words about selectors of the request itself."""
        return _in_order(words for one, words in self.words.items() if one.is_own)

    @property
    def class_words(self) -> list[str]:
        """The words about selectors of the class."""
        return _in_order(words for one, words in self.words.items() if not one.is_own)

    def own(self, selectors: Sequence[DeviceSelector] | None) -> list[DeviceSelector]:
        """Return the selectors of the request with the new texts."""
        return _changed(
            selectors, {one.index: text for one, text in self.texts.items() if one.is_own}
        )

    def of_class(self, device_class: DeviceClass) -> DeviceClass:
        """Return the class with the new texts."""
        texts = {one.index: text for one, text in self.texts.items() if not one.is_own}
        selectors = _changed(device_class.spec.selectors, texts)
        spec = msgspec.structs.replace(device_class.spec, selectors=selectors)
        return msgspec.structs.replace(device_class, spec=spec)


def _changed(
    selectors: Sequence[DeviceSelector] | None, texts: Mapping[int, str]
) -> list[DeviceSelector]:
    return [
        DeviceSelector(cel=CELDeviceSelector(expression=texts[index])) if index in texts else old
        for index, old in enumerate(selectors or ())
        if texts.get(index) != ""
    ]


def _in_order(words: Iterator[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(one for some in words for one in some))


def relaxed_selectors(parts: Sequence[tuple[RequestSelector, FalseCondition]]) -> Rewritten:
    """Relax each false condition to the nearest that the device meets, or leave it out."""
    failed: dict[RequestSelector, list[FalseCondition]] = {}
    for selector, part in parts:
        failed.setdefault(selector, []).append(part)
    words: dict[RequestSelector, list[str]] = {}
    texts: dict[RequestSelector, str] = {}
    for selector, parted in failed.items():
        false = selector.explained.with_dependent(parted)
        words[selector] = [
            _instead(one.relaxed, one.part) if one.relaxed else _left_out_one(one.part)
            for one in false
        ]
        texts[selector] = selector.explained.without(false)
    return Rewritten(words, texts)


def corrected_names(
    typos: Sequence[tuple[RequestSelector, tuple[DevicePath, str]]],
) -> Iterator[Rewritten]:
    """Correct mistyped names; nothing if there are none."""
    names: dict[RequestSelector, dict[DevicePath, str]] = {}
    for selector, (path, name) in typos:
        names.setdefault(selector, {})[path] = name
    if names:
        yield _edited(names, _corrected_words, lambda one, paths: one.explained.renamed(paths))


def _corrected_words(names: Mapping[DevicePath, str]) -> list[str]:
    return [
        _instead(written(replace(path, name=name)), written(path)) for path, name in names.items()
    ]


def without_errors(explained: RequestExplained) -> Iterator[tuple[bool, Rewritten]]:
    """Yield changes that remove the run-time errors of the selectors, and whether each only corrects what the author meant.

    One corrects mistyped names; one parses an attribute that is compared with a version or a quantity; one writes what else was
    meant, also in a false condition that takes a version for a text; one adds a check that the device has the attribute; and, if no
    device passes the selectors, one leaves out the conditions that fail. What the API server refuses as too long is not among them.
    """
    for only_corrects, change in _without_errors(explained):
        if all(
            len(text.encode(errors="surrogatepass")) <= LONGEST_EXPRESSION
            for text in change.texts.values()
        ):
            yield only_corrects, change


def _without_errors(explained: RequestExplained) -> Iterator[tuple[bool, Rewritten]]:
    judgements = [one.judgement for one in explained.kinds(explained.fleet.all_devices)]
    failing = dict.fromkeys(one for judgement in judgements for one in judgement.failing)
    typos = [(selector, typo) for selector, part in failing for typo in part.typos]
    yield from ((True, one) for one in corrected_names(typos))
    yield from ((True, one) for one in _parsed(list(failing)))
    of_failing = [(selector, part.corrections) for selector, part in failing]
    corrections = (*of_failing, *_of_false(explained, judgements))
    yield from ((True, one) for one in _corrected(corrections))
    if not failing:
        return
    by_part: dict[RequestSelector, dict[str, dict[DevicePath, None]]] = {}
    for selector, part in failing:
        known = by_part.setdefault(selector, {}).setdefault(part.part, {})
        known.update(dict.fromkeys(part.missing))
    if all(missing for parts in by_part.values() for missing in parts.values()):
        yield True, _edited(by_part, _guarded_words, _guarded)
    if all(judgement.verdicts for judgement in judgements):
        yield False, _edited(by_part, _left_out_words, _left_out)


_ByPart = Mapping[str, Mapping[DevicePath, None]]
_Edits = TypeVar("_Edits")


def _edited(
    edits: Mapping[RequestSelector, _Edits],
    words: Callable[[_Edits], list[str]],
    text: Callable[[RequestSelector, _Edits], str],
) -> Rewritten:
    return Rewritten(
        {one: _first(words(mine)) for one, mine in edits.items()},
        {one: text(one, mine) for one, mine in edits.items()},
    )


def _first(words: list[str]) -> list[str]:
    more = [f"{CUT} ({len(words) - SHOWN_WORDS:,} more)"] if len(words) > SHOWN_WORDS else []
    return [*words[:SHOWN_WORDS], *more]


def _instead(new: str, old: str) -> str:
    return f"write {condition(new)} instead of {condition(old)}"


def _left_out_one(part: str) -> str:
    return f"leave out {condition(part)}"


def _guarded_words(parts: _ByPart) -> list[str]:
    return [
        f"put {condition(' && '.join(guard(path) for path in missing))} && before {condition(part)}"
        for part, missing in parts.items()
    ]


def _guarded(selector: RequestSelector, parts: _ByPart) -> str:
    return selector.explained.guarded({part: list(one) for part, one in parts.items()})


def _left_out_words(parts: _ByPart) -> list[str]:
    return [_left_out_one(part) for part in parts]


def _left_out(selector: RequestSelector, parts: _ByPart) -> str:
    return selector.explained.without([FalseCondition(part, "") for part in parts])


def _parsed(failing: Sequence[Failing]) -> Iterator[Rewritten]:
    """Write semver(…) or quantity(…) around the texts that are compared with a version or a quantity."""
    found: dict[RequestSelector, dict[DevicePath, str]] = {}
    for selector, part in failing:
        if part.parsers:
            found.setdefault(selector, {}).update(part.parsers)
    if found:
        yield _edited(found, _parsed_words, lambda one, parsers: one.explained.wrapped(parsers))


def _parsed_words(parsers: Mapping[DevicePath, str]) -> list[str]:
    return [
        _instead(parser.replace("…", written(path)), written(path))
        for path, parser in parsers.items()
    ]


def _of_false(
    explained: RequestExplained, judgements: Sequence[Judgement]
) -> list[tuple[RequestSelector, Sequence[Correction]]]:
    """Return what to write in each false condition that takes a version for a text: with the text first, it is no error."""
    fleet = explained.fleet
    parts = {(one, false.part): false for judged in judgements for one, false in judged.parts}
    return [
        (one, one.explained.version_corrections(false, fleet.has_version, fleet.publishes))
        for (one, _), false in parts.items()
    ]


def _corrected(
    corrections: Sequence[tuple[RequestSelector, Sequence[Correction]]],
) -> Iterator[Rewritten]:
    """Write what the author may have meant: a capacity for an attribute, another domain, compareTo, a version, a quantity.

    If a part may be written in several ways, one change has the first way of each part, the next one the second.
    """
    found: dict[RequestSelector, dict[int, dict[str, Correction]]] = {}
    for selector, mine in corrections:
        ways = found.setdefault(selector, {}) if mine else {}
        for one in mine:
            ways.setdefault(one.number, {})[one.write] = one
    most = max((len(way) for ways in found.values() for way in ways.values()), default=0)
    for turn in range(min(most, MOST_WAYS)):
        chosen = {
            selector: {number: list(way.values())[: turn + 1][-1] for number, way in ways.items()}
            for selector, ways in found.items()
        }
        yield _edited(chosen, _correction_words, _with_corrections)


def _correction_words(corrections: Mapping[int, Correction]) -> list[str]:
    words = (
        ", ".join([_instead(one.write, one.instead), *([one.because] if one.because else [])])
        for one in corrections.values()
    )
    return list(dict.fromkeys(words))


def _with_corrections(selector: RequestSelector, corrections: Mapping[int, Correction]) -> str:
    return selector.explained.corrected({one.number: one.new for one in corrections.values()})
