# SPDX-License-Identifier: Apache-2.0
"""The promise about what several leases share: a mode of the hardware, or a daemon."""

from dra_driver.model.lease import Lease
from dra_driver.testing.contract.bench import Bench, Machine, Promise, beside, named, same

_STAYS = "undo what leases share only if lease.is_alone"


def first_and_last(bench: Bench) -> None:
    """Two claims come and go, in both orders."""
    one, other = bench.pair()
    for first, second in ((one, other), (other, one)):
        _come_and_go(bench.machine(), first, second)
    _found_missing(bench, one)


def _come_and_go(machine: Machine, first: Lease, second: Lease) -> None:
    empty = machine.settings()
    machine.configure(first)
    alone = machine.settings()
    edits = machine.configure(beside(second))
    # A lease that comes and goes leaves the other one as it was.
    machine.reset(beside(second))
    called = (
        f"configure({named(first)}), configure and reset of {second.device}, which is not alone"
    )
    machine.expect(alone, called, f"undo only the own part of the lease; {_STAYS}")
    machine.configure(beside(second))
    machine.restart()
    machine.reset(beside(first))
    left = machine.settings()
    called = f"reset of {first.device} while {second.device} stays, then configure({named(beside(second))}) again"
    action = f"{_STAYS}: here the other lease had to be set up again"
    same(machine.configure(beside(second)), edits, called, action)
    machine.expect(left, called, action)
    machine.reset(second)
    called = f"reset({named(second)}), the last lease of the hardware"
    machine.expect(empty, called, "undo what leases share if lease.is_alone")


def _found_missing(bench: Bench, lease: Lease) -> None:
    """The first lease may have failed before it set up what both need."""
    machine = bench.machine()
    empty = machine.settings()
    edits = machine.configure(beside(lease))
    settings = machine.settings()
    called = f"configure({named(beside(lease))}) of hardware where nothing is set up, then configure again with is_alone"
    action = "set up what leases share whenever it is missing, not only if lease.is_alone"
    same(machine.configure(lease), edits, called, action)
    machine.expect(settings, called, action)
    machine.reset(lease)
    machine.expect(empty, f"{called}, then reset", "undo what leases share if lease.is_alone")


PROMISES = (
    Promise("the first lease sets up what is shared, and the last undoes it", first_and_last),
)
