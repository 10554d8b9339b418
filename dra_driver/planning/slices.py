# SPDX-License-Identifier: Apache-2.0
"""Divide an inventory into slices that the API server accepts as they are.

For one bad value the API server refuses a whole slice. So the driver checks everything before it writes, and leaves out what is bad:
a value (`device_values`), a device whose counters do not add up (`counters`), a device that this server would publish without its
restrictions (`unrestricted`). `layout` then cuts the slices. Each thing that is left out is a Problem.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from dra_driver.model.api.resource_slice import CounterSet, Device
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.names import OWN_TAINTS
from dra_driver.model.slices import Problem, SliceContent
from dra_driver.planning.counters import adding_up, good_sets, names_known
from dra_driver.planning.device_values import checked
from dra_driver.planning.layout import apart, together
from dra_driver.planning.slice_fields import slice_fields, with_fields, without_gates
from dra_driver.planning.taints import TaintId, dated, with_own_taints
from dra_driver.planning.unrestricted import (
    FEATURES,
    TAINTS,
    Gate,
    ServerRules,
    allowed,
    for_release,
    gates_in,
    gates_of,
    without_idle_counters,
    wrong_for_release,
)

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LEFT_OUT = "it was left out of the slice, everything else is published; correct it in the backend"
_DEVICE_LEFT_OUT = "the device was left out, all others are published; correct it in the backend"
_NAMED = 3
_ANY_SERVER = ServerRules()
_NOBODY: Mapping[DeviceName, str] = MappingProxyType({})

Report = Callable[[Problem], None]


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The content of each slice, and a problem for everything that is not published.

    `needs` are the gates whose fields the inventory has, whether or not the server keeps them.
    """

    slices: tuple[SliceContent, ...]
    problems: tuple[Problem, ...]
    needs: frozenset[Gate] = field(default=frozenset(), compare=False)

    @property
    def devices(self) -> Mapping[DeviceName, Device]:
        """All published devices by name."""
        return {
            DeviceName(device.name): device
            for content in self.slices
            for device in content.devices or ()
        }

    @property
    def counter_sets(self) -> Mapping[str, CounterSet]:
        """All published counter sets by name."""
        return {one.name: one for content in self.slices for one in content.shared_counters or ()}


def plan_pool(  # noqa: PLR0913  all but one by name
    inventory: Inventory,
    *,
    kept: Sequence[Device],
    held: frozenset[DeviceName] = frozenset(),
    not_clean: frozenset[DeviceName] = frozenset(),
    occupied: frozenset[DeviceName] = frozenset(),
    foreign: Mapping[DeviceName, str] = _NOBODY,
    rules: ServerRules = _ANY_SERVER,
    driver: str = "",
) -> PoolPlan:
    """Divide all devices of the inventory, in its order, and then the vanished devices that must stay (`kept`), into slices.

    `held` are devices whose claim has ended, and that may still be in use; `not_clean` are devices without a claim on which the backend
    finds something; `occupied` are devices whose hardware a claim has under another name; `foreign` has the taint's value for devices that
    somebody else's plugin gives out. `rules` is what is known of the API server.
    """
    problems = list(inventory.left_out)
    report = problems.append
    sets = good_sets(inventory.counter_sets, report)
    pairs = [
        (found, good)
        for found in inventory.devices
        if (good := _published(with_own_taints(found, held, not_clean, occupied, foreign), report))
    ]
    devices = adding_up(pairs, sets, report)
    names = {device.name for device in devices}
    devices += [_still_published(device, sets) for device in kept if device.name not in names]
    fields = slice_fields(inventory, driver, report)
    used = [(device, tuple(gates_of(device))) for device in devices]
    needs = gates_in(fields).union(*(gates for _, gates in used))
    devices = without_idle_counters(devices, sets, rules)
    used = [(device, tuple(gates_of(device))) for device in devices]
    if not any(device.consumes_counters for device in devices):
        fields = msgspec.structs.replace(fields, partition_type_attribute=None)
    for problem in _missing(used, gates_in(fields), rules):
        report(problem)
    devices = [one for device in devices if (one := _for_server(device, rules, report))]
    cut = together(devices, sets, report) if rules.counters_with_devices else apart(devices, sets)
    fields = without_gates(fields, rules)
    return PoolPlan(
        tuple(with_fields(content, fields, driver, report) for content in cut),
        tuple(problems),
        needs,
    )


def with_times(plan: PoolPlan, times: Mapping[TaintId, str], now: str) -> PoolPlan:
    """Return the plan with a time in each taint. `times` has the times of known taints; a new taint gets `now`."""
    return dataclasses.replace(
        plan, slices=tuple(_dated(content, times, now) for content in plan.slices)
    )


def _dated(content: SliceContent, times: Mapping[TaintId, str], now: str) -> SliceContent:
    if not any(device.taints for device in content.devices or ()):
        return content
    devices = [dated(device, times, now) for device in content.devices or ()]
    return msgspec.structs.replace(content, devices=devices)


def _published(device: Device, report: Report) -> Device | None:
    """Return the device as the API server accepts it; None if the device has to be left out."""
    name = DeviceName(device.name)
    if not _LABEL.fullmatch(name):
        report(Problem(name, "name", "no DNS label of at most 63 characters", _LEFT_OUT))
        return None

    def problem(subject: str, found: str) -> None:
        report(Problem(name, subject, found, _LEFT_OUT))

    good, wrong = checked(device, problem)
    for field_name, found in wrong.items():
        report(Problem(name, field_name, found, _DEVICE_LEFT_OUT))
    return None if wrong else good


def _still_published(device: Device, sets: Mapping[str, CounterSet]) -> Device:
    """Return a vanished device that stays, without the fields that the API server would refuse.

    A newer driver may have written these fields, and no backend can correct them any more. The device needs no restricting field,
    because the taint of a vanished device keeps new pods away. It consumes its counters as long as their set exists: the scheduler
    must not give them to another device.
    """
    if not names_known(device, sets):
        device = msgspec.structs.replace(device, consumes_counters=None)
    while True:
        device, wrong = checked(device, lambda _subject, _found: None)
        # A field that was left out may make another one wrong: binding conditions come in pairs.
        if not wrong.keys() - {"capacity"}:
            return device


def _missing(
    used: Sequence[tuple[Device, tuple[Gate, ...]]], of_slices: frozenset[Gate], rules: ServerRules
) -> Iterator[Problem]:
    """Yield a problem for each gate that is off, and that these devices or slices need."""
    for gate, why in rules.off.items():
        names = [device.name for device, gates in used if gate in gates]
        withheld = [device.name for device, gates in used if gate in gates and _lost(device, gate)]
        if not names and gate not in of_slices:
            continue
        found = f"{_few(names)} {'have' if len(names) > 1 else 'has'} it; {why}" if names else why
        done = "everything is published without it"
        if withheld:
            done = f"without it anybody could get {_few(withheld)}, so {'they are' if len(withheld) > 1 else 'it is'} not published"
        own = gate == TAINTS and all(_only_own(device) for device, gates in used if gate in gates)
        action = (
            f"{done} until the reason for the taint of this driver is over. Nothing has to be done; with the gate on in the API server and the "
            f"scheduler, published devices keep such a taint"
            if own and withheld
            else f"{done}; switch the gate on in the API server and the scheduler, or leave the field out in the backend"
        )
        yield Problem(DeviceName(gate), FEATURES[gate].fields, found, action, "feature gate")


def _only_own(device: Device) -> bool:
    """Whether all its taints are of this driver, which come and go with the state of the device."""
    return all(taint.key in OWN_TAINTS for taint in device.taints or ())


def _lost(device: Device, gate: Gate) -> bool:
    return FEATURES[gate].without(device) is None


def _few(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    shown = ", ".join(names[:_NAMED])
    return (
        f"device {shown}"
        if len(names) == 1
        else f"devices {shown}" + (f" and {more} more" if more > 0 else "")
    )


def _for_server(device: Device, rules: ServerRules, report: Report) -> Device | None:
    left = for_release(device, rules)
    if wrong := wrong_for_release(left, rules):
        report(Problem(DeviceName(device.name), "taints", wrong, _DEVICE_LEFT_OUT))
        return None
    return allowed(left, rules)
