# SPDX-License-Identifier: Apache-2.0
"""Which lines of `dra-driver explain` say what keeps devices from a request, and from the nodes?

The nearest devices come first: those that match and are held by a claim that is being deleted, then those that are held, blocked
by a counter or tainted, then all others. What stands on one line is not said again on a later one: a line about a node only names
claims, of which a line about a request says the pods and the time.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dra_driver.explain.names import first_names
from dra_driver.explain.outcome import DeviceGroup, NodeGroup, RequestReport
from dra_driver.explain.verdict import (
    CapacityConsumed,
    CountersUsedUp,
    Fits,
    HeldByClaim,
    SelectorError,
    SelectorFalse,
    SelectorNeverMatches,
    Tainted,
    Verdict,
)

SHOWN_GROUPS = 12
SHOWN_REASONS = 6
_NEARNESS: dict[type, int] = {HeldByClaim: 1, CapacityConsumed: 2, CountersUsedUp: 2, Tainted: 3}
_OTHERS, _FARTHEST = 4, 5
_SAME_ERROR = "the CEL runtime error above"
_UNMATCHED = (SelectorFalse, SelectorError)


def device_lines(request: RequestReport) -> Iterator[str]:
    """Yield a line for each group of devices, the nearest first; then the nearest miss, unless its line is there already."""
    matching = [one for one in request.devices if not isinstance(one.verdict, _UNMATCHED)]
    others = [one for one in request.devices if isinstance(one.verdict, _UNMATCHED)]
    lines = [*map(str, request.verdicts), *_matching(matching)]
    lines += _rest(request, others) if matching else _of_none(request, others)
    yield from lines[len(request.verdicts) :]
    yield from _nearest(request, lines)


def _rest(request: RequestReport, others: Sequence[DeviceGroup]) -> Iterator[str]:
    """Yield one line for the devices that do not match, beside some that do. Only a single reason is worth its words."""
    if len(others) == 1 and not others[0].foreign:
        yield _unmatched(request, others[0])
    elif others:
        yield f"{devices(_sum(others))} of other {_kinds(others)}"


def _of_none(request: RequestReport, others: Sequence[DeviceGroup]) -> Iterator[str]:
    """Yield the lines of a request that no device matches, without what the verdict about the request says already."""
    never = _never_true(request)
    own = [
        one
        for one in others
        if not one.foreign
        and not (isinstance(one.verdict, SelectorFalse) and _condition(one.verdict) in never)
    ]
    own = _with_one_error(request, own)
    for group in own[:SHOWN_GROUPS]:
        yield _unmatched(request, group)
    cut, foreign = own[SHOWN_GROUPS:], [one for one in others if one.foreign]
    if cut:
        yield f"{devices(_sum(cut))}: {len(cut)} other reasons, … (-o json)"
    if foreign:
        yield f"{devices(_sum(foreign))} of other drivers"


def _unmatched(request: RequestReport, group: DeviceGroup) -> str:
    same = _is_same_error(request, group)
    return f"{devices(group.count)}: {_SAME_ERROR}" if same else _group(group)


def _is_same_error(request: RequestReport, group: DeviceGroup) -> bool:
    """Return whether the line about the request tells the error of these devices, which may differ in the device and its values."""
    failed = any(isinstance(one, SelectorError) for one in request.verdicts)
    return failed and isinstance(group.verdict, SelectorError)


def _with_one_error(request: RequestReport, groups: Sequence[DeviceGroup]) -> list[DeviceGroup]:
    """Return the groups with those whose line would be the same as one."""
    same = [one for one in groups if _is_same_error(request, one)]
    whole = [msgspec.structs.replace(one, count=_sum(same)) for one in same[:1]]
    first = next((place for place, one in enumerate(groups) if one in same), 0)
    others = [one for one in groups if one not in same]
    return [*others[:first], *whole, *others[first:]]


def _kinds(groups: Iterable[DeviceGroup]) -> str:
    return "drivers" if all(one.foreign for one in groups) else "types or drivers"


def _sum(groups: Iterable[DeviceGroup]) -> int:
    return sum(one.count for one in groups)


def _never_true(request: RequestReport) -> set[tuple[str, str]]:
    return {
        (one.source, part)
        for one in request.verdicts
        if isinstance(one, SelectorNeverMatches)
        for part in (one.part, *one.others)
    }


def _condition(reason: SelectorFalse) -> tuple[str, str]:
    return reason.source, reason.part


def _matching(groups: Sequence[DeviceGroup]) -> Iterator[str]:
    alike: dict[object, list[DeviceGroup]] = {}
    for one in sorted(groups, key=lambda one: _nearness(one.verdict)):
        reason = one.verdict
        ending = isinstance(reason, HeldByClaim) and bool(reason.ending)
        alike.setdefault(reason if ending else _without_names(reason), []).append(one)
    lines = list(alike.values())
    yield from map(_alike, lines[:SHOWN_GROUPS])
    rest = lines[SHOWN_GROUPS:]
    if rest:
        count = sum(map(_sum, rest))
        yield f"{devices(count)} match: {len(rest)} other reasons, … (-o json)"


def _nearness(reason: Verdict) -> int:
    """Return the place of a reason: first the devices that can be had, then those that will be free without anybody's help."""
    if isinstance(reason, Fits):
        return -1
    if isinstance(reason, HeldByClaim) and reason.ends:
        return 0
    if isinstance(reason, CountersUsedUp | CapacityConsumed) and reason.ending:
        return 0
    return _NEARNESS.get(type(reason), _FARTHEST if isinstance(reason, _UNMATCHED) else _OTHERS)


def _alike(groups: Sequence[DeviceGroup]) -> str:
    """Return one line for groups that differ only in the claims that use their devices."""
    if len(groups) == 1:
        return _group(groups[0])
    reasons = [one.verdict for one in groups]
    held = [one for one in reasons if isinstance(one, HeldByClaim)]
    if held:
        words = f"held by {first_names(held, 'claims', _holder)}"
    else:
        (words,) = _texts([("", one) for one in reasons])
    return f"{devices(_sum(groups))} match: {words}"


def _holder(reason: HeldByClaim) -> str:
    """Return a claim with its pods, which are in its namespace, and the time, short enough to stand beside other claims."""
    groups = [f"pod group {one.rpartition('/')[2]}" for one in reason.pods if " " in one]
    pods = [one.rpartition("/")[2] for one in reason.pods if " " not in one]
    of_pods = [f"pod{'s' if len(pods) > 1 else ''} {first_names(pods)}"] if pods else []
    used = ", ".join((*groups, *of_pods)) or "no pod"
    return f"{reason.claim} ({used}{', ' if reason.since else ''}{reason.since})"


def _group(group: DeviceGroup) -> str:
    if isinstance(group.verdict, Fits):
        return f"{devices(group.count)}: can be had"
    unmatched = isinstance(group.verdict, _UNMATCHED)
    example = group.examples[0] if group.examples else ""
    since = f", since {group.since}" if group.since else ""
    if group.count == 1:
        named = f" ({example})" if example else ""
        return f"1 device{'' if unmatched else ' matches'}{named}: {group.verdict}{since}"
    of_many = f" (for example {example})" if example else ""
    return f"{devices(group.count)}{'' if unmatched else ' match'}: {group.verdict}{since}{of_many}"


def _nearest(request: RequestReport, lines: Sequence[str]) -> Iterator[str]:
    """Yield the nearest miss, unless the lines above have its only reason."""
    miss = request.nearest
    if miss is None or all(one.foreign for one in request.devices):
        return  # what a device of another driver lacks is no help
    said, never = "\n".join(lines), _never_true(request)
    words = dict.fromkeys(_new_words(one, said) for one in miss.reasons)
    (first, *more) = miss.reasons
    known = str(first) in said or (isinstance(first, SelectorFalse) and _condition(first) in never)
    known = known or (isinstance(first, HeldByClaim) and _holder(first) in said)
    if known and not more:
        return
    where = f" on {miss.node}" if miss.node else ""
    yield f"nearest miss: {miss.device}{where}: {'; '.join(words)}"


def _new_words(reason: Verdict, said: str) -> str:
    """Return the text of a reason, without a hint that was given already."""
    if isinstance(reason, SelectorFalse) and reason.hint in said:
        return str(msgspec.structs.replace(reason, hint=""))
    same = isinstance(reason, SelectorError) and reason.message in said
    return _SAME_ERROR if same else str(reason)


def node_lines(groups: Sequence[NodeGroup], most: int) -> Iterator[str]:
    """Yield a line for nodes with the same reasons, at most `most`, the nearest first, and one for the other nodes."""
    merged = sorted(_merged(groups), key=_node_nearness)
    for some in merged[:most]:
        names = [name for group in some for name in group.nodes]
        yield f"{first_names(names)}: {_node_verdict(some)}"
    rest = merged[most:]
    if rest:
        count = sum(group.count for some in rest for group in some)
        yield f"{count:,} more nodes with other reasons, … (-o json)"


def _node_nearness(groups: Sequence[NodeGroup]) -> int:
    """Return the place of the nodes: first those where everything fits, then those with the nearest devices."""
    return min((_nearness(one) for one in groups[0].devices), default=-1)


def _node_verdict(groups: Sequence[NodeGroup]) -> str:
    group = groups[0]
    besides = "; ".join(map(str, group.pod))
    if group.devices:
        texts = _texts([reason for one in groups for reason in _by_request(one)])
        cut = [*texts[:SHOWN_REASONS], *(["…"] if len(texts) > SHOWN_REASONS else ())]
        return "; ".join(cut) + (f"; besides, {besides}" if besides else "")
    placed = ", ".join(f"{one.request} = {one}" for one in group.placement)
    fits = f"the devices fit ({placed})" if placed else "the devices fit"
    return f"{fits}, but {besides}" if besides else fits


def _merged(groups: Sequence[NodeGroup]) -> list[list[NodeGroup]]:
    """Put groups together that differ only in the claims that use their devices. Each result becomes one line."""
    alike: dict[object, list[NodeGroup]] = {}
    for number, group in enumerate(groups):
        found = ((name, _without_names(one)) for name, one in _by_request(group))
        reasons = tuple(dict.fromkeys(found))
        alike.setdefault((reasons, group.pod) if reasons else number, []).append(group)
    return list(alike.values())


def _by_request(group: NodeGroup) -> list[tuple[str, Verdict]]:
    """Return the reasons of the nodes, each with the request that it is about, "" if only one is asked for."""
    return list(zip(group.requests or ("",) * len(group.devices), group.devices, strict=True))


def _texts(reasons: Iterable[tuple[str, Verdict]]) -> list[str]:
    """Return each reason once, after the requests that it is about.

    Reasons that differ only in claims are one, with the names of at most SHOWN_NAMES claims.
    """
    alike: dict[Verdict, list[tuple[str, Verdict]]] = {}
    for name, one in reasons:
        alike.setdefault(_without_names(one), []).append((name, one))
    found: dict[tuple[str, ...], dict[str, None]] = {}
    for one, of in alike.items():
        names = tuple(dict.fromkeys(name for name, _ in of if name))
        words = _with_claims(one, [reason for _, reason in of])
        found.setdefault(names, {})[words] = None
    return [f"{_about(names)}{words}" for names, some in found.items() for words in some]


def _about(names: Sequence[str]) -> str:
    """Return the beginning of a text about these requests; a name that has the words "request" and "claim" already stays as it is."""
    if not names:
        return ""
    known = names[0].startswith("request ")
    word = "" if known else "request " if len(names) == 1 else "requests "
    return f"{word}{first_names(names)}: "


def _with_claims(reason: Verdict, of: Sequence[Verdict]) -> str:
    match reason:
        case HeldByClaim():
            claims = dict.fromkeys(one.claim for one in of if isinstance(one, HeldByClaim))
            return f"held by {first_names(list(claims), 'claims')}"
        case CountersUsedUp() | CapacityConsumed():
            known = (one for one in of if isinstance(one, CountersUsedUp | CapacityConsumed))
            users = dict.fromkeys(name for one in known for name in one.claims)
            return str(msgspec.structs.replace(reason, claims=tuple(users)))
        case SelectorError():
            return _SAME_ERROR
        case _:
            return str(reason)


def _without_names(reason: Verdict) -> Verdict:
    """Return the reason without what differs between devices and nodes, or is said elsewhere: names of claims and rules, and hints."""
    match reason:
        case HeldByClaim():
            return HeldByClaim("")
        case CountersUsedUp() | CapacityConsumed():
            return msgspec.structs.replace(reason, claims=(), ending=())
        case Tainted():
            return msgspec.structs.replace(reason, rule="", hint="")
        case SelectorFalse():
            return msgspec.structs.replace(reason, hint="")
        case SelectorError():
            return msgspec.structs.replace(reason, hint="", message="")
        case _:
            return reason


def devices(count: int) -> str:
    """Return the number of devices in words."""
    return "1 device" if count == 1 else f"{count:,} devices"
