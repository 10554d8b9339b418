# SPDX-License-Identifier: Apache-2.0
"""Why does a request not get this device? All reasons, for every device of the cluster.

The search stops at the first reason and at the first device that fits. People want all of both: what they read is
grouped by reason, and the device that misses the fewest conditions shows what to change. The checks are the search's own;
an answer is made once for all devices that are equal in what the request looks at.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from dra_driver.allocator.amounts import amount
from dra_driver.allocator.capacity import (
    consumed_capacity,
    exhausted_capacity,
    forbidden_capacity,
    missing_capacity,
    policy_in_words,
)
from dra_driver.allocator.counters import Ledger
from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import (
    ADMIN_ACCESS,
    BINDING_CONDITIONS,
    CONSUMABLE_CAPACITY,
    DERIVED_ATTRIBUTES,
    OPTIONAL_NODE_OPERATIONS,
    PARTITIONABLE,
    PRIORITIZED_LIST,
)
from dra_driver.allocator.taints import tolerates
from dra_driver.cel.errors import CompileError as BadExpression
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.reasons.conditions import FailingPart, FalsePart
from dra_driver.cel.reasons.paths import Path, value_at
from dra_driver.cel.reasons.selector import ExplainedSelector
from dra_driver.cel.reasons.similar import meant, question
from dra_driver.explain.claim_request import ClaimRequest
from dra_driver.explain.facts.device_nodes import DeviceNodes, where_usable
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.verdict import (
    CapacityConsumed,
    CapacityTooSmall,
    ClassMissing,
    CompileError,
    CouldNotTell,
    CountersUsedUp,
    FeatureOff,
    HeldByClaim,
    NodeNotSelected,
    SelectorError,
    SelectorFalse,
    Tainted,
    Verdict,
)
from dra_driver.model.api.resource_claim import ExactDeviceRequest
from dra_driver.model.quantity import Quantity

MANY = 64
"""Kinds of devices: of more, nobody reads what each of them has."""
_DRIVER = Path("driver")
_EFFECTIVE = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, eq=False)
class RequestSelector:
    """A selector with where it stands: source is "class NAME" or "request"."""

    source: str
    index: int
    explained: ExplainedSelector


@dataclass(frozen=True, slots=True)
class Judgement:
    """What selectors say of a device; `parts` are all conditions that are false, for finding a way out.

    `failing` are the conditions with the run-time error that stops the search, if it comes to this device.
    """

    verdicts: tuple[Verdict, ...] = ()
    parts: tuple[tuple[RequestSelector, FalsePart], ...] = ()
    failing: tuple[tuple[RequestSelector, FailingPart], ...] = ()


@dataclass(slots=True)
class ReasonGroup:
    """Devices with the same first reason (None: nothing speaks against them)."""

    reason: Verdict | None
    devices: list[SliceDevice] = field(default_factory=list)


class RequestExplained:
    """One request before all devices. `problems` are reasons that need no device."""

    def __init__(self, fleet: Fleet, asked: ClaimRequest, reach: DeviceNodes) -> None:
        self.asked = asked
        self._fleet = fleet
        self._reach = reach
        self.selectors: list[RequestSelector] = []
        self.problems: tuple[Verdict, ...] = tuple(self._static_problems())
        self._paths = self._all_paths()
        self._judged: dict[bytes, Judgement] = {}
        self._briefs: dict[tuple[str, int, str], SelectorFalse] = {}
        self._of_device: dict[SliceDevice, tuple[Judgement, tuple[Verdict, ...]]] = {}
        requests = asked.body.capacity.requests if asked.body.capacity else None
        self._capacity = {name: amount(text) for name, text in (requests or {}).items()}

    def _static_problems(self) -> Iterator[Verdict]:
        body = self.asked.body
        if body.derived_attributes and not self._fleet.rules.derived_attributes:
            yield FeatureOff(DERIVED_ATTRIBUTES, "derivedAttributes of the request")
        admin = isinstance(body, ExactDeviceRequest) and body.admin_access is not None
        if admin and not self._fleet.rules.admin_access:
            yield FeatureOff(ADMIN_ACCESS, "adminAccess of the request")
        rules = self._fleet.rules
        if body.capacity and rules.newer_than_stable and not rules.consumable_capacity:
            yield FeatureOff(CONSUMABLE_CAPACITY, "capacity of the request")
        if "/" in self.asked.name and not self._fleet.rules.prioritized_list:
            yield FeatureOff(PRIORITIZED_LIST, "firstAvailable")
        device_class = self._fleet.classes.get(body.device_class_name)
        if device_class is None:
            gap = self._fleet.state.unread("deviceclasses", body.device_class_name)
            if gap is not None:
                what = f"device class {body.device_class_name}: {gap.message}"
                yield CouldNotTell(gap.reason, what)
            else:
                near = meant(body.device_class_name, list(self._fleet.classes))
                yield ClassMissing(body.device_class_name, near)
            return
        sources = ((f"class {body.device_class_name}", device_class.spec), ("request", body))
        for source, spec in sources:
            for index, selector in enumerate(spec.selectors or ()):
                yield from self._compile(
                    source, index, selector.cel.expression if selector.cel else ""
                )

    def _compile(self, source: str, index: int, expression: str) -> Iterator[Verdict]:
        try:
            self.selectors.append(RequestSelector(source, index, self._fleet.explained(expression)))
        except BadExpression as error:
            yield CompileError(source, index, error.message, error.hint)

    def _all_paths(self) -> list[Path] | None:
        """What the selectors look at; None where they look at everything."""
        found: set[Path] = set()
        for selector in self.selectors:
            if selector.explained.paths is None:
                return None
            found |= selector.explained.paths
        return sorted(found)

    def reasons(self, device: SliceDevice) -> tuple[Verdict, ...]:
        """All that speaks against the device, the most lasting first; empty where nothing does."""
        return self._known(device)[1]

    def judged(self, device: SliceDevice) -> Judgement:
        """What the selectors say; the same object for devices that they cannot tell apart."""
        return self._known(device)[0]

    def first(self, device: SliceDevice) -> Verdict | None:
        """The first reason; None where there is none. Where devices are told apart by too much, without their values."""
        reasons = self._known(device)[1]
        if not reasons:
            return None
        first = reasons[0]
        if isinstance(first, SelectorFalse) and self._many:
            return self._in_brief(first)
        return first

    def _in_brief(self, reason: SelectorFalse) -> SelectorFalse:
        key = (reason.source, reason.index, reason.part)
        if key not in self._briefs:
            self._briefs[key] = SelectorFalse(*key, f"{reason.part} is false")
        return self._briefs[key]

    def look(self, device: SliceDevice) -> object:
        """What the selectors make of the device: equal for devices that are told in the same words."""
        judgement = self.judged(device)
        if not self._many:
            return id(judgement)
        first = judgement.verdicts[0] if judgement.verdicts else None
        return self._in_brief(first) if isinstance(first, SelectorFalse) else type(first)

    @cached_property
    def _many(self) -> bool:
        for device in self._fleet.devices.values():
            self._known(device)
        return len(self._judged) > MANY

    def foreign(self, device: SliceDevice) -> bool:
        """Whether the device is of a driver that is not meant."""
        return any(part.path == _DRIVER for _, part in self.judged(device).parts)

    def meant(self, devices: Sequence[SliceDevice]) -> Sequence[SliceDevice]:
        """Those of the drivers that are meant; all, where there is none of them."""
        return [one for one in devices if not self.foreign(one)] or devices

    def relaxed(self, device: SliceDevice) -> tuple[tuple[RequestSelector, FalsePart], ...]:
        """The false conditions again, each with the nearest one that the device meets."""
        return self._judge(device, relax=True).parts

    def _known(self, device: SliceDevice) -> tuple[Judgement, tuple[Verdict, ...]]:
        known = self._of_device.get(device)
        if known is None:
            key = self._key(device)
            judgement = self._judged.get(key)
            if judgement is None:
                judgement = self._judged[key] = self._judge(device)
            known = (judgement, (*judgement.verdicts, *self._state_of(device)))
            self._of_device[device] = known
        return known

    def _key(self, device: SliceDevice) -> bytes:
        driver, published = device.id.driver, device.device
        if self._paths is None:
            shared = published.allow_multiple_allocations
            return msgspec.json.encode((driver, published.attributes, published.capacity, shared))
        values = [value_at(path, driver, published) for path in self._paths]
        return msgspec.json.encode((driver, values))

    def _judge(self, device: SliceDevice, *, relax: bool = False) -> Judgement:
        verdicts: list[Verdict] = []
        parts: list[tuple[RequestSelector, FalsePart]] = []
        failing: list[tuple[RequestSelector, FailingPart]] = []
        for selector in self.selectors:
            seen = (device.id.driver, device.device, device.value)
            try:
                if selector.explained.selector.matches(device.value):
                    continue
            except EvaluationError as error:
                if not verdicts:  # else the search does not come here
                    failed = selector.explained.failing_parts(*seen)
                    failing = [(selector, part) for part in failed]
                    verdicts.append(_error(selector, failed[0], device, error))
                continue
            explained = selector.explained
            if relax or len(self._judged) <= MANY:
                false = explained.false_parts(*seen, relax=relax)
            else:
                false = explained.false_parts_in_brief(device.value)
            parts += ((selector, part) for part in false)
            first = false[0]
            verdicts.append(
                SelectorFalse(selector.source, selector.index, first.part, first.found, first.hint)
            )
        return Judgement(tuple(verdicts), tuple(parts), tuple(failing))

    def _state_of(self, device: SliceDevice) -> Iterator[Verdict]:
        unusable = self._fleet.unusable.get(device.slice.pool_id)
        if unusable is not None:
            yield unusable
            return
        if self._reach.nodes and self._reach.of(device) == frozenset():
            yield NodeNotSelected(where_usable(device))
        yield from self._features(device)
        holder = self._fleet.held.devices.get(device.id)
        if holder is not None and not self.asked.admin_access:
            yield HeldByClaim(holder.claim, holder.pods)
        else:
            yield from self._short(device)
            yield from self._used_up(device)
        yield from self._tainted(device)

    def _features(self, device: SliceDevice) -> Iterator[Verdict]:
        rules = self._fleet.rules
        if device.device.binding_conditions and not rules.binding_conditions:
            yield FeatureOff(BINDING_CONDITIONS, "a device with bindingConditions")
        counters = device.device.consumes_counters or device.slice.spec.per_device_node_selection
        if counters and not rules.partitionable:
            yield FeatureOff(PARTITIONABLE, "a device that shares counters")
        skips = rules.experimental and device.slice.spec.skip_node_operations
        if skips and not self._some_node_skips():
            yield FeatureOff(OPTIONAL_NODE_OPERATIONS, "a device with skipNodeOperations")

    def _some_node_skips(self) -> bool:
        return self._fleet.rules.optional_node_operations and any(
            OPTIONAL_NODE_OPERATIONS in (node.status.declared_features or ())
            for node in self._reach.nodes.values()
        )

    def _short(self, device: SliceDevice) -> Iterator[Verdict]:
        rules = self._fleet.rules
        offered = device.device.capacity or {}
        if not rules.consumable_capacity or not (
            self._capacity or device.id in self._fleet.held.shares
        ):
            return
        missing = missing_capacity(self._capacity, offered)
        if missing is not None:
            near = meant(missing, list(offered))
            yield CapacityTooSmall(
                f"{missing} ({near})" if near else missing, str(self._capacity[missing])
            )
            return
        try:
            consumed = consumed_capacity(
                self._capacity, offered, fractional=rules.fractional_capacity
            )
            name = forbidden_capacity(consumed, offered, fractional=rules.fractional_capacity)
        except AllocationError as error:
            yield CouldNotTell("malformed", f"capacity of {device.id}: {error}")
            return
        if name is not None:
            asked = self._capacity.get(name, consumed[name])
            allowed = policy_in_words(offered[name].request_policy)
            yield CapacityTooSmall(name, str(asked), str(device.capacity[name]), allowed)
            return
        taken = self._fleet.held.consumed(device.id)
        name = exhausted_capacity(consumed, device.capacity, {})
        if name is not None:
            yield CapacityTooSmall(name, str(consumed[name]), str(device.capacity[name]))
            return
        name = exhausted_capacity(consumed, device.capacity, taken)
        if name is not None:
            whole = device.capacity[name]
            left = Quantity(max(whole.nanos - taken.get(name, 0), 0), whole.format)
            users = self._fleet.claims_on(device.id)
            yield CapacityConsumed(name, str(consumed[name]), str(left), users)

    def _used_up(self, device: SliceDevice) -> Iterator[Verdict]:
        if not device.device.consumes_counters or not self._fleet.rules.partitionable:
            return
        if device.id in self._fleet.held.shares:
            return  # the first share has paid for all
        ledger = self._fleet.ledger(device.slice.pool_id)
        counter = ledger.exhausted(device)
        if counter is not None:
            yield self._counter(device, ledger, counter)
        elif self._fleet.rules.compatibility_groups:
            counter_set = ledger.incompatible(device)
            if counter_set is not None:
                users = self._fleet.users_of_counters(device.slice.pool_id, counter_set)
                yield CountersUsedUp(counter_set, "", "", "", users)

    def _counter(
        self, device: SliceDevice, ledger: Ledger, counter: tuple[str, str]
    ) -> CountersUsedUp:
        published = (device.slice.pool_id, counter[0])
        whole = self._fleet.pools[published[0]].counter_sets[counter[0]].counters or {}
        form = amount(whole[counter[1]].value).format
        needed = Quantity(device.consumes.get(counter, 0), form)
        left = Quantity(ledger.left(counter), form)
        users = self._fleet.users_of_counters(*published)
        return CountersUsedUp(counter[0], counter[1], str(needed), str(left), users)

    def _tainted(self, device: SliceDevice) -> Iterator[Verdict]:
        if not self._fleet.rules.taints:
            return
        tolerations = self.asked.body.tolerations or ()
        for place, taint in enumerate(device.device.taints or ()):
            if taint.effect in _EFFECTIVE and not any(tolerates(one, taint) for one in tolerations):
                value = f"={taint.value}" if taint.value else ""
                rule = self._fleet.rule_names.get((device.id, place), "")
                yield Tainted(f"{taint.key}{value}:{taint.effect}", rule)


def _error(
    selector: RequestSelector, failing: FailingPart, device: SliceDevice, error: EvaluationError
) -> SelectorError:
    told = f"{device.id} {failing.lacks}" if failing.lacks else f"on {device.id}"
    near = "; ".join(question(name) for _, name in failing.typos[:1])
    hint = f"{told}; {near}" if near else told
    return SelectorError(selector.source, selector.index, failing.part, str(error), hint)


def grouped(request: RequestExplained, devices: Sequence[SliceDevice]) -> list[ReasonGroup]:
    """The devices by their first reason, the largest group first; those that can be had before all."""
    groups: dict[Verdict | None, ReasonGroup] = {}
    for device in devices:
        first = request.first(device)
        group = groups.get(first)
        if group is None:
            group = groups[first] = ReasonGroup(first)
        group.devices.append(device)
    return sorted(groups.values(), key=lambda one: (one.reason is not None, -len(one.devices)))
