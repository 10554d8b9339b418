# SPDX-License-Identifier: Apache-2.0
"""Which device would a request get if the values in its selectors were not mistyped?"""

from collections.abc import Collection, Sequence

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.conditions import FalseCondition, shown
from dra_driver.cel.reasons.paths import DevicePath, value_at
from dra_driver.cel.reasons.similar import same_but_for_looks, without_quotes
from dra_driver.explain.closeness import closeness_for
from dra_driver.explain.misses import Miss, nearest
from dra_driver.explain.published_values import values_of
from dra_driver.explain.reasons import RequestExplained


def mistyped(
    explained: RequestExplained, devices: Sequence[SliceDevice], miss: Miss
) -> Miss | None:
    """Return the nearest device that only lacks mistyped values: each of its false conditions wants a text that stands for what it has.

    `miss` is the nearest of all devices. None if none of its false conditions has such a text, or something else is false, too.
    """
    for _, part in miss.parts:
        if part.path is None or not part.wanted or explained.is_over():
            continue
        right = _right(explained, part, values_of(explained, devices, part.path))
        if right:
            have = [one for one in devices if _text(part.path, one) == right]
            found = nearest(explained, have)
            only = found and all(_is_mistyped(explained, one, found) for _, one in found.parts)
            return found if only else None
    return None


def _is_mistyped(explained: RequestExplained, part: FalseCondition, miss: Miss) -> bool:
    there = _text(part.path, miss.device) if part.path else ""
    return bool(part.relaxed and _right(explained, part, [there]))


def _right(explained: RequestExplained, part: FalseCondition, there: Collection[str]) -> str:
    for text in part.wanted:
        right = without_quotes(text, there) or same_but_for_looks(text, there)
        if not right and part.path:
            meant = closeness_for(explained).meant(part.path, text)
            right = meant if meant in there else ""
        if right:
            return right
    return ""


def _text(path: DevicePath, device: SliceDevice) -> str:
    return shown(value_at(path, device.id.driver, device.device))
