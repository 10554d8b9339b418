# SPDX-License-Identifier: Apache-2.0
"""What does the kubelet say of device plugins, and what counts while it is silent?

Its checkpoint tells which pod has which units, and which resources are registered. pod-resources tell how many units of each resource are
allocatable now; they are asked when the lists of the plugins have changed, and every few seconds.
"""

from collections.abc import Callable, Collection, Mapping
from math import inf

from msgspec import Struct

from dra_driver.model.ids import PodUid, ResourceName
from dra_driver.model.plugin import KubeletCheckpoint, PodUnits
from dra_driver.model.presence import Presence
from dra_driver.model.state import Unknown

ASK_SECONDS = (
    10.0  # between two questions to pod-resources, as long as the plugins' lists stay as they are
)
FORGOTTEN_SECONDS = 300.0  # the kubelet waits so long for a plugin to come back


class ForeignWitnesses(Struct, frozen=True):
    """What the kubelet and the kernel tell. `checkpoint` comes with the version of its file; `allocatable` are healthy units by resource;
    `active` are the units of active pods; `presence` is None if the admin does not want the cgroups to be the proof.
    """

    checkpoint: Callable[[], tuple[str, KubeletCheckpoint | Unknown]]
    allocatable: Callable[[], Mapping[str, int] | Unknown]
    active: Callable[[], frozenset[PodUnits] | Unknown]
    presence: Callable[[Collection[PodUid]], Mapping[PodUid, Presence]] | None


class KubeletSays:
    """The last answers. `counts` is None if pod-resources did not answer; `written` is the version of `checkpoint`, None before the first one."""

    def __init__(self, witnesses: ForeignWitnesses, clock: Callable[[], float]) -> None:
        self._witnesses = witnesses
        self._clock = clock
        self._found: KubeletCheckpoint | Unknown = Unknown("nobody has looked")
        self._found_version = ""
        self._ask_at = -inf
        self._last_given: dict[ResourceName, float] = {}
        self.checkpoint = KubeletCheckpoint()
        self.counts: Mapping[str, int] | None = None
        self.written: str | None = None

    @property
    def unread(self) -> bool:
        """Whether the checkpoint could not be read the last time."""
        return isinstance(self._found, Unknown)

    def read(self) -> None:
        """Read the checkpoint. It counts after `take`."""
        self._found_version, self._found = self._witnesses.checkpoint()

    def take(self) -> None:
        """Let what was read count, and ask pod-resources if it is time."""
        self._ask(again=self._lists_changed())
        self.checkpoint, self.written = self._now(), self._found_version

    def latest(self) -> tuple[str, KubeletCheckpoint | Unknown]:
        """The checkpoint that is there now with its version, which another thread may be about to take."""
        return self._witnesses.checkpoint()

    def _lists_changed(self) -> bool:
        """Whether the kubelet may have got another list from a plugin. What a pod gets is allocatable all the same, so it asks for nothing."""
        found, before = self._found, self.checkpoint
        if self.written is None or isinstance(found, Unknown):
            return self._found_version != self.written
        return found.registered != before.registered

    def _ask(self, *, again: bool) -> None:
        now = self._clock()
        if again or now >= self._ask_at:
            self._ask_at = now + ASK_SECONDS
            counts = self._witnesses.allocatable()
            self.counts = None if isinstance(counts, Unknown) else counts
        for name, count in (self.counts or {}).items():
            if count:
                self._last_given[ResourceName(name)] = now

    def _now(self) -> KubeletCheckpoint:
        """The checkpoint. If it cannot be read, what pod-resources told lately takes its place: a plugin that restarts comes back."""
        if not isinstance(self._found, Unknown):
            return self._found
        if self.counts is None and self.written is not None:
            return self.checkpoint
        recent = self._clock() - FORGOTTEN_SECONDS
        names = (name for name, at in self._last_given.items() if at > recent)
        return KubeletCheckpoint(registered=dict.fromkeys(names, frozenset()))
