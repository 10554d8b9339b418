# SPDX-License-Identifier: Apache-2.0
"""Of devices that miss a request equally, which has the values that are closest to what was asked?

A value is compared once, however many devices have it.
"""

from collections.abc import Iterable

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.conditions import FalseCondition
from dra_driver.cel.reasons.distances import FAR, distance
from dra_driver.cel.reasons.paths import DevicePath, value_at
from dra_driver.explain.published_values import meant_by, values_of
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.selector_answers import RequestSelector

MOST_COMPARED = 10_000
"""To compare so many values takes a second."""


class Closeness:
    """How far are the devices' values from what the false conditions of one request ask for?"""

    def __init__(self, explained: RequestExplained) -> None:
        self._explained = explained
        self._answers = explained.answers
        self._distances: dict[tuple[int, int], float] = {}
        self._meant: dict[tuple[DevicePath, str], str] = {}

    def closest(self, devices: Iterable[SliceDevice]) -> SliceDevice:
        """Return the device with the closest values, the first of several. At most MOST_COMPARED different values are looked at."""
        different: dict[int, SliceDevice] = {}
        for device in devices:
            different.setdefault(self._answers.number(device), device)
            if len(different) == MOST_COMPARED:
                break
        return min(different.values(), key=self.of)

    def of(self, device: SliceDevice) -> float:
        """Return how far the device's values are from what its false conditions ask for."""
        return sum(
            self._of_part(selector, part, device)
            for selector, part in self._answers.judged(device).parts
        )

    def _of_part(
        self, selector: RequestSelector, part: FalseCondition, device: SliceDevice
    ) -> float:
        asked = selector.explained.wanted(part)
        if asked is None:
            return FAR
        # Equal values of many devices are one object.
        value = value_at(asked.path, device.id.driver, device.device)
        key = (id(asked), id(value))
        known = self._distances.get(key)
        if known is None:
            known = self._distances[key] = distance(asked, value, self.meant)
        return known

    def meant(self, path: DevicePath, text: str) -> str:
        """Return the value of a device that was most likely meant by a text, both as CEL literals; "" if there is none."""
        key = (path, text)
        if key not in self._meant:
            values = values_of(self._explained, self._explained.fleet.all_devices, path)
            self._meant[key] = meant_by(text, values)
        return self._meant[key]


def closeness_for(explained: RequestExplained) -> Closeness:
    """Return the distances for a request; the same for all requests with the same selectors."""
    return explained.fleet.shared((Closeness, explained.answers), lambda: Closeness(explained))
