# SPDX-License-Identifier: Apache-2.0
"""What the hardware has seen: a witness that knows nothing of the driver's books.

The simulated backend writes down each configure and reset (`--backend-option journal=FILE`); whoever plays the container runtime writes
down which device files a container opened and when it was gone. All of it is one file in the order in which it happened, and
`misuse` reads it as the hardware would:

* a device that a container has open is in no other claim's hands: nobody else opens it, nobody sets it up for another claim, and
  nobody resets it under the container, for whichever claim;
* a device is reset before it is set up for another claim. What a lost state has forgotten nobody resets, so these are kept apart
  (`Seen.overridden`), for who knows what was lost;
* a container opens only what was set up for its claim, and nothing has undone that since: hardware has one setting, so a reset for
  another claim undoes it as well, and so does what is set up for another claim.

* partitions and shares need a mode of their GPU. The first lease switches it on and the last one off, so whoever does so finds no other
  lease there, and no container.

Devices are in each other's way if they have hardware in common (`tests.support.physical`). Shares of one device with different IDs live
side by side; admin access looks on and counts for nothing. A reboot ends every container and every setting.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dra_driver.backends.journal import HardwareJournal
from dra_driver.model.ids import NO_SHARE, ClaimUid, DeviceName, ShareId
from tests.support.physical import gpu_of, is_partition, overlap


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """A device, or a share of it, in the hands of one claim."""

    device: DeviceName
    claim_uid: ClaimUid
    share_id: ShareId = NO_SHARE

    def excludes(self, other: "Use") -> bool:
        """Whether both cannot be at once."""
        if self.claim_uid == other.claim_uid or not overlap(self.device, other.device):
            return False
        shares = self.device == other.device and self.share_id and other.share_id
        return not shares or self.share_id == other.share_id

    @property
    def needs_mode(self) -> bool:
        """Whether its GPU must be in the mode for partitions and shares."""
        return bool(self.share_id) or is_partition(self.device)

    def __str__(self) -> str:
        share = f", share {self.share_id}" if self.share_id else ""
        return f"{self.device} of claim {self.claim_uid}{share}"


@dataclass(frozen=True, slots=True)
class Happened:
    """One line: `event` is configure, reset, mode_on, mode_off, open, close or boot. `container` is who opened or closed; `first`: the
    mode was switched on anew.
    """

    event: str
    use: Use
    container: str = ""
    admin: bool = False
    first: bool = False


@dataclass(frozen=True, slots=True)
class Overridden:
    """A device was set up for a claim without a reset of what was set up for another one; or the mode of the GPU was switched."""

    use: Use
    before: Use
    how: str = "was set up over"

    def __str__(self) -> str:
        return f"{self.use} {self.how} what was set up for {self.before}"


@dataclass(slots=True)
class Seen:
    """What the hardware knows after some events: settings, open devices by container, and what should not have happened."""

    configured: set[Use] = field(default_factory=set)
    open: dict[str, set[Use]] = field(default_factory=dict)
    misuse: list[str] = field(default_factory=list)
    overridden: list[Overridden] = field(default_factory=list)
    modes: set[str] = field(default_factory=set)

    def take(self, happened: Happened) -> None:
        """The next event."""
        match happened.event:
            case "configure":
                self._configure(happened.use)
            case "reset":
                self._reset(happened.use)
            case "mode_on":
                if happened.first:
                    self._switch(happened.use, "had the mode switched on under")
                self.modes.add(gpu_of(happened.use.device))
            case "mode_off":
                self._switch(happened.use, "had the mode switched off under")
                self.modes.discard(gpu_of(happened.use.device))
            case "open":
                self._open(happened)
            case "close":
                self.open.pop(happened.container, None)
            case "boot":
                self.configured.clear()
                self.open.clear()
                self.modes.clear()
            case other:
                raise ValueError(f"the journal has an event {other!r} that nobody writes")

    def _configure(self, use: Use) -> None:
        self._refuse(use, f"{use} was set up")
        for other in sorted(self._excluded(use)):
            self.overridden.append(Overridden(use, other))
            self.configured.discard(other)
        self.configured.add(use)
        if not use.needs_mode:
            self.modes.discard(
                gpu_of(use.device)
            )  # a GPU that is set up as a whole has no such mode

    def unowned(self, owned: Collection[Use]) -> set[Use]:
        """What is set up for claims that do not have it."""
        return self.configured - set(owned)

    def wrong_modes(self, but: Collection[str] = ()) -> list[str]:
        """What is said against the modes of GPUs while no call is running, but of these GPUs."""
        needed = {gpu_of(use.device) for use in self.configured if use.needs_mode}
        return [
            f"{gpu} is in the mode for partitions or shares, and none is set up"
            for gpu in sorted(self.modes - needed - set(but))
        ]

    def without_mode(self) -> set[Use]:
        """Partitions and shares that are set up while their GPU is not in the mode for them."""
        return {
            use
            for use in self.configured
            if use.needs_mode and gpu_of(use.device) not in self.modes
        }

    def _switch(self, use: Use, how: str) -> None:
        gpu = gpu_of(use.device)
        for container, uses in self.open.items():
            if any(
                gpu_of(other.device) == gpu and other.claim_uid != use.claim_uid for other in uses
            ):
                self.misuse.append(f"{use} {how} container {container}")
        for other in sorted(self.configured - {use}):
            if gpu_of(other.device) == gpu:
                self.overridden.append(Overridden(use, other, how))

    def _reset(self, use: Use) -> None:
        for container, uses in self.open.items():
            if use in uses:
                self.misuse.append(f"{use} was reset while container {container} had it open")
        self._refuse(use, f"{use} was reset")
        self.configured -= {use, *self._excluded(use)}

    def _excluded(self, use: Use) -> set[Use]:
        return {other for other in self.configured if use.excludes(other)}

    def _open(self, happened: Happened) -> None:
        if happened.admin:
            return
        use, container = happened.use, happened.container
        if use not in self.configured:
            self.misuse.append(f"container {container} opened {use}, which was not set up for it")
        self._refuse(use, f"container {container} opened {use}")
        self.open.setdefault(container, set()).add(use)

    def _refuse(self, use: Use, what: str) -> None:
        for container, uses in self.open.items():
            for other in sorted(uses):
                if use.excludes(other):
                    self.misuse.append(f"{what} while container {container} had {other} open")


class Witness:
    """Reads a journal as it grows. `look` answers everything that it told so far."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._offset = 0
        self._seen = Seen()

    def look(self) -> Seen:
        """Take what was written since the last look; a line that is only half there is for the next one."""
        if self._journal.exists():
            with self._journal.open("rb") as file:
                file.seek(self._offset)
                whole = file.read().rpartition(b"\n")[0]
            for line in whole.splitlines():
                self._seen.take(_happened(json.loads(line)))
            self._offset += len(whole) + bool(whole)
        return self._seen


def seen(journal: Path) -> Seen:
    """Everything that the journal tells; nothing, if there is no file."""
    return Witness(journal).look()


def _happened(entry: Mapping[str, Any]) -> Happened:
    use = Use(DeviceName(entry["device"]), ClaimUid(entry["claim"]), ShareId(entry["share"]))
    return Happened(
        entry["event"],
        use,
        entry.get("container", ""),
        entry.get("admin", False),
        entry.get("first", False),
    )


class Runtime:
    """The container runtime's pen: what containers open, and when they are gone."""

    def __init__(self, journal: Path) -> None:
        self._journal = HardwareJournal(journal)

    def opened(self, container: str, uses: Iterable[Use], *, admin: bool = False) -> None:
        """A container started and opened its devices."""
        for use in uses:
            self._journal.write(
                "open", use.device, use.claim_uid, use.share_id, container=container, admin=admin
            )

    def closed(self, container: str) -> None:
        """The container's last process is gone."""
        self._journal.write("close", container=container)

    def booted(self) -> None:
        """The machine started anew."""
        self._journal.write("boot")
