# SPDX-License-Identifier: Apache-2.0
"""Does a device of the cluster match each selector, and for which does it end with an error?

The selectors of a request are asked for the devices that its class leaves, as the scheduler does.
"""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.search import MAX_RESULTS
from dra_driver.cel.compile import Selector
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.reasons.paths import DevicePath, value_at
from dra_driver.cel.reasons.rewrite import brief, written
from dra_driver.cel.reasons.selector import ExplainedSelector
from dra_driver.cel.reasons.similar import question
from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, Known
from dra_driver.check.parts import (
    Expression,
    Request,
    devices_path,
    expressions,
    is_of_dra,
    name_in,
    requests,
)
from dra_driver.check.selectors import compiled
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.model.api.resource_claim import DeviceClass
from dra_driver.model.cluster import ClusterState
from dra_driver.model.yaml_documents import Path

SHOWN = 3


class DevicesOfCluster:
    """The devices of a cluster, those with equal values once."""

    def __init__(self, known: Known, given: Sequence[Given]) -> None:
        self._known = known
        self._state = known.state or ClusterState()
        self._classes = self._all_classes(given)
        self._left: dict[str, list[SliceDevice]] = {}
        self._with: dict[DevicePath, str] = {}

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
        for device in self._fleet.all_devices:
            different.setdefault(_values(device), device)
        return list(different.values())

    @cached_property
    def _fleet(self) -> Fleet:
        return Fleet(self._state)

    def findings(self, one: Given) -> Iterator[Finding]:
        """Yield the selectors of an object that match no device, or that fail."""
        for expression in expressions(one):
            selectors = compiled([expression.text], self._known)
            if not expression.is_derived and selectors and self._devices:
                yield from self._judged(one, expression, selectors[0])

    def too_many(self, one: Given) -> Iterator[Finding]:
        """Yield the requests that ask for more devices than an allocation can have, or than any node has."""
        path = devices_path(one)
        if path is None:
            return
        least: dict[Path, int] = {}
        for request in requests(one):
            count = request.body.get("count") or 1
            if not isinstance(count, int) or request.body.get("allocationMode") == "All":
                continue
            if count > MAX_RESULTS:
                message = f"the request is for {count} devices, and an allocation has at most {MAX_RESULTS}"
                yield _too_many(one, (*request.path, "count"), message)
                continue
            # Of alternatives, the claim gets one.
            place = (*path, "requests", request.path[len(path) + 1])
            least[place] = min(count, least.get(place, count))
            most = self._most_on_a_node(one, request)
            if most is not None and count > most:
                message = f"the request is for {count} devices, and the node with the most has {most} that match"
                yield _too_many(one, (*request.path, "count"), message)
        total = sum(least.values())
        if total > MAX_RESULTS:
            message = (
                f"the claim asks for {total} devices, and an allocation has at most {MAX_RESULTS}"
            )
            yield _too_many(one, path, message)

    def _most_on_a_node(self, one: Given, request: Request) -> int | None:
        """Return how many devices match on the node that has the most; None if that is not known, or if there is none at all."""
        name = str(request.body.get("deviceClassName", ""))
        if not self._devices or name not in self._classes:
            return None
        mine = [
            each.text
            for each in expressions(one)
            if _is_below(each, request) and not each.is_derived
        ]
        selectors = compiled((*self._classes[name], *mine), self._known)
        same: dict[bytes, bool] = {}
        nodes: Counter[str] = Counter()
        for device in self._fleet.all_devices:
            key = _values(device)
            if key not in same:
                same[key] = all(_fits(each, device) for each in selectors)
            if same[key]:
                if device.device.allow_multiple_allocations:
                    return None  # it may be given out any number of times
                nodes[device.slice.spec.node_name or device.device.node_name or ""] += 1
        elsewhere = nodes.pop("", 0)  # devices that several nodes reach
        return max(nodes.values(), default=0) + elsewhere or None

    def _judged(self, one: Given, expression: Expression, selector: Selector) -> Iterator[Finding]:
        left = self._of_class(expression.of_class)
        fits = False
        for device in left:
            try:
                fits = selector.matches(device.value) or fits
            except EvaluationError as error:
                # A class that is not there is told, and its own expressions may leave this device out.
                if not expression.of_class or expression.of_class in self._classes:
                    message = f"the expression fails for device {device.id}: {error}"
                    right = self._meant(expression, selector, device) or _right(error)
                    yield one.finding("cel-fails", expression.path, message, right)
                return
        if not fits:
            of_class = f" of class {expression.of_class}" if expression.of_class else ""
            yield one.finding(
                "cel-no-device",
                expression.path,
                f"none of the devices{of_class} matches the expression",
                f"`{self._known.explain} -f {shlex.quote(one.file)}` says for each condition what the devices have instead",
            )

    def _meant(self, expression: Expression, selector: Selector, device: SliceDevice) -> str:
        """Return what to write if a value has another type than the expression takes, or no device of the class has it; "" else.

        has(…) would be no help there: the expression would match no device.
        """
        seen = (device.id.driver, device.device, device.value)
        publishes = self._fleet.publishes
        for one in ExplainedSelector(selector).failing_conditions(*seen, is_published=publishes):
            absent = next((path for path in one.missing if not publishes(path)), None)
            if absent and one.corrections:
                write = brief(one.corrections[0].write)
                return f"no device has {written(absent)}: write {write}"
            absent = next((p for p in one.missing if not self._have(expression.of_class, p)), None)
            if absent:
                near = question(dict(one.typos).get(absent, ""))
                lacks = f"{one.lacks}; {near}" if near else one.lacks
                return self._instead(expression.of_class, absent, lacks)
            if not one.missing and one.lacks:
                return f"this device {one.lacks}"
        return ""

    def _instead(self, name: str, path: DevicePath, lacks: str) -> str:
        """Return what to ask for in place of what no device of a class has; `lacks` says what one has instead."""
        of_class = f" of class {name}" if name else ""
        other = self._class_with(path) if name else ""
        has = f"devices of the class {other} have it" if other else f"this device {lacks}"
        return f"no device{of_class} has {written(path)}: {has}"

    def _class_with(self, path: DevicePath) -> str:
        """Return the first class whose selectors match a device with a value at the path; "" if there is none."""
        if path not in self._with:
            having = [one for one in self._devices if _has(one, path)]
            classes = (
                (name, compiled(texts, self._known))
                for name, texts in sorted(self._classes.items())
                if texts  # a class without selectors has every device
            )
            named = (
                name
                for name, selectors in classes
                if any(all(_fits(each, one) for each in selectors) for one in having)
            )
            self._with[path] = next(named, "")
        return self._with[path]

    def _have(self, name: str, path: DevicePath) -> bool:
        """Return whether a device of a class has a value at the path."""
        return any(_has(one, path) for one in self._of_class(name))

    def _of_class(self, name: str) -> list[SliceDevice]:
        if name not in self._left:
            selectors = compiled(self._classes.get(name, ()), self._known)
            self._left[name] = [
                device for device in self._devices if all(_fits(one, device) for one in selectors)
            ]
        return self._left[name]


def _right(error: EvaluationError) -> str:
    """Return what to write. has(…) is true of a value that is there, whatever else is wrong with it."""
    if str(error).startswith("no such key"):
        return "ask with has(…) before reading a value, or check device.driver first"
    return "check first what the values of this device are, or check device.driver first"


def _too_many(one: Given, path: Path, message: str) -> Finding:
    action = "ask for fewer in one pod, or make more pods: the devices of a claim are on one node"
    return one.finding("too-many-devices", path, message, action)


def _is_below(expression: Expression, request: Request) -> bool:
    return expression.path[: len(request.path)] == request.path


def _values(device: SliceDevice) -> bytes:
    """Return what selectors can read of a device, and what is equal to it but for the name, as a key."""
    same = msgspec.structs.replace(device.device, name="", taints=None)
    return device.id.driver.encode() + msgspec.json.encode(same)


def _texts(one: DeviceClass) -> list[str]:
    return [each.cel.expression for each in one.spec.selectors or () if each.cel]


def _has(device: SliceDevice, path: DevicePath) -> bool:
    return value_at(path, device.id.driver, device.device) is not None


def _fits(selector: Selector, device: SliceDevice) -> bool:
    try:
        return selector.matches(device.value)
    except EvaluationError:
        return False
