# SPDX-License-Identifier: Apache-2.0
"""Promises about finding devices: names, limits, and calls that end."""

from collections.abc import Callable
from threading import Event, Thread

from dra_driver.planning.slices import plan_pool
from dra_driver.testing.contract.bench import (
    Bench,
    BrokenPromise,
    Machine,
    NothingToTest,
    Promise,
    attempt,
    raised,
    same,
)

_LOOK_SECONDS = 0.2
_MOST_YIELDS = 20  # in _LOOK_SECONDS, while nothing changes
_STABLE = (
    "make the name, the UUID and Hardware.parent of what the hardware keeps, such as a PCI address, a slot or a serial number: "
    "claims of running pods refer to devices by name"
)


def publishable(bench: Bench) -> None:
    """The API server refuses a slice for one bad value, so the driver leaves the value or the device out."""
    plan = plan_pool(bench.machine().scan(), kept=())
    if plan.problems:
        found = "; ".join(f"{one.device} {one.subject}: {one.found}" for one in plan.problems[:5])
        raise BrokenPromise(
            "scan(), then planning the ResourceSlices",
            f"{len(plan.problems)} problems: {found}",
            "correct these values: the driver would publish the devices without them, or not at all",
        )


def elsewhere(bench: Bench) -> None:
    """Without `--backend` the driver tries every installed backend, on every node."""
    if not bench.has_hardware:
        raise NothingToTest("the tests were given no hardware(folder)")
    if not getattr(type(bench.machine().backend), "auto", True):
        raise NothingToTest("`auto` never chooses this backend")
    found = bench.machine(empty=True).scan().devices
    if found:
        raise BrokenPromise(
            "scan() on a node without this hardware",
            f"devices {', '.join(one.name for one in found)}",
            "return an empty Inventory; declare auto = False if the backend invents devices",
        )


def twice(bench: Bench) -> None:
    """A second scan without a change finds the same."""
    machine = bench.machine()
    first = _identities(machine)
    same(_identities(machine), first, "scan() a second time", _STABLE)


def rebooted(bench: Bench) -> None:
    """The names are as before the reboot."""
    machine = bench.machine()
    first = _identities(machine)
    machine.restart()
    same(_identities(machine), first, "scan() of a new backend for the same hardware", _STABLE)


def ends(bench: Bench) -> None:
    """The driver stops when both have ended; a scan is never stopped from outside."""
    machine = bench.machine()
    stop = Event()
    yields: list[object] = []
    watching = _started(lambda: yields.extend(machine.backend.watch(stop)))
    scanning = _started(machine.scan)
    _ended(scanning, "scan() while watch() runs", bench.patience, "scan() has to end by itself")
    watching.thread.join(_LOOK_SECONDS)
    seen = len(yields)
    stop.set()
    _ended(
        watching,
        "watch(stop), then stop.set()",
        bench.patience,
        "wait with stop.wait(seconds) instead of time.sleep, and return when it is set",
    )
    if seen > _MOST_YIELDS:
        raise BrokenPromise(
            f"watch(stop) for {_LOOK_SECONDS} s, while nothing changed",
            f"it yielded {seen} times",
            "yield only if scan() would return something else",
        )
    late = _started(lambda: list(machine.backend.watch(stop)))
    _ended(late, "watch(stop) with stop set", bench.patience, "return at once if stop is set")


class _Started:
    """A call in a thread of its own. If it hangs, the thread stays until the process ends."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.error: Exception | None = None
        self._act = act
        self.thread = Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._act()
        except Exception as error:  # noqa: BLE001  reported by the thread that waits
            self.error = error


def _started(act: Callable[[], object]) -> _Started:
    return _Started(act)


def _ended(call: _Started, called: str, patience: float, action: str) -> None:
    call.thread.join(patience)
    if call.thread.is_alive():
        raise BrokenPromise(called, f"it has not ended after {patience} s", action)
    if isinstance(call.error, BrokenPromise):
        raise call.error
    if call.error is not None:
        raise BrokenPromise(
            called, raised(call.error), "let it succeed while the hardware is there"
        )


def _identities(machine: Machine) -> dict[str, object]:
    found = attempt("scan()", machine.scan).devices
    return {one.name: (one.uuid, one.resource) for one in found}


PROMISES = (
    Promise("scan finds nothing on a node without the hardware", elsewhere),
    Promise("every device can be published as it is", publishable),
    Promise("a second scan gives the same names", twice),
    Promise("names are the same after a reboot", rebooted),
    Promise("scan ends, and watch ends when it is stopped", ends),
)
