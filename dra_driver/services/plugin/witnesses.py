# SPDX-License-Identifier: Apache-2.0
"""Who is asked about the units that were given out, and what pod-resources said about them over time."""

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from dra_driver.model.ids import ClaimUid, PodUid, ResourceName, UnitId
from dra_driver.model.plugin import KubeletCheckpoint
from dra_driver.model.state import PreparedClaim, Unknown
from dra_driver.planning.plugin.rows import units_of

LIST_SECONDS = 5.0  # between two questions to pod-resources while units are given out
# The admission of a container takes as long as the plugins of its other resources. After this time, if pod-resources do not list it, it has failed.
# A kubelet that has just started has heard of its pods by then.
ADMISSION_SECONDS = 120.0
GRACE_SECONDS = 10.0  # an admitted pod gets its cgroup at once


class Witnesses(Struct, frozen=True):
    """What the kubelet and the kernel tell. `checkpoint` comes with the version of its file, which differs after each write; `pods` are
    the pods with a cgroup; `active_units` are the units of a resource that active pods have. `kubelet` tells one kubelet process from the next
    one; None while none serves pod-resources.
    """

    checkpoint: Callable[[], tuple[str, KubeletCheckpoint | Unknown]]
    pods: Callable[[], frozenset[PodUid] | Unknown]
    active_units: Callable[[ResourceName], frozenset[UnitId] | Unknown]
    kubelet: Callable[[], object]


class _Listed(Struct):
    """What one kubelet said about a row with these pods: whether it has ever listed it, and since when it has not."""

    pods: tuple[PodUid, ...] | None
    ever: bool = False
    not_since: float | None = None


class ActiveLists:
    """Compares what pod-resources list from look to look.

    Only lists of one kubelet are compared: a new one knows no pod before the API server has told it, and lists nothing until then. And only
    lists for the same pods: a row that another pod gets may be in the hands of its init container, which no list has.
    """

    def __init__(self, witnesses: Witnesses, clock: Callable[[], float]) -> None:
        self._witnesses = witnesses
        self._clock = clock
        self._look_at = 0.0
        self._kubelet: object = None
        self._rows: dict[ClaimUid, _Listed] = {}

    def look(self, rows: Collection[PreparedClaim]) -> frozenset[ClaimUid]:
        """Ask, if it is time, and forget all but these rows. Returns those that were listed once and are not any more."""
        now = self._clock()
        if now < self._look_at or not rows:
            return frozenset()
        self._look_at = now + LIST_SECONDS
        kubelet = self._witnesses.kubelet()
        names = sorted({row.ref.name for row in rows})
        lists = {name: self._witnesses.active_units(ResourceName(name)) for name in names}
        if kubelet is None or kubelet != self._witnesses.kubelet():
            return frozenset()
        before = self._rows if kubelet == self._kubelet else {}
        self._kubelet = kubelet
        self._rows = {row.ref.uid: _known(row, before) for row in rows}
        gone: set[ClaimUid] = set()
        for row in rows:
            active, known = lists[row.ref.name], self._rows[row.ref.uid]
            if isinstance(active, Unknown):
                continue  # an earlier answer says nothing about who has got the units since
            if units_of(row) & active:
                known.ever, known.not_since = True, None
                continue
            if known.not_since is None:
                known.not_since = now
            if known.ever:
                gone.add(row.ref.uid)
        return frozenset(gone)

    def has(self, row: PreparedClaim) -> bool:
        """Whether an active pod has units of the row now, for all that the kubelet says."""
        active = self._witnesses.active_units(ResourceName(row.ref.name))
        return not isinstance(active, Unknown) and bool(units_of(row) & active)

    def lists(self, row: PreparedClaim) -> bool:
        """Whether an active pod has units of the row now, or may have: nobody answers."""
        active = self._witnesses.active_units(ResourceName(row.ref.name))
        return isinstance(active, Unknown) or bool(units_of(row) & active)

    def is_long_absent(self, row: PreparedClaim) -> bool:
        """Whether the kubelet of now has listed no unit of the row for ADMISSION_SECONDS."""
        known = self._rows.get(row.ref.uid)
        if known is None or known.not_since is None or self.lists(row):
            return False
        same = self._kubelet == self._witnesses.kubelet()
        return same and self._clock() - known.not_since >= ADMISSION_SECONDS


def _known(row: PreparedClaim, before: Mapping[ClaimUid, _Listed]) -> _Listed:
    found = before.get(row.ref.uid)
    if found is None or found.pods != row.users.pods:
        return _Listed(row.users.pods)
    return found
