# SPDX-License-Identifier: Apache-2.0
"""Promises about one lease: what `configure` sets up, `reset` undoes, also twice, late, or without knowing all."""

import dataclasses
from collections.abc import Iterator

from dra_driver.errors import DriverError
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.ids import DeviceName
from dra_driver.model.lease import InUse, Lease
from dra_driver.planning.edits import wrong_edits
from dra_driver.testing.contract.bench import (
    OTHER,
    Bench,
    BrokenPromise,
    Machine,
    Promise,
    a_lease,
    bare,
    named,
    same,
    shown,
)

_STRANGERS = tuple(map(DeviceName, ("device", "other-0", "no-such-device", "gpu-0000-65-00-0")))
_ASK = "ask the hardware what is there, and do only what is missing"
_UNDO = "undo everything that configure does for this lease, and nothing else"


def accepted_edits(bench: Bench) -> None:
    """The driver refuses edits that could take over the node or a container."""
    for machine, lease in _cases(bench):
        device = machine.scan().by_name[lease.device]
        wrong = wrong_edits(machine.configure(lease), device.declares)
        if wrong:
            raise BrokenPromise(
                f"configure({named(lease)})",
                wrong,
                "return other edits, or declare unusual ones in AllocatableDevice.declares",
            )


def configure_twice(bench: Bench) -> None:
    """After a crash the driver calls `configure` again, with the same lease or a new one of the same claim."""
    for machine, lease in _cases(bench):
        edits = machine.configure(lease)
        settings = machine.settings()
        for again in ("a second time", "a third time, by a new backend"):
            called = f"configure({named(lease)}) {again}"
            same(machine.configure(lease), edits, called, f"return the same edits; {_ASK}")
            machine.expect(settings, called, _ASK)
            machine.restart()


def undone(bench: Bench) -> None:
    """The next claim gets the device as the first one got it."""
    for machine, lease in _cases(bench):
        before = machine.settings()
        machine.configure(lease)
        machine.restart()
        machine.reset(lease)
        machine.expect(before, f"configure({named(lease)}), reset(…) by a new backend", _UNDO)


def reset_twice(bench: Bench) -> None:
    """The driver may die after a reset, and then it calls it again."""
    for machine, lease in _cases(bench):
        before = machine.settings()
        machine.configure(lease)
        machine.reset(lease)
        machine.reset(lease)
        machine.expect(before, f"configure({named(lease)}), reset(…) twice", _ASK)


def never_set_up(bench: Bench) -> None:
    """A lease is stored before anything is touched, so it may never have been set up."""
    for machine, lease in _cases(bench):
        before = machine.settings()
        machine.reset(lease)
        machine.expect(before, f"reset({named(lease)}) without configure", _ASK)


def partial(bench: Bench) -> None:
    """After its state was lost, the driver knows the leases from the CDI files only."""
    for machine, lease in _cases(bench):
        before = machine.settings()
        machine.configure(lease)
        machine.restart()
        machine.reset(bare(lease))
        action = "rely on claim_uid, device and share_id only, and ask the hardware for all else"
        machine.expect(before, f"configure({named(lease)}), reset({named(bare(lease))})", action)


def vanished(bench: Bench) -> None:
    """A device that has gone cannot be reset, and its claim must still come to its end.

    If nobody knows whose a device was, the driver asks all backends.
    """
    for machine, lease in _cases(bench):
        before = machine.settings()
        for name in _STRANGERS:
            machine.reset(dataclasses.replace(lease, device=name))
            machine.expect(before, f"reset of device {name}", "touch no other device")
        if bench.vanish is None:
            continue
        names = set(machine.scan().by_name)
        machine.configure(lease)
        bench.vanish(machine.folder, lease.device)
        left = set(machine.scan().by_name)
        if lease.device in left or not left <= names:
            raise BrokenPromise(
                f"scan() after {lease.device} vanished",
                f"{sorted(left)}; before {sorted(names)}",
                "return the devices that are there, under the names that they had",
            )
        machine.reset(lease)
        machine.reset(bare(lease))


def admin(bench: Bench) -> None:
    """Another claim may use the device while an admin looks at it."""
    for machine, lease in _cases(bench):
        looking = dataclasses.replace(lease, claim_uid=OTHER, admin_access=True)
        action = "with lease.admin_access, return the edits only"
        for state in ("free", "set up for a claim"):
            before = machine.settings()
            _edits_of(machine, looking)
            machine.expect(
                before, f"configure({named(looking)}) of a device that is {state}", action
            )
            machine.configure(lease)


def running(bench: Bench) -> None:
    """The driver makes a lost CDI file again while containers of the claim run."""
    for machine, lease in _cases(bench):
        edits = machine.configure(lease)
        before = machine.settings()
        machine.restart()
        told = dataclasses.replace(lease, may_run=True)
        action = "with lease.may_run, change nothing and return the same edits"
        same(machine.configure(told), edits, f"configure({named(told)})", action)
        machine.expect(before, f"configure({named(told)})", action)


def use(bench: Bench) -> None:
    """A device that is in use stays held, and the driver asks again."""
    for machine, lease in _cases(bench):
        _answer(machine, lease, "before configure")
        machine.configure(lease)
        _answer(machine, lease, "after configure")
        machine.reset(lease)
        if _answer(machine, lease, "after reset") is InUse.YES:
            raise BrokenPromise(
                f"in_use({lease.device!r}) after reset",
                f"{InUse.YES}, and no process has the device open",
                "answer YES only for a process; the device of an ended claim would be held for ever",
            )


def _answer(machine: Machine, lease: Lease, when: str) -> InUse:
    before = machine.settings()
    found: object = machine.in_use(lease.device)
    called = f"in_use({lease.device!r}) {when}"
    if not isinstance(found, InUse):
        raise BrokenPromise(called, shown(found), f"return one of {', '.join(map(str, InUse))}")
    machine.expect(before, called, "look only, and change nothing in the hardware")
    return found


def _edits_of(machine: Machine, lease: Lease) -> ContainerEdits | None:
    """What the backend returns; None if it says that it has nothing to show: a partition may not exist before it is set up."""
    try:
        return machine.configure(lease)
    except BrokenPromise as broken:
        if isinstance(broken.__cause__, DriverError):
            return None
        raise


def _cases(bench: Bench) -> Iterator[tuple[Machine, Lease]]:
    for device, config in bench.samples():
        yield bench.machine(), a_lease(device, config)


PROMISES = (
    Promise("configure returns edits that the driver accepts", accepted_edits),
    Promise("configure can be called again", configure_twice),
    Promise("reset undoes configure", undone),
    Promise("reset can be called again", reset_twice),
    Promise("reset of a lease that was never set up changes nothing", never_set_up),
    Promise("reset needs only the claim, the device and the share", partial),
    Promise("reset of a device that vanished succeeds", vanished),
    Promise("admin access changes nothing", admin),
    Promise("configure changes nothing while containers may run", running),
    Promise("in_use answers yes, no or cannot tell", use),
)
