# SPDX-License-Identifier: Apache-2.0
"""What could a new claim that asks for one device of a class get now? One answer for each DeviceClass.

The selectors of the class choose the devices, and `Overview.against` says of each whether a claim could get it. `Together` says how many
such claims could have one at the same time: partitions of one device may exclude each other.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from dra_driver.allocator.amounts import Amount
from dra_driver.allocator.devices import SliceDevice
from dra_driver.explain.claim_request import ClaimRequest
from dra_driver.explain.facts.claim_problems import NO_ALLOCATION
from dra_driver.explain.selector_answers import SelectorAnswers
from dra_driver.explain.verdict import CouldNotTell, SelectorError, Verdict
from dra_driver.model.api.resource_claim import DeviceClass, ResourceClaim
from dra_driver.model.gates import ALLOCATION
from dra_driver.model.names import DOCUMENT_VERSION, FREE_DEVICES_KIND
from dra_driver.overview.cluster import ONE_DEVICE, Overview
from dra_driver.overview.devices import Chosen
from dra_driver.overview.part import Gap, Part
from dra_driver.overview.values import memory_of, product

_FAILED = (SelectorError, CouldNotTell)


class FreeProduct(Part, frozen=True, kw_only=True):
    """So many free devices are of this product, and so many of them can be had at the same time (`together`).

    `memory` is that of the largest of them, or the largest share that is left.
    """

    product: str
    memory: str
    free: int
    together: int


class FreeOfClass(Part, frozen=True, kw_only=True):
    """One class.

    `matching` devices belong to it, and any of the `free` ones a new claim could get: the whole device, or of `partlyFree` ones a share.
    Of these, `together` can be had at the same time; the others exclude each other, because they consume the same counters. They are on `nodes`; devices for all nodes are on none of them, and `allNodes` is set. `onClosedNodes` devices are free too, but all nodes that
    can use them are cordoned or not ready. `largestMemory` is the most memory that one claim could get. `problem` says why the class
    gives no devices, or may not. If it took too long to find out, or who has the devices could not be read, the answer is not
    `isComplete`: fewer or more may be free.
    """

    device_class: str
    extended_resource: str
    matching: int
    free: int
    together: int
    partly_free: int
    on_closed_nodes: int
    nodes: tuple[str, ...]
    all_nodes: bool
    largest_memory: str
    products: tuple[FreeProduct, ...]
    problem: str
    is_complete: bool


class FreeDevices(Part, frozen=True, kw_only=True):
    """The answer of `kubectl dra free -o json`. `problem` says why there is none; it is "" otherwise."""

    api_version: str = DOCUMENT_VERSION
    kind: str = FREE_DEVICES_KIND
    read_at: str
    classes: tuple[FreeOfClass, ...]
    not_read: tuple[Gap, ...]
    problem: str = ""


def free_of(
    overview: Overview,
    chosen: Chosen,
    device_class: str = "",
    *,
    not_read: tuple[Gap, ...] = (),
    cancelled: Callable[[], bool] = lambda: False,
) -> FreeDevices:
    """Return what is free for each class, or for one, sorted by name. Once `cancelled` returns True, what is not looked at has a problem."""
    classes = overview.fleet.classes
    names = sorted(name for name in classes if device_class in ("", name))
    rows = tuple(_row(overview, classes[name], chosen, cancelled) for name in names)
    return FreeDevices(read_at=overview.state.recorded_at, classes=rows, not_read=not_read)


def _row(
    overview: Overview, one: DeviceClass, chosen: Chosen, cancelled: Callable[[], bool]
) -> FreeOfClass:
    name = one.metadata.name
    body = msgspec.structs.replace(ONE_DEVICE, device_class_name=name)
    request = ClaimRequest(ResourceClaim(), "one", body, (0, None))
    matching, problems = _matching(overview, request, chosen, cancelled)
    free = [device for device in matching if overview.against(device) is None]
    could = [device for device in free if overview.is_open(device)]
    closed = [device for device in free if not overview.is_open(device)]
    nodes = [overview.nodes_of(device) for device in could]
    return FreeOfClass(
        device_class=name,
        extended_resource=one.spec.extended_resource_name or "",
        matching=len(matching),
        free=len(could),
        together=overview.together.most(could),
        partly_free=sum(1 for device in could if overview.fleet.held.shares.get(device.id)),
        on_closed_nodes=overview.together.most(closed),
        nodes=tuple(sorted({node for found in nodes for node in found or ()} - overview.closed)),
        all_nodes=None in nodes,
        largest_memory=_largest(overview, could),
        products=tuple(_products(overview, could)),
        problem="; ".join(map(_said, problems)),
        is_complete=overview.knows_holders and not _gave_up(problems),
    )


def _gave_up(problems: Iterable[Verdict]) -> bool:
    return any(isinstance(problem, CouldNotTell) for problem in problems)


def took_too_long(one: FreeOfClass) -> bool:
    """Return whether the answer is not complete although all could be read."""
    return not one.is_complete and bool(one.problem)


def _matching(
    overview: Overview, request: ClaimRequest, chosen: Chosen, cancelled: Callable[[], bool]
) -> tuple[Sequence[SliceDevice], Sequence[Verdict]]:
    """Return the devices that the selectors of the class choose, and what keeps them from choosing."""
    answers = SelectorAnswers(overview.fleet, request, cancelled)
    if not overview.fleet.is_on(ALLOCATION):
        return (), (NO_ALLOCATION,)
    if answers.problems:
        return (), answers.problems
    matching: list[SliceDevice] = []
    failed: dict[type[Verdict], Verdict] = {}
    for device in _asked(overview, chosen):
        verdicts = answers.judged(device).verdicts
        if not verdicts:
            matching.append(device)
        elif isinstance(verdicts[0], _FAILED):
            failed.setdefault(type(verdicts[0]), verdicts[0])
    return matching, tuple(failed.values())


def _said(problem: Verdict) -> str:
    more = (
        "; the scheduler may give up on the whole pod" if isinstance(problem, SelectorError) else ""
    )
    return f"{problem}{more}"


def _asked(overview: Overview, chosen: Chosen) -> Iterator[SliceDevice]:
    for device in overview.devices:
        if overview.is_on(device, chosen.node) and chosen.driver in ("", device.id.driver):
            yield device


def _memory(overview: Overview, device: SliceDevice) -> Amount | None:
    shared = overview.is_shared(device)
    return memory_of(overview.largest_share(device) if shared else device.capacity)


def _largest(overview: Overview, devices: Iterable[SliceDevice]) -> str:
    amounts = (_memory(overview, device) for device in devices)
    largest = max(
        (one for one in amounts if one is not None), key=lambda one: one.nanos, default=None
    )
    return str(largest) if largest else ""


def _products(overview: Overview, devices: Sequence[SliceDevice]) -> Iterator[FreeProduct]:
    found: dict[str, list[SliceDevice]] = {}
    for device in devices:
        found.setdefault(product(device.device), []).append(device)
    for name, alike in sorted(found.items()):
        yield FreeProduct(
            product=name,
            memory=_largest(overview, alike),
            free=len(alike),
            together=overview.together.most(alike),
        )
