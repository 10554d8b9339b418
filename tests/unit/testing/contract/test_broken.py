# SPDX-License-Identifier: Apache-2.0
"""Does the contract notice a backend that breaks a promise? One deliberately bad backend, or more, for each promise."""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dra_driver.errors import Temporary
from dra_driver.model.api.resource_slice import DeviceTaint
from dra_driver.model.cdi import ContainerEdits, Hook, Mount
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.health import Health, HealthStatus
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware, InUse, Lease
from dra_driver.testing.contract import PROMISES, BrokenPromise
from dra_driver.testing.contract.bench import Bench, NothingToTest
from tests.support.cards import SPEED, Cards, Speed, pull_out, two_cards, what_is_set_up

NUMBERS = count()
BY_SENTENCE = {promise.sentence: promise for promise in PROMISES}


@dataclass(frozen=True)
class Bad:
    """A backend, the promise that it breaks, and a part of each line of the message: what was called, what was found."""

    promise: str
    backend: type[Cards]
    called: str
    found: str
    more: dict[str, Any] = field(default_factory=dict)


class WithoutReset(Cards):
    reset = None  # type: ignore[assignment]


class NotMade(Cards):
    def __init__(self, folder: Path) -> None:
        raise OSError("no driver")


class OldArguments(Cards):
    def configure(self, device: str, claim: str) -> ContainerEdits:  # type: ignore[override]
        return ContainerEdits()


class OptionsAsMapping(Cards):
    options = {"poll_seconds": 60}  # type: ignore[assignment]  # noqa: RUF012


class Needed(msgspec.Struct):
    folder: str


class OptionsWithoutDefault(Cards):
    options = Needed  # type: ignore[assignment]


class Opaque(msgspec.Struct):
    value: Cards


class OptionsWithoutSchema(Cards):
    options = Opaque  # type: ignore[assignment]


class KindAsText(Cards):
    config_kinds = ("Speed",)  # type: ignore[assignment]


class KindTwice(Cards):
    config_kinds = (SPEED, replace(SPEED, default=None))  # type: ignore[assignment]


class KindWithoutGroup(Cards):
    config_kinds = (replace(SPEED, api_version="v1"),)


class TwoDefaults(Cards):
    config_kinds = (SPEED, replace(SPEED, kind="Other"))  # type: ignore[assignment]


class WrongDefault(Cards):
    config_kinds = (replace(SPEED, default=Speed(speed=9)),)


class Forgets(msgspec.Struct, kw_only=True, omit_defaults=True):
    started: float = msgspec.field(default_factory=lambda: float(next(NUMBERS)))

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]


class DefaultThatChanges(Cards):
    config_kinds = (ConfigKind("cards.example.com/v1", "F", Forgets, default=Forgets()),)


class LongNames(Cards):
    def device(self, card: Path, part: str) -> AllocatableDevice:
        found = super().device(card, part)
        return replace(found, api=msgspec.structs.replace(found.api, name="x" * 60 + found.name))


class Needs(Cards):
    def scan(self) -> Inventory:
        if not (self.folder / "card0").exists():
            raise Temporary("no cards")
        return super().scan()


class Invents(Cards):
    def scan(self) -> Inventory:
        (self.folder / "card0").mkdir(exist_ok=True)
        return super().scan()


class InventsAndSaysSo(Invents):
    auto = False


class BadTaint(Cards):
    def device(self, card: Path, part: str) -> AllocatableDevice:
        found = super().device(card, part)
        taints = [DeviceTaint(key="a b", effect="NoSchedule")]
        return replace(found, api=msgspec.structs.replace(found.api, taints=taints))


class WrongType(Cards):
    def device(self, card: Path, part: str) -> AllocatableDevice:
        return replace(super().device(card, part), uuid=None)  # type: ignore[arg-type]


class NoInventory(Cards):
    def scan(self) -> Inventory:
        return []  # type: ignore[return-value]


class AllIll(Cards):
    def device(self, card: Path, part: str) -> AllocatableDevice:
        return replace(super().device(card, part), health=Health(HealthStatus.UNHEALTHY, "hot"))


class Counted(Cards):
    """Numbers the devices in the order in which it finds them, and goes on counting."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.number = next(NUMBERS)

    def device(self, card: Path, part: str) -> AllocatableDevice:
        found = super().device(card, part)
        name = f"{found.name}-{self.number}"
        return replace(found, api=msgspec.structs.replace(found.api, name=name))


class CountedInEachScan(Counted):
    def scan(self) -> Inventory:
        self.number = next(NUMBERS)
        return super().scan()


class RandomUuid(Cards):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.boot = next(NUMBERS)

    def device(self, card: Path, part: str) -> AllocatableDevice:
        return replace(super().device(card, part), uuid=f"{card}-{part}-{self.boot}")


class DeafWatch(Cards):
    def watch(self, stop: Event) -> Iterator[None]:
        time.sleep(30)
        yield


class BusyWatch(Cards):
    def watch(self, stop: Event) -> Iterator[None]:
        while not stop.wait(0.0001):
            yield


class BrokenWatch(Cards):
    def watch(self, stop: Event) -> Iterator[None]:
        raise OSError("no such device")


class EndlessScan(Cards):
    def scan(self) -> Inventory:
        time.sleep(30)
        return super().scan()


class MountsAll(Cards):
    def edits(self, lease: Lease) -> ContainerEdits:
        return ContainerEdits(mounts=(Mount("/", "/host"),))


class Hooks(Cards):
    def edits(self, lease: Lease) -> ContainerEdits:
        return ContainerEdits(hooks=(Hook("createContainer", "/bin/true"),))


class NoEdits(Cards):
    def edits(self, lease: Lease) -> ContainerEdits:
        return {}  # type: ignore[return-value]


class Raises(Cards):
    def configure(self, lease: Lease, /) -> ContainerEdits:
        raise KeyError(lease.device)


class OtherEditsEachTime(Cards):
    def edits(self, lease: Lease) -> ContainerEdits:
        return ContainerEdits(env={"CARD": str(next(NUMBERS))})


class OtherEditsAfterRestart(Cards):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.boot = next(NUMBERS)

    def edits(self, lease: Lease) -> ContainerEdits:
        return ContainerEdits(env={"CARD": str(self.boot)})


class SetsUpAgain(Cards):
    def write(self, path: Path, text: str) -> None:
        before = path.read_text() if path.exists() else ""
        path.write_text(before + text)


class ForgetsOnRestart(Cards):
    """Undoes what it remembers, so after a restart nothing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.done: set[str] = set()

    def configure(self, lease: Lease, /) -> ContainerEdits:
        self.done.add(lease.device)
        return super().configure(lease)

    def reset(self, lease: Lease, /) -> None:
        if lease.device in self.done:
            super().reset(lease)


class ResetOnce(Cards):
    def reset(self, lease: Lease, /) -> None:
        self.place(lease.device)[1].unlink()
        super().reset(lease)


class ResetOnceOnly(Cards):
    def reset(self, lease: Lease, /) -> None:
        mode = self.place(lease.device)[0] / "mode"
        if mode.exists():
            super().reset(lease)
        else:
            mode.write_text("reset")


class ResetNeedsSetUp(ResetOnce):
    def configure(self, lease: Lease, /) -> ContainerEdits:
        return super().configure(lease)


class NeedsConfig(Cards):
    def reset(self, lease: Lease, /) -> None:
        if isinstance(lease.config.value, Speed):
            super().reset(lease)


class NeedsDevice(Cards):
    def reset(self, lease: Lease, /) -> None:
        list(self.place(lease.device)[0].iterdir())
        super().reset(lease)


class TakesStrangers(Cards):
    def reset(self, lease: Lease, /) -> None:
        if not self.place(lease.device)[0].exists():
            (self.folder / "card0" / "alarm").touch()
        super().reset(lease)


class FindsOthers(Cards):
    """Gives the cards other numbers when one has gone."""

    def device(self, card: Path, part: str) -> AllocatableDevice:
        found = super().device(card, part)
        name = f"{len(list(self.folder.glob('card*')))}-{found.name}"
        return replace(found, api=msgspec.structs.replace(found.api, name=name))

    def place(self, device: DeviceName) -> tuple[Path, Path]:
        return super().place(DeviceName(device.partition("-")[2] or device))


class VanishedNeedsParent(Cards):
    def reset(self, lease: Lease, /) -> None:
        known = (
            lease.parent or lease.device not in self.mine or self.place(lease.device)[0].exists()
        )
        if not known:
            raise Temporary("which card was it?")
        super().reset(lease)

    def configure(self, lease: Lease, /) -> ContainerEdits:
        self.mine.add(lease.device)
        return super().configure(lease)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.mine: set[DeviceName] = set()


class AdminsTakeOver(Cards):
    def configure(self, lease: Lease, /) -> ContainerEdits:
        owner = self.place(lease.device)[1]
        if lease.admin_access and owner.exists():
            self.write(owner, lease.claim_uid)
        return super().configure(lease)


class WaitsBeforeItLooks(Cards):
    """Asks `stop` only at the second round, and then never again."""

    def watch(self, stop: Event) -> Iterator[None]:
        if stop.is_set():
            time.sleep(30)
        yield from super().watch(stop)


class SecondUndoesFirst(Cards):
    """Undoes the mode with the second part, also beside the first one."""

    def reset(self, lease: Lease, /) -> None:
        mine = lease.device.endswith("part1")
        super().reset(dataclasses.replace(lease, is_alone=lease.is_alone or mine))


class OnePartSetsUpShared(Cards):
    """Right if the first part comes first."""

    def configure(self, lease: Lease, /) -> ContainerEdits:
        mode = self.place(lease.device)[0] / "mode"
        was_there = mode.exists()
        edits = super().configure(lease)
        if lease.device.endswith("part1") and not was_there:
            mode.unlink(missing_ok=True)
        return edits


class LastStays(Cards):
    """Forgets to undo its last device."""

    def reset(self, lease: Lease, /) -> None:
        if lease.device != "card1-part1":
            super().reset(lease)


class SlowOnly(Cards):
    """Undoes only the set-up of the default configuration."""

    def reset(self, lease: Lease, /) -> None:
        _card, owner = self.place(lease.device)
        if not (owner.exists() and owner.read_text().endswith("at 3")):
            super().reset(lease)


class SetsUpForAdmins(Cards):
    def configure(self, lease: Lease, /) -> ContainerEdits:
        return super().configure(dataclasses.replace(lease, admin_access=False))


class SetsUpWhileRunning(Cards):
    def configure(self, lease: Lease, /) -> ContainerEdits:
        if lease.may_run:
            self.write(self.place(lease.device)[1], "again")
        return super().configure(lease)


class OtherEditsWhileRunning(Cards):
    def edits(self, lease: Lease) -> ContainerEdits:
        return ContainerEdits(env={"RUNS": "1"}) if lease.may_run else super().edits(lease)


class AnswersTrue(Cards):
    def in_use(self, device: DeviceName, /) -> InUse:
        return True  # type: ignore[return-value]


class AlwaysInUse(Cards):
    def in_use(self, device: DeviceName, /) -> InUse:
        return InUse.YES


class StopsToLook(Cards):
    def in_use(self, device: DeviceName, /) -> InUse:
        (self.folder / "card0" / "mode").write_text("stopped")
        return InUse.NO


class UndoesShared(Cards):
    def reset(self, lease: Lease, /) -> None:
        super().reset(dataclasses.replace(lease, is_alone=True))


class UndoesNothingShared(Cards):
    def reset(self, lease: Lease, /) -> None:
        super().reset(dataclasses.replace(lease, is_alone=False))


class SetsUpSharedFirstOnly(Cards):
    def write(self, path: Path, text: str) -> None:
        if path.name != "mode" or self.first:
            super().write(path, text)

    def configure(self, lease: Lease, /) -> ContainerEdits:
        self.first = lease.is_alone
        return super().configure(lease)


class UndoesSiblings(Cards):
    def reset(self, lease: Lease, /) -> None:
        super().reset(lease)
        for owner in self.place(lease.device)[0].glob("owner-*"):
            owner.unlink()


class BelievesItsMark(Cards):
    """Writes last that it has set up all, and undoes nothing without this mark."""

    def configure(self, lease: Lease, /) -> ContainerEdits:
        edits = super().configure(lease)
        if not (lease.admin_access or lease.may_run):
            self.write(self.place(lease.device)[0] / f"mark-{lease.device}", "done")
        return edits

    def reset(self, lease: Lease, /) -> None:
        mark = self.place(lease.device)[0] / f"mark-{lease.device}"
        if mark.exists():
            super().reset(lease)
            mark.unlink()


class MarkRemovedFirst(BelievesItsMark):
    def configure(self, lease: Lease, /) -> ContainerEdits:
        if not (lease.admin_access or lease.may_run):
            self.write(self.place(lease.device)[0] / f"mark-{lease.device}", "begun")
        return Cards.configure(self, lease)

    def reset(self, lease: Lease, /) -> None:
        mark = self.place(lease.device)[0] / f"mark-{lease.device}"
        if mark.exists():
            mark.unlink()
            Cards.reset(self, lease)


class FailsInAChild(Cards):
    parent = os.getpid()

    def configure(self, lease: Lease, /) -> ContainerEdits:
        if os.getpid() != self.parent:
            raise Temporary("busy")
        return super().configure(lease)


class DiesInAChild(FailsInAChild):
    def configure(self, lease: Lease, /) -> ContainerEdits:
        if os.getpid() != self.parent:
            os._exit(1)
        return super().configure(lease)


class HangsInAChild(FailsInAChild):
    def configure(self, lease: Lease, /) -> ContainerEdits:
        if os.getpid() != self.parent:
            time.sleep(60)
        return super().configure(lease)


METHODS = "the methods take what the driver passes"
OPTIONS = "options are declared with defaults"
KINDS = "each kind of configuration reads its own values"
ELSEWHERE = "scan finds nothing on a node without the hardware"
LIMITS = "every device can be published as it is"
TWICE = "a second scan gives the same names"
REBOOT = "names are the same after a reboot"
ENDS = "scan ends, and watch ends when it is stopped"
EDITS = "configure returns edits that the driver accepts"
AGAIN = "configure can be called again"
UNDONE = "reset undoes configure"
RESET_AGAIN = "reset can be called again"
NEVER = "reset of a lease that was never set up changes nothing"
PARTIAL = "reset needs only the claim, the device and the share"
VANISHED = "reset of a device that vanished succeeds"
ADMIN = "admin access changes nothing"
RUNNING = "configure changes nothing while containers may run"
USE = "in_use answers yes, no or cannot tell"
SHARED = "the first lease sets up what is shared, and the last undoes it"
CRASH = "reset undoes what a crash in configure has left"
CRASH_IN_RESET = "reset undoes what a crash in reset has left"
SPEED_9 = [SPEED.config(Speed(speed=9))]
SPEED_3 = (SPEED.config(Speed(speed=3)),)
UNKNOWN_KIND = [ConfigKind("cards.example.com/v1", "Other", Speed).config(Speed())]
QUICK = {"patience": 2.0}

BAD = (
    Bad(METHODS, WithoutReset, "the methods", "it has no reset"),
    Bad(METHODS, NotMade, "make_backend(folder)", "OSError: no driver"),
    Bad(METHODS, OldArguments, "the methods", "cannot be called as configure(lease)"),
    Bad(OPTIONS, OptionsAsMapping, "OptionsAsMapping.options", "'poll_seconds': 60"),
    Bad(OPTIONS, OptionsWithoutDefault, "without any option", "folder: missing"),
    Bad(OPTIONS, OptionsWithoutSchema, "its JSON schema", "TypeError"),
    Bad(KINDS, KindAsText, "config_kinds", "'Speed' in it"),
    Bad(KINDS, KindTwice, "config_kinds", "a kind twice"),
    Bad(KINDS, KindWithoutGroup, "config kind v1 Speed", "apiVersion 'v1'"),
    Bad(KINDS, TwoDefaults, "config_kinds", "kinds with a default: cards.example.com/v1 Speed, c"),
    Bad(KINDS, WrongDefault, "decode Speed(speed=9)", "speed: 9"),
    Bad(KINDS, DefaultThatChanges, "config kind cards.example.com/v1 F", "expected Forgets("),
    Bad(KINDS, Cards, "decode Speed(speed=9)", "speed: 9", {"configs": SPEED_9}),
    Bad(KINDS, Cards, "configs=…", "Other, which the backend", {"configs": UNKNOWN_KIND}),
    Bad(ELSEWHERE, Needs, "scan()", "Temporary: no cards"),
    Bad(ELSEWHERE, Invents, "without this hardware", "card0-part0, card0-part1"),
    Bad(LIMITS, LongNames, "planning", "4 problems: xxx"),
    Bad(LIMITS, BadTaint, "planning", "taint"),
    Bad(LIMITS, WrongType, "planning", "uuid"),
    Bad(LIMITS, NoInventory, "scan()", "must return an Inventory"),
    Bad(UNDONE, AllIll, "scan()", "4 devices, and none that is not ill"),
    Bad(TWICE, CountedInEachScan, "scan() a second time", "expected {'card0-part0-"),
    Bad(REBOOT, Counted, "scan() of a new backend", "expected {'card0-part0-"),
    Bad(REBOOT, RandomUuid, "scan() of a new backend", "Hardware"),
    Bad(ENDS, DeafWatch, "watch(stop), then stop.set()", "not ended after 2.0 s", QUICK),
    Bad(ENDS, BusyWatch, "watch(stop) for 0.2 s", "times"),
    Bad(ENDS, BrokenWatch, "watch(stop)", "OSError: no such device"),
    Bad(ENDS, NoInventory, "scan()", "must return an Inventory"),
    Bad(ENDS, EndlessScan, "scan() while watch() runs", "not ended after 2.0 s", QUICK),
    Bad(EDITS, MountsAll, "configure(Lease", "/ is a whole directory"),
    Bad(EDITS, Hooks, "configure(Lease", "hook /bin/true would run as root"),
    Bad(EDITS, NoEdits, "configure(Lease", "it returned a dict"),
    Bad(EDITS, Raises, "configure(Lease", "KeyError: 'card0-part0'"),
    Bad(ADMIN, Raises, "configure(Lease", "KeyError: 'card0-part0'"),
    Bad(AGAIN, OtherEditsEachTime, "a second time", "'CARD'"),
    Bad(AGAIN, OtherEditsAfterRestart, "a third time, by a new backend", "'CARD'"),
    Bad(AGAIN, SetsUpAgain, "a second time", "dividedDIVIDED".lower()),
    Bad(UNDONE, ForgetsOnRestart, "reset(…) by a new backend", "expected {}"),
    Bad(RESET_AGAIN, ResetOnce, "reset(Lease", "FileNotFoundError"),
    Bad(RESET_AGAIN, ResetOnceOnly, "reset(…) twice", "'card0/mode': 'reset'"),
    Bad(NEVER, ResetNeedsSetUp, "reset(Lease", "FileNotFoundError"),
    Bad(NEVER, ResetOnceOnly, "without configure", "'card0/mode': 'reset'"),
    Bad(PARTIAL, NeedsConfig, "request=''", "'card0/mode': 'divided'"),
    Bad(VANISHED, NeedsDevice, "reset(Lease", "FileNotFoundError"),
    Bad(VANISHED, TakesStrangers, "reset of device other-0", "'card0/alarm': ''"),
    Bad(VANISHED, FindsOthers, "vanished", "['1-card1-part0', '1-card1-part1']; before ['2-card0"),
    Bad(VANISHED, VanishedNeedsParent, "request=''", "Temporary: which card was it?"),
    Bad(ADMIN, AdminsTakeOver, "of a device that is set up for a claim", "card0/owner-part0"),
    Bad(ENDS, WaitsBeforeItLooks, "watch(stop) with stop set", "not ended after 2.0 s", QUICK),
    Bad(SHARED, OnePartSetsUpShared, "device='card0-part1'", "{'card0/mode': 'divided', 'card0/o"),
    Bad(SHARED, SecondUndoesFirst, "card0-part1", "expected {'card0/mode': 'divided'"),
    Bad(UNDONE, LastStays, "card1-part1", "expected {}"),
    Bad(UNDONE, SlowOnly, "speed=3", "expected {}", {"configs": SPEED_3}),
    Bad(ADMIN, SetsUpForAdmins, "of a device that is free", "'card0/mode': 'divided'"),
    Bad(RUNNING, SetsUpWhileRunning, "may_run=True", "'again'"),
    Bad(RUNNING, OtherEditsWhileRunning, "may_run=True", "'RUNS'"),
    Bad(USE, AnswersTrue, "in_use('card0-part0') before configure", "True"),
    Bad(USE, AlwaysInUse, "after reset", "no process has the device open"),
    Bad(USE, StopsToLook, "in_use('card0-part0') before configure", "'stopped'"),
    Bad(SHARED, UndoesShared, "which is not alone", "expected {'card0/mode': 'divided'"),
    Bad(SHARED, UndoesNothingShared, "the last lease", "{'card0/mode': 'divided'}; expected {}"),
    Bad(SHARED, SetsUpSharedFirstOnly, "nothing is set up", "'card0/mode': 'divided'"),
    Bad(SHARED, UndoesSiblings, "which is not alone", "{'card0/mode': 'divided'}; expected"),
    Bad(CRASH, BelievesItsMark, "configure killed before cards.py:", "expected {}"),
    Bad(CRASH, FailsInAChild, "a call in a child process", "Temporary: busy (/"),
    Bad(CRASH, DiesInAChild, "a call in a child process", "the process died"),
    Bad(CRASH, HangsInAChild, "a call in a child process", "not ended after 2.0 s", QUICK),
    Bad(CRASH_IN_RESET, MarkRemovedFirst, "reset killed before test_broken.py:", "expected {}"),
)


def bench(backend: type[Cards], folder: Path, **more: Any) -> Bench:
    given: dict[str, Any] = {"settings": what_is_set_up, "vanish": pull_out, **more}
    code = ("tests.support", "tests.unit.testing.contract", __name__, backend.__module__)
    return Bench(make=backend, folder=folder, hardware=two_cards, code=code, **given)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad.backend.__name__}-{bad.promise}")
def test_a_broken_promise_is_told(bad: Bad, tmp_path: Path) -> None:
    with pytest.raises(BrokenPromise) as told:
        BY_SENTENCE[bad.promise].check(bench(bad.backend, tmp_path, **bad.more))
    called, found, action = str(told.value).splitlines()
    assert bad.called in called.removeprefix("  called: ")
    assert bad.found in found.removeprefix("  found:  ")
    assert len(action.removeprefix("  do:     ")) > 10


def test_every_promise_has_a_backend_that_breaks_it() -> None:
    assert {bad.promise for bad in BAD} == set(BY_SENTENCE)


class OneDevice(Cards):
    """Cards without parts: no two leases share hardware."""

    def device(self, card: Path, part: str) -> AllocatableDevice:
        found = super().device(card, part)
        return replace(found, hardware=Hardware(found.name))


def test_what_cannot_be_tested_is_said(tmp_path: Path) -> None:
    with pytest.raises(NothingToTest, match="no two claims can share hardware here"):
        BY_SENTENCE[SHARED].check(bench(OneDevice, tmp_path))
    with pytest.raises(NothingToTest, match=r"given no hardware\(folder\)"):
        BY_SENTENCE[ELSEWHERE].check(Bench(make=Cards, folder=tmp_path))
    (tmp_path / "invents").mkdir()
    with pytest.raises(NothingToTest, match="`auto` never chooses this backend"):
        BY_SENTENCE[ELSEWHERE].check(bench(InventsAndSaysSo, tmp_path / "invents"))
    (tmp_path / "other").mkdir()
    elsewhere = replace(bench(Cards, tmp_path / "other"), code=("elsewhere",))
    with pytest.raises(NothingToTest, match=r"no line of elsewhere runs: name the package"):
        BY_SENTENCE[CRASH].check(elsewhere)


def test_without_settings_only_answers_are_compared(tmp_path: Path) -> None:
    BY_SENTENCE[UNDONE].check(bench(ForgetsOnRestart, tmp_path, settings=None))


def test_the_contract_can_be_imported_where_no_pytest_is() -> None:
    program = "import sys; sys.modules['pytest'] = None; import dra_driver.testing.contract"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
