# SPDX-License-Identifier: Apache-2.0
"""Which values do the devices publish that a request is about, and which of these did the author of a selector mean?"""

from collections import Counter
from collections.abc import Sequence

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.conditions import FalseCondition, shown
from dra_driver.cel.reasons.paths import DevicePath, value_at
from dra_driver.cel.reasons.similar import same_but_for_looks, without_quotes
from dra_driver.explain.misses import Miss, nearest
from dra_driver.explain.reasons import DeviceKind, RequestExplained


def meant_kinds(
    explained: RequestExplained, devices: Sequence[SliceDevice]
) -> Sequence[DeviceKind]:
    """Return the kinds of devices of the drivers that the selectors ask for; all kinds if there is none."""
    kinds = explained.kinds(devices)
    return [one for one in kinds if not explained.answers.foreign(one.devices[0])] or kinds


def values_of(
    explained: RequestExplained, devices: Sequence[SliceDevice], path: DevicePath
) -> Counter[str]:
    """Count those devices for each value that they publish at a path, without the devices that publish none."""
    return explained.shared(
        (Counter, path), devices, lambda: _counted(path, meant_kinds(explained, devices))
    )


def _counted(path: DevicePath, kinds: Sequence[DeviceKind]) -> Counter[str]:
    texts: dict[int, str] = {}
    found: dict[str, int] = {}  # a Counter calls a method for each new text
    for device in (device for kind in kinds for device in kind.devices):
        value = value_at(path, device.id.driver, device.device)
        # Equal values of many devices are one object, and to make its text takes long.
        text = texts.get(id(value))
        if text is None:
            text = texts[id(value)] = shown(value)
        if text:
            found[text] = found.get(text, 0) + 1
    return Counter(found)


def mistyped(
    explained: RequestExplained, devices: Sequence[SliceDevice], miss: Miss
) -> Miss | None:
    """Return the nearest device that only lacks mistyped values: each of its false conditions wants a text that looks like what it has.

    `miss` is the nearest of all devices. None if none of its false conditions has such a text, or something else is false, too.
    """
    for _, part in miss.parts:
        if part.path is None or not part.wanted:
            continue
        right = _right(part, list(values_of(explained, devices, part.path)))
        if right:
            have = [one for one in devices if _text(part.path, one) == right]
            found = nearest(explained, have)
            return (
                found if found and all(_only_looks(one, found) for _, one in found.parts) else None
            )
    return None


def _only_looks(part: FalseCondition, miss: Miss) -> bool:
    there = _text(part.path, miss.device) if part.path else ""
    return bool(part.relaxed and _right(part, [there]))


def _right(part: FalseCondition, there: Sequence[str]) -> str:
    found = (without_quotes(text, there) or same_but_for_looks(text, there) for text in part.wanted)
    return next((one for one in found if one), "")


def _text(path: DevicePath, device: SliceDevice) -> str:
    return shown(value_at(path, device.id.driver, device.device))
