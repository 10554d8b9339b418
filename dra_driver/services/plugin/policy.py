# SPDX-License-Identifier: Apache-2.0
"""What counts for the device plugin API now: what the driver's own config document says, over what vendors' configurations say.

The own document is read at the start only. A vendor's configuration may change while the driver runs: an admin changes its ConfigMap, or
the label of the Node that chooses a file. Both are looked at every LOOK_SECONDS; the labels are at most a minute old.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event, Lock

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.backends.base import PolicyReader
from dra_driver.errors import DriverError
from dra_driver.model.plugin_policy import BroughtPolicy, PluginPolicy
from dra_driver.node import mounted_folder
from dra_driver.node.mounted_folder import FolderContent

LOOK_SECONDS = 5.0

Labels = Callable[[], Mapping[str, str]]
_NEVER = object()


class PolicyOfNode:
    """The policy of this node. `labels` is the method of the API server; it is asked only if a reader has files."""

    def __init__(
        self,
        own: PluginPolicy,
        readers: Sequence[PolicyReader] = (),
        *,
        labels: Labels,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._own = own
        self._labels = labels
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._sources = tuple(_Source(reader, self._log) for reader in readers)
        self._asks = any(reader.place for reader in readers)
        self._known: Mapping[str, str] | None = None
        self._policy = own
        self._looking = Lock()  # the first look is on another thread than the loop

    def current(self) -> PluginPolicy:
        """The policy as it was found last. `look` finds it."""
        return self._policy

    @property
    def is_known(self) -> bool:
        """Whether the labels that choose a file were read once, or nobody needs them. Before that a wrong file could count, or none."""
        return self._known is not None or not self._asks

    def look(self) -> bool:
        """Look for changes. Returns whether another policy counts than before."""
        with self._looking:
            return self._look()

    def _look(self) -> bool:
        labels = self._labels_now() if self._asks else {}
        policy = self._own
        for source in self._sources:
            # Without labels a wrong file would be chosen.
            if labels is not None:
                source.look(labels)
            policy = policy.over(source.brought.policy)
        changed, self._policy = policy != self._policy, policy
        return changed

    def run(
        self,
        stop: Event,
        changed: Callable[[], None],
        *,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        """Look every LOOK_SECONDS until `stop`, and call `changed` after each change."""
        while not wait(stop, LOOK_SECONDS):
            if self.look():
                changed()

    def _labels_now(self) -> Mapping[str, str] | None:
        """The labels; those that were read last if they cannot be read now, and None if they never were."""
        try:
            self._known = dict(self._labels())
        except DriverError as error:
            if self._known is None:
                self._log.warning("node_labels_not_read", error=str(error))
        return self._known


class _Source:
    """One vendor's configuration, and what was seen of it last."""

    def __init__(self, reader: PolicyReader, log: FilteringBoundLogger) -> None:
        self._reader = reader
        self._log = log
        self._mark: object = _NEVER
        self._labels: Mapping[str, str] = {}
        self._content = FolderContent()
        self.brought = BroughtPolicy()

    def look(self, labels: Mapping[str, str]) -> None:
        place = self._reader.place
        mark = mounted_folder.mark(Path(place)) if place else None
        if mark == self._mark and labels == self._labels:
            return
        if place and mark != self._mark:
            self._content = self._files(Path(place))
        self._mark, self._labels = mark, labels
        self._take(self._reader.read(self._content.files, labels))

    def _files(self, place: Path) -> FolderContent:
        """The files; those that were there before if the folder cannot be listed now."""
        content = mounted_folder.read(place)
        for problem in content.problems:
            self._log.warning("plugin_config_not_read", reason=problem)
        return content if content.listed else self._content

    def _take(self, brought: BroughtPolicy) -> None:
        """Keep it, and log what was not said before."""
        for problem in brought.problems:
            if problem not in self.brought.problems:
                self._log.warning("plugin_config_refused", reason=problem)
        for note in brought.notes:
            if note not in self.brought.notes:
                self._log.warning("plugin_config_noted", note=note)
        self.brought = brought
