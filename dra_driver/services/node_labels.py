# SPDX-License-Identifier: Apache-2.0
"""Keep the labels of this Node as its devices are (option `node_labels`).

Only the leader does this. It wakes up when the inventory changes, and looks again from time to time, in case somebody changed what it
wrote. It decides nothing before all devices that were published before are known again: a driver that starts must not take away the
labels by which pods are placed.

There are two writers. `FeatureFileWriter` writes the file from which Node Feature Discovery makes labels; it needs no right. `NodeLabelWriter`
writes the Node itself. Both keep labels of others as they are.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import Temporary
from dra_driver.kube.base import NodeApi
from dra_driver.model.events import NodeLabelsWritten, Observer, ignore
from dra_driver.model.inventory import Inventory
from dra_driver.node.feature_file import FeatureFile
from dra_driver.planning.gfd_labels import GfdRules
from dra_driver.planning.labels import (
    LabelRules,
    feature_file,
    node_labels,
    plan_labels,
    without_prefix,
)

FILE_SECONDS = 60.0
NODE_SECONDS = 300.0

Labels = Mapping[str, str]


class Writer(Protocol):
    """Writes the labels somewhere. `look_seconds` is how often that place is looked at while nothing changes."""

    look_seconds: float

    def write(self, labels: Labels) -> None:
        """Make these the labels of this driver. Raises DriverError."""


class FeatureFileWriter:
    """Writes the feature file. Without the folder of Node Feature Discovery it writes nothing, and says so once."""

    look_seconds = FILE_SECONDS

    def __init__(
        self, file: FeatureFile, *, observe: Observer = ignore, log: FilteringBoundLogger
    ) -> None:
        self._file = file
        self._observe = observe
        self._log = log
        self._missing = False
        self._left_out: tuple[str, ...] = ()

    def write(self, labels: Labels) -> None:
        if not self._file.has_folder:
            if not self._missing and labels:
                self._log.info(
                    "feature_folder_missing",
                    folder=str(self._file.path.parent),
                    consequence="this node gets no labels from the driver",
                    next_step="install Node Feature Discovery, or choose --node-labels patch or none",
                )
            self._missing = self._missing or bool(labels)
            return
        self._missing = False
        self._tell_left_out(without_prefix(labels))
        text = feature_file(labels)
        before = self._file.read()
        if self._file.replace(text):
            self._observe(
                NodeLabelsWritten(
                    text.count("\n"), _differing(text, before), _differing(before, text, names=True)
                )
            )

    def _tell_left_out(self, names: tuple[str, ...]) -> None:
        if names and names != self._left_out:
            self._log.warning(
                "labels_need_patch",
                labels=names,
                next_step="Node Feature Discovery gives each label a domain: choose --node-labels patch for labels without one",
            )
        self._left_out = names


class NodeLabelWriter:
    """Writes the labels of the Node by server-side apply. `earlier` is the feature file of an earlier choice: it is removed."""

    look_seconds = NODE_SECONDS

    def __init__(
        self,
        node: NodeApi,
        earlier: FeatureFile,
        *,
        observe: Observer = ignore,
        log: FilteringBoundLogger,
    ) -> None:
        self._node = node
        self._earlier = earlier
        self._observe = observe
        self._log = log
        self._foreign: tuple[str, ...] = ()

    def write(self, labels: Labels) -> None:
        self._earlier.replace("")
        present = self._node.read()
        plan = plan_labels(labels, present.labels, present.owned)
        if plan.foreign and plan.foreign != self._foreign:
            self._log.warning(
                "labels_of_others",
                labels=plan.foreign,
                next_step="they stay as they are; remove them if the driver shall write its own values",
            )
        self._foreign = plan.foreign
        if not plan.is_done:
            self._node.apply_labels(plan.apply, present.uid)
            self._observe(NodeLabelsWritten(len(plan.apply), plan.changed, plan.removed))


class NodeLabels:
    """What the loop (`NodeWrites`) calls. `inventory` raises DriverError until a backend has answered.

    `gfd` returns what counts now in place of the `gfd` of `rules`. It raises DriverError as long as this is not known.
    """

    def __init__(
        self,
        inventory: Callable[[], Inventory],
        writer: Writer,
        rules: LabelRules,
        *,
        gfd: Callable[[], GfdRules] = GfdRules,
    ) -> None:
        self._inventory = inventory
        self._writer = writer
        self._rules = rules
        self._gfd = gfd

    def look(self) -> float:
        """Write the labels, if they changed. Returns the seconds until the next look at the latest. Raises DriverError."""
        inventory = self._inventory()
        if awaited := inventory.awaited():
            raise Temporary(f"{len(awaited)} devices that were published are not found yet")
        self._writer.write(node_labels(inventory, replace(self._rules, gfd=self._gfd())))
        return self._writer.look_seconds


def _differing(text: str, other: str, *, names: bool = False) -> tuple[str, ...]:
    """The labels of the lines of `text` that `other` does not have; with `names`, whose label it does not have."""
    lines = dict(line.partition("=")[::2] for line in text.splitlines())
    others = dict(line.partition("=")[::2] for line in other.splitlines())
    return tuple(
        label
        for label, value in lines.items()
        if label not in others or (not names and others[label] != value)
    )
