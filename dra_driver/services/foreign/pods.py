# SPDX-License-Identifier: Apache-2.0
"""Which pods have units of foreign plugins, and when is it proven that they have ended?

A pod that was seen in the checkpoint is remembered, also over a restart of the driver, until its cgroup proves that it has ended: the kubelet
forgets a pod that was deleted by force while its containers run. A pod without a cgroup that was never seen to run may be about to start; it
has ended if the kubelet lists its units for no active pod, some seconds after its entry was first seen.
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Protocol

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.model.foreign import RememberedPod
from dra_driver.model.ids import PodUid, ResourceName, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import PodUnits, UnitsOfContainer
from dra_driver.model.presence import Alive, CannotTell, Gone, Presence
from dra_driver.model.state import Unknown
from dra_driver.planning.guard import ForeignPod, OwnUnits, devices_of
from dra_driver.services.foreign.kubelet import ForeignWitnesses

GRACE_SECONDS = 10.0  # an admitted pod gets its cgroup at once
LIST_SECONDS = 5.0  # the kubelet takes units back at each list of pods

_Key = tuple[PodUid, ResourceName]


class Memory(Protocol):
    """What is kept on the disk (`dra_driver.node.foreign_memory`)."""

    def read(self) -> tuple[tuple[RememberedPod, ...], tuple[str, ...]]:
        """Return the pods of this boot, and the resources that this driver offered."""

    def write(self, pods: tuple[RememberedPod, ...], offered: tuple[str, ...], /) -> None:
        """Replace them. Raises DriverError."""


class _Known(Struct):
    """A pod with units of a resource. `ended`: proven; it stays here as long as the checkpoint names it."""

    units: frozenset[UnitId]
    since: float
    seen: bool = False
    ended: bool = False


class ForeignPods:
    """Knows the pods. One thread at a time calls it."""

    def __init__(
        self,
        witnesses: ForeignWitnesses,
        memory: Memory,
        *,
        log: FilteringBoundLogger,
        clock: Callable[[], float],
    ) -> None:
        self._witnesses = witnesses
        self._memory = memory
        self._log = log
        self._clock = clock
        self._known: dict[_Key, _Known] = {}
        self._list_at = -inf
        self._active: frozenset[PodUnits] | Unknown = Unknown("nobody has asked")
        self._stored: tuple[tuple[RememberedPod, ...], tuple[str, ...]] | None = None

    @property
    def may_run(self) -> bool:
        """Whether a pod is known that has not been proven to have ended."""
        return any(not known.ended for known in self._known.values())

    def may_return(self, entries: Iterable[UnitsOfContainer]) -> bool:
        """Whether the checkpoint still names a pod that has ended. A static pod that is made anew has the same UID, and the same entry."""
        over = {key for key, known in self._known.items() if known.ended}
        return bool(over) and any((one.pod, one.resource) in over for one in entries)

    # Over a restart, and beside another process of this driver.

    def remember_again(self) -> tuple[str, ...]:
        """Take up what an earlier process has stored, or another one. Returns the resources that it offered."""
        pods, offered = self._memory.read()
        written = set(self._stored[0]) if self._stored else ()
        now = self._clock()
        for one in pods:
            key = (PodUid(one.pod), ResourceName(one.resource))
            if one not in written and key not in self._known:
                self._known[key] = _Known(frozenset(map(UnitId, one.units)), now, one.seen)
        return offered

    def store(self, offered: Iterable[str]) -> None:
        """Write down what a restart must know, if it has changed. A failure is only logged: the checkpoint has most of it."""
        pods = tuple(
            RememberedPod(pod, resource, tuple(sorted(known.units)), known.seen)
            for (pod, resource), known in sorted(self._known.items())
            if not known.ended
        )
        content = (pods, tuple(sorted(offered)))
        if content == self._stored or (not any(content) and self._stored is None):
            return
        try:
            self._memory.write(*content)
            self._stored = content
        except DriverError as error:
            self._log.warning("foreign_pods_not_remembered", error=str(error))

    # At each look.

    def running(
        self, named: Iterable[ForeignPod], inventory: Inventory, own: OwnUnits
    ) -> list[ForeignPod]:
        """Return the foreign pods that may have processes, or may be about to start. `named` are those that the checkpoint names."""
        self._learn(named, own)
        self._look_for_ends()
        return [
            ForeignPod(pod, resource, known.units, *devices_of(resource, known.units, inventory))
            for (pod, resource), known in sorted(self._known.items())
            if not known.ended
        ]

    def _learn(self, pods: Iterable[ForeignPod], own: OwnUnits) -> None:
        """Know the pods that the checkpoint names, and forget those that have ended or that this driver's own rows explain."""
        now = self._clock()
        named: dict[_Key, frozenset[UnitId]] = {}
        for one in pods:
            key = (one.pod, one.resource)
            named[key] = named.get(key, frozenset()) | one.units
        for key, units in named.items():
            known = self._known.setdefault(key, _Known(units, now))
            if units - known.units:
                known.units |= units
                known.since, known.ended = now, False
        ours = {
            key
            for key, known in self._known.items()
            if {(key[1], unit) for unit in known.units} <= own.given.get(key[0], frozenset())
        }
        self._known = {
            key: known
            for key, known in self._known.items()
            if key not in ours and (key in named or not known.ended)
        }

    def _look_for_ends(self) -> None:
        presence = self._witnesses.presence
        found: Mapping[PodUid, Presence] = {}
        if presence is not None and self._known:
            found = presence({pod for pod, _ in self._known})
        for (pod, resource), known in self._known.items():
            if presence is None:
                known.ended = not self._is_fresh(known) and not self._is_listed(resource, known)
                continue
            match found.get(pod, CannotTell("nobody has said it")):
                case Alive():
                    known.seen, known.ended = True, False
                case Gone():
                    known.ended = known.seen or (
                        known.ended
                        or (not self._is_fresh(known) and not self._is_listed(resource, known))
                    )
                case CannotTell():
                    known.ended = False

    def _is_fresh(self, known: _Known) -> bool:
        return self._clock() - known.since < GRACE_SECONDS

    def _is_listed(self, resource: ResourceName, known: _Known) -> bool:
        """Whether an active pod has the units, so that its containers may start."""
        now = self._clock()
        if now >= self._list_at:
            self._list_at = now + LIST_SECONDS
            self._active = self._witnesses.active()
        if isinstance(self._active, Unknown):
            return True
        return any(one.resource == resource and one.units & known.units for one in self._active)
