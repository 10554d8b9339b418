# SPDX-License-Identifier: Apache-2.0
"""Promises about crashes: whatever a dead process has begun is undone by `reset`, asked by the next process."""

from collections.abc import Callable, Iterator

from msgspec import Struct

from dra_driver.backends.base import Backend
from dra_driver.model.lease import Lease
from dra_driver.testing.contract.bench import (
    Bench,
    Machine,
    NothingToTest,
    Promise,
    a_lease,
    beside,
    named,
    same,
)
from dra_driver.testing.contract.killed import die_before, lines_of, packages_of

MOST_LINES = 150  # of one call; of a longer one so many are chosen, at equal distances
_UNDO = "undo each step that was begun: find it in the hardware, not in what the driver remembers"


class _Story(Struct, frozen=True):
    """A lease, and the leases that are set up before it and stay."""

    lease: Lease
    others: tuple[Lease, ...] = ()


def in_configure(bench: Bench) -> None:
    """The lease is in the state, so the next process undoes it, and the hardware can be used again."""
    for story in _stories(bench):
        for machine, before, place in _crashes(bench, story, _configure, set_up=False):
            _undone(machine, story.lease, before, f"configure killed before {place}")


def in_reset(bench: Bench) -> None:
    """The next process calls `reset` again."""
    for story in _stories(bench):
        for machine, before, place in _crashes(bench, story, _reset, set_up=True):
            _undone(machine, story.lease, before, f"reset killed before {place}")


def _undone(machine: Machine, lease: Lease, before: object, what: str) -> None:
    machine.restart()
    machine.reset(lease)
    machine.expect(before, f"{what}, then reset({named(lease)})", _UNDO)
    fresh = machine.configure(lease)
    again = machine.configure(lease)
    same(again, fresh, f"{what}, reset, configure twice", "set up the device as if it were new")
    machine.reset(lease)
    machine.expect(before, f"{what}, reset, configure, then reset({named(lease)})", _UNDO)


def _stories(bench: Bench) -> Iterator[_Story]:
    forms = set()
    for device, config in bench.samples():
        lease = a_lease(device, config)
        form = (bool(lease.parts), bool(lease.share_id), repr(config))
        if form not in forms:
            yield _Story(lease)
        forms.add(form)
    try:
        one, other = bench.pair()
    except NothingToTest:
        return
    yield _Story(beside(other), (one,))


def _crashes(
    bench: Bench, story: _Story, act: Callable[[Backend, Lease], object], *, set_up: bool
) -> Iterator[tuple[Machine, object, str]]:
    """Yield hardware on which a process died at each line of the call, its settings before the lease, and the line."""

    def ready() -> tuple[Machine, object]:
        machine = bench.machine()
        for other in story.others:
            machine.configure(other)
        before = machine.settings()
        if set_up:
            machine.configure(story.lease)
            machine.restart()
        return machine, before

    first, _before = ready()
    code = bench.code or packages_of(first.backend)
    report = first.folder.with_suffix(".lines")
    places = lines_of(lambda: act(first.backend, story.lease), code, report, bench.patience)
    if not places:
        raise NothingToTest(f"no line of {', '.join(code)} runs: name the package in code=(…)")
    step = max(1, -(-len(places) // MOST_LINES))
    for number in range(0, len(places), step):
        machine, before = ready()

        def once(machine: Machine = machine) -> object:
            return act(machine.backend, story.lease)

        if die_before(number, once, code, bench.patience):
            yield machine, before, places[number]


def _configure(backend: Backend, lease: Lease) -> object:
    return backend.configure(lease)


def _reset(backend: Backend, lease: Lease) -> None:
    backend.reset(lease)


PROMISES = (
    Promise("reset undoes what a crash in configure has left", in_configure),
    Promise("reset undoes what a crash in reset has left", in_reset),
)
