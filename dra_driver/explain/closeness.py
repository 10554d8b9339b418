# SPDX-License-Identifier: Apache-2.0
"""Of devices that miss a request equally, which has the values that are closest to what was asked?

A value is compared once, however many devices have it.
"""

from collections.abc import Iterable

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.conditions import FalseCondition
from dra_driver.cel.reasons.distances import FAR, distance
from dra_driver.cel.reasons.paths import DevicePath, value_at
from dra_driver.cel.reasons.similar import likely
from dra_driver.explain.published_values import Names, names_in, values_of
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.selector_answers import RequestSelector

MOST_COMPARED = 1_000
"""To compare so many pairs of values takes a tenth of a second."""
MOST_MEANT = 5_000
"""The same for texts and the values that may be meant by them, which are as long as names."""


class Closeness:
    """How far are the devices' values from what the false conditions of one request ask for?"""

    def __init__(self, explained: RequestExplained) -> None:
        self._explained = explained
        self._answers = explained.answers
        self._distances: dict[tuple[int, int], float] = {}
        self._meant: dict[tuple[DevicePath, str], str] = {}
        self._names: dict[DevicePath, Names] = {}
        self._left = MOST_MEANT

    def closest(self, devices: Iterable[SliceDevice]) -> SliceDevice:
        """Return the device with the closest values, the first of several. At most MOST_COMPARED times, a different value is compared with a wanted one."""
        different: dict[int, SliceDevice] = {}
        most = MOST_COMPARED
        for device in devices:
            if not different:
                most = max(1, MOST_COMPARED // self._wanted(device))
            different.setdefault(self._answers.number(device), device)
            if len(different) == most:
                break
        return min(different.values(), key=self.of)

    def _wanted(self, device: SliceDevice) -> int:
        """Return with how many values those of a device are compared, at least 1."""
        asked = (
            selector.explained.wanted(part) for selector, part in self._answers.judged(device).parts
        )
        return sum(len(one.texts) + len(one.numbers) for one in asked if one) or 1

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
        """Return the value of a device that was most likely meant by a text, both as CEL literals; "" if there is none.

        A request may have any number of texts, of which only those are looked up that come first.
        """
        key = (path, text)
        known = self._meant.get(key)
        if known is None:
            known = self._meant[key] = self._search(path, text)
        return known

    def _search(self, path: DevicePath, text: str) -> str:
        if self._left <= 0 or self._explained.is_over():
            return ""
        if path not in self._names:
            devices = self._explained.fleet.all_devices
            self._names[path] = names_in(values_of(self._explained, devices, path))
        possible = self._names[path].possible(text)
        self._left -= 1 + len(possible)
        return likely(text, possible)


def closeness_for(explained: RequestExplained) -> Closeness:
    """Return the distances for a request; the same for all requests with the same selectors."""
    return explained.fleet.shared((Closeness, explained.answers), lambda: Closeness(explained))
