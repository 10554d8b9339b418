# SPDX-License-Identifier: Apache-2.0
"""Which DeviceClasses does the device plugin API offer? Those of a folder; if nobody wrote a class there, those of the cluster.

A cluster may serve DeviceClasses although a node has no DRA yet. On a cluster without them the folder is the only place. A change in
the folder is noticed within LOOK_SECONDS; the cluster is asked every minute. What was known last stays while something cannot be read.
"""

import dataclasses
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from threading import Event, Lock

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.kube.base import NotServed
from dra_driver.model.api.resource_claim import DeviceClass
from dra_driver.model.plugin import ClassSource
from dra_driver.node import mounted_folder
from dra_driver.services.plugin.class_files import ClassesFound, classes_in

LOOK_SECONDS = 2.0
CLUSTER_SECONDS = 60.0
UNSERVED_SECONDS = 300.0

Listed = Callable[[], tuple[DeviceClass, ...]]
_NEVER = object()


def no_classes() -> tuple[DeviceClass, ...]:
    """What a cluster answers whose classes do not count."""
    return ()


class ClassSources:
    """The classes that count now. Without a folder only those of the cluster. `listed` is the method of the API server."""

    def __init__(
        self,
        folder: Path | None,
        listed: Listed,
        *,
        clock: Callable[[], float] = time.monotonic,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._folder = folder
        self._listed = listed
        self._clock = clock
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._lock = Lock()
        self._looking = Lock()  # the first look is on another thread than the loop
        self._mark: object = _NEVER
        self._in_files = ClassesFound()
        self._of_cluster = ClassesFound()
        self._ask_at = -inf
        self._told: frozenset[str] = frozenset()

    def current(self) -> ClassesFound:
        """The classes as they were found last. `look` finds them."""
        with self._lock:
            return self._in_files if self._in_files.meant else self._of_cluster

    def look(self) -> bool:
        """Look for changes. Returns whether other classes count than before."""
        with self._looking:
            return self._look()

    def _look(self) -> bool:
        before = self.current()
        in_files = self._files()
        with self._lock:
            self._in_files = in_files
        if not in_files.meant and self._clock() >= self._ask_at:
            of_cluster = self._cluster()
            with self._lock:
                self._of_cluster = of_cluster
        self._tell(in_files)
        return self.current().sources != before.sources

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

    def _files(self) -> ClassesFound:
        if self._folder is None:
            return self._in_files
        mark = mounted_folder.mark(self._folder)
        if mark == self._mark:
            return self._in_files
        self._mark = mark
        content = mounted_folder.read(self._folder)
        if not content.listed:
            # Nobody knows whether a class is in it: the vendors' names would be a guess.
            return dataclasses.replace(self._in_files, problems=content.problems, meant=True)
        return classes_in(content, self._in_files.texts)

    def _cluster(self) -> ClassesFound:
        try:
            found = self._listed()
        except NotServed:
            self._ask_at = self._clock() + UNSERVED_SECONDS
            return ClassesFound()
        except DriverError as error:
            self._ask_at = self._clock() + CLUSTER_SECONDS
            self._log.warning("device_classes_not_read", error=str(error))
            return self._of_cluster
        self._ask_at = self._clock() + CLUSTER_SECONDS
        by_name = sorted(found, key=lambda one: one.metadata.name)
        return ClassesFound(
            tuple(
                ClassSource(one, f"DeviceClass {one.metadata.name} of the cluster")
                for one in by_name
            )
        )

    def _tell(self, found: ClassesFound) -> None:
        """Log each problem once, as long as it lasts."""
        for problem in found.problems:
            if problem not in self._told:
                self._log.warning("device_class_refused", reason=problem)
        for other in found.passed_over:
            if other not in self._told:
                self._log.info("object_passed_over", what=other)
        self._told = frozenset((*found.problems, *found.passed_over))
