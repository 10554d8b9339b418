# SPDX-License-Identifier: Apache-2.0
"""Which values do the devices publish that a request is about, and which of these may the author of a selector have meant?"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.conditions import shown
from dra_driver.cel.reasons.paths import DevicePath, value_at
from dra_driver.cel.reasons.similar import model_in
from dra_driver.explain.reasons import DeviceKind, RequestExplained

MOST_NAMES = 200
"""The largest number of published values among which a similar value is searched, which the author may have meant."""


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


class Names(NamedTuple):
    """The values that are published at a path, as CEL literals, and the most frequent of them by their model."""

    published: Collection[str]
    of_model: Mapping[tuple[str, ...], Sequence[str]]

    def possible(self, text: str) -> Sequence[str]:
        """Return the values that may be meant by a text; none if the text itself is published."""
        return () if text in self.published else self.of_model.get(model_in(text), ())


def names_in(values: Counter[str]) -> Names:
    """Return the values and the most frequent of them."""
    of_model: dict[tuple[str, ...], list[str]] = {}
    for value, _ in values.most_common(MOST_NAMES):
        of_model.setdefault(model_in(value), []).append(value)
    return Names(values, of_model)
