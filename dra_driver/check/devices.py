# SPDX-License-Identifier: Apache-2.0
"""Does a device of the cluster match each selector, and for which does it end with an error?

The selectors of a request are asked for the devices that its class leaves, as the scheduler does.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.compile import Selector
from dra_driver.cel.failures import EvaluationError
from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, Known
from dra_driver.check.parts import Expression, expressions, is_of_dra, name_in
from dra_driver.check.selectors import compiled
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.model.api.resource_claim import DeviceClass
from dra_driver.model.cluster import ClusterState

SHOWN = 3


class DevicesOfCluster:
    """The devices of a cluster, those with equal values once."""

    def __init__(self, known: Known, given: Sequence[Given]) -> None:
        self._known = known
        self._state = known.state or ClusterState()
        self._classes = self._all_classes(given)
        self._left: dict[str, list[SliceDevice]] = {}

    def _all_classes(self, given: Sequence[Given]) -> Mapping[str, list[str]]:
        """The expressions of each class, those of the files in place of those in the cluster."""
        found = {one.metadata.name: _texts(one) for one in self._state.device_classes}
        for one in given:
            if is_of_dra(one) and one.kind == "DeviceClass":
                found[name_in(one)] = [expression.text for expression in expressions(one)]
        return found

    @cached_property
    def _devices(self) -> list[SliceDevice]:
        if self._state.gaps("resourceslices"):
            return []  # what was not read may match
        different: dict[bytes, SliceDevice] = {}
        for device in Fleet(self._state).devices.values():
            same = msgspec.structs.replace(device.device, name="", taints=None)
            different.setdefault(device.id.driver.encode() + msgspec.json.encode(same), device)
        return list(different.values())

    def findings(self, one: Given) -> Iterator[Finding]:
        """Yield the selectors of an object that match no device, or that fail."""
        for expression in expressions(one):
            selectors = compiled([expression.text], self._known)
            if not expression.is_derived and selectors and self._devices:
                yield from self._judged(one, expression, selectors[0])

    def _judged(self, one: Given, expression: Expression, selector: Selector) -> Iterator[Finding]:
        left = self._of_class(expression.of_class)
        fits = False
        for device in left:
            try:
                fits = selector.matches(device.value) or fits
            except EvaluationError as error:
                yield one.finding(
                    "cel-fails",
                    expression.path,
                    f"the expression fails for device {device.id}: {error}",
                    "ask with has(…) before reading a value, or check device.driver first",
                )
                return
        if not fits:
            of_class = f" of class {expression.of_class}" if expression.of_class else ""
            yield one.finding(
                "cel-no-device",
                expression.path,
                f"none of the devices{of_class} matches the expression",
                f"`explain -f {one.file}` says for each condition what the devices have instead",
            )

    def _of_class(self, name: str) -> list[SliceDevice]:
        if name not in self._left:
            selectors = compiled(self._classes.get(name, ()), self._known)
            self._left[name] = [
                device for device in self._devices if all(_fits(one, device) for one in selectors)
            ]
        return self._left[name]


def _texts(one: DeviceClass) -> list[str]:
    return [each.cel.expression for each in one.spec.selectors or () if each.cel]


def _fits(selector: Selector, device: SliceDevice) -> bool:
    try:
        return selector.matches(device.value)
    except EvaluationError:
        return False
