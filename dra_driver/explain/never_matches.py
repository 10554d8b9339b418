# SPDX-License-Identifier: Apache-2.0
"""No device of the cluster passes the selectors: which of their conditions are the cause?"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.conditions import FalseCondition, Meant
from dra_driver.cel.reasons.paths import DevicePath, path_of
from dra_driver.cel.reasons.selector import conjuncts
from dra_driver.cel.reasons.similar import meant, question
from dra_driver.cel.syntax.ast import Call, Constant, Expr
from dra_driver.explain.closeness import closeness_for
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.misses import Miss
from dra_driver.explain.names import values_found
from dra_driver.explain.published_values import meant_kinds, values_of
from dra_driver.explain.reasons import DeviceKind, RequestExplained
from dra_driver.explain.selector_answers import RequestSelector, SelectorAnswers
from dra_driver.explain.verdict import DriverPublishesNothing, SelectorNeverMatches, Verdict

SHOWN_VALUES = 6

_Key = tuple[str, int, str]


class _Blamed(Struct, frozen=True):
    """A condition that is false for `count` devices; `false` has its text and the values of one of these devices."""

    selector: RequestSelector
    false: FalseCondition
    count: int


def never_matches(
    explained: RequestExplained,
    devices: Sequence[SliceDevice],
    miss: Miss,
    nodes: tuple[str, ...] = (),
) -> Iterator[Verdict]:
    """Yield why no device passes the selectors; `miss` is the nearest device. `nodes`: only the devices of these nodes are asked about."""
    answers, fleet = explained.answers, explained.fleet
    driver = _absent_driver(fleet, answers)
    if driver:
        yield DriverPublishesNothing(driver, meant(driver, sorted(fleet.drivers)))
        return
    kinds = meant_kinds(explained, devices)
    blamed = _blamed(kinds, miss)
    ours = [device for one in kinds for device in one.devices]
    driver = miss.device.id.driver
    alone = len(blamed) == 1

    def values(path: DevicePath) -> Counter[str]:
        return values_of(explained, devices, path)

    meant_by = closeness_for(explained).meant
    found = [_found(one, values, meant_by, driver, alone=alone) for one in blamed]
    first, *others = blamed
    yield SelectorNeverMatches(
        first.selector.source,
        first.selector.index,
        first.false.part,
        values_found("; ".join(what for what, _ in found)),
        next((hint for _, hint in found if hint), ""),
        tuple(one.false.part for one in others),
        tuple(sorted({one.id.driver for one in ours})) if len(ours) < len(devices) else (),
        nodes,
    )


def _blamed(kinds: Sequence[DeviceKind], miss: Miss) -> list[_Blamed]:
    """Return a small set of conditions of which every device fails at least one: always take the one that most devices fail.

    If all devices fail the same condition, the set has only this one.
    """
    known = {_key(*one): one for one in miss.parts}
    left: Counter[frozenset[_Key]] = Counter()
    for kind in kinds:
        parts = {_key(*one): one for one in kind.judgement.parts}
        known = {**parts, **known} if parts.keys() - known.keys() else known
        left[frozenset(parts)] += len(kind.devices)
    order = {key: place for place, key in enumerate(known)}
    found: list[_Blamed] = []
    while left:
        counts: Counter[_Key] = Counter()
        for keys, count in left.items():
            counts.update(dict.fromkeys(keys, count))
        worst = max(counts, key=lambda key: (counts[key], -order[key]))
        found.append(_Blamed(*known[worst], counts[worst]))
        left = Counter({keys: count for keys, count in left.items() if worst not in keys})
    return found


def _key(selector: RequestSelector, false: FalseCondition) -> _Key:
    return selector.source, selector.index, false.part


def _found(
    blamed: _Blamed,
    values_of: Callable[[DevicePath], Counter[str]],
    meant_by: Meant,
    driver: str,
    *,
    alone: bool,
) -> tuple[str, str]:
    """Return the values that the devices have instead, and a hint which value the author may have meant; `alone`: no other is blamed."""
    false = blamed.false
    if false.path is None:
        found = false.found if alone else f"{false.part} is false for {blamed.count:,}"
        return found, false.hint
    values = values_of(false.path)
    hints = (
        question(one) for text in false.wanted if (one := meant_by(false.path, text)) in values
    )
    return f"{false.path.shown(driver)} is {_listed(values)}", next(hints, false.hint)


def _absent_driver(fleet: Fleet, answers: SelectorAnswers) -> str:
    """Return a driver that the selectors ask for and that publishes no ResourceSlice; "" if there is none."""
    wanted = (
        _driver_wanted(part)
        for selector in answers.selectors
        for part in conjuncts(selector.explained.root)
    )
    return next((one for one in wanted if one and one not in fleet.drivers), "")


def _driver_wanted(part: Expr) -> str:
    """Return NAME if the condition is `device.driver == NAME` or `NAME == device.driver`, else ""."""
    if not isinstance(part, Call) or part.function != "_==_":
        return ""
    for one, other in (part.args, reversed(part.args)):
        if path_of(one) == DevicePath("driver") and isinstance(other, Constant):
            return other.value if isinstance(other.value, str) else ""
    return ""


def _listed(values: Counter[str]) -> str:
    if not values:
        return "published by no device"
    listed = ", ".join(f"{value} ({count:,})" for value, count in values.most_common(SHOWN_VALUES))
    return listed + (", …" if len(values) > SHOWN_VALUES else "")
